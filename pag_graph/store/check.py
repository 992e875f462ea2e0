"""Whether all of a store is as it was committed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pag_graph.errors import StoreError
from pag_graph.model.live_tables import ALL_TABLES
from pag_graph.store.parts import check_parts, check_rows
from pag_graph.store.state_files import read_sends, read_state_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pag_graph.store.delta import StoreInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """What reading all of a store shows."""

    files: int
    """Files of tables that were read."""
    size_bytes: int
    """Their sizes, summed."""
    unchecked: int
    """Files of releases that kept no checksums; only their sizes and numbers of rows can be compared."""
    damaged: Sequence[StoreError]
    """One per file or log that is not as it was committed; names it."""


def keeps_checksums(info: StoreInfo) -> bool:
    """Tell whether all of a store can be checked: releases before this one kept no checksums.

    Parameters
    ----------
    info
        A committed state.

    Returns
    -------
    bool
        True if every list of files and every file has a checksum. Reads the logs of all tables.

    Raises
    ------
    StoreError
        If a log is damaged.
    """
    return info.digests is not None and all(
        part.checksum is not None for name in ALL_TABLES for part in info.table(name).files.values()
    )


def check_store(info: StoreInfo) -> StoreCheck:
    """Read every file of a committed state, and compare it with what was committed.

    Parameters
    ----------
    info
        From `open_store`.

    Returns
    -------
    StoreCheck
        Takes as long as reading the store once.
    """
    parts = 0
    size = unchecked = 0
    damaged_files: list[StoreError] = []
    if info.state is not None:
        state_readers: list[Callable[[], Any]] = [partial(read_state_file, info.path, info.state)]
        state_readers += [partial(read_sends, info.path, name) for name in info.state.get("sends", ())]
        for read in state_readers:
            try:
                read()
            except StoreError as error:
                damaged_files.append(error)
    for name in ALL_TABLES:
        try:
            files = info.parts(name)
        except StoreError as error:
            damaged_files.append(error)
            continue
        for part in files:
            parts, size, unchecked = parts + 1, size + part.size_bytes, unchecked + (part.checksum is None)
            try:
                check_parts(info.path / name, [part], reread=True)
                check_rows(info.path / name, part)
            except StoreError as error:
                damaged_files.append(error)
    return StoreCheck(files=parts, size_bytes=size, unchecked=unchecked, damaged=damaged_files)
