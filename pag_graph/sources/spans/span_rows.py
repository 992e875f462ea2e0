"""Spans that are being read: rows in the making, in memory or in files, and the parts that they become."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from pag_graph.sources.spans.spilled import Spill
from pag_graph.sources.spans.table import NO_DURATION, Operation, Place, SpanParts, SpanTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.sources.spans.table import Process

_CHUNK = 1 << 15
_MANY = 1 << 9
"""So many spans are worth columns of their own."""
_SPAN: Final[dict[str, Any]] = {
    "trace": pl.Int32,
    "id": pl.String,
    "kind": pl.Int8,
    "start": pl.Int64,
    "end": pl.Int64,
    "process": pl.Int32,
    "operation": pl.Int32,
    "thread": pl.Int32,
    "flags": pl.Int8,
}
_CODED: Final = {"trace": "traces", "process": "processes", "operation": "operations", "thread": "threads"}
"""Columns of codes, and where their texts are collected."""
_REFERENCE: Final[dict[str, Any]] = {"row": pl.Int32, "type": pl.Int8, "trace": pl.Int32, "id": pl.String}


@dataclass(slots=True)
class _Codes:
    """Texts or tuples, numbered as they come."""

    codes: dict[Any, int] = field(default_factory=dict)

    def code(self, value: Any) -> int:
        code = self.codes.get(value)
        if code is None:
            code = self.codes[value] = len(self.codes)
        return code

    def of_column(self, values: Sequence[Any]) -> list[int]:
        codes = self.codes
        for value in dict.fromkeys(values):
            codes.setdefault(value, len(codes))
        return [codes[value] for value in values]

    def in_order(self) -> tuple[list[Any], pl.Series]:
        """Return the values in order, and the new code of each old one."""
        values = sorted(self.codes)
        place = {value: new_code for new_code, value in enumerate(values)}
        return values, pl.Series([place[value] for value in self.codes], dtype=pl.Int32)


class _Names(NamedTuple):
    """What codes stand for, in order, and what old codes became."""

    values: dict[str, list[Any]]
    new: dict[str, pl.Series]


class SpanRows:
    """Spans that are being read.

    Parameters
    ----------
    held
        How many spans memory is to hold; more go to files, until `parts` gives them back. All of them if absent.
    """

    def __init__(self, held: int | None = None) -> None:
        self.traces, self.processes, self.operations, self.threads = _Codes(), _Codes(), _Codes(), _Codes()
        self.rows = 0
        self.dropped: dict[str, int] = {}
        self._by_service: dict[str, dict[str, int]] = {}
        self._spans: list[tuple[Any, ...]] = []
        self._references: list[tuple[int, int, int, str]] = []
        self._parts: list[pl.DataFrame] = []
        self._reference_parts: list[pl.DataFrame] = []
        self._held, self._spilled = held, 0
        self._spill: Spill | None = None

    def close(self) -> None:
        """Remove the files, if there are any."""
        if self._spill is not None:
            self._spill.close()

    def place(self, process: Process) -> Place:
        """Return where spans of a process are from: its code, and the operations of its service that are known."""
        code = self.processes.code(process)
        return Place(code, process.service, self._by_service.setdefault(process.service, {}))

    def operation(self, place: Place, name: str) -> int:
        """Return the code of an operation, which `place` knows from then on.

        Parameters
        ----------
        place
            The process whose spans are read (`place`).
        name
            Of the operation. Look it up in ``place.operations`` first: that is faster.
        """
        code = place.operations[name] = self.operations.code(Operation(place.service, name))
        return code

    def operations_of(self, places: Sequence[Place], names: Sequence[str]) -> list[int]:
        """Return the codes of operations of many spans.

        Parameters
        ----------
        places, names
            Process and name of the operation, one of each per span.

        Returns
        -------
        list of int
            One code per span; new ones for operations that no place knows.
        """
        codes = [place.operations.get(name, -1) for place, name in zip(places, names, strict=True)]
        for row in [row for row, code in enumerate(codes) if code < 0] if -1 in codes else ():
            place, name = places[row], names[row]
            # A row before may have been the first one of this operation.
            found_code = place.operations.get(name)
            codes[row] = self.operation(place, name) if found_code is None else found_code
        return codes

    def drop(self, reason: str, count: int = 1) -> None:
        """Count entries that are no spans.

        Parameters
        ----------
        reason
            Name of the finding that they become, such as ``span_unreadable``.
        count
            How many.
        """
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def add(
        self,
        trace: int,
        span: str,
        kind: int,
        times: tuple[int, int],
        process: int,
        operation: int,
        thread: int,
        flags: int,
    ) -> int:
        """Add a span; its references follow (`refer`) before the next span.

        Parameters
        ----------
        trace, process, operation, thread
            Codes of these; `NO_THREAD` where none is stated.
        span
            Its id, as text.
        kind
            ``INTERNAL``, ``SERVER``, ``CLIENT``, ``PRODUCER`` or ``CONSUMER``.
        times
            Start and end, in nanoseconds since 1970. One that ends before it starts gets no duration, and the flag
            ``NO_DURATION``.
        flags
            Bits: ``ERROR``, ``DATABASE``, ``SHARED``, ``NO_DURATION``.

        Returns
        -------
        int
            Its row, from 0.

        Raises
        ------
        StoreError
            If spans go to files and the file system refuses.
        """
        if len(self._spans) >= _CHUNK:
            self._flush()
        start, end = times
        if end < start:
            end, flags = start, flags | NO_DURATION
        self._spans.append((trace, span, kind, start, end, process, operation, thread, flags))
        self.rows += 1
        return self.rows - 1

    def refer(self, row: int, kind: int, trace: int, span: str) -> None:
        """Add a reference of the span that was added last.

        Parameters
        ----------
        row
            Of this span, as `add` returned it.
        kind
            ``CHILD_OF``, ``FOLLOWS_FROM`` or ``LINK``.
        trace, span
            The other one: code of its trace, and its id, which may come later or never.
        """
        self._references.append((row, kind, trace, span))

    def add_many(self, spans: Sequence[Sequence[Any] | NDArray[Any]], references: Sequence[Sequence[Any]]) -> None:
        """Add spans that do not end before they start, as columns.

        Parameters
        ----------
        spans
            Columns in the order of `SpanTable.spans`, one element per span; codes already found.
        references
            Columns `row` (place among these spans, from 0), `type`, `trace` and `id`, one element per reference, by
            row.

        Raises
        ------
        StoreError
            If spans go to files and the file system refuses.
        """
        count = len(spans[0])
        if count >= _MANY:
            self._flush()
            stated = _columns(references, _REFERENCE)
            frame = _columns(spans, _SPAN)
            self.rows += count
            self._keep(frame, stated.with_columns(stated["row"] + (self.rows - count)))
            return
        if len(self._spans) >= _CHUNK:
            self._flush()
        self._spans += zip(*(np.asarray(column).tolist() for column in spans), strict=True)
        row, *stated_ = references
        self._references += zip([self.rows + place for place in row], *stated_, strict=True)
        self.rows += count

    def add_columns(
        self, spans: Mapping[str, Sequence[Any] | pl.Series | NDArray[Any]], references: pl.DataFrame
    ) -> None:
        """Add many spans that do not end before they start, by the names of their columns.

        Parameters
        ----------
        spans
            The columns of `SpanTable.spans`, one element per span; codes already found.
        references
            One row per reference: `row` (place among these spans, from 0), `type`, `trace` and `id`; by row.

        Raises
        ------
        StoreError
            If spans go to files and the file system refuses.
        """
        self._flush()
        frame = pl.DataFrame(dict(spans), schema=_SPAN)
        stated = references.select(pl.col("row") + self.rows, "type", "trace", "id").cast(pl.Schema(_REFERENCE))
        self.rows += frame.height
        self._keep(frame, stated)

    def _flush(self) -> None:
        spans, references = _frame(self._spans, _SPAN), _frame(self._references, _REFERENCE)
        self._spans, self._references = [], []
        self._keep(spans, references)

    def _keep(self, spans: pl.DataFrame, references: pl.DataFrame) -> None:
        self._parts.append(spans)
        self._reference_parts.append(references)
        if self._held is not None and self.rows - self._spilled > self._held:
            self._spill = self._spill or Spill()
            self._write(self._spill)

    def _write(self, spill: Spill) -> None:
        if self.rows > self._spilled:
            spill.add(*self._in_memory(), self._spilled)
            self._spilled = self.rows
            self._parts, self._reference_parts = [], []

    def _in_memory(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        empty = pl.DataFrame(schema=_SPAN), pl.DataFrame(schema=_REFERENCE)
        return pl.concat([empty[0], *self._parts]), pl.concat([empty[1], *self._reference_parts])

    def parts(self, form: str, tick_ns: int, findings: list[pa.Table]) -> SpanParts:
        """Return everything that was added in parts of whole traces; to be called last.

        Parameters
        ----------
        form, tick_ns
            Name of the format, and the unit of its times in nanoseconds.
        findings
            What was odd about the files; it is in every part.

        Returns
        -------
        SpanParts
            One part where all spans are in memory. Codes are in the order of their texts. Parts that are in files can
            be read until `close`.

        Raises
        ------
        StoreError
            If spans go to files and the file system refuses.
        """
        self._flush()
        names = self._names()

        def table(frames: tuple[pl.DataFrame, pl.DataFrame]) -> SpanTable:
            return self._table(names, *frames, form, tick_ns, findings)

        if self._spill is None:

            def whole(*_: object) -> SpanTable:
                return table(self._in_memory())

            return SpanParts(
                tables=[whole],
                of_traces=whole,
                grouped=lambda groups: [whole] * len(groups),
                rows=self.rows,
                held=max(self.rows, self._held or 0),
            )
        self._write(self._spill)
        spill, most_spans = self._spill, self._held or 0
        old_codes = np.argsort(names.new["trace"].to_numpy())

        def grouped(groups: Sequence[Sequence[int]]) -> list[Callable[[], SpanTable]]:
            division = spill.regrouped([old_codes[group].tolist() for group in groups], most_spans)
            return [partial(_read_part, table, division, (group, group + 1)) for group in range(len(groups))]

        return SpanParts(
            tables=[partial(_read_part, table, spill, ends) for ends in spill.parts(most_spans)],
            of_traces=lambda traces: table(spill.of_traces(old_codes[traces].tolist())),
            grouped=grouped,
            rows=self.rows,
            held=most_spans,
        )

    def _names(self) -> _Names:
        names = _Names({}, {})
        for name in _CODED:
            names.values[name], names.new[name] = getattr(self, _CODED[name]).in_order()
        return names

    def _table(
        self,
        names: _Names,
        spans: pl.DataFrame,
        references: pl.DataFrame,
        form: str,
        tick_ns: int,
        findings: list[pa.Table],
    ) -> SpanTable:
        """Return a table of some spans; references are by `row` of all spans if these say theirs."""
        if "row" in spans.columns:
            rows = pl.Series(np.searchsorted(spans["row"].to_numpy(), references["row"].to_numpy()), dtype=pl.Int32)
            spans, references = spans.drop("row"), references.with_columns(row=rows)
        spans = spans.with_columns(_recoded(spans[name], new_codes) for name, new_codes in names.new.items())
        references = references.with_columns(_recoded(references["trace"], names.new["trace"]))
        traces = spans["trace"].unique()
        other_trace = pl.when(pl.col("trace").is_in(traces.implode())).then("trace").otherwise(-1).cast(pl.Int32)
        return SpanTable(
            format=form,
            spans=spans,
            references=references.with_columns(other_trace.alias("trace")),
            traces=names.values["trace"],
            processes=names.values["process"],
            operations=names.values["operation"],
            threads=names.values["thread"],
            tick_ns=tick_ns,
            dropped=dict(sorted(self.dropped.items())),
            findings=findings,
        )


def _recoded(codes: pl.Series, new_codes: pl.Series) -> pl.Series:
    if not new_codes.len():
        return codes
    has_code = codes >= 0
    return new_codes.gather(codes.clip(lower_bound=0)).zip_with(has_code, codes).alias(codes.name)


def _frame(rows: Sequence[tuple[Any, ...]], schema: Mapping[str, Any]) -> pl.DataFrame:
    """Return rows as a frame: column by column takes half the time of row by row."""
    if not rows:
        return pl.DataFrame(schema=schema)
    return _columns(list(zip(*rows, strict=True)), schema)


def _columns(columns: Sequence[Any], schema: Mapping[str, Any]) -> pl.DataFrame:
    named_columns = zip(schema.items(), columns, strict=True)
    return pl.DataFrame([pl.Series(name, values, dtype=kind) for (name, kind), values in named_columns])


def _read_part(
    table: Callable[[tuple[pl.DataFrame, pl.DataFrame]], SpanTable], spill: Spill, ends: tuple[int, int]
) -> SpanTable:
    return table(spill.read(*ends))
