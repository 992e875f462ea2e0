"""One description of a trace out of what each of its processes knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEYS = {"operators": "operator", "channels": "channel", "workers": "worker"}
"""Per table: what tells its rows apart."""
_UNIONS = ("missing_progress", "conflicts")


@dataclass(frozen=True, slots=True)
class Description:
    """What one process knows of a trace besides its events."""

    meta: Mapping[str, Any]
    """Content of its ``meta.json``."""
    tables: Mapping[str, pa.Table]
    """Its tables of operators, channels and workers."""
    gapless: bool
    """Whether it numbers events without gaps."""
    findings: bytes | None = None
    """The file of findings, if it has one."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process of a trace."""

    process: int
    """Its number."""
    processes: int
    """How many there are."""
    workers: tuple[int, ...]
    """Those that are its own."""
    known: Description | None = None
    """None before it came."""


def merged_tables(parts: Sequence[tuple[Part, Description]]) -> dict[str, pa.Table]:
    """Return the tables of operators, channels and workers that processes make together.

    Parameters
    ----------
    parts
        At least one; the first of them that names an operator or a channel is believed. Of workers a process knows its
        own best.

    Returns
    -------
    dict
        Per name, rows in the order of their keys; those of a single process as they are.

    Notes
    -----
    O(rows log rows).
    """
    if len(parts) == 1:
        return dict(parts[0][1].tables)
    tables = {}
    for name, key in _KEYS.items():
        tables_of_parts = [description.tables[name] for _, description in parts]
        if name == "workers":
            own_rows = [np.isin(description.tables[name][key].to_numpy(), part.workers) for part, description in parts]
            tables_of_parts = [
                table.filter(mask) for table, mask in zip(tables_of_parts, own_rows, strict=True)
            ] + tables_of_parts
        rows = pa.concat_tables(tables_of_parts)
        # The first of equal keys is kept.
        _, first = np.unique(rows[key].to_numpy(), return_index=True)
        tables[name] = rows.take(first)
    return tables


def merged_meta(
    parts: Sequence[tuple[Part, Description]], *, workers: int, complete: bool, lost: Sequence[Sequence[int]]
) -> bytes:
    """Return the content of ``meta.json`` that processes make together.

    Parameters
    ----------
    parts
        At least one; what cannot be joined is taken from the first.
    workers
        Number of workers of the trace.
    complete
        Whether all of it came.
    lost
        Worker, first and last number of stretches of events that a program could not keep.

    Returns
    -------
    bytes
        JSON. Counts of dropped rows, and times in which programs had to wait, are summed; other entries are those of
        the first.
    """
    metas = [description.meta for _, description in parts]
    content = dict(metas[0]) | {"workers": workers, "complete": complete}
    dropped: dict[str, int] = {}
    for meta in metas:
        for reason, count in meta["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + count
    content["dropped"] = dropped
    for name in _UNIONS:
        if any(name in meta for meta in metas):
            content[name] = _union([entry for meta in metas for entry in meta.get(name, ())])
    if any("stalled_ns" in meta for meta in metas):
        content["stalled_ns"] = sum(meta.get("stalled_ns", 0) for meta in metas)
    content.pop("lost", None)
    if lost:
        content["lost"] = [list(stretch) for stretch in lost]
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _union(entries: Sequence[Any]) -> list[Any]:
    return list({json.dumps(entry, sort_keys=True): entry for entry in entries}.values())
