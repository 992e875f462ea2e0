"""Work that several queries have in common and each does anew, and caches that did not hold."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.diagnosis.spark.changes import of_program
from pag_graph.diagnosis.spark.look import Cause, Look, Shorter, seconds
from pag_graph.diagnosis.spark.timers import TIMERS, Meaning

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.plan_view import PlanNode

    StageKey = tuple[int, int]

__all__ = ["CACHE", "reuse", "subtree_mark"]

CACHE = "InMemoryTableScan"
"""Plan nodes that read a cached table."""
_WRITES = ("Execute ", "OverwriteByExpression", "AppendData", "WriteFiles", "OverwritePartitionsDynamic")
_SHIFTING = ("AQEShuffleRead", "CustomShuffleReader", "WholeStageCodegen", "ColumnarToRow")
"""Nodes that come and go with the sizes that adaptive execution sees: they change nothing of what is computed."""


def reuse(look: Look) -> list[Cause]:
    """Find what queries compute again, for want of a cache or because it did not hold.

    Causes: ``cache_recomputed``, ``repeated_subplan``.
    """
    causes = [*_recomputed(look), _repeated(look)]
    return [cause for cause in causes if cause is not None]


# --- Caches that did not hold -----------------------------------------------------------------------------------------


def _recomputed(look: Look) -> list[Cause]:
    """Count, per cached table, the tasks that computed parts of it beyond the number of its parts."""
    caches: dict[int, list[PlanNode]] = {}
    for scan in look.plans.named(CACHE):
        feeding = _feeding(scan)
        if feeding:
            caches.setdefault(subtree_mark(scan.children[0]), []).append(scan)
    causes = [_cache(look, scans) for scans in caches.values()]
    return [cause for cause in causes if cause is not None]


def _feeding(scan: PlanNode) -> list[PlanNode]:
    """Return the nodes that run in a task that computes a part of a cached table."""
    feeding, waiting = [], list(scan.children)
    while waiting:
        node = waiting.pop()
        if node.name in {"Exchange", CACHE}:
            continue
        feeding.append(node)
        waiting += node.children
    return feeding


def _cache(look: Look, scans: list[PlanNode]) -> Cause | None:
    computing: dict[StageKey, int] = {}
    for scan in scans:
        for node in _feeding(scan):
            for key, count in node.updates.items():
                if key in look.by_stage:
                    computing[key] = max(computing.get(key, 0), count)
    if not computing:
        return None
    part_count, computed = max(computing.values()), sum(computing.values())
    # The stage that comes first computes what must be; what any other computes was there, or had been.
    first_stage = min(computing, key=lambda key: (look.by_stage[key]["launch"].to_numpy().min(), key))
    recomputing = {key: count for key, count in computing.items() if key != first_stage}
    again_tasks = computed - part_count
    if again_tasks <= 0 or not recomputing:
        return None
    changed = _longest(look, recomputing)
    saved = look.saved_in(sorted(recomputing), changed)
    if not look.matters(saved):
        return None
    stage = max(recomputing, key=lambda key: look.plans.run_ns[key])
    text = (
        f"{look.stage_name(*stage)}: a cached table of {part_count:,} parts was computed {computed:,} times part by"
        f" part: {again_tasks:,} tasks did again what had been done, for {seconds(_total_cut_ns(changed))}."
    )
    signal = {
        "parts": part_count,
        "computed": computed,
        "again": again_tasks,
        "stages": sorted({key[0] for key in recomputing}),
        "queries": sorted({scan.execution for scan in scans}),
    }
    place = f"stage {stage[0]}, {scans[0].label}"
    changes = (of_program("the cache's level", "memory, as it did not hold", "MEMORY_AND_DISK", place),)
    traps = (
        "Evictions and caches of RDDs are in the log only with spark.eventLog.logBlockUpdates.enabled.",
        "Parts of a cache that a lost executor held are computed again too.",
    )
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("cache_recomputed", saved, text, stage=stage[0], bound=True, **facts)


def _longest(look: Look, counts: dict[StageKey, int]) -> Shorter:
    """Return what takes the work from as many tasks of each stage as computed parts: the longest, which did."""
    cuts = []
    for key, count in sorted(counts.items()):
        stage_tasks = look.by_stage[key]
        chosen = np.argsort(-stage_tasks["work"].to_numpy(), kind="stable")[:count]
        cuts.append((stage_tasks["number"].to_numpy()[chosen], stage_tasks["work"].to_numpy()[chosen]))
    return Shorter(cuts)


def _total_cut_ns(changed: Shorter) -> int:
    return sum(int(cut_ns.sum()) for _, cut_ns in changed.parts)


# --- The same computed again ------------------------------------------------------------------------------------------


class _Subtree(NamedTuple):
    """A part of a plan, and what its stages cost."""

    root: PlanNode
    shares: dict[StageKey, float]
    """Stage attempt to the share of its run time that is spent below the root."""
    cost_ns: int


def _repeated(look: Look) -> Cause | None:
    """Find the part of plans that costs most when it is computed for the second time and later."""
    streamed = {job.execution for job in look.schedule.jobs if job.unit.startswith("batch")}
    groups: dict[int, list[PlanNode]] = {}
    marks: dict[int, int] = {}
    for root in look.plans.roots:
        if root.execution in streamed:
            # A stream asks the same of new rows.
            continue
        for node in _computed(root):
            mark = subtree_mark(node, marks)
            if not node.name.startswith((*_WRITES, *_SHIFTING)):
                groups.setdefault(mark, []).append(node)
    best: list[_Subtree] = []
    best_rank = (0, 0)
    for nodes in groups.values():
        if len(nodes) < 2:  # noqa: PLR2004 twice is again
            continue
        subtrees = _distinct([_subtree(look, node) for node in nodes])
        # Of parts that cost the same the largest says most; rows that are read again are no work by themselves.
        rank = (sum(subtree.cost_ns for subtree in subtrees), len(list(nodes[0].below())))
        if subtrees and rank[1] > 1 and rank > best_rank:
            best, best_rank = subtrees, rank
    return _repeated_cause(look, best) if best else None


def _computed(root: PlanNode) -> list[PlanNode]:
    """Return the nodes of a plan except those whose rows come from a cache."""
    computed, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        computed.append(node)
        if node.name != CACHE:
            waiting += node.children
    return computed


def subtree_mark(node: PlanNode, known: dict[int, int] | None = None) -> int:
    """Return a mark of a node and all below it: equal for plans that compute the same.

    Parameters
    ----------
    node
        The node. What adaptive execution puts above a single node does not count.
    known
        Marks that were worked out already, by identity of the node; it is added to. With one for all plans each node is
        looked at once.

    Returns
    -------
    int
        64 bits of a BLAKE2b digest, signed.
    """
    known = {} if known is None else known
    for below in reversed(list(node.below())):
        if id(below) in known:
            continue
        words = ",".join(str(known[id(child)]) for child in below.children)
        if below.name.startswith(_SHIFTING) and len(below.children) == 1:
            known[id(below)] = known[id(below.children[0])]
        else:
            digest = hashlib.blake2b(f"{below.name}|{below.mark}|{words}".encode(), digest_size=8).digest()
            known[id(below)] = int.from_bytes(digest, signed=True)
    return known[id(node)]


def _subtree(look: Look, root: PlanNode) -> _Subtree:
    """Say what the stages of a part of a plan cost: those that work for nothing else whole, of others what is timed."""
    part_nodes = {id(node): node for node in _computed(root)}
    shares: dict[StageKey, float] = {}
    for key in look.plans.stages(list(part_nodes.values())):
        working = look.plans.of_stage[key]
        if all(id(node) in part_nodes for node in working):
            shares[key] = 1.0
            continue
        timed = sum(
            times.get(key, 0)
            for node in working
            if id(node) in part_nodes
            for timer, times in node.counted.items()
            if TIMERS.get(timer) is Meaning.EXCLUSIVE
        )
        shares[key] = min(1.0, timed / look.plans.run_ns[key])
    return _Subtree(root, shares, int(sum(share * look.plans.run_ns[key] for key, share in shares.items())))


def _distinct(subtrees: list[_Subtree]) -> list[_Subtree]:
    """Return the parts after the first, each with the stages that no earlier one had: a stage is done once."""
    stages_before = set(subtrees[0].shares)
    distinct = []
    for subtree in subtrees[1:]:
        shares = {key: share for key, share in subtree.shares.items() if key not in stages_before and share > 0}
        stages_before |= set(shares)
        if shares:
            cost = subtree.cost_ns * sum(shares.values()) / max(sum(subtree.shares.values()), 1e-9)
            distinct.append(_Subtree(subtree.root, shares, int(cost)))
    return distinct


def _repeated_cause(look: Look, again: list[_Subtree]) -> Cause | None:
    shares = {key: share for subtree in again for key, share in subtree.shares.items()}
    changed = look.cut(shares, lambda key: shares[key])
    saved = look.saved_in(sorted(shares), changed)
    if not look.matters(saved):
        return None
    stage = max(shares, key=lambda key: shares[key] * look.plans.run_ns[key])
    root = again[0].root
    nodes = [node.name for node in _computed(root) if not node.name.startswith(_SHIFTING)]
    node_names = ", ".join(dict.fromkeys(nodes[:4])) + (", ..." if len(nodes) > 4 else "")  # noqa: PLR2004 a few
    queries = sorted({subtree.root.execution for subtree in again})
    text = (
        f"{look.stage_name(*stage)}: {len(again) + 1} times the same is computed ({node_names}), in"
        f" quer{'ies' if len(queries) > 1 else 'y'} {', '.join(map(str, queries[:6]))} again."
    )
    signal = {
        "times": len(again) + 1,
        "queries": queries,
        "nodes": nodes[:20],
        "stages": sorted({number for number, _ in shares}),
    }
    place = f"{root.label} and below"
    changes = (of_program("what is computed again", f"{len(again) + 1} times", "persist(), computed once", place),)
    traps = (
        "Functions that give another result each time must stay.",
        "It needs room: what is kept takes memory or disk.",
    )
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("repeated_subplan", saved, text, stage=stage[0], bound=True, **facts)
