"""Checksums over lists of files: which files a table holds, in a number to which an append adds."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pag_graph.store.parts import PartFile

DIGEST_SIGN = "+"
"""How a `digest` begins that is a sum."""
_SUMS = 2**128


def digest(
    files: Iterable[PartFile], *, digest_of_others: str = f"{DIGEST_SIGN}0", removed: Iterable[PartFile] = ()
) -> str:
    """Return a checksum over the names, sizes and statistics of files, in whatever order.

    Parameters
    ----------
    files
        The files.
    digest_of_others
        The checksum of other files that are there as well: sums of numbers of 128 bits add up.
    removed
        Files among those others that are not there.

    Returns
    -------
    str
        A sign that it is a sum, and its hexadecimal digits.
    """
    total = int(digest_of_others.removeprefix(DIGEST_SIGN), 16) + sum(map(_number, files)) - sum(map(_number, removed))
    return f"{DIGEST_SIGN}{total % _SUMS:032x}"


def is_digest(recorded: str | None, files: Iterable[PartFile]) -> bool:
    """Say whether a checksum that a commit recorded is that of some files.

    Parameters
    ----------
    recorded
        As from `digest`, or as earlier releases wrote it; None if nothing was recorded, which is none of any.
    files
        All files of the table.

    Returns
    -------
    bool
        O(files).
    """
    if recorded is not None and not recorded.startswith(DIGEST_SIGN):
        # As builds wrote it that could not add to it.
        return recorded == hashlib.blake2b("".join(sorted(map(_line, files))).encode(), digest_size=16).hexdigest()
    return recorded == digest(files)


def _number(part: PartFile) -> int:
    return int.from_bytes(hashlib.blake2b(_line(part).encode(), digest_size=16).digest(), "big")


def _line(part: PartFile) -> str:
    return f"{part.path}\t{part.size_bytes}\t{part.statistics}\n"
