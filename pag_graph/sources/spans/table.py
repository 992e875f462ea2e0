"""Spans as columns: one row per span, in the order of the files; what the formats share stands here once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from pag_graph.sources.spans.spilled import Spill

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(5)
"""Kinds of spans, in the order of OTLP, whose numbers are one more."""
KINDS: Final = {"internal": INTERNAL, "server": SERVER, "client": CLIENT, "producer": PRODUCER, "consumer": CONSUMER}
CHILD_OF, FOLLOWS_FROM, LINK = range(3)
"""Kinds of references from a span to another one."""
ERROR, DATABASE, SHARED, NO_DURATION = 1, 2, 4, 8
"""Bits of a span's `flags`."""
LATEST_NS: Final = 1 << 61
"""Times lie this close to 1970 (73 years): what is later or earlier is no time of a span."""
LONGEST_NS: Final = 1 << 52
"""A span lasts no longer than this (52 days): what is longer has a wrong start or end."""
NO_THREAD: Final = -1
FEW: Final = 16
"""Fewer spans than this are read one by one: columns take longer to be begun."""
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


class Process(NamedTuple):
    """An instance of a service, as far as its spans tell."""

    service: str
    host: str
    """Host name, else its address; empty where neither is stated."""
    instance: str
    """What else tells instances apart; empty where nothing is stated."""
    host_named: bool
    """Whether `host` is a name."""

    @property
    def label(self) -> str:
        """What people call it."""
        return " ".join(part for part in (self.service, self.host, self.instance) if part)

    @property
    def clock(self) -> str:
        """Whose clock it reads: its host's, else its own."""
        return f"host {self.host}" if self.host else f"process {self.label}"


class Operation(NamedTuple):
    """What a span did: an operation of a service."""

    service: str
    name: str

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.service}.{self.name}"


class Place(NamedTuple):
    """A process whose spans are being read."""

    process: int
    """Its code."""
    service: str
    operations: dict[str, int]
    """Codes of the service's operations that are known, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTable:
    """Spans of some files.

    Codes of traces, processes, operations and threads are in the order of their texts, so that they do not depend on
    the order of files; rows are in file order, which two policies look at.
    """

    format: str
    """The format of all files."""
    spans: pl.DataFrame
    """One row per span: `trace`, `id` as text, `kind`, `start` and `end` (Unix ns), `process`, `operation`, `thread`
    (`NO_THREAD` where not stated), `flags`."""
    references: pl.DataFrame
    """One row per reference, in stated order: `row` of the span, `type`, `trace` (-1 for a trace that has no span here)
    and `id` of the other one."""
    traces: list[str]
    processes: list[Process]
    operations: list[Operation]
    threads: list[str]
    tick_ns: int
    """The unit of the format's times in nanoseconds."""
    dropped: dict[str, int]
    """Entries that are no spans, counted by reason."""
    findings: list[pa.Table]
    """What was odd about the files."""

    @property
    def rows(self) -> int:
        """How many spans there are."""
        return self.spans.height


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
        """Return the code of an operation; one that `place` knows need not be asked for."""
        code = place.operations[name] = self.operations.code(Operation(place.service, name))
        return code

    def operations_of(self, places: Sequence[Place], names: Sequence[str]) -> list[int]:
        """Return the codes of operations, one per place and name."""
        codes = [place.operations.get(name, -1) for place, name in zip(places, names, strict=True)]
        for row in [row for row, code in enumerate(codes) if code < 0] if -1 in codes else ():
            place, name = places[row], names[row]
            # A row before may have been the first one of this operation.
            found_code = place.operations.get(name)
            codes[row] = self.operation(place, name) if found_code is None else found_code
        return codes

    def drop(self, reason: str, count: int = 1) -> None:
        """Count what is no span, by the reason."""
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
        """Add a span, codes already found; returns its row. Its references follow before the next span."""
        if len(self._spans) >= _CHUNK:
            self._flush()
        start, end = times
        if end < start:
            end, flags = start, flags | NO_DURATION
        self._spans.append((trace, span, kind, start, end, process, operation, thread, flags))
        self.rows += 1
        return self.rows - 1

    def refer(self, row: int, kind: int, trace: int, span: str) -> None:
        """Add a reference of the span in `row` to another one, given by the code of its trace and its id."""
        self._references.append((row, kind, trace, span))

    def add_many(self, spans: Sequence[Sequence[Any] | NDArray[Any]], references: Sequence[Sequence[Any]]) -> None:
        """Add spans that last no less than no time, as columns, and columns of their references, by row of these."""
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
        """Add many spans, as columns, and their references by `row` among these."""
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

        Codes are in the order of their texts.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanParts:
    """Spans in parts that hold whole traces, each read when it is asked for; codes are the same in all."""

    tables: Sequence[Callable[[], SpanTable]]
    """What returns each part."""
    of_traces: Callable[[Sequence[int]], SpanTable]
    """Returns a table that holds some traces, by code: these alone, or a part that is all."""
    grouped: Callable[[Sequence[Sequence[int]]], Sequence[Callable[[], SpanTable]]]
    """Divides traces, by code, into groups, of which some may have the same trace; returns what returns each."""
    rows: int
    """How many spans there are."""
    held: int
    """How many of them memory is to hold at a time."""


def _recoded(codes: pl.Series, new_codes: pl.Series) -> pl.Series:
    if not new_codes.len():
        return codes
    has_code = codes >= 0
    return new_codes.gather(codes.clip(lower_bound=0)).zip_with(has_code, codes).alias(codes.name)


def nanoseconds(value: Any, unit_ns: int) -> int | None:
    """Return a time in nanoseconds; None if it is no number or lies too far away.

    Parameters
    ----------
    value
        An integer, a number with a fraction, or digits.
    unit_ns
        What 1 stands for.

    Examples
    --------
    >>> nanoseconds(1712195495519689, 1000), nanoseconds("17", 1), nanoseconds(True, 1)
    (1712195495519689000, 17, None)
    """
    if type(value) is int:
        value *= unit_ns
    elif type(value) is float:
        if not math.isfinite(value) or abs(value) > LATEST_NS:
            return None
        value = int(value) * unit_ns + round((value - int(value)) * unit_ns)
    elif type(value) is str and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():  # noqa: PLR2004
        value = int(value) * unit_ns
    else:
        return None
    return value if -LATEST_NS < value < LATEST_NS else None


def lasting(start: int, duration: int | None) -> tuple[int, int] | None:
    """Return start and end of a span; None if they cannot be those of one.

    Examples
    --------
    >>> lasting(5, 3), lasting(5, None), lasting(5, 1 << 60)
    ((5, 8), (5, 5), None)
    """
    if duration is None or duration < 0:
        return start, start
    return (start, start + duration) if duration <= LONGEST_NS else None


def text(value: Any) -> str:
    """Return a value as text; empty for what is neither text nor a whole number."""
    if type(value) is str:
        return value
    return str(value) if type(value) is int else ""


def are_texts(*columns: Sequence[Any]) -> bool:
    """Tell whether all values of columns are texts."""
    return all(set(map(type, column)) == {str} for column in columns)


def are_times(column: Sequence[Any], before: int) -> bool:
    """Tell whether all values of a column are whole numbers from 0 on and below a limit."""
    return set(map(type, column)) == {int} and 0 <= min(column) <= max(column) < before
