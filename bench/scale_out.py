"""The same build on more processes: several executors, epochs larger than a slice, and what a cluster would give."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.analyses import triangles
from bench.harness import Bench, Figure, Session, spark_engine
from bench.multiply import multiplied
from pag_graph import api
from pag_graph.builder.plan import DEFAULT_SLICE_EVENTS
from pag_graph.builder.stretches import stretches as stretches_of
from pag_graph.engines.local import LocalEngine
from pag_graph.store.trace import Trace
from tests.support.standalone import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pag_graph.builder.engine import Engine, Item, Result
    from pag_graph.store.delta import StoreInfo

_CLUSTERS = {"2 cores": 2, "32 cores": 32, "100 nodes of 32 cores": 3_200}
_BILLION = 1_000_000_000
_MANY = 1_000
_TASK_S = 0.05
"""What Spark takes to start a Python task on an executor that is warm, about."""


class Watched:
    """Passes all on to another engine and notes how long each step took and what it left on disk.

    Parameters
    ----------
    engine
        Where the tasks run; in this process too they find nothing in memory that others left.
    tasks
        As if so many ran at the same time.
    """

    in_process = False

    def __init__(self, engine: Engine, tasks: int | None = None) -> None:
        self.engine, self.name, self.tasks = engine, engine.name, tasks or engine.tasks
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.tasks_of: dict[str, int] = {}
        self.slices = 0
        """How many there were."""
        self.leftover_bytes = 0

    def map(
        self,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        label: str,
        progress: Callable[[str, int, int], None],
    ) -> list[Result]:
        """Run `task` on every item (see `pag_graph.builder.engine.Engine.map`)."""
        if label == "assemble":
            self.slices = sum(len(item) if isinstance(item, range) else 1 for item in items)
        return self._timed(label, len(items), lambda: self.engine.map(task, items, label=label, progress=progress))

    def stitch(self, staging: Path, horizon_ns: int) -> None:
        """Join the leftovers of all slices (see `pag_graph.builder.engine.Engine.stitch`)."""
        self.leftover_bytes = _size(staging)
        self._timed("stitch", 1, lambda: self.engine.stitch(staging, horizon_ns))

    def _timed(self, label: str, items: int, run: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = run()
        self.seconds[label] = self.seconds.get(label, 0.0) + time.perf_counter() - wall
        self.cpu[label] = self.cpu.get(label, 0.0) + time.process_time() - cpu
        self.tasks_of[label] = self.tasks_of.get(label, 0) + items
        return result


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def run(session: Session) -> None:
    """Make the measurements."""
    recorded, _ = triangles(session)
    copies, slice_events = (10, DEFAULT_SLICE_EVENTS) if not session.quick else (2, 100_000)
    trace = multiplied(session, recorded, copies)
    _cluster(session, trace, slice_events)
    _one_epoch(session, recorded)
    _plan(session, recorded, trace, slice_events)


def _watch(
    session: Session, name: str, trace: Path, engine: Engine, slice_events: int, tasks: int | None = None
) -> tuple[Watched, Figure]:
    """Build once; keep how long each step took."""
    runs: list[Watched] = []

    def build(store: Path) -> None:
        runs.append(Watched(engine, tasks))
        api.build(trace, store, engine=runs[-1], slice_events=slice_events)

    figure = session.measure(
        name,
        build,
        before=lambda: session.new_folder("build.pag"),
        items=Trace.open(trace).rows,
        repeat=1,
        warm=0,
    )
    watched = runs[-1]
    figure.values = {
        "slices": watched.slices,
        "stretches": watched.tasks_of["assemble"],
        **{f"{label}, s": watched.seconds.get(label, 0.0) for label in ("assemble", "stitch", "finish")},
        "two passes, s": sum(watched.seconds.get(label, 0.0) for label in ("scan", "carry")),
        "in the driver, s": figure.seconds[-1] - sum(watched.seconds.values()),
        "leftovers of slices, MB": watched.leftover_bytes / 1e6,
        "tables, MB": _size(session.scratch / "output" / "build.pag") / 1e6,
    }
    return watched, figure


def _hold_the_same(info: StoreInfo, other: StoreInfo) -> bool:
    """Whether two stores hold the same: the fingerprint of the rows of closed epochs, and all epochs, row by row."""
    epochs = [api.open(store.path).epochs for store in (info, other)]
    return info.run["closed_fingerprint"] == other.run["closed_fingerprint"] and epochs[0].equals(epochs[1])


def _cluster(session: Session, trace: Path, slice_events: int) -> None:
    """Build on a master with two workers of one core each, and compare with a build in this process."""
    local_store = session.new_folder("here.pag")
    api.build(trace, local_store, engine="local")
    folder = session.new_folder("cluster")
    folder.mkdir(parents=True)
    with (
        cluster(folder, Path(sys.executable), workers=2, cores=1, memory="1g", java="") as running,
        spark_engine(running.address) as engine,
    ):
        # Executors start, and compile or load the kernels.
        api.build(trace, session.new_folder("warm.pag"), engine=engine, slice_events=slice_events)
        _watch(session, "two executors of one core", trace, engine, slice_events)
    executors = len(list(running.work.glob("*/app-*/*/stderr")))
    is_same = _hold_the_same(
        api.open(local_store).run.info, api.open(session.scratch / "output" / "build.pag").run.info
    )
    session.keep(Figure(name="two executors and one process", values={"executors": executors, "same rows": is_same}))


def _one_epoch(session: Session, recorded: Path) -> None:
    """Build a trace that is one epoch, in slices that are much smaller."""
    copies, slice_events = (24, DEFAULT_SLICE_EVENTS) if not session.quick else (2, 100_000)
    trace = multiplied(session, recorded, copies, per_epoch=copies)
    name = f"one epoch of {Trace.open(trace).rows / 1e6:.1f} M events, in process"
    _watch(session, name, trace, LocalEngine(), slice_events)
    built = api.open(session.scratch / "output" / "build.pag")
    windows = built.epochs.select("epoch", "role", "events", "coverage").to_dicts()
    longest = max(windows, key=lambda row: row["events"])
    session.keep(
        Figure(
            name="its longest window",
            values={"events": longest["events"], "coverage": longest["coverage"], "windows": len(windows)},
        )
    )


def _in_tasks(watched: Watched) -> float:
    """Return the processor time of all tasks."""
    return sum(seconds for label, seconds in watched.cpu.items() if label != "stitch")


def _plan(session: Session, recorded: Path, trace: Path, slice_events: int) -> None:
    """Measure what a slice costs and what the driver does, and say what clusters would make of a billion events."""
    events, fewer = Trace.open(trace).rows, Trace.open(recorded).rows
    engine = LocalEngine()
    large, large_build = _watch(session, "large slices, in process", trace, engine, slice_events)
    per_slice_build, _ = _watch(
        session, "the same, every slice a stretch", trace, engine, slice_events, tasks=1_000_000
    )
    _, small_build = _watch(session, "as many slices of fewer events", recorded, engine, slice_events * fewer // events)
    _, many_slices = _watch(session, f"{_MANY:,} small slices", trace, engine, max(events // _MANY, 1))

    def driver(figure: Figure) -> float:
        return float(figure.values["in the driver, s"]) + float(figure.values["stitch, s"])

    per_slice = (driver(many_slices) - driver(large_build)) / (
        many_slices.values["slices"] - large_build.values["slices"]
    )
    per_event = max(driver(large_build) - driver(small_build), 0.0) / (events - fewer)
    per_build_s = driver(large_build) - per_slice * large_build.values["slices"] - per_event * events
    # A stretch looks at the slice before it and at the one after it.
    stretches = per_slice_build.tasks_of["assemble"] - large.tasks_of["assemble"]
    look_s = max(_in_tasks(per_slice_build) - _in_tasks(large), 0.0) / stretches / (events / large.slices)
    task_s = _in_tasks(large) / events
    bytes_per_event = large.leftover_bytes / events
    for name, cores in _CLUSTERS.items():
        # As large as ours, or smaller where there are more cores than slices.
        count = max(_BILLION // slice_events, cores)
        parts = [len(part) for part in stretches_of(count, cores)]
        driver_s = per_build_s + per_event * _BILLION + per_slice * count
        rounds = math.ceil(len(parts) / cores)
        tasks_s = (
            rounds * (_BILLION / count * (max(parts) * task_s + look_s) + _TASK_S) + _BILLION / count * task_s + _TASK_S
        )
        session.keep(
            Figure(
                name=f"1,000 M events on {name}, computed",
                values={
                    "slices": count,
                    "stretches": len(parts),
                    "in tasks, s": tasks_s,
                    "in the driver, s": driver_s,
                    "both, s": driver_s + tasks_s,
                    "events/s": _BILLION / (driver_s + tasks_s),
                    "leftovers of slices, MB": bytes_per_event * _BILLION / 1e6,
                },
            )
        )
    session.keep(
        Figure(
            name="what it was computed from",
            values={
                "core time in tasks, ns per event": 1e9 * task_s,
                "looking around, ns per event of a slice, per stretch": 1e9 * look_s,
                "driver, ns per event": 1e9 * per_event,
                "driver, ms per slice": 1e3 * per_slice,
                "driver, s per build": per_build_s,
                "leftovers, bytes per event": bytes_per_event,
            },
        )
    )


BENCH = Bench(
    name="scale_out",
    title="More processes",
    about=(
        "The recorded trace of `build` is built in four ways: ten times over (20 M events), on a standalone"
        " cluster of real processes (a master and two workers of one core); the same in this process; 24 times"
        " over as a single epoch (50 M events); and ten times over in a thousand small slices, which shows what a"
        " slice costs the driver. From these figures it is computed how long larger clusters would take for 1,000"
        " M events. The core time in tasks is divided by the number of cores. Slices are as large as ours, or"
        " smaller if there are more cores than slices; every stretch of slices looks at the ones around it; every"
        " task costs Spark 50 ms more; and the run's last slice comes last. The driver's part is not divided"
        " (Amdahl). The computation assumes that reading and writing are as fast per core as here, and that"
        " nothing fails."
    ),
    run=run,
)
