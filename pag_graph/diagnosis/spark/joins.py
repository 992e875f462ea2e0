"""Joins that move or make more rows than they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.changes import of_program, of_setting, share_of_memory, size_of

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.look import Cause, Look, Shorter
    from pag_graph.diagnosis.spark.plan_view import PlanNode

__all__ = ["joins"]

_SHUFFLED = ("SortMergeJoin", "ShuffledHashJoin")
_PAIRS = ("CartesianProduct", "BroadcastNestedLoopJoin")
_JOINS = (*_SHUFFLED, *_PAIRS, "BroadcastHashJoin")
_BETWEEN = frozenset({"Sort", "AQEShuffleRead", "CustomShuffleReader", "ReusedExchange"})
"""Nodes between a join and the exchange that divides the rows for it."""

_RIGHT = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin"})
_LEFT = frozenset({"Inner", "Cross", "RightOuter"})
"""Kinds of joins of which the right, or the left, side can be sent to all."""

_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


def joins(look: Look) -> list[Cause]:
    """Find joins that shuffle a large side for a small one, and joins that make far more rows than they read.

    Causes: ``broadcast_missed``, ``exploding_join``.
    """
    causes = [*(_broadcast_missed(look, node) for node in look.plans.named(*_SHUFFLED)), *_exploding(look)]
    return [cause for cause in causes if cause is not None]


def _exchange(node: PlanNode) -> PlanNode | None:
    """Return the exchange that divides the rows of one side of a join, if they are divided for it."""
    while node.name in _BETWEEN or node.name.startswith("WholeStageCodegen"):
        if len(node.children) != 1:
            return None
        (node,) = node.children
    return node if node.name == "Exchange" else None


def _broadcast_missed(look: Look, join: PlanNode) -> Cause | None:
    if len(join.children) != 2:  # noqa: PLR2004 its two sides
        return None
    exchanges = [_exchange(child) for child in join.children]
    able = (join.detail in _LEFT, join.detail in _RIGHT)
    limit = _most_to_send(look, join.execution)
    sides = [
        (exchange.total("data size"), place)
        for place, exchange in enumerate(exchanges)
        if exchange is not None and able[place] and exchange.has("data size") and exchanges[1 - place] is not None
    ]
    small = min(sides, default=None)
    if small is None or not 0 < small[0] <= limit:
        return None
    large_exchange, small_exchange = exchanges[1 - small[1]], exchanges[small[1]]
    if (
        large_exchange is None
        or small_exchange is None
        or small[0] > look.limits.small_side * large_exchange.total("data size")
    ):
        return None
    keys, changed = _without_shuffle(look, join, large_exchange)
    if not keys:
        return None
    saved = look.saved_in(keys, changed)
    if not look.matters(saved):
        return None
    stage = max(look.plans.stages([join]), key=lambda key: look.plans.run_ns[key])
    rows = "" if small_exchange.rows is None else f" ({small_exchange.rows:,} rows)"
    text = (
        f"{look.stage_name(*stage)}: {join.name} shuffles both sides, and one of them is only"
        f" {small[0] / 2**20:,.1f} MiB{rows}; the other is {large_exchange.total('data size') / 2**20:,.1f} MiB."
    )
    log, place = look.schedule.log, f"stage {stage[0]}, {join.label}"
    signal = {
        "small_bytes": small[0],
        "small_rows": small_exchange.rows,
        "large_bytes": large_exchange.total("data size"),
        "large_rows": large_exchange.rows,
        "limit_bytes": limit,
        "join": join.detail,
        "query": join.execution,
    }
    changes = (
        of_setting(log, _THRESHOLD, str(_rounded_up(small[0])), query=join.execution),
        of_program("the join", join.name, "broadcast(small side)", place),
    )
    traps = (
        f"It is small beside the other: {small[0] / max(large_exchange.total('data size'), 1):.1%}.",
        f"The kind of join ({join.detail}) lets this side be sent to all.",
        f"It fits: {limit / 2**20:,.0f} MiB are allowed by the memory of driver and executors.",
    )
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("broadcast_missed", saved, text, stage=stage[0], bound=True, **facts)


def _most_to_send(look: Look, query: int) -> int:
    """Return how large a side may be that every executor holds, and that the driver collects before."""
    log, limits = look.schedule.log, look.limits
    driver = size_of(log, "spark.driver.memory") or 1 << 30
    heap = driver if all(name == "driver" for name in look.schedule.executors["executor"].to_list()) else 0
    heap = heap or size_of(log, "spark.executor.memory") or 1 << 30
    fraction = share_of_memory(log, query)
    cores = max((int(count or 1) for count in look.schedule.executors["cores"].to_list()), default=1)
    return int(min(limits.driver_heap_share * driver, fraction * heap / max(cores, 1)))


def _rounded_up(size: int) -> int:
    """Return a size with room to grow: twice as much, as a whole number of MiB."""
    return max(1, -(-2 * size // 2**20)) * 2**20


def _without_shuffle(look: Look, join: PlanNode, large_exchange: PlanNode) -> tuple[list[tuple[int, int]], Shorter]:
    """Return the stages that a broadcast changes, and what it takes from them at most.

    The large side is not written, read, and sorted any more. Its writing stage loses the time of the shuffle write or
    the exchange's part of all rows that flow there, whichever is more; the joining stage the part of the rows that it
    reads in all that it reads and makes, of what is not timed for other nodes. No row takes longer than a row can.
    """
    plans = look.plans
    moved_rows = sum(side.rows or 0 for side in join.children)
    most_ns = moved_rows * look.limits.shuffle_row_ns
    shares: dict[tuple[int, int], float] = {}
    joining = plans.stages([join])
    for key in joining:
        # What other nodes of the stage take by their own timers stays.
        timed_elsewhere_ns = sum(
            node.counted.get(timer, {}).get(key, 0)
            for node in plans.of_stage.get(key, ())
            for timer in ("scan time", "time to execute Python code", "task commit time")
        )
        made_rows = max(0, join.total("number of output rows") - (large_exchange.rows or 0))
        reading = moved_rows / max(moved_rows + made_rows, 1)
        shares[key] = min(1 - timed_elsewhere_ns / plans.run_ns[key], reading, most_ns / plans.run_ns[key])
    for key in large_exchange.counted.get("shuffle write time", {}):
        if key in plans.run_ns and key not in joining:
            nodes = [node for node in plans.of_stage[key] if node.rows]
            flowing_rows = sum(node.rows or 0 for node in nodes)
            write = large_exchange.counted["shuffle write time"][key] / plans.run_ns[key]
            shares[key] = max(
                write, min((large_exchange.rows or 0) / max(flowing_rows, 1), most_ns / plans.run_ns[key])
            )
    keys = sorted(shares)
    return keys, look.cut(keys, lambda key: shares[key])


def _exploding(look: Look) -> list[Cause | None]:
    return [_exploded(look, node) for node in look.plans.named(*_JOINS)]


def _exploded(look: Look, join: PlanNode) -> Cause | None:
    sides = [child.rows for child in join.children]
    if len(sides) != 2 or None in sides or not join.updates:  # noqa: PLR2004 its two sides
        return None
    left, right = (rows or 0 for rows in sides)
    pairs = join.name in _PAIRS
    made_rows = left * right if pairs else join.total("number of output rows")
    if join.name == "CartesianProduct":
        # Each of its tasks reads a partition of both sides, so a side's rows count once for each of the other's.
        tasks = max(1, sum(look.by_stage[key].height for key in look.plans.stages([join])))
        left, right, made_rows = round(left / tasks**0.5), round(right / tasks**0.5), made_rows // tasks
    larger = max(left, right, 1)
    if made_rows < look.limits.exploding_ratio * larger:
        return None
    keys = sorted(look.plans.stages([join, *join.above()]))
    share = 1 - larger / made_rows
    flowing = max(0.0, 1 - larger / max(join.total("number of output rows"), 1))
    join_stages = look.plans.stages([join])
    comparing = (
        made_rows * look.limits.pair_ns / max(sum(look.plans.run_ns[key] for key in join_stages), 1) if pairs else 0.0
    )
    # Comparisons take time where the join runs, and rows wherever they flow.
    changed = look.cut(keys, lambda key: max(flowing, min(share, comparing)) if key in join_stages else flowing)
    saved = look.saved_in(keys, changed)
    if not look.matters(saved):
        return None
    stage = max(look.plans.stages([join]), key=lambda key: look.plans.run_ns[key])
    doing = "compares every row with every row" if pairs else "makes rows"
    text = (
        f"{look.stage_name(*stage)}: {join.name} {doing}: {made_rows:,} {'pairs' if pairs else 'rows'} of {left:,} and"
        f" {right:,} rows, {made_rows / larger:,.0f} for each of the larger side."
    )
    signal = {
        "left_rows": left,
        "right_rows": right,
        "made": made_rows,
        "output_rows": join.total("number of output rows"),
        "join": join.name,
        "query": join.execution,
    }
    proposed = "an equality of keys in the condition" if pairs else "a key that tells rows apart, or no duplicates"
    changes = (
        of_program(
            "the join", f"{join.name}, {made_rows:,} of {larger:,}", proposed, f"stage {stage[0]}, {join.label}"
        ),
    )
    traps = ("All these rows can be wanted: whether they are is not in the log.",)
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("exploding_join", saved, text, stage=stage[0], bound=True, **facts)
