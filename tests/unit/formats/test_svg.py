"""Every shape is well-formed, whatever words it has; numbers are short."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from pag_graph.formats import svg
from pag_graph.model.units import printable


@given(st.text(max_size=40), st.floats(-1e6, 1e6))
def test_words_are_text_wherever_they_stand(words: str, x: float) -> None:
    shapes = [
        svg.rect(x, x, 1, 1, "#fff", title=words),
        svg.circle(x, x, 1, words),
        svg.line((x, x), (1, 1), words, class_=words),
        svg.group(svg.text(x, x, words), title=words),
        svg.polyline([(x, x)], words),
        svg.path([("M", (x, x)), ("h", (1,))], words),
        *svg.legend([(words, words)] * 3, 0, 0, 100)[0],
        *svg.marks([(x, words)], 20, top=0),
    ]
    root = ET.fromstring(svg.document(shapes, 100, 50))
    shown = " ".join(printable(words).split())
    texts = ["".join(each.itertext()) for each in root.iter() if each.tag.endswith(("title", "text"))]
    assert texts
    assert all(" ".join(each.split()) == shown for each in texts)


def test_numbers_have_two_decimals_at_most() -> None:
    assert [svg.number(each) for each in (0, -0.0, -0.004, 1.0, 1 / 3, 1e6, 2.50)] == [
        "0",
        "0",
        "0",
        "1",
        "0.33",
        "1000000",
        "2.5",
    ]


def test_a_legend_begins_a_line_where_the_last_one_is_full() -> None:
    shapes, height = svg.legend([("abcdef", "#000")] * 4, 0, 10, 150)
    assert height == 2 * svg.LINE
    assert len(shapes) == 8
    assert svg.legend([], 0, 10, 150) == ([], 0)
