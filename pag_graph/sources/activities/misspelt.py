"""Names of workers that look like slips of the pen: each would be a worker that never was."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from pag_graph.model.enums import Severity
from pag_graph.sources.activities.table_columns import places
from pag_graph.store.findings import findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from pag_graph.sources.activities.table_columns import Source

OFTEN = 3
"""Rows that name a worker which others may be mistaken for."""
_SHORTEST = 4
"""Characters of names in which a slip of a letter is told from a choice."""
_LONGEST = 64
"""Characters of a name up to which it is compared with others."""
_MOST = 1_000
"""Findings of one kind that are told one by one, at most."""


class _Named(NamedTuple):
    """Where a worker is named."""

    rows: int
    table: str
    first: int
    """Row of the table that names it first."""


def doubtful_workers(tables: Mapping[str, Source], numbers: Mapping[str, int]) -> list[pa.Table]:
    """Find workers that exist only because somebody named them.

    Parameters
    ----------
    tables
        The tables ``activities``, ``messages`` and ``workers``.
    numbers
        Numbers of all workers that they name.

    Returns
    -------
    list of pa.Table
        Rows of `PAG_FINDINGS`; `file` is the first row that names the worker. A worker has at most one:

        ``worker_not_listed``
            There is a table of workers, and it is not in it.
        ``worker_without_activity``
            Messages name it, and no activity does.
        ``worker_misspelt``
            Its name is another worker's but for capitals, spaces and signs; or one row names it, and its name is one
            slip (a character more, less or another, or two that change places) away from one that `OFTEN` rows name.
            Where the slip is in a digit, only if it is the single worker that one row names: numbers differ by a digit
            anyway.

    Notes
    -----
    Linear in the rows, and in the characters of all names.
    """
    named = _workers_by_name(tables)
    listed = set(tables["workers"].frame["worker"].to_list())
    active = set(tables["activities"].frame["worker"].unique().to_list())
    doubts: dict[str, dict[str, str]] = {"worker_not_listed": {}, "worker_without_activity": {}, "worker_misspelt": {}}
    misspelt = _misspelt(named, listed)
    for name in named:
        question = f"; is it {misspelt[name]!r}?" if name in misspelt else ""
        if listed and name not in listed:
            doubts["worker_not_listed"][name] = f"the table of workers lacks {name!r}{question}"
        elif name not in active and name not in listed:
            doubts["worker_without_activity"][name] = f"no activity is of {name!r}{question}"
        elif question:
            doubts["worker_misspelt"][name] = f"{name!r} has a name like another worker's{question}"
    return [table for kind, names in doubts.items() for table in _findings_of(kind, names, named, tables, numbers)]


def _findings_of(
    kind: str,
    names: Mapping[str, str],
    named: Mapping[str, _Named],
    tables: Mapping[str, Source],
    numbers: Mapping[str, int],
) -> Iterator[pa.Table]:
    shown = list(names)[:_MOST]
    place: dict[str, str] = {}
    for table in ("activities", "messages"):
        rows_by_name = {name: named[name].first for name in shown if named[name].table == table}
        place_by_row = places(tables[table], list(rows_by_name.values()))
        place |= {name: place_by_row[index] for name, index in rows_by_name.items()}
    more_text = f"; so are {len(names) - len(shown)} more workers" if len(names) > len(shown) else ""
    for name in shown:
        yield findings(
            kind,
            Severity.WARNING,
            f"kept as a worker of its own: {names[name]}{more_text if name == shown[-1] else ''}",
            worker=numbers[name],
            file=place[name],
            observed=named[name].rows,
            unit="rows",
        )


def _workers_by_name(tables: Mapping[str, Source]) -> dict[str, _Named]:
    """Return the workers that activities or messages name, in the order of the rows."""
    named: dict[str, _Named] = {}
    for table, column in (("activities", "worker"), ("messages", "from"), ("messages", "to")):
        rows = (
            tables[table]
            .frame.lazy()
            .select(name=column)
            .with_row_index("index")
            .group_by("name", maintain_order=True)
            .agg(pl.len(), pl.col("index").first())
            .collect()
        )
        for name, count, index in rows.iter_rows():
            worker = named.get(name)
            if worker is None:
                named[name] = _Named(count, table, index)
            else:
                first = min(index, worker.first) if worker.table == table else worker.first
                named[name] = _Named(worker.rows + count, worker.table, first)
    return named


def _misspelt(named: Mapping[str, _Named], listed: set[str]) -> dict[str, str]:
    """Return the workers whose name is probably another one's, and that one."""
    meant_name: dict[str, str] = {}
    first_by_plain: dict[str, str] = {}
    for name in sorted(named, key=lambda name: -named[name].rows):
        plain = "".join(character for character in name.casefold() if character.isalnum())
        # A name of signs alone is like no other.
        if plain and first_by_plain.setdefault(plain, name) != name and name not in listed:
            meant_name[name] = first_by_plain[plain]
    once = [name for name, worker in named.items() if worker.rows == 1 and name not in listed and len(name) <= _LONGEST]
    if not once:
        return meant_name
    once_by_shortening: dict[str, list[str]] = {}
    for name in once:
        for shortening in _shortenings(name):
            once_by_shortening.setdefault(shortening, []).append(name)
    for frequent, worker in named.items():
        if worker.rows < OFTEN or len(frequent) > _LONGEST:
            continue
        for name in {
            name for shortening in _shortenings(frequent) for name in once_by_shortening.get(shortening, ())
        } - meant_name.keys():
            if not _one_slip(name, frequent):
                continue
            if _letters(name) == _letters(frequent):
                is_slip = len(once) == 1 and max(len(name), len(frequent)) > 1
            else:
                # A name of a few letters is any other one but for a slip.
                is_slip = min(len(name), len(frequent)) >= _SHORTEST
            if is_slip:
                meant_name[name] = frequent
    return meant_name


def _shortenings(name: str) -> Iterator[str]:
    """Return a name, and what is left of it without any one of its characters: one slip away have one in common."""
    yield name
    for index in range(len(name)):
        yield name[:index] + name[index + 1 :]


def _letters(name: str) -> str:
    return "".join(character for character in name if not character.isdigit())


def _one_slip(name: str, other: str) -> bool:
    """Say whether one name is the other with a character more, less or another, or with two that changed places."""
    short, long = sorted((name, other), key=len)
    if name == other:
        return False
    if len(short) != len(long):
        return any(long[:index] + long[index + 1 :] == short for index in range(len(long)))
    first = next(index for index in range(len(short)) if short[index] != long[index])
    if short[first + 1 :] == long[first + 1 :]:
        return True
    return short[first : first + 2] == long[first : first + 2][::-1] and short[first + 2 :] == long[first + 2 :]
