"""Tasks that take far longer than the others of their stage, and what sets them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.look import Cause, Look, seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["slow_tasks"]

# A part that explains most of a difference; a node that is so much slower than the others is slow.
_MOST_OF_IT, _SLOWER = 0.5, 2.0

_PARTS = {
    "gc": ("gc", "garbage collection"),
    "deserialize": ("deserialization", "loading code and data before the work"),
    "delay": ("scheduling", "scheduler delay"),
    "fetch_wait": ("shuffle_fetch", "waiting for shuffle blocks"),
}
"""Parts of a task that are causes of their own: column, name of the cause, and words."""

_SKEW_ADVICE = {
    "Window": "Give the window's PARTITION BY a further column that splits the large partition, or salt it.",
    "Aggregate": "Aggregate in two steps: by the key and a random number first, then by the key.",
    "Join": "Turn on adaptive skew joins (spark.sql.adaptive.skewJoin.enabled) and lower their threshold below the"
    " large partition's bytes, or salt the key.",
}
"""What helps against skewed keys, by the operator that they are skewed for."""


def slow_tasks(look: Look) -> list[Cause]:
    """Find tasks that take far longer than the others of their stage, and why: one cause per stage attempt at most.

    Only attempts that succeeded count, in stages with three of them at least: of two none is typical.

    Causes: ``key_skew``, ``partition_skew``, ``slow_node``, ``straggler``, ``deserialization``, ``gc``, ``scheduling``,
    ``shuffle_fetch``.
    """
    tasks = look.tasks.with_columns(warm=pl.Series(look.warm)).filter("succeeded")
    causes = (
        _slow_in(look, (int(stage), int(attempt)), stage_tasks)
        for (stage, attempt), stage_tasks in tasks.group_by("stage", "stage_attempt", maintain_order=True)
        # Two tasks have no typical one.
        if stage_tasks.height > 2  # noqa: PLR2004
    )
    return [cause for cause in causes if cause is not None]


def _slow_in(look: Look, key: tuple[int, int], stage_tasks: pl.DataFrame) -> Cause | None:
    numbers, recorded_ns = stage_tasks["number"].to_numpy(), stage_tasks["held"].to_numpy()
    loading = _loading(look, stage_tasks)
    # What first tasks take longer is no trouble of theirs, unless most of it is loading.
    held_ns = np.where(loading, recorded_ns, stage_tasks["warm"].to_numpy())
    typical = float(np.median(held_ns))
    slow = held_ns > look.limits.slow_ratio * max(typical, 1.0)
    if not slow.any() or held_ns.max() - typical < look.limits.saved_share * look.active:
        return None
    mean, usual = int(recorded_ns.sum() / stage_tasks.height), recorded_ns[slow] - held_ns[slow] + int(typical)
    signal = _why_slow(stage_tasks, slow, look)
    kind = signal["signal"]

    def changed(durations: I64) -> None:
        if kind in {"key_skew", "partition_skew"}:
            durations[numbers] = mean
        else:
            durations[numbers[slow]] = usual

    saved = look.saved_in([key], changed)
    if not look.matters(saved):
        return None
    place = int(np.argmax(held_ns))
    texts = look.schedule.log.texts
    signal |= {
        "stage": key[0],
        "stage_attempt": key[1],
        "slow_tasks": int(slow.sum()),
        "tasks": stage_tasks.height,
        "index": int(stage_tasks["index"][place]),
        "executor": texts["executor"][stage_tasks["executor"][place]],
        "host": texts["host"][stage_tasks["host"][place]],
        "longest_ns": int(held_ns.max()),
        "median_ns": int(typical),
    }
    text = _slow_text(kind, signal, look.stage_name(*key))
    return look.cause(
        kind, saved, text, stage=key[0], signal=signal, change=_change(kind, look, key[0]), changed=changed
    )


def _loading(look: Look, stage_tasks: pl.DataFrame) -> NDArray[np.bool_]:
    """Return which tasks took far longer than the median of their stage mostly for deserialising.

    Where all executors of the stage had such a task, that is what starting costs.
    """
    held_ns, deserialize = stage_tasks["held"].to_numpy(), stage_tasks["deserialize"].to_numpy()
    typical = float(np.median(held_ns))
    mostly_loading = deserialize - np.median(deserialize) >= _MOST_OF_IT * (held_ns - typical)
    loading: NDArray[np.bool_] = (held_ns > look.limits.slow_ratio * max(typical, 1.0)) & mostly_loading
    executors = stage_tasks["executor"].to_numpy()
    return loading & (np.unique(executors[loading]).size < np.unique(executors).size)


def _change(kind: str, look: Look, stage: int) -> str:
    if kind != "key_skew":
        return ""
    nodes = look.nodes.get(stage, [])
    return next((advice for word, advice in _SKEW_ADVICE.items() if any(word in node for node in nodes)), "")


def _why_slow(stage_tasks: pl.DataFrame, slow: NDArray[np.bool_], look: Look) -> dict[str, Any]:
    """Say what sets slow tasks apart from the others of their stage."""
    other_tasks, late_tasks = stage_tasks.filter(~pl.Series(slow)), stage_tasks.filter(pl.Series(slow))
    if not other_tasks.height:
        other_tasks = stage_tasks

    def ratio(measure: pl.Expr) -> float:
        base = float(other_tasks.select(measure.median()).item() or 0)
        top = float(late_tasks.select(measure.median()).item() or 0)
        return top / base if base > 0 else (float("inf") if top > 0 else 1.0)

    time = ratio(pl.col("warm"))
    shuffle_ratio = max(ratio(pl.col("shuffle_read_records")), ratio(pl.col("remote_bytes") + pl.col("local_bytes")))
    input_ratio = max(ratio(pl.col("input_records")), ratio(pl.col("input_bytes")))
    # What a part explains, it explains of all of the difference: also of that which only a first task has.
    excess = max(_median(late_tasks, "held") - _median(other_tasks, "held"), 1.0)
    parts_of_excess = {name: (_median(late_tasks, name) - _median(other_tasks, name)) / excess for name in _PARTS}
    node_ratio = _node_ratio(stage_tasks, late_tasks, look)
    facts = {
        "time_ratio": _finite(time),
        "shuffle_read_ratio": _finite(shuffle_ratio),
        "input_ratio": _finite(input_ratio),
        "gc_part": round(parts_of_excess["gc"], 3),
        "deserialization_part": round(parts_of_excess["deserialize"], 3),
        "scheduling_part": round(parts_of_excess["delay"], 3),
        "fetch_part": round(parts_of_excess["fetch_wait"], 3),
        "node_ratio": _finite(node_ratio),
    }
    needed = max(2.0, look.limits.data_ratio * time)
    largest = max(parts_of_excess, key=lambda name: parts_of_excess[name])
    if parts_of_excess["deserialize"] >= _MOST_OF_IT and node_ratio < _SLOWER:
        # It went before anything was read.
        kind = "deserialization"
    elif shuffle_ratio >= needed:
        kind = "key_skew"
    elif input_ratio >= needed:
        kind = "partition_skew"
    elif parts_of_excess[largest] >= _MOST_OF_IT and largest != "deserialize":
        kind = _PARTS[largest][0]
    elif node_ratio >= _SLOWER:
        kind = "slow_node"
    else:
        kind = "straggler"
    return {"signal": kind, **facts}


def _median(tasks: pl.DataFrame, name: str) -> float:
    return float(tasks[name].median() or 0)  # type: ignore[arg-type]


def _finite(value: float) -> float | None:
    return round(value, 2) if np.isfinite(value) else None


def _node_ratio(stage_tasks: pl.DataFrame, late_tasks: pl.DataFrame, look: Look) -> float:
    """Return how much slower a node is at everything, 1 if the slow tasks are on several nodes or it is not slower.

    Its other tasks count, and of the slow tasks themselves what does not depend on their data: deserialisation.
    """
    column = "host" if look.tasks["host"].n_unique() > 1 else "executor"
    places = late_tasks[column].unique().to_list()
    if len(places) != 1 or stage_tasks[column].n_unique() == 1:
        return 1.0
    tasks_elsewhere = stage_tasks.filter(pl.col(column) != places[0])
    # All tasks of the application after the first of each core, against the median of their stage elsewhere.
    first_tasks = look.tasks.sort("receipt", "number").unique("core", keep="first", maintain_order=True)
    warm = look.tasks.filter(pl.col("succeeded") & ~pl.col("number").is_in(first_tasks["number"].implode()))
    since = late_tasks["launch"].min()
    elsewhere = (
        warm.filter(pl.col(column) != places[0]).group_by("stage", "stage_attempt").agg(typical=pl.col("held").median())
    )
    tasks_here = (
        warm.filter((pl.col(column) == places[0]) & (pl.col("launch") >= since))
        .join(elsewhere, on=["stage", "stage_attempt"])
        .with_columns(ratio=pl.col("held") / pl.col("typical").clip(lower_bound=1))
    )
    not_slow = tasks_here.filter(~pl.col("number").is_in(late_tasks["number"].implode()))
    if not_slow.height >= 2:  # noqa: PLR2004 one task is no pattern
        return float(not_slow["ratio"].median() or 1.0)  # type: ignore[arg-type]
    if tasks_here.height >= 3:  # noqa: PLR2004 one task is no pattern
        return float(tasks_here["ratio"].median() or 1.0)  # type: ignore[arg-type]
    # Too few tasks there: what every task of the stage does alike must be slower too.
    alike = late_tasks.filter(pl.col("number").is_in(warm["number"].implode()))
    if not alike.height:
        return 1.0
    fixed, usual = float(alike["deserialize"].median() or 0), float(tasks_elsewhere["deserialize"].median() or 0)  # type: ignore[arg-type]
    if fixed - usual < 100e6:  # noqa: PLR2004 less than 100 ms says nothing
        return 1.0
    return fixed / max(usual, 50e6)


def _slow_text(kind: str, signal: dict[str, Any], stage: str) -> str:
    head = (
        f"{stage}: {signal['slow_tasks']} of {signal['tasks']} tasks took far longer than the others (task"
        f" {signal['index']}: {seconds(signal['longest_ns'])}, median {seconds(signal['median_ns'])})"
    )
    if kind == "key_skew":
        times_as_much = signal["shuffle_read_ratio"]
        return f"{head}, and read {times_as_much or 'far more than 100'} x as much from the shuffle: skewed keys."
    if kind == "partition_skew":
        return f"{head}, and read {signal['input_ratio'] or 'far more than 100'} x as much input: uneven partitions."
    if kind == "slow_node":
        return (
            f"{head}; all of them ran on {signal['host'] or 'executor ' + signal['executor']}, which is slower at"
            " everything, and not at their data: a slow node."
        )
    for cause, words in _PARTS.values():
        if kind == cause:
            part_of_excess = signal[_PART_OF[cause]]
            return f"{head}; {min(part_of_excess, 1):.0%} of the difference is {words}."
    return f"{head} with as much data as the others, on a node that is as fast: a straggler."


_PART_OF = {
    "gc": "gc_part",
    "deserialization": "deserialization_part",
    "scheduling": "scheduling_part",
    "shuffle_fetch": "fetch_part",
}
