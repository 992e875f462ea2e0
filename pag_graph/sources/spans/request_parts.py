"""Requests of spans that are read in parts: each part is made when it is asked for, with what all parts say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.sources.spans.agreement import agree
from pag_graph.sources.spans.oddities import together, told
from pag_graph.sources.spans.requests import Prepared, make_requests, prepare

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from pag_graph.sources.spans.oddities import Odd
    from pag_graph.sources.spans.requests import Requests
    from pag_graph.sources.spans.table import SpanParts, SpanTable


class RequestParts:
    """The requests of all spans, a part at a time; what is said of each does not depend on the parts.

    Parameters
    ----------
    parts
        The spans, in parts that hold whole traces.
    sync
        As for `requests`.
    """

    def __init__(self, parts: SpanParts, *, sync: Collection[str] = ()) -> None:
        self._parts, self._sync = parts, sync
        self._whole: Requests | None = None
        self._odd: list[dict[str, Odd]] = []
        seen = []
        prepared: Prepared | None = None
        for read in parts.tables:
            self.table = read()
            prepared = prepare(self.table)
            seen.append(prepared.evidence)
        self._agreed = agree(self.table, seen)
        if len(parts.tables) == 1 and prepared is not None:
            self._whole = make_requests(self.table, prepared, self._agreed, sync=sync)

    table: SpanTable
    """One of the tables: what names are, and what was dropped, is the same in all."""

    def __iter__(self) -> Iterator[Requests]:
        """Yield the requests of each part."""
        if self._whole is not None:
            self._odd = [self._whole.odd]
            yield self._whole
            return
        self._odd = []
        for read in self._parts.tables:
            made = self._made(read())
            self._odd.append(made.odd)
            yield made

    @property
    def spans(self) -> int:
        """How many spans there are."""
        return self._parts.rows

    def findings(self) -> list[pa.Table]:
        """Return what is odd about all spans; known once all parts have been gone through."""
        return [*self.table.findings, *told(together(self._odd)), *self._agreed.clocks.findings]

    def of_traces(self, traces: Sequence[int]) -> Requests:
        """Return requests among which all those of some traces are, by code."""
        return self._whole or self._made(self._parts.of_traces(traces))

    def _made(self, table: SpanTable) -> Requests:
        return make_requests(table, prepare(table), self._agreed, sync=self._sync)
