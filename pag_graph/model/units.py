"""Times and names as people read them."""

from __future__ import annotations

import re

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#])")


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


def printable(name: str) -> str:
    r"""Return a name of a trace on one line, with nothing in it that a terminal would obey.

    Examples
    --------
    >>> printable("Map\n\x1b[31m")
    'Map??[31m'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def in_markdown(text: str) -> str:
    r"""Return a text of a trace as Markdown that shows it, and does nothing else.

    Examples
    --------
    >>> print(in_markdown("<b>a|b</b>"))
    \<b\>a\|b\</b\>
    """
    return _MARKDOWN.sub(r"\\\1", printable(text))
