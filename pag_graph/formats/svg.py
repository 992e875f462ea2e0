"""Shapes of SVG as text, and what pictures are put together from: no drawing library, no script, no font is needed.

Whatever is written passes through `element`: texts are escaped, and numbers have two decimals at most, so that the same
rows give the same bytes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from pag_graph.model.units import in_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Value: TypeAlias = "str | float | None"

LETTER = 7
"""About how wide a letter is, in pixels."""
LINE = 16
"""Height of a line of a legend."""
INK, FAINT, GRID = "#222222", "#666666", "#dddddd"
_SAMPLE, _GAP = 10, 4
PALETTE = (
    "#1d6fa5",
    "#e07a1f",
    "#2a9d8f",
    "#c1436d",
    "#7a5ea8",
    "#8a6d3b",
    "#5b8c2a",
    "#4f6d7a",
    "#c9a227",
    "#a23b3b",
)
"""Colours of series that are no activities; they differ in lightness as well."""


def element(name: str, /, *inside: str, **attributes: Value) -> str:
    """Write an element.

    Parameters
    ----------
    name
        Such as ``rect``.
    inside
        Elements in it.
    attributes
        Underscores stand for hyphens, and one at the end for nothing; those that are None are left out. ``title`` is
        its tooltip.

    Returns
    -------
    str
        One line.

    Examples
    --------
    >>> element("rect", x=1 / 3, width=20.0, fill="#fff", title="a < b")
    '<rect x="0.33" width="20" fill="#fff"><title>a &lt; b</title></rect>'
    """
    title = attributes.pop("title", None)
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{in_html(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    content = (f"<title>{in_html(str(title))}</title>" if title else "") + "".join(inside)
    return f"<{name}{attribute_text}>{content}</{name}>" if content else f"<{name}{attribute_text}/>"


def number(value: float) -> str:
    """Write a number with two decimals at most.

    Examples
    --------
    >>> number(12.5), number(3), number(-0.001)
    ('12.5', '3', '0')
    """
    rounded = round(value, 2) or 0
    return str(int(rounded)) if rounded == int(rounded) else str(rounded)


def document(
    shapes: Iterable[str],
    width: float,
    height: float,
    *,
    title: str = "",
    style: str = "",
    family: str = "sans-serif",
) -> str:
    """Return a whole picture on white ground, a line per shape.

    Parameters
    ----------
    shapes
        Elements, as from the functions here; later ones lie on top.
    width, height
        In pixels; a unit of the shapes' numbers is a pixel.
    title
        Tooltip of the whole picture; is escaped.
    style
        Rules of CSS for its shapes. They are written as they are, so nothing of a trace may be in them.
    family
        Fonts of all texts, whose size is 12 pixels unless they say otherwise.

    Returns
    -------
    str
        A file of SVG, which ends with a line feed.
    """
    opening = element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
        font_family=family,
        font_size=12,
    )
    head = [f"<title>{in_html(title)}</title>"] if title else []
    head += [f"<style>{style}</style>"] if style else []
    return "\n".join([f"{opening[:-2]}>", *head, rect(0, 0, width, height, "#ffffff"), *shapes, "</svg>", ""])


def group(*shapes: str, title: str = "") -> str:
    """Return shapes that have a tooltip together."""
    return element("g", *shapes, title=title)


def rect(x: float, y: float, width: float, height: float, fill: str, **look: Value) -> str:
    """Return a rectangle, filled.

    Parameters
    ----------
    x, y
        Its corner at the top left; y grows downward.
    width, height
        Its size, from 0.
    fill
        Colour, such as ``#1d6fa5``.
    look
        More attributes, as for `element`.

    Returns
    -------
    str
        The element.
    """
    return element("rect", x=x, y=y, width=width, height=height, fill=fill, **look)


def circle(x: float, y: float, radius: float, fill: str, **look: Value) -> str:
    """Return a circle, filled.

    Parameters
    ----------
    x, y
        Its middle; y grows downward.
    radius
        From 0.
    fill
        Colour.
    look
        More attributes, as for `element`.

    Returns
    -------
    str
        The element.
    """
    return element("circle", cx=x, cy=y, r=radius, fill=fill, **look)


def line(start: tuple[float, float], end: tuple[float, float], stroke: str, **look: Value) -> str:
    """Return a straight line.

    Parameters
    ----------
    start, end
        x and y of each.
    stroke
        Colour.
    look
        More attributes, as for `element`, such as ``stroke_width``.

    Returns
    -------
    str
        The element.
    """
    (x1, y1), (x2, y2) = start, end
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **look)


def polyline(points: Iterable[tuple[float, float]], stroke: str, **look: Value) -> str:
    """Return a line through points, in their order.

    Parameters
    ----------
    points
        x and y of each; without any, nothing is seen.
    stroke
        Colour; what the line encloses is not filled.
    look
        More attributes, as for `element`.

    Returns
    -------
    str
        The element.
    """
    through = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return element("polyline", points=through, fill="none", stroke=stroke, **look)


def path(steps: Iterable[tuple[str, Sequence[float]]], stroke: str, **look: Value) -> str:
    """Return a line made of steps.

    Parameters
    ----------
    steps
        A letter of SVG's paths and its numbers each: ``M`` goes to a point and ``L`` draws to it, capitals by absolute
        numbers and small letters by those from where the line is.
    stroke
        Colour; what the line encloses is not filled.
    look
        More attributes, as for `element`.

    Returns
    -------
    str
        The element.

    Examples
    --------
    >>> path([("M", (0, 0)), ("L", (8, 4))], "#222222")
    '<path d="M0 0 L8 4" fill="none" stroke="#222222"/>'
    """
    drawn = " ".join(letter + " ".join(map(number, numbers)) for letter, numbers in steps)
    return element("path", d=drawn, fill="none", stroke=stroke, **look)


def arrow_head(name: str, fill: str) -> str:
    """Return a definition: lines with ``marker_end="url(#name)"`` end in an arrow.

    Parameters
    ----------
    name
        Different from the other names of the picture, and of a page that shows it.
    fill
        Colour; it does not follow that of the line.

    Returns
    -------
    str
        An element ``defs``. Alone it shows nothing.
    """
    tip = element("path", d="M0,0 L8,4 L0,8 z", fill=fill)
    size = {"refX": 8, "refY": 4, "markerWidth": 8, "markerHeight": 8}
    return element("defs", element("marker", tip, id=name, viewBox="0 0 8 8", **size, orient="auto"))


def text(x: float, y: float, words: str, **look: Value) -> str:
    """Return a text.

    Parameters
    ----------
    x
        Where it begins; where it ends, or has its middle, with ``text_anchor="end"`` or ``"middle"``.
    y
        The line that its letters stand on.
    words
        One line. They are escaped, and may come from a trace.
    look
        More attributes, as for `element`.

    Returns
    -------
    str
        The element.
    """
    return element("text", in_html(words), x=x, y=y, **look)


def legend(entries: Iterable[tuple[str, str]], x: float, y: float, right: float) -> tuple[list[str], int]:
    """Draw what colours mean, in as many lines as it takes.

    Parameters
    ----------
    entries
        Words and colours.
    x, y
        Where the first line begins.
    right
        Where lines end, if they can.

    Returns
    -------
    shapes : list of str
        A box and a text per entry.
    height : int
        Of all lines; 0 without entries.
    """
    shapes: list[str] = []
    place, base = x, y
    for words, colour in entries:
        wide = _SAMPLE + _GAP + LETTER * len(words)
        if place > x and place + wide > right:
            place, base = x, base + LINE
        shapes += [rect(place, base - 9, _SAMPLE, _SAMPLE, colour), text(place + _SAMPLE + _GAP, base, words)]
        place += wide + LINE
    return shapes, round(base - y) + LINE if shapes else 0


def marks(places: Iterable[tuple[float, str]], y: float, *, top: float | None = None, **look: Value) -> list[str]:
    """Draw the marks of a horizontal axis.

    Parameters
    ----------
    places
        Where each is, and its words.
    y
        The line of the words.
    top
        Where a grid's lines begin, which end a line above the words; no grid where absent.
    look
        Of the words.

    Returns
    -------
    list of str
        The shapes.
    """
    shapes = []
    for x, words in places:
        if top is not None:
            shapes.append(line((x, top), (x, y - LINE + 2), GRID))
        shapes.append(text(x, y, words, text_anchor="middle", fill=FAINT, **look))
    return shapes


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two others, for the marks of an axis.

    Parameters
    ----------
    low, high
        Ends of the axis. A multiple of the step that is one of them is a mark.
    most
        Most steps that the axis may have; that steps are round may leave it less than half of them.

    Returns
    -------
    list of float
        Ascending multiples of one, two or five times a power of ten, `most` + 1 at most. Just `low` where the axis has
        no length.

    Examples
    --------
    >>> ticks(0, 100), ticks(3, 11), ticks(7, 7)
    ([0, 20, 40, 60, 80, 100], [4, 6, 8, 10], [7])
    """
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def shortened(words: str, letters: int) -> str:
    """Return words, cut where they have more letters than fit.

    Parameters
    ----------
    words
        One line.
    letters
        How many fit, at least 3: the dots that stand for the rest count.

    Returns
    -------
    str
        Not escaped; `text` does that.

    Examples
    --------
    >>> shortened("Exchange", 6), shortened("Map", 6)
    ('Exc...', 'Map')
    """
    return words if len(words) <= letters else words[: letters - 3] + "..."
