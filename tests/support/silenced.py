"""How well waits are inferred: traces whose parks are removed, beside the same traces with them.

``python -m tests.support.silenced TRACE...`` prints a row per trace, as `docs/model.md` shows them.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph import api
from pag_graph.model.enums import EventKind
from pag_graph.sources import convert
from pag_graph.store.trace import Trace, write_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_IDLE = [str(kind) for kind in (EventKind.PARK, EventKind.UNPARK, EventKind.IDLE_START, EventKind.IDLE_STOP)]
_RESTS = ("idle", "input_wait", "unknown")


def silence(trace: Path, target: Path) -> Path:
    """Write a trace again as a log that says nothing of idleness would hold it.

    Parameters
    ----------
    trace
        A directory.
    target
        The directory to write.

    Returns
    -------
    Path
        The target.
    """
    opened = Trace.open(trace)

    def parts() -> Iterator[tuple[str, pa.Table]]:
        events = pl.DataFrame(opened.events())
        kept_events = events.filter(~pl.col("kind").is_in(_IDLE))
        # Nothing is missing in such a log: its writer would have numbered what it says.
        kept_events = kept_events.with_columns(
            seq=pl.int_range(1, pl.len() + 1, dtype=kept_events["seq"].dtype).over("worker")
        )
        for (worker,), rows in kept_events.group_by("worker", maintain_order=True):
            yield f"worker-{worker:07}-{0:05}", rows.to_arrow()

    write_trace(
        target,
        meta=replace(opened.meta, idle_logged=False),
        events=parts(),
        operators=opened.operators,
        channels=opened.channels,
        workers=opened.workers,
    )
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How the inferred waits of a run agree with the logged ones."""

    logged_ns: int
    """Waiting by the log, summed over workers."""
    inferred_ns: int
    common_ns: int
    rests_ns: int
    """Inferred waiting while the log says that the worker rested without waiting for anybody."""
    looks_ns: int
    """Inferred waiting before a park: the worker has nothing to do any more, and looks once more, in vain."""
    looks: int
    """In how many waits."""
    shares: dict[str, float]
    """By type: the share of the critical paths of all rounds by inference, minus that by the log."""

    @property
    def precision(self) -> float:
        """Share of the inferred waiting that the log confirms, or in which the worker rested by the log."""
        return (self.common_ns + self.rests_ns) / self.inferred_ns if self.inferred_ns else 1.0

    @property
    def precision_of_polling(self) -> float:
        """The same where a look in vain belongs to the wait after it, as of a worker that polls (CPA Fig. 5.1)."""
        right = self.common_ns + self.rests_ns + self.looks_ns
        return right / self.inferred_ns if self.inferred_ns else 1.0

    @property
    def recall(self) -> float:
        """Share of the logged waiting that is inferred."""
        return self.common_ns / self.logged_ns if self.logged_ns else 1.0


def compare(trace: Path, folder: Path) -> Agreement:
    """Build a trace with and without what it says of idleness, and compare the waits.

    Parameters
    ----------
    trace
        A trace whose log says when workers were idle.
    folder
        An empty directory to work in.

    Returns
    -------
    Agreement
        Nanoseconds are summed over all workers.
    """
    api.build(trace, folder / "logged.pag", engine="local")
    api.build(silence(trace, folder / "silenced"), folder / "inferred.pag", engine="local")
    logged, inferred = api.open(folder / "logged.pag"), api.open(folder / "inferred.pag")
    waits = _stretches(inferred, ("waiting",))
    looks = _looks(waits, _stretches(logged, ("waiting", *_RESTS)))
    return Agreement(
        logged_ns=_length(_stretches(logged, ("waiting",))),
        inferred_ns=_length(waits),
        common_ns=_overlap(waits, _stretches(logged, ("waiting",))),
        rests_ns=_overlap(waits, _stretches(logged, _RESTS)),
        looks_ns=sum(looks),
        looks=sum(look > 0 for look in looks),
        shares=_differences(_path_shares(logged), _path_shares(inferred)),
    )


def _stretches(pag: api.Pag, types: tuple[str, ...]) -> pl.DataFrame:
    """One row per stretch: worker, begin and end; stretches of a worker do not overlap."""
    edges = pag.edges().filter(pl.col("type").is_in(types)).collect()
    return edges.select(
        worker=pl.col("dst") // 2**40, begin="start_ns", end=pl.col("start_ns") + pl.col("duration_ns")
    ).sort("worker", "begin")


def _length(stretches: pl.DataFrame) -> int:
    return int((stretches["end"] - stretches["begin"]).sum())


def _overlap(spans: pl.DataFrame, other_spans: pl.DataFrame) -> int:
    total = 0
    for (worker,), worker_spans in spans.group_by("worker"):
        other_times = list(other_spans.filter(pl.col("worker") == worker).select("begin", "end").iter_rows())
        place = 0
        for begin, end in worker_spans.select("begin", "end").iter_rows():
            while place < len(other_times) and other_times[place][1] <= begin:
                place += 1
            ahead = place
            while ahead < len(other_times) and other_times[ahead][0] < end:
                total += max(min(end, other_times[ahead][1]) - max(begin, other_times[ahead][0]), 0)
                ahead += 1
    return total


def _looks(waits: pl.DataFrame, rests: pl.DataFrame) -> list[int]:
    """Per wait in which the worker rested by the log: how long it did not before the last such rest."""
    looks = []
    for (worker,), worker_waits in waits.group_by("worker"):
        worker_rests = rests.filter(pl.col("worker") == worker)
        begins, ends = worker_rests["begin"].to_numpy(), worker_rests["end"].to_numpy()
        for begin, end in worker_waits.select("begin", "end").iter_rows():
            begin_index, end_index = np.searchsorted(ends, begin, "right"), np.searchsorted(begins, end)
            if begin_index < end_index:
                rested = np.minimum(ends[begin_index:end_index], end) - np.maximum(begins[begin_index:end_index], begin)
                looks.append(int(min(ends[end_index - 1], end) - begin - rested.sum()))
    return looks


def _path_shares(pag: api.Pag) -> dict[str, float]:
    """Share of each type of activity in the critical paths of all rounds together."""
    rounds = pag.epochs.filter(pl.col("role") == "round")["epoch"].to_list()
    steps = pl.concat([pl.DataFrame(pag.critical_path(epoch=epoch).steps) for epoch in rounds])
    type_ns = steps.group_by("type").agg(pl.col("duration_ns").sum())
    return dict(type_ns.with_columns(pl.col("duration_ns") / pl.col("duration_ns").sum()).iter_rows())


def _differences(logged: dict[str, float], inferred: dict[str, float]) -> dict[str, float]:
    return {name: inferred.get(name, 0.0) - logged.get(name, 0.0) for name in sorted({*logged, *inferred})}


def main(traces: list[str]) -> None:
    """Print a row of the table per trace."""
    for name in traces:
        with tempfile.TemporaryDirectory() as temporary:
            folder, trace = Path(temporary), Path(name)
            if not (trace / "meta.json").exists():
                trace = folder / "trace"
                convert(Path(name), trace)
            comparison = compare(trace, folder)
            largest_change = max(comparison.shares.items(), key=lambda item: abs(item[1]))
            sys.stdout.write(
                f"| `{Path(name).name}` | {comparison.logged_ns / 1e6:.2f} | {comparison.inferred_ns / 1e6:.2f} |"
                f" {comparison.precision:.1%} | {comparison.looks:,} | {comparison.looks_ns / 1e6:.2f} |"
                f" {comparison.precision_of_polling:.1%} | {comparison.recall:.1%} |"
                f" {largest_change[0]} {100 * largest_change[1]:+.1f} |\n"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
