"""Spans as columns: one row per span, in the order of the files; what the formats share stands here once."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl
    import pyarrow as pa

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


def labels_of(operations: Sequence[Operation]) -> list[str]:
    """Return what people call operations that are shown together.

    Parameters
    ----------
    operations
        All of them.

    Returns
    -------
    list of str
        Their labels; of operations that have one label, ``service/name``, as `--sync` takes it.

    Examples
    --------
    >>> labels_of([Operation("x", "b.c"), Operation("x.b", "c"), Operation("x", "d")])
    ['x/b.c', 'x.b/c', 'x.d']
    """
    often = Counter(operation.label for operation in operations)
    return [
        f"{operation.service}/{operation.name}" if often[operation.label] > 1 else operation.label
        for operation in operations
    ]


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
    """Return start and end of a span.

    Parameters
    ----------
    start
        Nanoseconds since 1970.
    duration
        Nanoseconds. None, or less than none, is taken for none.

    Returns
    -------
    start, end
        None instead for a span that would last longer than `LONGEST_NS`.

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
    """Tell whether a column can be taken as times without looking at each.

    Parameters
    ----------
    column
        Values as JSON has them.
    before
        What all must be below.

    Returns
    -------
    bool
        Whether all are whole numbers from 0 on and below this; false where there are none.
    """
    return set(map(type, column)) == {int} and 0 <= min(column) <= max(column) < before
