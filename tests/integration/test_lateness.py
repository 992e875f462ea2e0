"""How late answers are is told as it is: by a follower that keeps up, and by one that stood still meanwhile."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Thread

import numpy as np
import polars as pl

import pag_graph
from bench.followed import followed
from bench.live import speed_for
from bench.multiply import multiply
from pag_graph.sources.replay import replay
from pag_graph.store.delta import open_store
from pag_graph.store.trace import Trace

SAMPLE = Path(pag_graph.__file__).parent / "samples" / "skewed"
PROVE = os.environ.get("PAG_PROVE") == "1"
STOPPED_S = 5.0 if PROVE else 1.5
EPOCHS_PER_S = 200
WITHIN_S = 1.0
FLUSH_S = 0.05
ENDS_S = FLUSH_S if PROVE else 2 * FLUSH_S


def test_a_follower_that_stood_still_cannot_look_fast(tmp_path: Path) -> None:
    recorded, trace = Trace.open(SAMPLE), tmp_path / "trace"
    epochs = 11
    multiply(SAMPLE, trace, times=round((STOPPED_S + 2) * EPOCHS_PER_S / epochs), seed=1)
    speed = speed_for(trace, EPOCHS_PER_S * recorded.rows // epochs)
    stood: list[int] = []

    def stop(pid: int) -> None:
        time.sleep(0.5)
        while not (tmp_path / "live" / "events").exists():
            time.sleep(0.01)
        time.sleep(0.5)
        os.kill(pid, signal.SIGSTOP)
        stood.append(time.time_ns())
        time.sleep(STOPPED_S)
        stood.append(time.time_ns())
        os.kill(pid, signal.SIGCONT)

    with followed(tmp_path / "live", tmp_path / "store") as known:
        stopping = Thread(target=stop, args=(known.pid,))
        stopping.start()
        report = replay(trace, tmp_path / "live", speed=speed, flush_every_s=FLUSH_S)
        stopping.join()
    assert known.code == 0
    # Every closed epoch has its row, and nothing of the log is missing.
    timings, info = known.timings, open_store(tmp_path / "store")
    closed = info.scan("epochs").filter(pl.col("epoch") <= info.run["last_closed_epoch"]).sort("epoch").collect()
    assert sorted(timings["epoch"].to_pylist()) == closed["epoch"].to_list()
    assert info.events == Trace.open(trace).rows == report.events
    published, answered = (timings[f"{name}_ns"].to_numpy() for name in ("published", "answered"))
    late = answered - published > WITHIN_S * 1e9
    # Of what was published while it stood still, all but the last second came so late.
    begin, end = stood
    meanwhile = (published > begin) & (published < end - WITHIN_S * 1e9)
    assert late[meanwhile].all()
    if report.valid:
        # Epochs are published by files: at either end a file more or less may count.
        assert np.count_nonzero(meanwhile) >= EPOCHS_PER_S * (STOPPED_S - WITHIN_S - ENDS_S)
