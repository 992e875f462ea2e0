"""Vertices and edges of a slice as plain columns, in the order of the store; tables only where they are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from pag_graph.kernels import ABSENT, layout, traffic
from pag_graph.kernels.layout import EDGE_NUMBERS, MESSAGE_NUMBERS, VERTEX_NUMBERS
from pag_graph.model.enums import VertexKind
from pag_graph.model.ids import MAX_POSITION, POSITION_BITS
from pag_graph.model.tables import PAG_EDGES, PAG_TRAFFIC, PAG_VERTICES
from pag_graph.rules.rows import EDGE_TYPES, KINDS
from pag_graph.runtime.threads import each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    I8 = NDArray[np.int8]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]
    U64 = NDArray[np.uint64]

VERTEX_KINDS = (*KINDS, VertexKind.ARRIVAL, VertexKind.RUN_START, VertexKind.RUN_END)
"""Kinds of vertices, by their codes."""

INSERTED = len(KINDS)
"""Code of the first of them that no event stands behind."""

_VERTEX_NAMES = ("id", "seq", "t_ns", "operator", "segment")
_EDGE_NAMES = ("src", "dst", "src_epoch", "start_ns", "duration_ns", "operator", "activation", "records")
_MESSAGE_NAMES = ("channel", "bytes", "receive_buffer_ns", "read")
_TRAFFIC_NAMES = {
    "epoch": traffic.EPOCH,
    "channel": traffic.CHANNEL,
    "from_worker": traffic.SENDER,
    "to_worker": traffic.READER,
    "messages": traffic.MESSAGES,
    "records": traffic.RECORDS,
    "bytes": traffic.BYTES,
}
_LEAST = np.iinfo(np.int64).min
_PART = 1 << 16
"""Rows that fit in the processor's caches."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """Which epochs the rows of a table carry, which stand one epoch after the other."""

    epoch: I64
    """Ascending."""
    rows: I64
    """How many rows each has."""

    def before(self, last: int) -> int:
        """Count the rows up to an epoch.

        Parameters
        ----------
        last
            An epoch.

        Returns
        -------
        int
            Rows that carry it or an earlier one.
        """
        return int(self.rows[: np.searchsorted(self.epoch, last, side="right")].sum())

    def at(self, low: int, high: int) -> I64:
        """Return the epochs of some rows.

        Parameters
        ----------
        low, high
            The first row, and the one after the last.

        Returns
        -------
        array of int64
            Per row.
        """
        bounds = np.zeros(len(self.rows) + 1, np.int64)
        np.cumsum(self.rows, out=bounds[1:])
        cut_bounds = np.minimum(np.maximum(bounds, low), high)
        return np.repeat(self.epoch, cut_bounds[1:] - cut_bounds[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns(ABC):
    """What the columns of vertices and of edges have in common; what an id or the place tells is not among them."""

    schema: ClassVar[pa.Schema]
    word: ClassVar[str]
    """The column of words."""
    vocabulary: ClassVar[Sequence[str]]
    """Its words."""

    epochs: Epochs
    numbers: I64
    """A row per column."""
    kind: I8
    """Place in the vocabulary."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.kind)

    @abstractmethod
    def integers(self, low: int, high: int) -> dict[str, I64 | I32]:
        """Return all columns of integers of some rows.

        Parameters
        ----------
        low, high
            The first row, and the one after the last.

        Returns
        -------
        dict
            Per column of the schema that is no word: an element per row; -1 where it is null.
        """

    def table(self, low: int, high: int) -> pa.Table:
        """Return some rows as a table.

        Parameters
        ----------
        low, high
            The first row, and the one after the last.

        Returns
        -------
        Table
            Rows of the schema, words dictionary-encoded.
        """
        columns = _numbers(self.integers(low, high), self.schema)
        return _table({**columns, self.word: _words(self.kind[low:high], self.vocabulary)}, self.schema)

    def fingerprints(self, words: Mapping[str, int]) -> U64:
        """Return, per epoch, a number that depends on its rows and not on their order; those of parts add up.

        Parameters
        ----------
        words
            A number per word.

        Returns
        -------
        array of uint64
            Per epoch. O(rows).
        """
        meaning = np.array([words[str(word)] for word in self.vocabulary], np.int64)
        ends = np.cumsum(self.epochs.rows)

        def mixed(part: slice) -> tuple[int, U64]:
            rows = _row_hashes(self.schema, self.integers(part.start, part.stop), self.word, self.kind[part], meaning)
            first, last = np.searchsorted(ends, (part.start, part.stop - 1), side="right")
            begins = np.append(0, ends[first:last] - part.start)
            return int(first), np.add.reduceat(rows, begins)

        parts = [slice(low, min(low + _PART, self.rows)) for low in range(0, self.rows, _PART)]
        result = np.zeros(len(ends), np.uint64)
        for first, sums in each(mixed, parts):
            result[first : first + len(sums)] += sums
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertices(_Columns):
    """Columns of vertices, in the order of (epoch, id): numbers are id, seq, t_ns, operator, segment."""

    schema = PAG_VERTICES
    word = "kind"
    vocabulary = VERTEX_KINDS

    @classmethod
    def empty(cls, epochs: Epochs) -> Vertices:
        """Make columns that are to be filled.

        Parameters
        ----------
        epochs
            How many rows each epoch has.

        Returns
        -------
        Vertices
            Its columns have room for all rows.
        """
        rows = int(epochs.rows.sum())
        return cls(epochs=epochs, numbers=np.empty((VERTEX_NUMBERS, rows), np.int64), kind=np.empty(rows, np.int8))

    def integers(self, low: int, high: int) -> dict[str, I64 | I32]:
        """Return all columns of integers of some rows.

        Parameters
        ----------
        low, high
            The first row, and the one after the last.

        Returns
        -------
        dict
            As of the base class; worker, position and epoch are derived.
        """
        columns: dict[str, I64 | I32] = dict(zip(_VERTEX_NAMES, self.numbers[:, low:high], strict=True))
        ids = columns["id"]
        columns |= {"worker": (ids >> POSITION_BITS).astype(np.int32), "pos": ids & MAX_POSITION}
        return {**columns, "epoch": self.epochs.at(low, high)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges(_Columns):
    """Columns of edges, in the order of (epoch, dst), local ones first.

    Numbers are src, dst, src_epoch, start_ns, duration_ns, operator, activation, records. Columns that only messages
    have are as long as there are messages.
    """

    schema = PAG_EDGES
    word = "type"
    vocabulary = EDGE_TYPES

    flags: I8
    """Bits of `EdgeFlags`, per edge."""
    place: I64
    """Per message: its row, ascending."""
    of_messages: I64
    """A row per column, per message: channel, bytes, receive_buffer_ns, read."""
    alternatives: I32
    """Per message."""

    @classmethod
    def empty(cls, epochs: Epochs, messages: int) -> Edges:
        """Make columns that are to be filled.

        Parameters
        ----------
        epochs
            How many rows each epoch has.
        messages
            How many of them are messages.

        Returns
        -------
        Edges
            Its columns have room for all rows.
        """
        rows = int(epochs.rows.sum())
        return cls(
            epochs=epochs,
            numbers=np.empty((EDGE_NUMBERS, rows), np.int64),
            kind=np.empty(rows, np.int8),
            flags=np.empty(rows, np.int8),
            place=np.empty(messages, np.int64),
            of_messages=np.empty((MESSAGE_NUMBERS - EDGE_NUMBERS, messages), np.int64),
            alternatives=np.empty(messages, np.int32),
        )

    def integers(self, low: int, high: int) -> dict[str, I64 | I32]:
        """Return all columns of integers of some rows.

        Parameters
        ----------
        low, high
            The first row, and the one after the last.

        Returns
        -------
        dict
            As of the base class.
        """
        columns: dict[str, I64 | I32] = dict(zip(_EDGE_NAMES, self.numbers[:, low:high], strict=True))
        first, end = np.searchsorted(self.place, (low, high))
        message_rows = self.place[first:end] - low
        for name, values in zip(_MESSAGE_NAMES, self.of_messages[:, first:end], strict=True):
            columns[name] = np.full(high - low, ABSENT, np.int64)
            columns[name][message_rows] = values
        columns["alternatives"] = np.zeros(high - low, np.int32)
        columns["alternatives"][message_rows] = self.alternatives[first:end]
        # No source says how long a message lay at its sender.
        columns["send_buffer_ns"] = np.full(high - low, ABSENT, np.int64)
        return {**columns, "flags": self.flags[low:high].astype(np.int32), "epoch": self.epochs.at(low, high)}


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many messages were read in a slice; rows in the order of the columns before `messages`."""

    numbers: I64
    """A row each: columns of `pag_graph.kernels.traffic`."""

    @classmethod
    def of(cls, parts: Sequence[I64]) -> Traffic:
        """Put together what workers read.

        Parameters
        ----------
        parts
            As from `pag_graph.kernels.traffic.sum_reads`, one per worker.

        Returns
        -------
        Traffic
            Sorted. O(rows log rows).
        """
        return cls(traffic.added_up(np.concatenate([np.empty((0, traffic.COLUMNS), np.int64), *parts])))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.numbers)

    def table(self, low: int, high: int) -> pa.Table:
        """Return some rows as a table.

        Parameters
        ----------
        low, high
            The first row, and the one after the last.

        Returns
        -------
        Table
            Rows of `PAG_TRAFFIC`, words dictionary-encoded.
        """
        numbers = self.numbers[low:high]
        columns: dict[str, I64 | I32] = {
            name: np.ascontiguousarray(numbers[:, place]) for name, place in _TRAFFIC_NAMES.items()
        }
        columns |= {name: columns[name].astype(np.int32) for name in ("from_worker", "to_worker")}
        words = _words(numbers[:, traffic.TYPE].astype(np.int8), EDGE_TYPES)
        return _table({**_numbers(columns, PAG_TRAFFIC), "type": words}, PAG_TRAFFIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphColumns:
    """Vertices, edges and findings of a slice."""

    vertices: Vertices
    """One row per vertex, in the order of (epoch, id)."""
    edges: Edges
    """One row per edge, in the order of (epoch, dst)."""
    findings: pa.Table
    """Rows of `PAG_FINDINGS`."""
    traffic: Traffic
    """Messages that are read in the slice."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Events that became no vertex, counted by reason."""
    segments: dict[int, int] = field(default_factory=dict)
    """Per worker with vertices: position of the vertex that starts the segment of its last one."""


def _row_hashes(schema: pa.Schema, numbers: Mapping[str, I64 | I32], words: str, codes: I8, meaning: I64) -> U64:
    """Return a number per row that depends on all its values."""
    mixed = np.full(len(codes), len(schema), np.uint64)
    for column in schema:
        if column.name == words:
            layout.mix_codes(mixed, codes, meaning)
        else:
            layout.mix(mixed, numbers[column.name].astype(np.int64, copy=False), _LEAST if column.nullable else ABSENT)
    return mixed


def _numbers(columns: Mapping[str, I64 | I32], schema: pa.Schema) -> dict[str, pa.Array]:
    """Return columns as Arrow arrays over the same memory; `ABSENT` is null where the column allows it."""
    result = {}
    for name, values in columns.items():
        bits = None
        if schema.field(name).nullable:
            present = values >= 0
            if not present.any():
                result[name] = pa.nulls(len(values), pa.int64())
                continue
            if not present.all():
                bits = pa.py_buffer(np.packbits(present, bitorder="little"))
        result[name] = pa.Array.from_buffers(schema.field(name).type, len(values), [bits, pa.py_buffer(values)])
    return result


def _words(codes: I8, words: Sequence[str]) -> pa.DictionaryArray:
    present = np.flatnonzero(np.bincount(codes, minlength=len(words)))
    dense = np.zeros(len(words), np.int8)
    dense[present] = np.arange(len(present))
    dictionary = pa.array([str(words[code]) for code in present.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(dense[codes]), dictionary)


def _table(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    fields = [pa.field(f.name, columns[f.name].type, f.nullable, f.metadata) for f in schema]
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=pa.schema(fields))
