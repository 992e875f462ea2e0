"""Patterns of plans that often cost time, where the log does not say how much; and what it does not record at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.diagnosis.spark.python_code import EXECUTES, PYTHON
from pag_graph.diagnosis.spark.reuse import CACHE, subtree_mark
from pag_graph.sources.spark.plan_texts import UNPUSHED, UNSPLITTABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pag_graph.diagnosis.spark.plan_view import PlanNode, PlanView
    from pag_graph.sources.spark.log_tables import SparkLog

__all__ = ["NotRecorded", "Suspicion", "evicted_blocks", "is_native", "not_recorded", "suspicions"]

_LEAST_ROWS = 100_000
"""Fewer rows are not worth a word."""
_BARELY = 0.9
"""A partial aggregation that leaves more than this of its rows is useless."""
_MANY_TIMES = 10
_LARGE_BYTES = 1 << 30
_FEW = 0.01
"""A filter that keeps less than this of its rows had better been part of the scan."""
_GENERATED = frozenset({"Filter", "HashAggregate", "Project"})
"""Nodes that run in generated code unless something keeps them from it."""
_AGGREGATES = frozenset({"HashAggregate", "ObjectHashAggregate", "SortAggregate"})
_HASHING = frozenset({"HashAggregate", "ObjectHashAggregate"})
"""Aggregations that need no order."""
_LAMBDAS = frozenset(
    {"AppendColumns", "DeserializeToObject", "FlatMapGroupsInR", "MapElements", "MapGroups", "TypedFilter"}
)
_PASSING = frozenset({"AQEShuffleRead", "ColumnarToRow", "CustomShuffleReader", "Filter", "Project", "Sort"})
"""Nodes that pass rows on, besides those that stand for generated code."""
_TO_NATIVE = re.compile(r"\w{0,40}RowTo\w{0,40}Columnar\w{0,40}", re.ASCII)
"""Nodes that hand rows of Spark to a native engine (Photon, RAPIDS, Gluten, Comet)."""


class Suspicion(NamedTuple):
    """A pattern in a plan that often costs time; how much is not in the log."""

    suspicion: str
    """Stable name of the pattern."""
    text: str
    """What was seen, with its numbers."""
    advice: str
    """What to look at."""
    node: str
    """Where."""

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(self._asdict())


class NotRecorded(NamedTuple):
    """Something that an answer would need, and the log does not have."""

    what: str
    """What is not known."""
    setting: str | None
    """Setting with which Spark records it; None where none does."""
    text: str
    """The same in a sentence."""

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(self._asdict())


def suspicions(plans: Iterable[PlanNode]) -> list[Suspicion]:
    """Find patterns without a time in the plans of a log.

    Parameters
    ----------
    plans
        The nodes of all queries.

    Returns
    -------
    list of Suspicion
        By name and node; each node at most once per pattern. They are no causes: none has a saving, and none is ranked.
    """
    nodes = list(plans)
    patterns = [suspicion for node in nodes for suspicion in (*_of_node(node), *_of_text(node))]
    if any(node.generated for node in nodes):
        patterns += [suspicion for node in nodes for suspicion in _interpreted(node)]
    patterns += _cached_once(nodes)
    return sorted(dict.fromkeys(patterns))


def _of_node(node: PlanNode) -> Iterator[Suspicion]:
    below = node.children[0] if len(node.children) == 1 else None
    rows, rows_below = node.rows or 0, (below.rows or 0) if below is not None else 0
    if node.name in _LAMBDAS and max(rows, rows_below) >= _LEAST_ROWS:
        text = f"{max(rows, rows_below):,} rows are made objects for a typed function; Spark has no timer for it."
        yield Suspicion("typed_lambda", text, "Use functions of columns: they need no objects.", node.label)
    if _is_partial(node) and rows_below >= _LEAST_ROWS and rows > _BARELY * rows_below:
        text = f"A partial aggregation leaves {rows:,} of {rows_below:,} rows: it hardly makes them fewer."
        yield Suspicion("useless_partial_agg", text, "Aggregate after the join, or by fewer keys first.", node.label)
    if node.name in {"Expand", "Generate"} and rows >= max(_MANY_TIMES * rows_below, _LEAST_ROWS) and rows_below:
        text = f"{rows_below:,} rows become {rows:,}."
        yield Suspicion("multiplied_rows", text, "Filter first; count distinct values approximately.", node.label)
    if tasks := node.total("number of sort fallback tasks"):
        text = f"{tasks:,} of its tasks fell back to sorting: their groups did not fit into the hash map."
        advice = "Raise spark.sql.objectHashAggregate.sortBased.fallbackThreshold, or give tasks more memory."
        yield Suspicion("agg_fallback", text, advice, node.label)
    if node.name == "BroadcastExchange" and (size := node.total("data size")) >= _LARGE_BYTES:
        text = f"{size / _LARGE_BYTES:.1f} GiB were collected and sent to every executor."
        advice = "Lower spark.sql.autoBroadcastJoinThreshold, or remove the hint."
        yield Suspicion("broadcast_large", text, advice, node.label)
    if node.name == "Exchange" and (above := _next_above(node)) is not None:
        yield from _of_exchange(node, above)
    if _TO_NATIVE.fullmatch(node.name):
        text = "Rows go from Spark to the native engine here, so what is below did not run in it."
        yield Suspicion("native_fallback", text, "Use expressions that the engine knows.", node.label)


def _of_text(node: PlanNode) -> Iterator[Suspicion]:
    """Find scans that read far more than a filter keeps, and expressions that take long for each row."""
    below = node.children[0] if len(node.children) == 1 else None
    if below is not None and below.name == "ColumnarToRow" and below.children:
        below = below.children[0]
    rows_in = (below.rows if below is not None else node.rows) or 0
    if node.name == "Filter" and below is not None and UNPUSHED in below.traits:
        rows_out = node.total("number of output rows")
        if rows_in >= _LEAST_ROWS and rows_out < _FEW * rows_in and node.has("number of output rows"):
            text = (
                f"{rows_in:,} rows were read, and the filter above kept {rows_out:,}: nothing of it goes to the files."
            )
            advice = "Compare columns as they lie in the files, without casts or functions, or by a partition's column."
            yield Suspicion("full_scan", text, advice, below.label)
    slow_traits = [trait for trait in node.traits if trait not in {UNPUSHED, UNSPLITTABLE}]
    if slow_traits and rows_in >= _LEAST_ROWS:
        text = f"{', '.join(slow_traits)} for each of {rows_in:,} rows; Spark has no timer for expressions."
        advice = "Work it out once and keep the result, or join with a table of the values."
        yield Suspicion("slow_expression", text, advice, node.label)


def _interpreted(node: PlanNode) -> Iterator[Suspicion]:
    """Find nodes outside of generated code, in a log where others are in it."""
    rows = max((below.rows or 0 for below in node.children), default=0)
    if node.name in _GENERATED and not node.generated and rows >= _LEAST_ROWS:
        text = f"{rows:,} rows went through it outside of generated code, one call for each expression."
        advice = "Select fewer columns (spark.sql.codegen.maxFields), or split the expression that cannot be generated."
        yield Suspicion("codegen_fallback", text, advice, node.label)


def _cached_once(nodes: list[PlanNode]) -> list[Suspicion]:
    """Find caches that are read once."""
    scans: dict[int, list[PlanNode]] = {}
    for node in nodes:
        if node.name == CACHE and node.updates:
            scans.setdefault(subtree_mark(node.children[0]) if node.children else node.mark, []).append(node)
    return [
        Suspicion(
            "cache_unused",
            f"{scan.rows:,} rows were kept in a cache and read once.",
            "Remove the persist(): to fill a cache takes time and memory.",
            scan.label,
        )
        for (scan, *further_scans) in scans.values()
        if not further_scans and (scan.rows or 0) >= _LEAST_ROWS
    ]


def evicted_blocks(log: SparkLog) -> Iterator[Suspicion]:
    """Find caches whose blocks did not stay, where the log has what became of them.

    Parameters
    ----------
    log
        As read.

    Yields
    ------
    Suspicion
        One for each dataset; what a block's next reader takes to compute it again is not in the log.
    """
    for rdd, blocks, evicted, times in log.cached.iter_rows():
        if evicted:
            text = f"{evicted:,} of {blocks:,} blocks were evicted from the cache ({times:,} times): what needs one"
            text += " computes it again."
            advice = "Keep it on disk too (MEMORY_AND_DISK), give executors more memory for storage, or cache less."
            yield Suspicion("cache_evicted", text, advice, f"dataset {rdd}")


def is_native(name: str) -> bool:
    """Return whether a node runs in an engine beside the JVM (Photon, RAPIDS, Gluten, Comet), or hands rows to one."""
    return name.startswith(("Photon", "Gpu", "Velox", "Comet")) or _TO_NATIVE.fullmatch(name) is not None


def _of_exchange(node: PlanNode, above: PlanNode) -> Iterator[Suspicion]:
    if (node.rows or 0) < _LEAST_ROWS:
        return
    if node.detail == "rangepartitioning" and (above.name == "Exchange" or above.name in _HASHING):
        text = f"{node.rows:,} rows are sorted, and {above.name} above does not promise to keep their order."
        yield Suspicion("unused_order", text, "Remove the orderBy, or do it last.", node.label)
    elif above.name == "Exchange":
        text = f"{node.rows:,} rows are shuffled, and again by the next exchange."
        yield Suspicion("wasted_shuffle", text, "Remove the repartition before it.", node.label)


def _is_partial(node: PlanNode) -> bool:
    """Say whether a node aggregates rows before they are shuffled for the same aggregation."""
    above = _next_above(node)
    if node.name not in _AGGREGATES or above is None or above.name != "Exchange":
        return False
    after = _next_above(above)
    return after is not None and after.name in _AGGREGATES


def _next_above(node: PlanNode) -> PlanNode | None:
    """Return the nearest node above that does more than pass rows on."""
    return next((above for above in node.above() if not _passes(above)), None)


def _passes(node: PlanNode) -> bool:
    return node.name in _PASSING or node.name.startswith("WholeStageCodegen")


def not_recorded(log: SparkLog, plans: PlanView) -> list[NotRecorded]:
    """Say what answers about a log would need that it does not have, and which setting records it.

    Parameters
    ----------
    log
        As read.
    plans
        Of all its queries.
    """
    counted = {name.rsplit(".", 1)[-1] for name in (*log.events, *log.unknown)}
    missing = []
    if "SparkListenerStageExecutorMetrics" not in counted:
        unknown = "how much memory executors and driver held, and the driver's garbage collection"
        missing.append(_missing(unknown, "spark.eventLog.logStageExecutorMetrics"))
    if "SparkListenerBlockUpdated" not in counted and any(True for _ in plans.named("InMemoryTableScan")):
        missing.append(_missing("which blocks of a cache were evicted", "spark.eventLog.logBlockUpdates.enabled"))
    python = [node for node in plans if PYTHON.fullmatch(node.name) and node.updates]
    if python and not any(node.has(EXECUTES) for node in python):
        missing.append(
            _missing("how long Python code ran", None, "; Spark 4 times it, unless a limit ends the tasks early")
        )
    if log.progress.height:
        missing.append(_missing("which interval between batches a stream was asked for", None))
    return missing


def _missing(unknown: str, setting: str | None, otherwise: str = "") -> NotRecorded:
    remedy = f"{setting} records it" if setting else f"no setting records it{otherwise}"
    return NotRecorded(unknown, setting, f"{unknown} ({remedy})")
