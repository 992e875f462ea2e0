"""The spans of one trace as lists, for the policies of other tools, which look at one trace at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spans.table import SpanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTrace:
    """One element per span, in file order; times in the format's own unit."""

    trace: int
    rows: list[int]
    """Rows of the table."""
    ids: list[str]
    kind: list[int]
    start: list[int]
    duration: list[int]
    process: list[int]
    operation: list[int]
    flags: list[int]
    references: list[list[tuple[int, bool, str]]]
    """Per span, in stated order: kind, whether it is to the same trace, and the id of the other span."""


def each_trace(table: SpanTable) -> Iterator[OneTrace]:
    """Yield the traces of a table in the order of their ids, the spans of each in the order of their file.

    Times are whole ticks of the format (`SpanTable.tick_ns`), as the other tools see them.
    """
    spans = table.spans.with_row_index("row").sort("trace", maintain_order=True)
    begins = np.flatnonzero(np.diff(spans["trace"].to_numpy(), prepend=-1))
    references = table.references.sort("row", maintain_order=True)
    owner = references["row"].to_numpy()
    references = references.with_columns(
        same=pl.Series(table.spans["trace"].gather(references["row"])) == references["trace"]
    )
    tick = table.tick_ns
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), spans.height], strict=True):
        trace_spans = spans[begin:end]
        rows = trace_spans["row"].to_list()
        stated: list[list[tuple[int, bool, str]]] = []
        lows, highs = np.searchsorted(owner, rows), np.searchsorted(owner, rows, side="right")
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            stated.append(references[low:high].select("type", "same", "id").rows() if high > low else [])
        yield OneTrace(
            trace=int(trace_spans["trace"][0]),
            rows=rows,
            ids=trace_spans["id"].to_list(),
            kind=trace_spans["kind"].to_list(),
            start=(trace_spans["start"] // tick).to_list(),
            duration=((trace_spans["end"] - trace_spans["start"]) // tick).to_list(),
            process=trace_spans["process"].to_list(),
            operation=trace_spans["operation"].to_list(),
            flags=trace_spans["flags"].to_list(),
            references=stated,
        )
