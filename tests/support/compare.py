"""What a build makes of a small trace, in the shape of the reference, and how the two differ."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.builder.build import construct
from pag_graph.builder.engine import silent
from pag_graph.builder.finish import finish
from pag_graph.builder.plan import DEFAULT_SLICE_EVENTS, plan_run
from pag_graph.builder.saved import Saved
from pag_graph.builder.sink import StoreSink
from pag_graph.builder.two_passes import build_in_two_passes
from pag_graph.engines.local import LocalEngine
from pag_graph.model.tables import PAG_TRAFFIC
from pag_graph.rules.rows import RuleParameters
from pag_graph.store.contents import SLICED
from pag_graph.store.delta import open_store
from pag_graph.store.trace import Trace
from pag_graph.store.traffic import summed
from pag_graph.testing.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.testing.reference import Row
    from pag_graph.testing.traces import SmallTrace

_MOST = 3
"""Differences to show per table: the first ones tell the story."""


WAYS: tuple[dict[str, int], ...] = ({}, {"passes": 2}, {"tasks": 1}, {"tasks": 2}, {"tasks": 5})
"""Ways to build that must not differ: arguments of `assembled`."""


class Apart(LocalEngine):
    """Runs tasks here that find nothing in memory, as those of Spark.

    Parameters
    ----------
    tasks
        As if so many ran at the same time.
    """

    in_process = False

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks


def assembled(
    trace: SmallTrace,
    folder: Path,
    *,
    slice_events: int = DEFAULT_SLICE_EVENTS,
    shuffle: int | None = None,
    passes: int = 1,
    tasks: int | None = None,
    busy_below_ns: int = 5_000,
) -> Reference:
    """Build the graph of a trace by all steps of a build but the commit, which costs more than all others.

    Parameters
    ----------
    trace
        The trace.
    folder
        An empty directory to work in; it is emptied again.
    slice_events, shuffle
        As of `pag_graph.api.build` and `SmallTrace.write`.
    passes
        1 to read each slice once where that can be, 2 to read it twice.
    tasks
        How many stretches there are where each slice is read once; they know nothing of each other.
    busy_below_ns
        As of the rules' parameters.

    Returns
    -------
    Reference
        Rows in no order.
    """
    trace_folder = trace.write(folder / "trace", shuffle=shuffle)
    parameters = RuleParameters(busy_below_ns=busy_below_ns)
    plan = plan_run(Trace.open(trace_folder), trace.rules, parameters, slice_events=slice_events)
    engine = LocalEngine() if tasks is None else Apart(tasks)
    sink = StoreSink(folder / "store")
    if passes == 2:
        built = finish(plan, Saved(), None, build_in_two_passes(plan, sink, folder / "staging", Apart(1), silent))
    else:
        built = construct(plan, sink, Saved(), folder / "staging", engine, None, silent)
    tables = {name: _read(folder / "store" / name, [part.path for part in built.parts[name]]) for name in SLICED}
    all_findings = pa.concat_tables([built.findings, built.open_findings])
    written_files = {path.name for name in tables for path in (folder / "store" / name).glob("*.parquet")}
    listed_files = {part.path for parts in built.parts.values() for part in parts}
    assert written_files == listed_files
    for directory in folder.iterdir():
        shutil.rmtree(directory)
    return Reference(
        vertices=tables["vertices"],
        edges=tables["edges"],
        traffic=summed(pl.LazyFrame(tables["traffic"], pl.Schema(PAG_TRAFFIC))).collect().to_dicts(),
        epochs=pa.concat_tables([built.epochs, built.open_epochs]).to_pylist(),
        findings=_counted(all_findings),
        dropped=Counter(built.dropped),
    )


def _read(directory: Path, names: list[str]) -> list[Row]:
    return [row for name in names for row in pq.ParquetFile(directory / name).read().to_pylist()]


def committed(store: Path) -> Reference:
    """Read a store back.

    Parameters
    ----------
    store
        Directory.

    Returns
    -------
    Reference
        Rows in no order.
    """
    info = open_store(store)
    tables = {name: info.scan(name).collect().to_arrow() for name in (*SLICED, "epochs", "findings")}
    return Reference(
        vertices=tables["vertices"].to_pylist(),
        edges=tables["edges"].to_pylist(),
        traffic=tables["traffic"].to_pylist(),
        epochs=tables["epochs"].to_pylist(),
        findings=_counted(tables["findings"]),
        dropped=Counter(info.dropped),
    )


def _counted(finding_rows: pa.Table) -> Counter[tuple[str, int | None, int | None, int | None]]:
    return Counter((row["finding"], row["worker"], row["seq"], row["observed"]) for row in finding_rows.to_pylist())


def differences(actual: Reference, expected: Reference) -> str:
    """Say where two graphs differ.

    Parameters
    ----------
    actual, expected
        The graphs.

    Returns
    -------
    str
        A line per difference, the first few of every table; empty where there is none.
    """
    lines: list[str] = []
    keys: dict[str, Callable[[Row], tuple[int, ...]]] = {
        "vertices": lambda row: (row["id"],),
        "edges": lambda row: (row["dst"], row["src"], row["read"] or 0),
        "traffic": lambda row: (row["epoch"], row["channel"], row["from_worker"], row["to_worker"], len(row["type"])),
        "epochs": lambda row: (row["epoch"],),
    }
    for name, key in keys.items():
        rows, expected_rows = (sorted(getattr(graph, name), key=key) for graph in (actual, expected))
        pairs = ((a, b) for a, b in zip_longest(rows, expected_rows) if a != b)
        lines += [f"{name}: {_changes(a, b)}" for (a, b), _ in zip(pairs, range(_MOST), strict=False)]
    for name in ("findings", "dropped"):
        actual_counts, expected_counts = getattr(actual, name), getattr(expected, name)
        if actual_counts != expected_counts:
            lines.append(
                f"{name}: found {actual_counts - expected_counts}, not found {expected_counts - actual_counts}"
            )
    return "\n".join(lines)


def _changes(actual: Row | None, expected: Row | None) -> str:
    if actual is None or expected is None:
        return f"found {actual}, expected {expected}"
    changed: dict[str, tuple[Any, Any]] = {
        name: (actual.get(name), value) for name, value in expected.items() if actual.get(name) != value
    }
    return f"found and expected differ in {changed} of {expected}"
