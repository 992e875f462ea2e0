"""The critical path of what goes on: from the end of the last closed epoch to where the slowest log is."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.analyses.critical_path import critical_path
from pag_graph.builder.follow import Follower
from pag_graph.builder.sink import StoreSink, Written
from pag_graph.errors import StoreNotFoundError, TraceFormatError
from pag_graph.graph.run import Run
from pag_graph.graph.snapshot import Snapshot, read_snapshot
from pag_graph.store.delta import open_store
from pag_graph.store.meta import refuse_store
from pag_graph.store.tail import Tail

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.rules.graph_columns import GraphColumns


class _Kept(StoreSink):
    """Keeps edges in memory; nothing is written."""

    def __init__(self, store: Path) -> None:
        super().__init__(store)
        self.edges: list[pl.DataFrame] = []

    def write(self, graph: GraphColumns, *, provisional: bool, prints: bool = True) -> Written:
        """Keep the edges of a slice."""
        del provisional, prints
        if graph.edges.rows:
            self.edges.append(pl.DataFrame(pl.from_arrow(graph.edges.table(0, graph.edges.rows))))
        return Written({}, np.empty(0, np.uint64))


def path_so_far(source: Path, store: Path) -> CriticalPath | None:
    """Return the critical path from the end of the last closed epoch to the last instant that all logs have reached.

    Parameters
    ----------
    source
        The trace that is followed.
    store
        What was committed of it.

    Returns
    -------
    CriticalPath
        Exactly as long as that stretch; waits that nothing has ended yet are `unknown`. Nothing of it is final. None
        where no log goes beyond the last closed epoch. Costs the footers of the trace's files, and the rows that are
        not committed.

    Raises
    ------
    StoreNotFoundError
        If nothing is committed yet.
    TraceFormatError
        If there is no such trace.
    StoreConflictError
        If the store holds another run.
    """
    info = open_store(store)
    kept = _Kept(store)
    with closing(Follower.behind(info, kept)) as follower:
        tail = Tail(source, follower.done)
        tail.look(time.time_ns())
        if (log := tail.log()) is None:
            refuse_store(source)
            message = f"The trace at {source} has no events."
            raise TraceFormatError(message, f"Name the trace that is followed into {store}.", {"file": str(source)})
        follower.advance(tail.trace(), log, show=True)
    now = follower.ongoing
    if now is None:
        message = f"{store} does not say how far its run is."
        raise StoreNotFoundError(message, "Follow its trace: `pag follow TRACE STORE`.", {"path": str(store)})
    if now.epoch_ns <= 0:
        return None
    run = Run.of(info)
    window = run.stretch(now.as_of_ns - now.epoch_ns, now.as_of_ns)
    committed = read_snapshot(run, window).edges
    later = [edges.select(committed.columns).cast(committed.schema) for edges in kept.edges]
    return critical_path(Snapshot(run=run, window=window, edges=pl.concat([committed, *later])))
