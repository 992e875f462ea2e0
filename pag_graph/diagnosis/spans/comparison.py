"""Spans under the policies of other tools, summed by operation, to be compared with what those tools show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.diagnosis.spans import crisp_policy, jaeger_policy
from pag_graph.diagnosis.spans.one_trace import each_trace
from pag_graph.sources.spans.table import labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pag_graph.diagnosis.spans.one_trace import OneTrace
    from pag_graph.sources.spans.table import SpanTable


def compared(parts: Iterable[SpanTable], policy: str) -> dict[str, Any]:
    """Return the paths of all traces under another tool's policy.

    Parameters
    ----------
    parts
        All spans, in parts that hold whole traces; one at least.
    policy
        ``jaeger`` or ``crisp``.

    Returns
    -------
    dict
        `operations` with `path_ns` (for `crisp`: exclusive time on the path), and `traces`, one row each with what the
        tool says of it; `empty` counts traces for which it finds no path.
    """
    sums = dict[int, int]()
    rows: list[dict[str, Any]] = []
    spans, form, labels = 0, "", list[str]()
    for table in parts:
        spans, form = spans + table.rows, table.format
        labels = labels or labels_of(table.operations)
        for trace in each_trace(table):
            trace_row, of_trace = (_by_jaeger if policy == "jaeger" else _by_crisp)(trace, table)
            for operation, path_ns in of_trace.items():
                sums[operation] = sums.get(operation, 0) + path_ns
            rows.append({"trace": table.traces[trace.trace], **trace_row})
    operations = [{"operation": labels[code], "path_ns": path_ns} for code, path_ns in sorted(sums.items())]
    return {
        "format": form,
        "policy": policy,
        "spans": spans,
        "empty": sum(bool(trace_row["empty"]) for trace_row in rows),
        "operations": sorted(operations, key=lambda row: (-row["path_ns"], row["operation"])),
        "traces": sorted(rows, key=lambda trace_row: trace_row["trace"]),
    }


def _by_jaeger(trace: OneTrace, table: SpanTable) -> tuple[dict[str, Any], dict[int, int]]:
    sections, failed = jaeger_policy.critical_path(trace)
    tick, sums = table.tick_ns, dict[int, int]()
    for span, start, end in sections:
        operation = trace.operation[span]
        sums[operation] = sums.get(operation, 0) + (end - start) * tick
    path = [
        {"span": trace.ids[span], "start_unix_ns": start * tick, "duration_ns": (end - start) * tick}
        for span, start, end in sections
    ]
    return {"empty": failed, "path_ns": sum(sums.values()), "path": path}, sums


def _by_crisp(trace: OneTrace, table: SpanTable) -> tuple[dict[str, Any], dict[int, int]]:
    crisp_result = crisp_policy.critical_path(trace, table)
    if crisp_result is None:
        return {"empty": 1}, {}
    tick = table.tick_ns
    saved = crisp_result.saved_on_path
    trace_row = {
        "empty": 0,
        "path": [trace.ids[span] for span in crisp_result.path],
        "work_ns": crisp_result.total_work * tick,
        "saved_on_work_ns": crisp_result.saved_on_work * tick,
        "saved_on_path_ns": None if saved is None else saved * tick,
    }
    return trace_row, {operation: own_time * tick for operation, own_time in crisp_result.exclusive.items()}
