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


def slow_tasks(look: Look) -> list[Cause]:
    """Tasks that take far longer than the others of their stage, and why."""
    limits, found = look.limits, []
    tasks = look.tasks.with_columns(warm=pl.Series(look.warm)).filter("succeeded")
    for (stage, attempt), own in tasks.group_by("stage", "stage_attempt", maintain_order=True):
        if own.height < 3:  # noqa: PLR2004 two tasks have no typical one
            continue
        held = own["warm"].to_numpy()
        typical = float(np.median(held))
        slow = held > limits.slow_ratio * max(typical, 1.0)
        if not slow.any() or (held.max() - typical) * 1.0 < limits.saved_share * look.active:
            continue
        numbers = own["number"].to_numpy()
        raw = own["held"].to_numpy()
        mean = int(raw.sum() / own.height)
        excess = raw[slow] - held[slow] + int(typical)

        def even(durations: I64, numbers: I64 = numbers, mean: int = mean) -> None:
            durations[numbers] = mean

        def usual(durations: I64, numbers: I64 = numbers[slow], excess: I64 = excess) -> None:
            durations[numbers] = excess

        signal = _why_slow(own, slow, look)
        kind = signal["signal"]
        saved = look.saved(even if kind in {"key_skew", "partition_skew"} else usual)
        if not look.matters(saved):
            continue
        number, place = int(stage), int(np.argmax(held))
        index, executor = int(own["index"][place]), look.schedule.log.texts["executor"][own["executor"][place]]
        signal |= {
            "stage": number,
            "stage_attempt": int(attempt),
            "slow_tasks": int(slow.sum()),
            "tasks": own.height,
            "index": index,
            "executor": executor,
            "host": look.schedule.log.texts["host"][own["host"][place]],
            "longest_ns": int(held.max()),
            "median_ns": int(typical),
        }
        found.append(look.cause(kind, saved, _slow_text(kind, signal), stage=number, signal=signal))
    return found


def _why_slow(own: pl.DataFrame, slow: NDArray[np.bool_], look: Look) -> dict[str, Any]:
    """Say what sets slow tasks apart from the others of their stage."""
    others, those = own.filter(~pl.Series(slow)), own.filter(pl.Series(slow))
    if not others.height:
        others = own

    def ratio(values: pl.Expr) -> float:
        base = float(others.select(values.median()).item() or 0)
        top = float(those.select(values.median()).item() or 0)
        return top / base if base > 0 else (float("inf") if top > 0 else 1.0)

    time = ratio(pl.col("warm"))
    shuffled = max(ratio(pl.col("shuffle_read_records")), ratio(pl.col("remote_bytes") + pl.col("local_bytes")))
    taken = max(ratio(pl.col("input_records")), ratio(pl.col("input_bytes")))
    excess = max(
        float(those.select((pl.col("warm")).median()).item() - others.select(pl.col("warm").median()).item()), 1.0
    )

    def part(name: str) -> float:
        return (float(those[name].median() or 0) - float(others[name].median() or 0)) / excess  # type: ignore[arg-type]

    node = _node_ratio(own, those, look)
    facts = {
        "time_ratio": round(time, 2),
        "shuffle_read_ratio": _finite(shuffled),
        "input_ratio": _finite(taken),
        "gc_part": round(part("gc"), 3),
        "scheduling_part": round(part("delay"), 3),
        "fetch_part": round(part("fetch_wait"), 3),
        "node_ratio": _finite(node),
    }
    needed = max(2.0, look.limits.data_ratio * time)
    if shuffled >= needed:
        kind = "key_skew"
    elif taken >= needed:
        kind = "partition_skew"
    elif part("gc") >= _MOST_OF_IT:
        kind = "gc"
    elif part("delay") >= _MOST_OF_IT:
        kind = "scheduling"
    elif part("fetch_wait") >= _MOST_OF_IT:
        kind = "shuffle_fetch"
    elif node >= _SLOWER:
        kind = "slow_node"
    else:
        kind = "straggler"
    return {"signal": kind, **facts}


def _finite(value: float) -> float | None:
    return round(value, 2) if np.isfinite(value) else None


def _node_ratio(own: pl.DataFrame, those: pl.DataFrame, look: Look) -> float:
    """Return how much slower a node is at everything, 1 if the slow tasks are on several nodes or it is not slower.

    Its other tasks count, and of the slow tasks themselves what does not depend on their data: deserialisation.
    """
    column = "host" if look.tasks["host"].n_unique() > 1 else "executor"
    places = those[column].unique().to_list()
    if len(places) != 1 or own[column].n_unique() == 1:
        return 1.0
    others = own.filter(pl.col(column) != places[0])
    # All tasks of the application after the first of each core, against the median of their stage elsewhere.
    first = look.tasks.sort("receipt", "number").unique("core", keep="first", maintain_order=True)
    warm = look.tasks.filter(pl.col("succeeded") & ~pl.col("number").is_in(first["number"].implode()))
    since = those["launch"].min()
    elsewhere = (
        warm.filter(pl.col(column) != places[0]).group_by("stage", "stage_attempt").agg(typical=pl.col("held").median())
    )
    here = (
        warm.filter((pl.col(column) == places[0]) & (pl.col("launch") >= since))
        .join(elsewhere, on=["stage", "stage_attempt"])
        .with_columns(ratio=pl.col("held") / pl.col("typical").clip(lower_bound=1))
    )
    not_slow = here.filter(~pl.col("number").is_in(those["number"].implode()))
    if not_slow.height >= 2:  # noqa: PLR2004 one task is no pattern
        return float(not_slow["ratio"].median() or 1.0)  # type: ignore[arg-type]
    if here.height >= 3:  # noqa: PLR2004 one task is no pattern
        return float(here["ratio"].median() or 1.0)  # type: ignore[arg-type]
    # Too few tasks there: what every task of the stage does alike must be slower too.
    alike = those.filter(pl.col("number").is_in(warm["number"].implode()))
    if not alike.height:
        return 1.0
    fixed, usual = float(alike["deserialize"].median() or 0), float(others["deserialize"].median() or 0)  # type: ignore[arg-type]
    if fixed - usual < 100e6:  # noqa: PLR2004 less than 100 ms says nothing
        return 1.0
    return fixed / max(usual, 50e6)


def _slow_text(kind: str, signal: dict[str, Any]) -> str:
    many = f"{signal['slow_tasks']} of {signal['tasks']} tasks"
    head = (
        f"Stage {signal['stage']}: {many} took far longer than the others (task {signal['index']}:"
        f" {seconds(signal['longest_ns'])}, median {seconds(signal['median_ns'])})"
    )
    if kind == "key_skew":
        more = signal["shuffle_read_ratio"]
        return f"{head}, and read {more or 'far more than 100'} x as much from the shuffle: skewed keys."
    if kind == "partition_skew":
        return f"{head}, and read {signal['input_ratio'] or 'far more than 100'} x as much input: uneven partitions."
    if kind == "slow_node":
        return (
            f"{head}; all of them ran on {signal['host'] or 'executor ' + signal['executor']}, which is slower at"
            " everything, and not at their data: a slow node."
        )
    if kind == "gc":
        return f"{head}; {signal['gc_part']:.0%} of the difference is garbage collection."
    if kind == "scheduling":
        return f"{head}; {signal['scheduling_part']:.0%} of the difference is scheduler delay."
    if kind == "shuffle_fetch":
        return f"{head}; {signal['fetch_part']:.0%} of the difference is waiting for shuffle blocks."
    return f"{head} with as much data as the others, on a node that is as fast: a straggler."
