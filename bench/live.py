"""Answers while a program runs: how late they are at several rates, and what they cost as the run gets old."""

from __future__ import annotations

import secrets
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from bench.analyses import triangles
from bench.followed import QUERIES, followed, query_words
from bench.harness import Bench, Figure, Session, spark_engine
from bench.multiply import multiplied
from pag_graph.graph.timings import SPANS, lags
from pag_graph.sources.record import build_program, free_ports, run_program
from pag_graph.sources.replay import replay
from pag_graph.store.log import TraceLog
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from bench.followed import Followed

OFFERED = (100_000, 200_000, 500_000, 1_000_000)
"""Events per second."""
_SECONDS = 60
_QUICK_SECONDS = 5
_EPOCHS = 10_000
_FLUSH_S = 0.25
_LIMITS_S = (0.4, 1, 2)
"""Between the first and the last SnailTrail 2 answered 90 % of its epochs of a million events."""
_PROGRAM = ("-w", "1", "--nodes", "3000", "--edges", "15000", "--batch", "400", "--seed", "1", "--rounds")
_PAIRS = 7


def run(session: Session) -> None:
    """Make the measurements."""
    recorded, _ = triangles(session)
    for offered in OFFERED[:1] if session.quick else OFFERED:
        for channel, queries in (("folder", ()), ("folder", QUERIES), ("TCP", ())):
            _offer(session, recorded, offered, channel, queries)
    _large_epochs(session)
    _old_run(session, recorded)
    _slow_down(session)
    _spark_floor(session)


def _offer(session: Session, recorded: Path, offered: int, channel: str, queries: Sequence[str]) -> None:
    """Replay a trace at a rate, and note how late its epochs are answered."""
    events = Trace.open(recorded).rows
    seconds = _QUICK_SECONDS if session.quick else _SECONDS
    trace = multiplied(session, recorded, max(round(offered * seconds / events), 1))
    name = f"{offered:,} events/s, {channel}{', three queries' if queries else ''}"
    session.keep(Figure(name=name, values=_replayed(session, trace, offered, channel, queries)))


def _replayed(session: Session, trace: Path, offered: int, channel: str, queries: Sequence[str]) -> dict[str, Any]:
    rows = Trace.open(trace).rows
    folder, words = session.new_folder("live"), query_words(queries)
    folder.mkdir(parents=True)
    to: Path | str = folder / "trace"
    token = folder / "token"
    if channel == "TCP":
        (port,) = free_ports(1)
        token.touch(0o600)
        token.write_text(secrets.token_urlsafe(), encoding="utf-8")
        to = f"tcp://127.0.0.1:{port}"
        words += ["--listen", f"127.0.0.1:{port}", "--token-file", str(token)]
    with followed(folder / "trace", folder / "store", words) as follower:
        report = replay(
            trace,
            to,
            speed=speed_for(trace, offered),
            flush_every_s=_FLUSH_S,
            token_file=token if channel == "TCP" else None,
        )
    late_ns = report.late_p99_ns or 0
    return {
        "achieved per s": report.achieved_per_s,
        "late p99 ms": late_ns / 1e6,
        "valid": "yes" if report.valid and follower.code == 0 else "no",
        **lateness(follower.timings),
        "processor us/event": follower.samples[-1].cpu_s / rows * 1e6,
        "most MB": max(sample.resident_bytes for sample in follower.samples) / 1e6,
    }


def speed_for(trace: Path, offered: int) -> float:
    """Return the speed at which a trace has so many events per second: times as fast as it was recorded."""
    opened = Trace.open(trace)
    log = TraceLog.index(opened)
    length_s = max(chunks[-1].t_max - chunks[0].t_min for chunks in log.chunks.values()) / 1e9
    return offered * length_s / opened.rows


def lateness(timings: pa.Table) -> dict[str, Any]:
    """Return how late epochs were, from when they were published to when they were answered."""
    (lag,) = (lag for lag in lags(timings) if lag.span == "published to answered")
    begin, end = SPANS[lag.span]
    took = timings[end].to_numpy() - timings[begin].to_numpy()
    return {
        "epochs": lag.epochs,
        "p50 ms": lag.p50_ns / 1e6,
        "p99 ms": lag.p99_ns / 1e6,
        "max ms": lag.max_ns / 1e6,
        **{f"within {limit_s} s": f"{np.mean(took <= limit_s * 1e9):.1%}" for limit_s in _LIMITS_S},
    }


def _large_epochs(session: Session) -> None:
    """Replay epochs of a million events, of which SnailTrail 2 tells the distribution."""
    small, _ = triangles(session, 725)
    trace = multiplied(session, small, 3 if session.quick else 30, per_epoch=1)
    opened = Trace.open(trace)
    # One such epoch per second.
    figures = _replayed(session, trace, opened.rows // (3 if session.quick else 30), "folder", ())
    session.keep(Figure(name="epochs of a million events, one per second, folder", values=figures))


def _old_run(session: Session, recorded: Path) -> None:
    """Replay many epochs, and compare what early and late ones cost, and the memory meanwhile."""
    rounds = pl.DataFrame(Trace.open(recorded).events())["epoch"].n_unique()
    epochs = 500 if session.quick else _EPOCHS
    tenth = epochs // 10
    trace = multiplied(session, recorded, -(-(epochs + 2 * tenth) // rounds))
    for queries in ((), QUERIES):
        folder = session.new_folder("live")
        folder.mkdir(parents=True)
        with followed(folder / "trace", folder / "store", query_words(queries)) as follower:
            replay(trace, folder / "trace", flush_every_s=_FLUSH_S)
        name = f"{epochs:,} epochs{', three queries' if queries else ''}"
        session.keep(Figure(name=name, values=_ages(follower, tenth, epochs)))


def _ages(follower: Followed, tenth: int, epochs: int) -> dict[str, Any]:
    """Compare the second tenth of the epochs with the last one, and the two halves without the first tenth."""
    times = follower.timings["answered_ns"].to_numpy()
    end = min(epochs, len(times) - 1)
    early, late = (times[tenth], times[2 * tenth]), (times[epochs - tenth], times[end])
    cpu_ms = [follower.cpu_s(*span) / tenth * 1e3 for span in (early, late)]
    # Small files are merged every few hundred epochs: so long a stretch has its share, a tenth more or less of it.
    middle = times[(tenth + epochs) // 2]
    halves_s = [follower.cpu_s(*span) for span in ((times[tenth], middle), (middle, times[end]))]
    resident_mb = [follower.near(span[1]).resident_bytes / 1e6 for span in (early, late)]
    return {
        "ms/epoch early": cpu_ms[0],
        "ms/epoch late": cpu_ms[1],
        # Where all were answered with one commit there is nothing to compare.
        "late/early (aim 1.2)": cpu_ms[1] / cpu_ms[0] if cpu_ms[0] else None,
        "second half/first": halves_s[1] / halves_s[0] if halves_s[0] else None,
        "MB early": resident_mb[0],
        "MB late": resident_mb[1],
        "MB late/early (aim 1.1)": resident_mb[1] / resident_mb[0],
        "files": follower.samples[-1].files,
    }


def _slow_down(session: Session) -> None:
    """Run a program in pairs: recorded alone, and followed meanwhile."""
    program = build_program("triangles")
    rounds = "100" if session.quick else "1500"
    ratios, pairs = [], 2 if session.quick else _PAIRS
    for pair in range(pairs):
        took = {}
        for is_followed in (False, True) if pair % 2 == 0 else (True, False):
            folder = session.new_folder("live")
            folder.mkdir(parents=True)
            record = partial(run_program, program, folder / "trace", (*_PROGRAM, rounds))
            if not is_followed:
                took[is_followed] = _timed(record)
                continue
            with followed(folder / "trace", folder / "store"):
                took[is_followed] = _timed(record)
        ratios.append(took[True] / took[False])
    figures = {
        "pairs": pairs,
        "median ratio (aim 1.1)": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }
    session.keep(Figure(name="a program of one worker, followed against recorded alone", values=figures))


def _timed(action: Any) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _spark_floor(session: Session) -> None:
    """How long Spark takes for a micro-batch of a folder in which nothing is to be done."""
    batches = 5 if session.quick else 40
    with spark_engine() as engine:
        source = session.new_folder("spark-source")
        source.mkdir(parents=True)
        table = pl.DataFrame({"number": [0]}).to_arrow()
        stream = engine.spark.readStream.schema("number bigint").parquet(str(source))
        place = str(session.new_folder("spark-checkpoint"))
        query = stream.writeStream.foreachBatch(lambda *_: None).option("checkpointLocation", place).start()
        took = []
        for number in range(batches):
            pq.write_table(table, source / f"{number}.parquet.hidden")
            (source / f"{number}.parquet.hidden").rename(source / f"{number}.parquet")
            query.processAllAvailable()
            took.append(query.lastProgress["durationMs"]["triggerExecution"])
        query.stop()
    figures = {"batches": batches, "p50 ms": statistics.median(took[1:]), "max ms": max(took[1:])}
    session.keep(Figure(name="Spark's file source, an empty batch", values=figures))


BENCH = Bench(
    name="live",
    title="Answers while a program runs",
    about=(
        "`pag follow` runs in a process of its own, beside `pag replay`, which is an open loop: an event is due"
        " when it happened, divided by the speed. Latency counts from the file's time (over TCP: from when it was"
        " sent). The trace is recorded `triangles`, 2 workers, 1,400 events per epoch, repeated for a minute per"
        " rate. A row is valid if no more than one of a hundred events came 50 ms late. The aims, at 1 M events/s"
        " with three queries (`critical-path`, `metrics`, `invariants`): p99 below 1 s. SnailTrail 2 (thesis,"
        " sections 4.2.3 and 4.4.4; one worker, other hardware) answered 90 % of its epochs of a million events"
        " within 0.4 to 2 s, and an epoch of its source took 0.08 s instead of 0.02 s while the socket blocked."
    ),
    run=run,
)
