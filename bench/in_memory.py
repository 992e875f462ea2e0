"""Builds that keep nothing: what it costs to make a graph, without writing it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np

from pag_graph.builder.build import construct
from pag_graph.builder.engine import silent
from pag_graph.builder.plan import DEFAULT_SLICE_EVENTS, plan_run
from pag_graph.builder.saved import Saved
from pag_graph.builder.sink import Written
from pag_graph.engines.local import LocalEngine
from pag_graph.runtime import memory
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.model.enums import RuleSet
    from pag_graph.rules.graph_columns import GraphColumns
    from pag_graph.store.parts import PartFile


class Dropped:
    """A sink that drops rows, and keeps sends that nobody reads in memory."""

    def __init__(self) -> None:
        self._sends: dict[str, pa.Table] = {}

    def write_sends(self, sends: pa.Table) -> str:
        """Take sends that nobody has read for long."""
        self._sends[name := str(len(self._sends))] = sends
        return name

    def read_sends(self, name: str) -> pa.Table:
        """Return them."""
        return self._sends[name]

    def write(self, _graph: GraphColumns, *, provisional: bool, prints: bool = True) -> Written:
        """Take the rows of a slice."""
        del provisional, prints
        return Written({"vertices": [], "edges": []}, np.empty(0, np.uint64))

    def discard(self, parts: Mapping[str, Sequence[PartFile]]) -> None:
        """Take back what was written."""


@memory.kept()
def graph_in_memory(trace: Path, staging: Path, rules: RuleSet, slice_events: int | None = None) -> pa.Table:
    """Build the graph of a trace slice by slice in this process, and keep only what its epochs tell.

    Parameters
    ----------
    trace
        A directory.
    staging
        A directory that does not exist, and does not afterwards.
    rules, slice_events
        As of `pag_graph.api.build`.

    Returns
    -------
    pa.Table
        Rows of `PAG_EPOCHS`.
    """
    import pyarrow as pa

    plan = plan_run(Trace.open(trace), rules, slice_events=slice_events or DEFAULT_SLICE_EVENTS)
    try:
        built = construct(plan, Dropped(), Saved(), staging, LocalEngine(), None, silent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return pa.concat_tables([built.epochs, built.open_epochs])
