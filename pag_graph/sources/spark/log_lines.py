"""Lines of event logs; those that no event is as long as are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["LONGEST_LINE", "Lines"]

LONGEST_LINE = 64 << 20
"""Bytes of a line that is read."""


class Lines:
    """Cuts the content of a log's files into lines, and counts."""

    def __init__(self) -> None:
        self.read_bytes = 0
        """Bytes of content."""
        self.too_long = 0
        """Lines that were left out."""

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the lines of a file that comes in pieces, without their ends.

        Empty lines are passed over, and so are lines above `LONGEST_LINE`, which are counted in `too_long`: no more
        than one such line is in memory.
        """
        open_line, too_long = b"", False
        for chunk in pieces:
            self.read_bytes += len(chunk)
            lines = chunk.split(b"\n")
            if len(lines) == 1:
                if len(open_line) + len(chunk) > LONGEST_LINE:
                    too_long, open_line = True, b""
                elif not too_long:
                    open_line += chunk
                continue
            line = open_line + lines[0]
            if too_long:
                self.too_long += 1
            elif line:
                yield line
            too_long = False
            yield from filter(None, lines[1:-1])
            open_line = lines[-1]
        if too_long:
            self.too_long += 1
        elif open_line:
            yield open_line
