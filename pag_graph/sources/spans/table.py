"""Spans as columns: one row per span, in the order of the files; what the formats share stands here once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

INTERNAL, CLIENT, SERVER, PRODUCER, CONSUMER = range(5)
"""Kinds of spans, in the order of OTLP, whose numbers are one more."""
KINDS: Final = {"internal": INTERNAL, "client": CLIENT, "server": SERVER, "producer": PRODUCER, "consumer": CONSUMER}
CHILD_OF, FOLLOWS_FROM, LINK = range(3)
"""Kinds of references from a span to another one."""
ERROR, DATABASE, SHARED, NO_DURATION = 1, 2, 4, 8
"""Bits of a span's `flags`."""
LATEST_NS: Final = 1 << 61
"""Times lie this close to 1970 (73 years): what is later or earlier is no time of a span."""
LONGEST_NS: Final = 1 << 52
"""A span lasts no longer than this (52 days): what is longer has a wrong start or end."""
NO_THREAD: Final = -1
_CHUNK = 1 << 16
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
        return self.codes.setdefault(value, len(self.codes))

    def in_order(self) -> tuple[list[Any], pl.Series]:
        """Return the values in order, and the new code of each old one."""
        values = sorted(self.codes)
        place = {value: new for new, value in enumerate(values)}
        return values, pl.Series([place[value] for value in self.codes], dtype=pl.Int32)


class SpanRows:
    """Spans that are being read."""

    def __init__(self) -> None:
        self.traces, self.processes, self.operations, self.threads = _Codes(), _Codes(), _Codes(), _Codes()
        self.rows = 0
        self.dropped: dict[str, int] = {}
        self._spans: list[tuple[Any, ...]] = []
        self._references: list[tuple[int, int, int, str]] = []
        self._parts: list[pl.DataFrame] = []
        self._reference_parts: list[pl.DataFrame] = []

    def drop(self, reason: str, count: int = 1) -> None:
        """Count what is no span."""
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
        """Add a span, codes already found; returns its row."""
        start, end = times
        if end < start:
            end, flags = start, flags | NO_DURATION
        self._spans.append((trace, span, kind, start, end, process, operation, thread, flags))
        if len(self._spans) >= _CHUNK:
            self._flush()
        self.rows += 1
        return self.rows - 1

    def refer(self, row: int, kind: int, trace: int, span: str) -> None:
        """Add a reference of a span to another one."""
        self._references.append((row, kind, trace, span))

    def add_columns(
        self, spans: Mapping[str, Sequence[Any] | pl.Series | NDArray[Any]], references: pl.DataFrame
    ) -> None:
        """Add many spans, as columns, and their references by `row` among these."""
        self._flush()
        part = pl.DataFrame(dict(spans), schema=_SPAN)
        self._parts.append(part)
        self._reference_parts.append(
            references.select(pl.col("row") + self.rows, "type", "trace", "id").cast(pl.Schema(_REFERENCE))
        )
        self.rows += part.height

    def _flush(self) -> None:
        self._parts.append(pl.DataFrame(self._spans, schema=_SPAN, orient="row"))
        self._reference_parts.append(pl.DataFrame(self._references, schema=_REFERENCE, orient="row"))
        self._spans, self._references = [], []

    def table(self, form: str, tick_ns: int, findings: list[pa.Table]) -> SpanTable:
        """Return everything that was added, codes in the order of their texts."""
        self._flush()
        spans, references = pl.concat(self._parts), pl.concat(self._reference_parts)
        values, columns = {}, []
        for name, codes in (
            ("trace", self.traces),
            ("process", self.processes),
            ("operation", self.operations),
            ("thread", self.threads),
        ):
            values[name], new = codes.in_order()
            columns.append(_recoded(spans[name], new))
            if name == "trace":
                references = references.with_columns(_recoded(references["trace"], new))
        here = spans["trace"].unique()
        there = pl.when(pl.col("trace").is_in(here.implode())).then("trace").otherwise(-1).cast(pl.Int32)
        return SpanTable(
            format=form,
            spans=spans.with_columns(columns),
            references=references.with_columns(there.alias("trace")),
            traces=values["trace"],
            processes=values["process"],
            operations=values["operation"],
            threads=values["thread"],
            tick_ns=tick_ns,
            dropped=dict(sorted(self.dropped.items())),
            findings=findings,
        )


def _recoded(codes: pl.Series, new: pl.Series) -> pl.Series:
    if not new.len():
        return codes
    known = codes >= 0
    return new.gather(codes.clip(lower_bound=0)).zip_with(known, codes).alias(codes.name)


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
    if type(value) is str and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():  # noqa: PLR2004
        value = int(value)
    if type(value) is float:
        if not math.isfinite(value) or abs(value) > LATEST_NS:
            return None
        value = int(value) * unit_ns + round((value - int(value)) * unit_ns)
    elif type(value) is int:
        value *= unit_ns
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
    length = max(duration or 0, 0)
    return (start, start + length) if length <= LONGEST_NS else None


def text(value: Any) -> str:
    """Return a value as text; empty for what is no text or number."""
    if type(value) is str:
        return value
    return str(value) if type(value) is int else ""
