"""Times and names as people read them, on terminals and in files.

A name of a trace can hold anything. `printable` is for terminals, pictures and pages: one line, and nothing that a
terminal obeys. `in_file` is for text that other programs read, `in_cell` for cells of CSV, which spreadsheets open.
"""

from __future__ import annotations

import re
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&])")

FARTHEST_NS = 2**62
"""Limit of clocks and offsets, in the year 2116: the sum of two is still an int64."""

NO_TEXT = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
"""What text files should not hold: control characters except tabs and line feeds; marks that reverse direction."""
FORMULA = r"^[=+\-@'\t\n\uff1d\uff0b\uff0d\uff20]"
"""Begins of cells that spreadsheets do not take for text, and the apostrophe by which they are told."""
NOT_SHOWN = "\ufffd"
"""Stands for a character that cannot be in a file."""

_TIME = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(ns|us|ms|s|m|h|d)?")
_MOST_DIGITS = 18
_S = 1_000_000_000
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": _S, "m": 60 * _S, "h": 3_600 * _S, "d": 86_400 * _S}
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([KMGT]i?B|B)?")
_SIZES = {"B": 1} | {
    f"{letter}{binary}B": (1024 if binary else 1000) ** place
    for place, letter in enumerate("KMGT", 1)
    for binary in ("", "i")
}
_NO_TEXT, _FORMULA = re.compile(f"{NO_TEXT}|[\ud800-\udfff]"), re.compile(FORMULA)


def duration(ns: float) -> str:
    """Return nanoseconds as people read them.

    Examples
    --------
    >>> duration(210_943), duration(999), duration(2_500_000_000)
    ('210.9 us', '999 ns', '2.500 s')
    """
    for limit, unit, digits in ((10**3, "ns", 0), (10**6, "us", 1), (10**9, "ms", 2)):
        if abs(ns) < limit:
            return f"{ns / (limit // 1000):.{digits}f} {unit}"
    return f"{ns / 10**9:.3f} s"


def nanoseconds(text: str) -> int:
    """Return a time such as ``10ms``, ``1.5s`` or ``7500`` (nanoseconds) as nanoseconds.

    Raises
    ------
    InvalidParameterError
        If it is none, or no whole number of nanoseconds.
    """
    value = _whole_number(_TIME.fullmatch(text.strip()), _UNITS, "ns")
    if value is None:
        message = f"{text!r} is not a time; write 10ms, 1.5s, 20us, 12h, or a number of nanoseconds."
        raise InvalidParameterError(message)
    return value


def count_of(text: str) -> int | None:
    """Return a count, written with at most 18 digits and nothing else; None if it is none.

    Examples
    --------
    >>> count_of("500"), count_of("5s"), count_of("9" * 19)
    (500, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def size_bytes(text: str) -> int:
    """Return a size such as ``1GiB``, ``500MB`` or ``65536`` (bytes) as bytes.

    Raises
    ------
    InvalidParameterError
        If it is none, or no whole number of bytes.

    Examples
    --------
    >>> size_bytes("1.5KiB"), size_bytes("2MB")
    (1536, 2000000)
    """
    value = _whole_number(_SIZE.fullmatch(text.strip()), _SIZES, "B")
    if value is None:
        message = f"{text!r} is not a size; write 1GiB, 500MB, 64KiB, or a number of bytes."
        raise InvalidParameterError(message)
    return value


def _whole_number(match: re.Match[str] | None, units: Mapping[str, int], smallest: str) -> int | None:
    """Return a number with its unit, `smallest` unless it has one, in that unit; None if it is none, or not whole."""
    value = Decimal(match[1]) * units[match[2] or smallest] if match else None
    return None if value is None or value != int(value) else int(value)


def printable(name: str) -> str:
    r"""Return a name of a trace on one line, with nothing in it that a terminal would obey.

    Examples
    --------
    >>> printable("Map\n\x1b[31m")
    'Map??[31m'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def short(value: Any, letters: int) -> Any:
    """Return a value as it is, but of a text that is longer than anybody reads its first letters.

    Parameters
    ----------
    value
        Anything.
    letters
        How many a text may have; an ellipsis that stands for the rest comes on top.

    Returns
    -------
    Any
        A text, or `value` itself. Not escaped.

    Examples
    --------
    >>> short("Exchange", 4), short("Map", 4), short(12345, 4)
    ('Exch…', 'Map', 12345)
    """
    return f"{value[:letters]}…" if isinstance(value, str) and len(value) > letters else value


def printable_lines(text: str) -> str:
    r"""Return a text with the lines and tabs that it has, and with nothing in them that a terminal would obey.

    Examples
    --------
    >>> printable_lines("two\nlines\x1b[2J")
    'two\nlines?[2J'
    """
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)


def in_file(text: str) -> str:
    r"""Return a text of a trace without what no text file should hold.

    Examples
    --------
    >>> in_file("Map\x00\u202eold\tnew")
    'Map\ufffd\ufffdold\tnew'
    """
    return _NO_TEXT.sub(NOT_SHOWN, text)


def in_cell(text: str) -> str:
    """Return a text of a trace as a cell of CSV, with an apostrophe in front where a spreadsheet would calculate.

    A text that begins with an apostrophe gets one as well, so that to take off the first one gives the text back.

    Examples
    --------
    >>> in_cell("=cmd()"), in_cell("-1"), in_cell("'quoted'"), in_cell("a=b")
    ("'=cmd()", "'-1", "''quoted'", 'a=b')
    """
    text = in_file(text)
    return f"'{text}" if _FORMULA.match(text) else text


def in_html(text: str) -> str:
    """Return a text of a trace for a page or a picture that shows it, and does nothing else.

    Examples
    --------
    >>> in_html('<script>"&"')
    '&lt;script&gt;&quot;&amp;&quot;'
    """
    return escape(printable(text))


def in_markdown(text: str) -> str:
    r"""Return a text of a trace as Markdown that shows it, and does nothing else.

    Examples
    --------
    >>> print(in_markdown("<b>a|b</b>"))
    \<b\>a\|b\</b\>
    """
    return _MARKDOWN.sub(r"\\\1", printable(text))
