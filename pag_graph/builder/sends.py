"""Sends that wait for readers: what slices leave over for those that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.builder.match import SENDS, STITCHED, first_sends, frame_of
from pag_graph.kernels.messages import EVERYONE
from pag_graph.model.ids import MAX_POSITION, POSITION_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    I64 = NDArray[np.int64]
    Readers = Mapping[int, Iterable[int]]


class SendBook:
    """Sends that not all their receivers have read, in the order in which slices were scanned.

    Parameters
    ----------
    columns
        Columns `SENDS`, one row per send.
    readers
        Per send, by its vertex: the workers that have read it.
    early
        The same of sends that will be scanned again.
    """

    def __init__(
        self, columns: Mapping[str, I64] | None = None, readers: Readers | None = None, early: Readers | None = None
    ) -> None:
        empty = np.empty(0, np.int64)
        self._columns = {name: (columns[name] if columns else empty) for name in SENDS}
        self._new: list[dict[str, I64]] = []
        self.readers = _copied(readers)
        # Those of them that `missing` still counts.
        self._taken: dict[int, set[int]] = {}
        self.early = _copied(early)

    def add(self, sends: pl.DataFrame, readers: pl.DataFrame) -> None:
        """Add the sends that a slice could not match, and who read some of them there."""
        if not sends.height:
            return
        for vertex, worker in readers.iter_rows():
            self.readers.setdefault(vertex, set()).add(worker)
        columns = {name: sends[name].to_numpy() for name in SENDS}
        if self.early:
            missing = columns["missing"].copy()
            for place, vertex in enumerate(columns["id"].tolist()):
                if before := self.early.get(vertex):
                    known = self.readers.setdefault(vertex, set())
                    missing[place] -= len(before - known)
                    known |= before
            columns["missing"] = missing
            columns = {name: values[missing != 0] for name, values in columns.items()}
        self._new.append(columns)

    def find(self, receives: pl.DataFrame, horizon_ns: int) -> pl.DataFrame:
        """Return which receives of a slice belong to sends of the book, columns `STITCHED`; changes nothing.

        Many sends may be under way, and few are read, so sends are looked up among receives. A key names its sender,
        so that the first send that has it is the one with the lowest vertex. Who has read a message does not read it
        again.
        """
        if not receives.height:
            return _NONE
        columns = self.columns()
        send, receive = first_sends(columns, receives)
        in_time = columns["t"][send] <= receives["t"].to_numpy()[receive] + horizon_ns
        send, receive = send[in_time], receive[in_time]
        first = self._first_reads(columns["id"][send], receives["worker"].to_numpy()[receive])
        send, receive = send[first], receive[first]
        found = {name: receives[name].to_numpy()[receive] for name in ("slice", "worker", "order")}
        return frame_of(found | {name: columns[name][send] for name in ("id", "t", "epoch")}, STITCHED)

    def _first_reads(self, vertex: I64, worker: I64) -> I64:
        """Return the places of the reads by workers that had not read the message before, nor do so in a row before."""
        _, first = np.unique(np.column_stack((vertex, worker)), axis=0, return_index=True)
        first.sort()
        if not self.readers:
            return first
        pairs = zip(first.tolist(), vertex[first].tolist(), worker[first].tolist(), strict=True)
        return np.array([at for at, send, reader in pairs if reader not in self.readers.get(send, ())], np.int64)

    def take(self, stitched: pl.DataFrame) -> None:
        """Count that receives were found to belong to sends of the book."""
        for vertex, worker in stitched.select("id", "worker").iter_rows():
            self._taken.setdefault(vertex, set()).add(worker)
            self.readers.setdefault(vertex, set()).add(worker)

    def columns(self) -> dict[str, I64]:
        """Return all sends of the book, without what `take` counted."""
        if self._new:
            parts = [self._columns, *self._new]
            self._columns = {name: np.concatenate([part[name] for part in parts]) for name in SENDS}
            self._new = []
        return self._columns

    def forget(self, done: Mapping[int, int]) -> None:
        """Forget sends that all receivers have read, if they lie in the rows that are done: so many per worker."""
        if not self._taken:
            return
        columns = self.columns()
        read = np.zeros(len(columns["id"]), np.int64)
        for row in np.flatnonzero(np.isin(columns["id"], list(self._taken))).tolist():
            vertex = int(columns["id"][row])
            if _order(vertex) <= done.get(vertex >> POSITION_BITS, 0):
                read[row] = len(self._taken.pop(vertex))
        missing = columns["missing"] - read
        kept = (missing != 0) | (read == 0)
        for vertex in columns["id"][~kept].tolist():
            del self.readers[vertex]
        self._columns = {name: values[kept] for name, values in columns.items()} | {"missing": missing[kept]}

    def decided(self, done: Mapping[int, int]) -> SendBook:
        """Return the book of the rows that are done alone: what an append goes on from.

        Sends behind them are scanned again; of those only the reads that are done are kept.
        """
        self.forget(done)
        columns = self.columns()
        order = (columns["id"] & MAX_POSITION) // 2
        rows = np.array([done.get(worker, 0) for worker in (columns["id"] >> POSITION_BITS).tolist()], np.int64)
        kept = order <= rows if len(order) else np.zeros(0, np.bool_)
        # What `forget` has left lies behind the rows that are done; who read it in its own slice is seen again there.
        early = dict(self._taken)
        for vertex, workers in self.early.items():
            if _order(vertex) > done.get(vertex >> POSITION_BITS, 0):
                early[vertex] = early.get(vertex, set()) | workers
        readers = {vertex: self.readers[vertex] for vertex in columns["id"][kept].tolist() if vertex in self.readers}
        return SendBook({name: values[kept] for name, values in columns.items()}, readers, early)

    def unread(self) -> pl.DataFrame:
        """Return the sends that were not read as often as they should be, columns `SENDS`."""
        columns = dict(self.columns())
        if self._taken:
            read = np.array([len(self._taken.get(vertex, ())) for vertex in columns["id"].tolist()], np.int64)
            columns["missing"] = columns["missing"] - read
        kept = columns["missing"] != 0
        order = np.flatnonzero(kept)[np.argsort(columns["id"][kept], kind="stable")]
        return frame_of({name: values[order] for name, values in columns.items()}, SENDS)

    def first_unread_ns(self) -> int | None:
        """Return when the first send was made that lacks a receive; None where each has all of them."""
        columns = self.columns()
        times = columns["t"][columns["missing"] > 0]
        return int(times.min()) if len(times) else None

    def unread_since(self, workers: Sequence[int], stitched: pl.DataFrame) -> dict[int, int]:
        """Return, per worker that has not read all that was sent to it, when the first such message was sent.

        Parameters
        ----------
        workers
            Of the run.
        stitched
            Reads that `take` has not counted, as from `find`.
        """
        columns = self.columns()
        everyone, since = columns["receiver"] == EVERYONE, {}
        here = dict(stitched.group_by("worker").agg(pl.col("id")).iter_rows())
        for worker in workers:
            read = [vertex for vertex, readers in self.readers.items() if worker in readers] + here.get(worker, [])
            unread = (everyone | (columns["receiver"] == worker)) & ~np.isin(columns["id"], read)
            if unread.any():
                since[worker] = int(columns["t"][unread].min())
        return since

    def copy(self) -> SendBook:
        """Return a book that stays as it is when this one goes on."""
        copied = SendBook(self.columns(), self.readers, self.early)
        copied._taken = _copied(self._taken)
        return copied


def _copied(readers: Readers | None) -> dict[int, set[int]]:
    return {vertex: set(workers) for vertex, workers in (readers or {}).items()}


_NONE = pl.DataFrame(schema=dict.fromkeys(STITCHED, pl.Int64))


def _order(vertex: int) -> int:
    return (vertex & MAX_POSITION) // 2
