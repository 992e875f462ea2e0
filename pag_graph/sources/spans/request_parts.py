"""Requests of spans that are read in parts: each part is made when it is asked for, with what all parts say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from pag_graph.sources.spans.agreement import agree
from pag_graph.sources.spans.oddities import together, told
from pag_graph.sources.spans.requests import Prepared, make_requests, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.sources.spans.oddities import Odd
    from pag_graph.sources.spans.requests import Requests
    from pag_graph.sources.spans.table import SpanParts, SpanTable


REQUEST_ORDER: Final = ("start", "trace", "in_trace")
"""Columns of `request_rows` that all requests are ordered by."""


class RequestParts:
    """The requests of all spans, a part at a time; what is said of each does not depend on the parts.

    Parameters
    ----------
    parts
        The spans, in parts that hold whole traces.
    sync
        As for `make_requests`.
    """

    def __init__(self, parts: SpanParts, *, sync: Collection[str] = ()) -> None:
        self._parts, self._sync = parts, sync
        self._whole: Requests | None = None
        self._odd: list[dict[str, Odd]] = []
        evidence = []
        prepared: Prepared | None = None
        for read_table in parts.tables:
            self.table = read_table()
            prepared = prepare(self.table)
            evidence.append(prepared.evidence)
        self._agreed = agree(self.table, evidence)
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
        for read_table in self._parts.tables:
            requests = self._read_requests(read_table)
            self._odd.append(requests.odd)
            yield requests

    @property
    def spans(self) -> int:
        """How many spans there are."""
        return self._parts.rows

    @property
    def held(self) -> int:
        """How many of them memory is to hold at a time."""
        return self._parts.held

    def findings(self) -> list[pa.Table]:
        """Return what is odd about all spans; known once all parts have been gone through."""
        return [*self.table.findings, *told(together(self._odd)), *self._agreed.clocks.findings]

    def of_traces(self, traces: Sequence[int]) -> Requests:
        """Return requests among which all those of some traces are, by the codes of these."""
        return self._whole or self._make(self._parts.of_traces(traces))

    def grouped(self, groups: Sequence[Sequence[int]]) -> list[Callable[[], Requests]]:
        """Return what makes, of each group of traces, requests among which all of theirs are.

        Parameters
        ----------
        groups
            Codes of traces; one may be in several groups.

        Raises
        ------
        StoreError
            If the folder for temporary files has no room.
        """
        if self._whole is not None:
            return [partial(_same, self._whole)] * len(groups)
        if len(groups) == 1:
            return [partial(self.of_traces, groups[0])]
        return [partial(self._read_requests, read_table) for read_table in self._parts.grouped(groups)]

    def _read_requests(self, read_table: Callable[[], SpanTable]) -> Requests:
        return self._make(read_table())

    def _make(self, table: SpanTable) -> Requests:
        return make_requests(table, prepare(table), self._agreed, sync=self._sync)


def _same(requests: Requests) -> Requests:
    return requests


def request_rows(requests: Requests) -> pl.DataFrame:
    """Return one row per request.

    Parameters
    ----------
    requests
        All those of some traces.

    Returns
    -------
    DataFrame
        `start` in Unix ns, `trace` (its code), `in_trace` (the request's number in its trace), `orphan`, `latency` in
        ns, `size` in spans. Requests of all parts are in the order `REQUEST_ORDER`.
    """
    roots = requests.first[:-1]
    rows = pl.DataFrame(
        {
            "start": requests.spans.start[roots],
            "trace": requests.table.spans["trace"].gather(requests.row[roots]),
            "orphan": requests.orphan,
            "latency": requests.latency,
            "size": pl.Series(np.diff(requests.first), dtype=pl.Int32),
        }
    )
    return rows.with_columns(in_trace=pl.int_range(pl.len(), dtype=pl.Int32).over("trace"))


def numbers_of(requests: Requests, wanted: pl.DataFrame) -> NDArray[np.int64]:
    """Return which of the requests some rows are.

    Parameters
    ----------
    requests
        Requests of whole traces.
    wanted
        Columns `trace` and `in_trace`, as `request_rows` has them.

    Returns
    -------
    array of int
        One number per row, in their order.
    """
    numbered = request_rows(requests).select("trace", "in_trace").with_row_index("number")
    joined = wanted.select("trace", "in_trace").join(numbered, on=["trace", "in_trace"], maintain_order="left")
    return joined["number"].to_numpy().astype(np.int64)
