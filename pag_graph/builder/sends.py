"""Sends that wait for readers: what slices leave over for those that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.builder.match import SENDS, STITCHED, first_sends, frame_of
from pag_graph.builder.spilled import FILE_ROWS, Spilled
from pag_graph.kernels.messages import EVERYONE
from pag_graph.model.ids import MAX_POSITION, POSITION_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from pag_graph.builder.spilled import SendFiles

    I64 = NDArray[np.int64]
    Readers = Mapping[int, Iterable[int]]


NOTHING_SPILLED = Spilled()
_NOBODY: frozenset[int] = frozenset()


class SendBook:
    """Sends that not all their receivers have read, in the order in which slices were scanned.

    Parameters
    ----------
    readers
        Per send, by its vertex: the workers that have read it.
    early
        The same of sends that will be scanned again.
    spilled
        Sends that wait in files.
    columns
        Columns `SENDS`, one element per send.

    Attributes
    ----------
    place
        Where these files are; without it none are written.
    """

    def __init__(
        self,
        columns: Mapping[str, I64] | None = None,
        readers: Readers | None = None,
        early: Readers | None = None,
        spilled: Spilled = NOTHING_SPILLED,
    ) -> None:
        empty = np.empty(0, np.int64)
        self._columns = {name: (columns[name] if columns else empty) for name in SENDS}
        self._new: list[dict[str, I64]] = []
        self.readers = _copied(readers)
        # Those of them that `missing` still counts.
        self._taken: dict[int, frozenset[int]] = {}
        self.early = _copied(early)
        self.spilled = spilled
        self.place: SendFiles | None = None

    def add(self, sends: pl.DataFrame, readers: pl.DataFrame) -> None:
        """Add the sends that a slice could not match, and who read some of them there.

        Parameters
        ----------
        sends
            What a slice could not match, columns `SENDS`.
        readers
            Who read some of them there, columns `READERS`.
        """
        if not sends.height:
            return
        for vertex, worker in readers.iter_rows():
            self._note(vertex, {worker})
        columns = {name: sends[name].to_numpy() for name in SENDS}
        if self.early:
            missing = columns["missing"].copy()
            for place, vertex in enumerate(columns["id"].tolist()):
                if before := self.early.get(vertex):
                    missing[place] -= len(before - self.readers.get(vertex, _NOBODY))
                    self._note(vertex, before)
            columns["missing"] = missing
            columns = {name: values[missing != 0] for name, values in columns.items()}
        self._new.append(columns)

    def find(self, receives: pl.DataFrame, horizon_ns: int) -> pl.DataFrame:
        """Look up which receives of a slice belong to sends of the book.

        Parameters
        ----------
        receives
            Columns `RECEIVES`.
        horizon_ns
            What is sent later than so long after a read is not what was read.

        Returns
        -------
        DataFrame
            One row per receive whose send was found, columns `STITCHED`; the book keeps them until `take`.

        Notes
        -----
        Many sends may be under way, and few are read, so sends are looked up among receives. A key names its sender, so
        the first send that has it is the one with the lowest vertex. A worker that has read a message does not read it
        again. What is not in memory is looked for in the files, where there are some. O(sends + receives).
        """
        if not receives.height:
            return _NONE
        columns = self.columns()
        send, receive = first_sends(columns, receives)
        if self.spilled.files and len(receive) < receives.height:
            missed = np.ones(receives.height, np.bool_)
            missed[receive] = False
            self._take_back(receives.filter(pl.Series(missed)))
            columns = self.columns()
            send, receive = first_sends(columns, receives)
        in_time = columns["t"][send] - receives["t"].to_numpy()[receive] <= horizon_ns
        send, receive = send[in_time], receive[in_time]
        first = self._first_reads(columns["id"][send], receives["worker"].to_numpy()[receive])
        send, receive = send[first], receive[first]
        stitched_columns = {name: receives[name].to_numpy()[receive] for name in ("slice", "worker", "order")}
        return frame_of(stitched_columns | {name: columns[name][send] for name in ("id", "t", "epoch")}, STITCHED)

    def _first_reads(self, vertex: I64, worker: I64) -> I64:
        """Return the places of the reads by workers that had not read the message before, nor do so in a row before."""
        order = np.lexsort((worker, vertex))
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (vertex[order[1:]] != vertex[order[:-1]]) | (worker[order[1:]] != worker[order[:-1]])
        first = np.sort(order[is_new])
        if not self.readers:
            return first
        pairs = zip(first.tolist(), vertex[first].tolist(), worker[first].tolist(), strict=True)
        return np.array([row for row, send, reader in pairs if reader not in self.readers.get(send, ())], np.int64)

    def _take_back(self, receives: pl.DataFrame) -> None:
        """Take the sends of receives back from the files; they go before those that were sent later."""
        if self.place is None:
            return
        self.spilled, loaded_sends = self.spilled.take_back(receives, self.place)
        for sends in loaded_sends:
            self.readers.update(_copied(sends.readers))
        parts = [*(sends.columns for sends in loaded_sends), self.columns()]
        self._columns = {name: np.concatenate([part[name] for part in parts]) for name in SENDS}

    def spill(self, before_ns: int, done_rows: Mapping[int, int]) -> None:
        """Write sends that were made before an instant to a file, if they are many, and forget them here.

        Parameters
        ----------
        before_ns
            The instant.
        done_rows
            Per worker: so many of its rows are done, and will not be scanned again.
        """
        columns = self.columns()
        if self.place is None or len(columns["id"]) < FILE_ROWS:
            return
        early_sends = (
            (columns["t"] < before_ns)
            & _in_done_rows(columns["id"], done_rows)
            & ~np.isin(columns["id"], list(self._taken))
        )
        if np.count_nonzero(early_sends) < FILE_ROWS:
            return
        sends = {name: values[early_sends] for name, values in columns.items()}
        self.spilled = self.spilled.with_sends(sends, self.readers, self.place)
        for vertex in sends["id"].tolist():
            self.readers.pop(vertex, None)
        self._columns = {name: values[~early_sends] for name, values in columns.items()}

    def take(self, stitched: pl.DataFrame) -> None:
        """Count that receives were found to belong to sends of the book.

        Parameters
        ----------
        stitched
            As from `find`.
        """
        # A query for two columns takes a millisecond, however few rows there are.
        for vertex, worker in zip(stitched["id"].to_list(), stitched["worker"].to_list(), strict=True):
            self._taken[vertex] = self._taken.get(vertex, _NOBODY) | {worker}
            self._note(vertex, {worker})

    def _note(self, vertex: int, workers: AbstractSet[int]) -> None:
        """Count workers among the readers of a send; a copy of the book shares what it says of others."""
        self.readers[vertex] = self.readers.get(vertex, _NOBODY) | workers

    def columns(self) -> dict[str, I64]:
        """Return all sends of the book that are in memory.

        Returns
        -------
        dict
            Columns `SENDS` as arrays, one element per send; reads that `take` counted are not subtracted from
            `missing`.
        """
        if self._new:
            parts = [self._columns, *self._new]
            self._columns = {name: np.concatenate([part[name] for part in parts]) for name in SENDS}
            self._new = []
        return self._columns

    def forget(self, done_rows: Mapping[int, int]) -> None:
        """Forget sends that all receivers have read, if they lie in rows that are done.

        Parameters
        ----------
        done_rows
            Per worker: how many of its rows are done.
        """
        if not self._taken:
            return
        columns = self.columns()
        read = np.zeros(len(columns["id"]), np.int64)
        for row in np.flatnonzero(np.isin(columns["id"], list(self._taken))).tolist():
            vertex = int(columns["id"][row])
            if _order_of(vertex) <= done_rows.get(vertex >> POSITION_BITS, 0):
                read[row] = len(self._taken.pop(vertex))
        missing = columns["missing"] - read
        is_unread = (missing != 0) | (read == 0)
        for vertex in columns["id"][~is_unread].tolist():
            del self.readers[vertex]
        self._columns = {name: values[is_unread] for name, values in columns.items()} | {"missing": missing[is_unread]}

    def decided(self, done_rows: Mapping[int, int]) -> SendBook:
        """Return the book of the rows that are done alone: what an append goes on from.

        Parameters
        ----------
        done_rows
            Per worker: how many of its rows are done.

        Returns
        -------
        SendBook
            A new one. Sends behind those rows are scanned again; only the reads of them that are done are kept.
        """
        self.forget(done_rows)
        columns = self.columns()
        is_decided = _in_done_rows(columns["id"], done_rows)
        # What `forget` has left lies behind the rows that are done; who read it in its own slice is seen again there.
        early_readers = dict(self._taken)
        for vertex, workers in self.early.items():
            if _order_of(vertex) > done_rows.get(vertex >> POSITION_BITS, 0):
                early_readers[vertex] = early_readers.get(vertex, _NOBODY) | workers
        readers = {
            vertex: self.readers[vertex] for vertex in columns["id"][is_decided].tolist() if vertex in self.readers
        }
        book = SendBook(
            {name: values[is_decided] for name, values in columns.items()}, readers, early_readers, self.spilled
        )
        book.place = self.place
        return book

    def unread(self) -> pl.DataFrame:
        """Return the sends that were not read as often as they should be.

        Returns
        -------
        DataFrame
            By vertex, columns `SENDS`; those in files included.
        """
        columns = dict(self.columns())
        if self.place is not None:
            parts = [*(sends.columns for sends in self.spilled.load(self.place)), columns]
            columns = {name: np.concatenate([part[name] for part in parts]) for name in SENDS}
        columns["missing"] = columns["missing"] - self._taken_reads(columns["id"])
        is_unread = columns["missing"] != 0
        order = np.flatnonzero(is_unread)[np.argsort(columns["id"][is_unread], kind="stable")]
        return frame_of({name: values[order] for name, values in columns.items()}, SENDS)

    def first_unread_ns(self) -> int | None:
        """Return when the first send was made that lacks a receive; None where each has all of them.

        Returns
        -------
        int or None
            Nanoseconds since the run's origin; None where each send has all of its receives. No file is read.
        """
        columns = self.columns()
        times = columns["t"][columns["missing"] > 0]
        first = [t for file in self.spilled.files for _, t, _ in file.first]
        return min([*first, *([int(times.min())] if len(times) else [])], default=None)

    def count_unread(self) -> tuple[int, tuple[int, int] | None]:
        """Count the sends that `unread` would return.

        Returns
        -------
        count
            How many there are.
        first
            When the first of them was sent (ns since the run's origin) and its vertex; None where there is none. No
            file is read.
        """
        columns = self.columns()
        unread = np.flatnonzero(columns["missing"] != self._taken_reads(columns["id"]))
        first = [(t, vertex) for file in self.spilled.files for _, t, vertex in file.first]
        if len(unread):
            times = columns["t"][unread]
            first.append((int(times.min()), int(columns["id"][unread[times == times.min()]].min())))
        return len(unread) + self.spilled.rows, min(first, default=None)

    def _taken_reads(self, vertices: I64) -> I64:
        """Return how many reads of each of some sends `take` has counted; of most none."""
        reads = np.zeros(len(vertices), np.int64)
        for row in np.flatnonzero(np.isin(vertices, list(self._taken))).tolist():
            reads[row] = len(self._taken[int(vertices[row])])
        return reads

    def unread_since(self, workers: Sequence[int], stitched: pl.DataFrame) -> dict[int, int]:
        """Return, per worker that has not read all that was sent to it, when the first such message was sent.

        Parameters
        ----------
        workers
            Of the run.
        stitched
            Reads that `take` has not counted, as from `find`.

        Returns
        -------
        dict
            Per such worker: nanoseconds since the run's origin. O(workers x sends).
        """
        columns = self.columns()
        everyone, first_unread = columns["receiver"] == EVERYONE, {}
        reader, vertices = (stitched[name].to_numpy() for name in ("worker", "id"))
        for worker in workers:
            read = [vertex for vertex, readers in self.readers.items() if worker in readers]
            read += vertices[reader == worker].tolist()
            unread = (everyone | (columns["receiver"] == worker)) & ~np.isin(columns["id"], read)
            first = [
                t for file in self.spilled.files for receiver, t, _ in file.first if receiver in {worker, EVERYONE}
            ]
            if first or unread.any():
                first_unread[worker] = min([*first, *([int(columns["t"][unread].min())] if unread.any() else [])])
        return first_unread

    def copy(self) -> SendBook:
        """Return a book that stays as it is when this one goes on.

        Returns
        -------
        SendBook
            It shares the columns of sends and the sets of readers, which nobody changes.
        """
        copied = SendBook(self.columns(), None, None, self.spilled)
        copied.readers, copied.early, copied._taken = dict(self.readers), dict(self.early), dict(self._taken)
        copied.place = self.place
        return copied


def _copied(readers: Readers | None) -> dict[int, frozenset[int]]:
    return {vertex: frozenset(workers) for vertex, workers in (readers or {}).items()}


_NONE = pl.DataFrame(schema=dict.fromkeys(STITCHED, pl.Int64))


def _in_done_rows(vertices: I64, done_rows: Mapping[int, int]) -> NDArray[np.bool_]:
    """Say which vertices lie in the rows that are done, so many per worker."""
    rows = np.zeros(max(done_rows, default=0) + 2, np.int64)
    rows[list(done_rows)] = list(done_rows.values())
    is_within: NDArray[np.bool_] = _orders_of(vertices) <= rows[np.minimum(vertices >> POSITION_BITS, len(rows) - 1)]
    return is_within


def _orders_of(vertices: I64) -> I64:
    return (vertices & MAX_POSITION) // 2


def _order_of(vertex: int) -> int:
    return (vertex & MAX_POSITION) // 2
