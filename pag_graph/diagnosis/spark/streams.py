"""Streams: batches whose frame takes long, state that grows, sources that get ahead, rows that come too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.diagnosis.spark.changes import Change, of_program, of_setting
from pag_graph.diagnosis.spark.intervals import length, united
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.diagnosis.spark.pauses import follow_at_once
from pag_graph.diagnosis.spark.suspicions import Suspicion
from pag_graph.sources.spark.placing import MS
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.intervals import Interval
    from pag_graph.sources.spark.log_tables import SparkLog

__all__ = ["batch_frames", "stream_suspicions", "streams"]

_FEWEST = 10
"""A trend needs so many batches."""
_GROWN = 2.0
"""State has grown if the last third of batches has so many times the rows of the first."""
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FRAME = {
    "latest_offset_ms": ("asking sources for what is new", "Ask for less often, or list fewer files."),
    "planning_ms": ("planning", "Make the plan smaller, or take more rows into each batch."),
    "wal_ms": ("writing the offsets", "Put the checkpoint on a faster store, or take more rows into each batch."),
    "commit_offsets_ms": ("writing the commit", "Put the checkpoint on a faster store, or take more rows a batch."),
}
"""Parts of a batch beside its work: what they are, and what helps."""


def streams(look: Look) -> list[Cause]:
    """Find what streams lose outside of their batches' work, and to the growth of their state."""
    causes = []
    for query, batches in _queries(look.schedule.log):
        causes += [_overrun(look, query, batches), _state(look, query, batches)]
    return [cause for cause in causes if cause is not None]


def _queries(log: SparkLog) -> list[tuple[str, pl.DataFrame]]:
    """Return the batches of each query that had any rows, by begin."""
    if not log.progress.height:
        return []
    busy = log.progress.filter(pl.col("query").is_not_null() & (pl.col("input_rows") > 0)).sort(
        "started_ms", maintain_order=True
    )
    return [(str(key[0]), own) for key, own in busy.partition_by("query", as_dict=True, maintain_order=True).items()]


def batch_frames(look: Look) -> list[Interval]:
    """Return when batches that followed one another at once were framed: before and after the work that they add."""
    return united(
        span for _, batches in _queries(look.schedule.log) if _at_once(batches) for span in _frames(look, batches)
    )


def _at_once(batches: pl.DataFrame) -> bool:
    """Say whether the batches of a stream followed one another at once."""
    if batches.height < _FEWEST:
        return False
    return follow_at_once(batches)


def _frames(look: Look, batches: pl.DataFrame) -> list[Interval]:
    origin = look.schedule.origin_ms
    out: list[Interval] = []
    for row in batches.iter_rows(named=True):
        start = row["started_ms"] - origin
        end = start + row["trigger_ms"]
        after = min(row["commit_offsets_ms"], row["trigger_ms"])
        before = max(0, row["trigger_ms"] - row["add_batch_ms"] - after)
        out += [(start * MS, (start + before) * MS), ((end - after) * MS, end * MS)]
    first, last = look.schedule.end_ns - look.active, look.schedule.end_ns
    return united((max(start, first), min(end, last)) for start, end in out)


def _overrun(look: Look, query: str, batches: pl.DataFrame) -> Cause | None:
    """Find batches that follow one another at once and spend much of their time on their frame."""
    spent = length(_frames(look, batches))
    if not _at_once(batches) or not look.matters(spent):
        return None
    if spent < look.limits.delay_share * MS * int(batches["trigger_ms"].sum()):
        return None
    parts = {name: int(batches[name].sum() or 0) * MS for name in _FRAME}
    whole, work = (int(batches[name].sum() or 0) * MS for name in ("trigger_ms", "add_batch_ms"))
    largest = max(parts, key=lambda name: parts[name])
    what, advice = _FRAME[largest]
    text = (
        f"{batches.height} batches of stream {query[:8]} followed one another at once, and {spent / max(whole, 1):.0%}"
        f" of their time went into their frame: most of it into {what} ({seconds(parts[largest])})."
    )
    signal = {"query": query, "batches": batches.height, "trigger_ns": whole, "add_batch_ns": work}
    signal |= {name.replace("_ms", "_ns"): value for name, value in parts.items()}
    rows = int(batches["input_rows"].median() or 0)  # type: ignore[arg-type]
    proposed = f"{10 * rows:,}, by the source's limit for a batch"
    change = of_program("rows of a batch", f"{rows:,}", proposed, "the stream")
    traps = ("The interval between batches that was asked for is not in the log.",)
    told = {"signal": signal, "change": advice, "changes": (change,), "traps": traps}
    return look.cause("batch_overrun", spent, text, bound=True, measured=True, **told)


def _growth(batches: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Return the first and the last third of batches, if the state grows all the time."""
    third = batches.height // 3
    if batches.height < _FEWEST:
        return None
    first, last = batches.head(third), batches.tail(third)
    middle = batches.slice(third, third)
    means = [float(part["state_rows"].mean() or 0) for part in (first, middle, last)]  # type: ignore[arg-type]
    return (first, last) if means[0] < means[1] < means[2] and means[2] >= _GROWN * max(means[0], 1) else None


def _state(look: Look, query: str, batches: pl.DataFrame) -> Cause | None:
    """Find what the growth of a stream's state costs: what updating and committing it takes more than in the begin."""
    grown = _growth(batches)
    if grown is None:
        return None
    first, last = grown
    usual = float(first["state_ms"].median() or 0)  # type: ignore[arg-type]
    more = {
        row["batch"]: max(0.0, row["state_ms"] - usual) * MS for row in batches.iter_rows(named=True) if row["state_ms"]
    }
    shares = _of_batches(look, query, more)
    if not shares:
        return None
    changed = look.cut(shares, lambda key: shares[key])
    saved = look.saved_in(sorted(shares), changed)
    if not look.matters(saved):
        return None
    rows = [int(part["state_rows"].max() or 0) for part in (first, last)]  # type: ignore[arg-type]
    size = int(last["state_bytes"].max() or 0)  # type: ignore[arg-type]
    text = (
        f"The state of stream {query[:8]} grew from {rows[0]:,} to {rows[1]:,} rows ({size / 2**20:,.1f} MiB), and"
        f" updating and writing it took {seconds(sum(more.values()))} of tasks more than in the first batches."
    )
    signal = {
        "query": query,
        "batches": batches.height,
        "state_rows": rows,
        "state_bytes": size,
        "state_more_ns": int(sum(more.values())),
    }
    traps = ("The number of the state's partitions is fixed by the checkpoint.",)
    told = {"signal": signal, "changes": _state_changes(look.schedule.log, batches), "traps": traps, "changed": changed}
    return look.cause("state_growth", saved, text, bound=True, **told)


def _of_batches(look: Look, query: str, more: dict[int, float]) -> dict[tuple[int, int], float]:
    """Return the stages of batches that hold state, with what their batch took more as a share of their run time."""
    log = look.schedule.log
    batches = {row["job"]: row["batch"] for row in log.jobs.filter(pl.col("query") == query).iter_rows(named=True)}
    holding = look.plans.stages([node for node in look.plans if node.name.startswith("StateStoreSave")])
    stages: dict[int, list[tuple[int, int]]] = {}
    for key, job in look.schedule.stage_jobs.items():
        batch = batches.get(look.schedule.jobs[job].job)
        if batch in more and key in look.by_stage and (key in holding or not holding):
            stages.setdefault(batch, []).append(key)
    return {
        key: min(1.0, more[batch] / sum(look.plans.run_ns[each] for each in keys))
        for batch, keys in stages.items()
        for key in keys
    }


def _state_changes(log: SparkLog, batches: pl.DataFrame) -> tuple[Change, ...]:
    provider = setting(log, _PROVIDER).value or ""
    rocks = () if "RocksDB" in provider else (of_setting(log, _PROVIDER, _ROCKS),)
    if batches["watermark_ms"].is_null().all():
        return (of_program("the watermark", "none", "withWatermark(), so that old groups go", "the stream"), *rocks)
    return (of_program("the watermark's delay", "as it is", "shorter, so that groups go sooner", "the stream"), *rocks)


def stream_suspicions(log: SparkLog) -> list[Suspicion]:
    """Find what streams show that costs no time of the application, but data or freshness.

    Parameters
    ----------
    log
        As read.

    Returns
    -------
    list of Suspicion
        Sources that get ahead of the stream, rows that the watermark drops, and state that grows.
    """
    seen: list[Suspicion] = []
    for query, batches in _queries(log):
        node = f"stream {query[:8]}"
        if dropped := int(batches["dropped_rows"].sum() or 0):
            text = f"{dropped:,} rows came later than the watermark lets them and were dropped."
            seen.append(Suspicion("watermark_late", text, "Make the watermark's delay longer, if they count.", node))
        if (behind := _behind(batches)) is not None:
            advice = "Give the stream more cores, or limit the rows of a batch until it has caught up."
            seen.append(Suspicion("source_lag", behind, advice, node))
        if (grown := _growth(batches)) is not None:
            ends: list[Any] = [part["state_rows"].max() or 0 for part in grown]
            text = f"Its state grew from {ends[0]:,} to {ends[1]:,} rows in {batches.height} batches."
            advice = "Without a watermark it grows for ever: give it one, or let states time out."
            seen.append(Suspicion("state_growth", text, advice, node))
    return seen


def _behind(batches: pl.DataFrame) -> str | None:
    """Say for how many batches in a row more rows came than were worked on meanwhile."""
    rows, took, starts = (batches[name].to_list() for name in ("input_rows", "trigger_ms", "started_ms"))
    longest = here = 0
    for place in range(1, len(rows)):
        since = max(starts[place] - starts[place - 1], 1)
        here = here + 1 if rows[place] / since > rows[place] / max(took[place], 1) else 0
        longest = max(longest, here)
    if longest < _FEWEST or rows[-1] <= rows[0]:
        return None
    return (
        f"In {longest} batches one after the other more rows came than were worked on:"
        f" from {rows[0]:,} to {rows[-1]:,} rows a batch."
    )
