"""The motif language: what is read, what it stands for, and where errors point."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.errors import MotifSyntaxError
from pag_graph.motif.syntax import MOST_REPEATS, parse_motif


@pytest.mark.parametrize(
    ("text", "plain", "columns"),
    [
        ("(a)", "(a)", ("a",)),
        ("(u)-[e]->(v)", "(u)-[e]->(v)", ("u", "e", "v")),
        ("()-[e]->()", "()-[e]->()", ("e",)),
        ("(u)-[]->()", "(u)-[]->()", ("u",)),
        ("(u)-[e]->(u)", "(u)-[e]->(u)", ("u", "e")),
        ("(u);()-[]->(v);", "(u); ()-[]->(v)", ("u", "v")),
        (" ( u ) - [ e ] -> ( v ) ;\n!(v)-[]->(u)", "(u)-[e]->(v); !(v)-[]->(u)", ("u", "e", "v")),
        # GraphFrames puts the source first, also where it is written last.
        ("(v)<-[e]-(u)", "(u)-[e]->(v)", ("u", "e", "v")),
        ("(u)<-[e]->(v)", "(u)-[e1]->(v); (v)-[e2]->(u)", ("u", "e1", "v", "e2")),
        ("(u)<-[]->(v)", "(u)-[]->(v); (v)-[]->(u)", ("u", "v")),
        ("(u)-[e*1]->(v)", "(u)-[_e1]->(v)", ("u", "_e1", "v")),
        (
            "(u)-[e*3]->(v)",
            "(u)-[_e1]->(_uv1); (_uv1)-[_e2]->(_uv2); (_uv2)-[_e3]->(v)",
            ("u", "_e1", "_uv1", "_e2", "_uv2", "_e3", "v"),
        ),
        ("(u)<-[*2]-(v)", "(v)-[]->(_vu1); (_vu1)-[]->(u)", ("v", "_vu1", "u")),
        ("(u)-[*2]->()", "(u)-[]->(_u1); (_u1)-[]->()", ("u", "_u1")),
        ("()-[e*2]->()", "()-[_e1]->(__tmpv1); (__tmpv1)-[_e2]->()", ("_e1", "_e2")),
        ("(a)-[e]->(b)<-[f]-(c)", "(a)-[e]->(b); (c)-[f]->(b)", ("a", "e", "b", "c", "f")),
        ("(a)-[e]->()-[f]->(c)", "(a)-[e]->(__tmpv1); (__tmpv1)-[f]->(c)", ("a", "e", "f", "c")),
        # An inner vertex of a repeat can be spoken of by its name.
        ("(u)-[*2]->(v); (_uv1)-[]->(w)", "(u)-[]->(_uv1); (_uv1)-[]->(v); (_uv1)-[]->(w)", ("u", "_uv1", "v", "w")),
        # Vertices that only negated terms have are columns all the same.
        ("(u)-[]->(v); !(v)-[]->(w)", "(u)-[]->(v); !(v)-[]->(w)", ("u", "v", "w")),
    ],
)
def test_a_motif_stands_for_single_edges(text: str, plain: str, columns: tuple[str, ...]) -> None:
    motif = parse_motif(text)
    assert str(motif) == plain
    assert motif.columns == columns


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("", 0, "A vertex is expected"),
        ("a)-[e]->(b)", 0, "A vertex is expected"),
        ("(a)-[e->(b)", 6, "brackets end with"),
        ("(a-[e]->(b)", 2, "A vertex ends with"),
        ("(a)-e->(b)", 4, "An edge has brackets"),
        ("(a)->(b)", 3, "An edge is written"),
        ("(a)-[e]-(b)", 7, "needs a direction"),
        ("(a)-[e]=>(b)", 7, "'=' has no meaning"),
        ("(a)-[e]->(b) (c)-[]->(d)", 13, "separated by semicolons"),
        ("(a);;(b)", 4, "A vertex is expected"),
        ("()", 1, "A lone vertex needs a name"),
        ("(a)-[]->(b); ()", 14, "A lone vertex needs a name"),
        ("!(a)", 0, "Only edges can be negated"),
        ("!!(a)-[]->(b)", 1, "negated only once"),
        ("!(a)-[ab]->(b)", 4, "A negated edge cannot have a name"),
        ("(x)-[]->(a); !(a)-[]->(b)-[]->(c)", 13, "Only a single edge can be negated"),
        ("(x)-[]->(a); !(a)-[*2]->(b)", 13, "Only a single edge can be negated"),
        ("(x)-[]->(u); !(u)<-[]->(v)", 13, "Only a single edge can be negated"),
        ("()-[]->()", 2, "needs a name, its own or that of a vertex"),
        ("!()-[]->()", 3, "needs a name, its own or that of a vertex"),
        ("()-[*2]->()", 0, "names nothing"),
        ("(a)-[a]->(b)", 3, "both a vertex and an edge"),
        ("(a)-[]->(b); ()-[a]->()", 15, "is used already"),
        ("(a)-[e]->(b); ()-[e]->()", 16, "is used already"),
        ("(a)-[e]->(A)", 3, "differ only in case"),
        ("(u)-[*0]->(v)", 6, f"1 to {MOST_REPEATS}"),
        ("(u)-[*65]->(v)", 6, f"1 to {MOST_REPEATS}"),
        ("(u)-[*99999999999999999999]->(v)", 6, f"1 to {MOST_REPEATS}"),
        ("(u)-[*]->(v)", 6, "how often"),
        ("(u)-[*1..3]->(v)", 7, "one fixed length"),
        ("(a)-[*2]->(b); (a)-[*3]->(b)", 18, "both call an inner vertex '_ab1'"),
        ("(__tmpv1)-[]->(b)", 1, "are taken"),
        ("(a)-[é]->(b)", 5, "has no meaning"),
        ("(a)-[e]->(b);\n(b)-[f->(c)", 20, "brackets end with"),
    ],
)
def test_errors_point_at_the_character(text: str, at: int, problem: str) -> None:
    with pytest.raises(MotifSyntaxError, match=re.escape(problem)) as raised:
        parse_motif(text)
    assert raised.value.context == {"text": text, "position": at}
    line, caret = raised.value.message.splitlines()[1:3]
    assert caret.endswith("^")
    # The caret stands below the character, in the line that holds it.
    start = text.rfind("\n", 0, at) + 1
    assert caret.index("^") - 2 == at - start
    assert line.removeprefix("  ") == text[start:].partition("\n")[0]


def test_a_tab_does_not_move_the_caret() -> None:
    with pytest.raises(MotifSyntaxError) as raised:
        parse_motif("(a)\t-[e->(b)")
    assert raised.value.message.splitlines()[2] == "     \t   ^"


@given(st.text(alphabet="()[]-<>!;*. abe12_", max_size=30))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    motif = None
    with contextlib.suppress(MotifSyntaxError):
        motif = parse_motif(text)
    if motif is None:
        with pytest.raises(MotifSyntaxError) as raised:
            parse_motif(text)
        assert 0 <= raised.value.context["position"] <= len(text)
        return
    # What it stands for is a motif itself, unless it has a vertex that nobody named.
    if "__tmpv" not in str(motif):
        again = parse_motif(str(motif))
        assert str(again) == str(motif)
        assert again.columns == motif.columns
