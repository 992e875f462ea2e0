"""What a state of a store has that another one has not, read from the files that only one of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.store.fresh import rows_of_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.store.delta import StoreInfo


def differs(before: StoreInfo, state: StoreInfo, table: str) -> bool:
    """Say whether a table has other files in two states of a store.

    Parameters
    ----------
    before, state
        Two committed states of a store.
    table
        Name of the table.

    Returns
    -------
    bool
        Reads both lists of files, none of the files.

    Raises
    ------
    StoreError
        If a log is damaged.
    """
    return set(before.table(table).files) != set(state.table(table).files)


def rows_that_differ(before: StoreInfo | None, state: StoreInfo, table: str, columns: Sequence[str]) -> pl.DataFrame:
    """Return the rows in files that only one of two states has.

    Parameters
    ----------
    before
        A state of a store, if there is one.
    state
        Another one.
    table
        Name of the table.
    columns
        Columns of integers.

    Returns
    -------
    DataFrame
        The columns of rows that came or went; of a file that was written anew also those that are the same.

    Raises
    ------
    StoreError
        If a file is missing or damaged.
    """
    files_now = set(state.table(table).files)
    files_before = set() if before is None else set(before.table(table).files)
    parts = [_rows_of(state, sorted(files_now - files_before), table, columns)]
    if before is not None:
        parts.append(_rows_of(before, sorted(files_before - files_now), table, columns))
    return pl.concat(parts)


def _rows_of(info: StoreInfo, paths: Sequence[str], table: str, columns: Sequence[str]) -> pl.DataFrame:
    if not paths:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))
    files = info.table(table).files
    rows = rows_of_files(info.path.absolute() / table, [files[path] for path in paths], info.fresh)
    return rows.select(columns).collect()
