"""A state of a store before it is committed, for those who have to look at it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.model.tables import STORE_TABLES
from pag_graph.store.contents import files_of, kept_of
from pag_graph.store.delta import StoreInfo
from pag_graph.store.delta_log import Base, TableState, latest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pag_graph.store.parts import PartFile


def staged(
    path: Path,
    parts: Mapping[str, Sequence[PartFile]],
    *,
    run: Mapping[str, Any],
    closed_epochs: int,
    dropped: Mapping[str, int],
    events: int,
    previous: StoreInfo | None,
    keep: bool = False,
    unchanged: Collection[str] = (),
) -> StoreInfo:
    """Return the state that `commit` would make of the same arguments, so that it can be looked at before.

    Parameters
    ----------
    path, parts, run, closed_epochs, dropped, events, previous, keep, unchanged
        As for `commit`.

    Returns
    -------
    StoreInfo
        Nothing is written. Its version of `epochs` is the one that the commit will have; it has no others.
    """
    tables = {}
    for name in STORE_TABLES:
        if previous is not None and name in unchanged:
            tables[name] = previous.table(name)
            continue
        files = files_of(name, parts.get(name, ()), kept_of(name, previous if keep else None, None))
        tables[name] = TableState(version=-1, base=Base(version=0), files=files)
    return StoreInfo(
        path=path,
        run=run,
        versions={"epochs": latest(path / "epochs") + 1},
        closed_epochs=closed_epochs,
        dropped=dropped,
        events=events,
        commit_id="",
        digests=None,
        _tables=tables,
    )
