"""A log that grows: what an append costs, and whether it costs more the older the run is."""

from __future__ import annotations

import json
import os
import shutil
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.analyses import triangles
from bench.harness import Bench, Figure, Session
from bench.multiply import multiplied
from pag_graph import api
from pag_graph.runtime import memory
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SIZES = {"20 M": (10, 200), "2 M": (1, 50)}
"""Copies of the recorded trace of 2.1 M events, and in how many portions each is appended."""
_ENDS = 10
"""How many of the first and of the last portions are compared."""


def run(session: Session) -> None:
    """Make the measurements."""
    recorded, _ = triangles(session)
    sizes = _SIZES if not session.quick else {"quick": (1, 5)}
    for size, (copies, portions) in sizes.items():
        trace = multiplied(session, recorded, copies)
        stem = f"{trace.name.removesuffix('.trace')}-{portions}"
        folder = session.fixed(f"{stem}.portions", partial(cut, trace, portions=portions))
        session.keep(Figure(name=f"{size} events in {portions} portions", values=measure(folder, session.new_folder)))


def cut(source: Path, target: Path, *, portions: int) -> None:
    """Write the files of a trace so that each portion of its time has files of its own: ``0001/events/*.parquet``."""
    trace = Trace.open(source)
    logs = {}
    for worker in trace.workers["worker"].to_pylist():
        logs[worker] = trace.events(workers=[worker])
    offsets = dict(zip(trace.workers["worker"].to_pylist(), trace.workers["offset_ns"].to_pylist(), strict=True))
    times = {worker: log["t_ns"].to_numpy() + offsets[worker] for worker, log in logs.items()}
    ordered = np.sort(np.concatenate(list(times.values())))
    instants = [ordered[len(ordered) * number // portions] for number in range(1, portions)]
    for worker, log in logs.items():
        borders = [0, *np.searchsorted(times[worker], instants).tolist(), log.num_rows]
        for number in range(portions):
            rows = log.slice(borders[number], borders[number + 1] - borders[number])
            folder = target / f"{number:04}"
            folder.mkdir(parents=True, exist_ok=True)
            if rows.num_rows:
                plain = pa.table({name: _plain(rows[name]) for name in rows.column_names})
                pq.write_table(plain, folder / f"worker-{worker:03}-{number:04}.parquet", compression="zstd")
    for name in ("operators.parquet", "channels.parquet", "workers.parquet"):
        shutil.copy(source / name, target / name)
    meta = json.loads((source / "meta.json").read_text())
    for complete in (False, True):
        (target / f"meta-{complete}.json").write_text(json.dumps(meta | {"complete": complete}))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def measure(folder: Path, new_folder: Callable[[str], Path]) -> dict[str, float]:
    """Append portion after portion, and build all at once.

    Parameters
    ----------
    folder
        As `cut` writes it.
    new_folder
        Names folders to be made.

    Returns
    -------
    dict
        Seconds of the processor: of all appends, of one build, and of the first and the last portions.
    """
    memory.keep()
    trace, store = new_folder("growing.trace"), new_folder("growing.pag")
    (trace / "events").mkdir(parents=True)
    for name in ("operators.parquet", "channels.parquet", "workers.parquet"):
        shutil.copy(folder / name, trace / name)
    portions = sorted(path for path in folder.iterdir() if path.is_dir())
    # The first build of a process imports and loads kernels.
    warm = new_folder("warm.trace")
    (warm / "events").mkdir(parents=True)
    for name in ("operators.parquet", "channels.parquet", "workers.parquet"):
        shutil.copy(folder / name, warm / name)
    for file in sorted(portions[0].iterdir()):
        os.link(file, warm / "events" / file.name)
    shutil.copy(folder / "meta-False.json", warm / "meta.json")
    api.build(warm, new_folder("warm.pag"), engine="local")
    costs = []
    for portion in portions:
        for file in sorted(portion.iterdir()):
            os.link(file, trace / "events" / file.name)
        shutil.copy(folder / f"meta-{portion is portions[-1]}.json", trace / "meta.json")
        costs.append(_timed(lambda: api.build(trace, store, engine="local", mode="append")))
    once = _timed(lambda: api.build(trace, new_folder("once.pag"), engine="local"))
    return {
        "appends, s": sum(costs),
        "one build, s": once,
        "appends / one build": sum(costs) / once,
        "first portions, ms each": 1e3 * median(costs[1 : _ENDS + 1]),
        "last portions, ms each": 1e3 * median(costs[-_ENDS - 1 : -1]),
    }


def _timed(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


BENCH = Bench(
    name="appends",
    title="A log that grows",
    about=(
        "The recorded trace of `build` (`bench/multiply.py`, seed 1) is written as files for each portion of its"
        " time. One process appends these one after the other; for comparison, the same trace is built at once."
        " Times are processor time."
    ),
    run=run,
)
