"""A trace that is being written: what has come since the last look, without looking at all of it again.

A recorder numbers the files of a worker without gaps, lets each appear whole, and writes ``meta.json`` after the tables
that it goes with. So the next files have names that can be asked for, and what ``meta.json`` calls complete is. Until
the next file of a worker is there, its last one may be replaced by one that begins with the same row groups and has
more.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import deque
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pag_graph.errors import StoreConflictError, TraceFormatError
from pag_graph.store.chunks import Chunk
from pag_graph.store.description import check_known, read_description, source_findings
from pag_graph.store.event_files import inspect, open_events, read_groups
from pag_graph.store.gaps import Gaps
from pag_graph.store.log import ENCODED_WORDS, TraceLog, stretches, with_values
from pag_graph.store.safe_files import check_folder
from pag_graph.store.tail_log import Arrival, GrowingTrace, TailLog
from pag_graph.store.trace import Trace
from pag_graph.store.trace_files import EVENTS, META, NUMBERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pag_graph.store.event_files import EventFile

_DESCRIPTION = (META, "operators.parquet", "channels.parquet", "workers.parquet")
_PATIENCE = 100
"""Looks at which tables may contradict each other: a recorder replaces one after the other."""
_LOOKS_PER_LIST = 64
"""After how many looks the folder of events is listed, if it changed and no file has the name that was expected. While
a worker has logged nothing it is listed whenever it changes."""
MEMORY_BYTES = 1 << 30
"""Bytes of rows that are kept in memory, unless told; what is beyond them is read again where it is asked for."""
GIVE_UP_NS = 30_000_000_000
"""For how long a file is waited for that lacks while later ones of its worker are there; then it is missing."""
_TICK_NS = 100_000_000
"""How finely a file system tells when a folder changed, at the coarsest."""


class Newest(NamedTuple):
    """The last file of a series, as it was when it was read: it may have more row groups by now."""

    name: str
    """Name of the file."""
    stamp: tuple[int, int] | None
    """Inode and time of change when it was read."""
    file: EventFile
    """What it held then."""


class Awaited(NamedTuple):
    """A file that is not there, though later ones of its worker are."""

    number: int
    """Its number."""
    later: int
    """That of the next one that is there."""
    worker: int
    """Whose file it is."""
    since_ns: int
    """When that was seen, Unix time."""


class Tail:
    """Follows the directory of a trace.

    Parameters
    ----------
    root
        Directory; need not be there yet.
    done
        Per worker: how many of its first rows nobody will ask for.
    memory
        Bytes of rows that are kept in memory; what is beyond them is read again where it is asked for.
    give_up_ns
        For how long to wait for a file whose successors are there.
    portion
        Once so many rows are read that `forget` has not been told of, files wait; all are read where it is absent.
    """

    def __init__(
        self,
        root: Path,
        done: Mapping[int, int] | None = None,
        *,
        memory: int = MEMORY_BYTES,
        give_up_ns: int = GIVE_UP_NS,
        portion: int | None = None,
    ) -> None:
        self._root, self._memory, self._give_up_ns, self._portion = root, memory, give_up_ns, portion
        self._done = dict(done or {})
        self._stamps: tuple[object, ...] = ()
        self._contradictions = 0
        self._trace: Trace | None = None
        self._series: dict[str, tuple[int, int]] = {}
        self._taken: set[str] = set()
        self._newest: dict[str, Newest] = {}
        self._worker_of: dict[str, int] = {}
        self._awaited: dict[str, Awaited] = {}
        self._waiting: dict[str, deque[str]] = {}
        self._heads: list[tuple[int, str]] = []
        self._begins: dict[int, int] = {}
        self._inspected: dict[str, Newest] = {}
        self._fresh = 0
        self._folder: tuple[int, int] | None = None
        self._looks = 0
        self._gaps: Gaps | None = None
        self._files: dict[str, EventFile] = {}
        self._chunks: dict[int, list[Chunk]] = {}
        self._arrivals: dict[int, list[Arrival]] = {}
        self._content: dict[tuple[str, int], pa.Table] = {}
        self._bytes = 0
        self.rows = 0
        """Events that were read since the trace's beginning."""

    @property
    def complete(self) -> bool:
        """Whether the source has ended, and all of it was read."""
        return self._ended and not self._waiting

    @property
    def waiting(self) -> bool:
        """Whether files are there that were not read, because a portion is full."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Whether a portion is read, so that a look reads no more before `forget` is called."""
        return self._portion is not None and self._fresh >= self._portion

    @property
    def _ended(self) -> bool:
        """Whether the source has ended."""
        return self._trace is not None and self._trace.meta.complete

    @property
    def awaited(self) -> frozenset[int]:
        """Workers of which a file lacks that may still come."""
        return frozenset(file.worker for stem, file in self._awaited.items() if self._series[stem][0] == file.number)

    def rows_of(self, worker: int) -> int:
        """Return how many rows of a worker were read.

        Parameters
        ----------
        worker
            Any number.

        Returns
        -------
        int
            0 of a worker of which nothing came.
        """
        known = self._chunks.get(worker)
        return known[-1].first_row + known[-1].rows if known else 0

    def look(self, now_ns: int) -> bool:
        """Read what has come since the last look, or as much of it as makes a portion.

        Of several workers, the one is read on whose log is behind the others, so that all get on together.

        Parameters
        ----------
        now_ns
            Unix time.

        Returns
        -------
        bool
            Whether anything has: events, or another description of the trace.

        Raises
        ------
        TraceFormatError
            If a file is damaged, or the trace contradicts itself.
        StoreConflictError
            If another trace took its place.
        """
        described = self._describe()
        if self._trace is None:
            return False
        before = self.rows
        # In this order: what is complete is all there.
        self._notice(now_ns)
        while self._waiting and not self.full:
            self._take(self._next(), now_ns)
        return described or self.rows > before

    def arrival(self, worker: int, t_own: int) -> Arrival | None:
        """Return the file with which a worker's log got to a time.

        Parameters
        ----------
        worker
            Whose log.
        t_own
            Nanoseconds of the worker's own clock.

        Returns
        -------
        Arrival or None
            The last one if the log is not that far; None where nothing came of the worker. O(log files).
        """
        known = self._arrivals.get(worker)
        if not known:
            return None
        return known[min(bisect_left(known, t_own, key=lambda arrival: arrival.t_max), len(known) - 1)]

    def log(self) -> TailLog | None:
        """Return the rows that are still needed, as far as they were read; None before there are any.

        Returns
        -------
        TailLog or None
            None before there are any rows.
        """
        if not self._chunks:
            return None
        chunks = {worker: tuple(known) for worker, known in sorted(self._chunks.items())}
        return TailLog(self._root, chunks, dict(self._arrivals), dict(self._content), self.awaited)

    def trace(self) -> GrowingTrace:
        """Return the trace as far as it was read.

        Returns
        -------
        GrowingTrace
            With the findings of its source only once it is complete.

        Raises
        ------
        TraceFormatError
            If there is none.
        """
        known = self._trace
        if known is None:
            message = f"There is no trace at {self._root}."
            raise TraceFormatError(message, "Start the program that records it.", {"file": str(self._root)})
        if self.complete:
            findings = source_findings(self._root, self._gaps)
        else:
            findings = pa.concat_tables([known.findings, *(self._gaps.findings() if self._gaps else ())])
        return GrowingTrace(
            path=self._root,
            meta=replace(known.meta, complete=self.complete),
            operators=known.operators,
            channels=known.channels,
            workers=known.workers,
            files=tuple(self._files.values()),
            findings=findings,
            read=self.rows,
        )

    def forget(self, done: Mapping[int, int]) -> None:
        """Let go of rows that are done, and begin another portion.

        Parameters
        ----------
        done
            Per worker: how many of its first rows; the last of them is kept.
        """
        self._done |= done
        self._fresh = 0
        for worker, known in self._chunks.items():
            first = self._done.get(worker, 0) - 1
            kept = [chunk for chunk in known[:-1] if chunk.first_row + chunk.rows > first]
            self._chunks[worker] = [*kept, known[-1]]
        needed = {(chunk.file, chunk.row_group) for known in self._chunks.values() for chunk in known}
        for key in [key for key in self._content if key not in needed]:
            self._bytes -= self._content.pop(key).nbytes
        files = {file for file, _ in needed}
        self._files = {name: file for name, file in self._files.items() if name in files}

    # --- What the trace says besides its events -----------------------------------------------------------------------

    def _describe(self) -> bool:
        """Read the description again where it changed; says whether it did."""
        stamps = tuple(_stamp(self._root / name) for name in _DESCRIPTION)
        if stamps == self._stamps or stamps[0] is None:
            return False
        try:
            meta, tables = read_description(self._root)
        except TraceFormatError:
            # A recorder replaces one file after the other: only what stays contradictory is.
            self._contradictions += 1
            if self._contradictions > _PATIENCE:
                raise
            return False
        self._contradictions = 0
        before = self._trace
        if before is None:
            check_folder(self._root)
        if before is not None and before.meta.trace_id != meta.trace_id:
            message = f"{self._root} holds trace {meta.trace_id} now; trace {before.meta.trace_id} was followed."
            raise StoreConflictError(message, "Follow the new one into a store of its own.", {"file": str(self._root)})
        if before is None and meta.gapless:
            self._gaps = Gaps(self._root)
        self._stamps = stamps
        self._trace = Trace(path=self._root, meta=meta, files=(), **tables)
        return True

    # --- Files of events ----------------------------------------------------------------------------------------------

    def _notice(self, now_ns: int) -> None:
        """Let files wait that have come, those of a worker in the order of its log."""
        folder = self._root / EVENTS
        self._give_up(now_ns)
        none_came = self._wait(self._probed(folder)) == 0
        self._looks += 1
        lacking = self._trace is not None and len(self._arrivals) < self._trace.meta.workers
        stamp = _stamp(folder)
        due = lacking or (none_came and self._looks % _LOOKS_PER_LIST == 0)
        if stamp is not None and (self._ended or (due and stamp != self._folder)):
            # A folder that changed just now may change again without another time.
            self._folder = stamp if now_ns - stamp[1] > _TICK_NS else None
            self._wait(self._listed(folder, now_ns))
            self._wait(self._probed(folder))

    def _give_up(self, now_ns: int) -> None:
        """Go on behind files that did not come for so long that they are missing; the numbers of events tell so too."""
        for stem, file in list(self._awaited.items()):
            number, width = self._series[stem]
            late = now_ns - file.since_ns > self._give_up_ns
            if number != file.number or late:
                del self._awaited[stem]
            if number == file.number and late:
                self._series[stem] = (file.later, width)

    def _probed(self, folder: Path) -> Iterator[str]:
        """Ask for the next file of each series, and for more of its last one."""
        for stem, (number, width) in list(self._series.items()):
            after = number
            while True:
                there = (folder / (name := f"{stem}{after:0{width}}.parquet")).exists()
                # In this order: what the last one has when the next one is there is all that it ever has.
                if after == number and (grown := self._grown(stem, folder)) is not None:
                    yield grown
                if not there:
                    break
                if name not in self._taken:
                    self._taken.add(name)
                    yield name
                after += 1
            self._series[stem] = (after, width)

    def _grown(self, stem: str, folder: Path) -> str | None:
        """Return the name of the last file of a series that was read, if it has changed since and does not wait yet."""
        newest, waiting = self._newest.get(stem), self._waiting.get(stem)
        if newest is None or (waiting and waiting[0] == newest.name):
            return None
        return newest.name if _stamp(folder / newest.name) != newest.stamp else None

    def _listed(self, folder: Path, now_ns: int) -> Iterator[str]:
        """List the folder: series that are new begin; when the trace is complete, what is in none is taken too."""
        for name in sorted(set(os.listdir(folder)) - self._taken):  # noqa: PTH208  (it may have many files)
            numbered = NUMBERED.fullmatch(name)
            if not name.endswith(".parquet") or name in self._taken:
                continue
            if numbered is None or self._ended or numbered[1] not in self._series:
                self._taken.add(name)
                yield name
            if numbered is not None and numbered[1] not in self._series:
                self._series[numbered[1]] = (int(numbered[2]) + 1, len(numbered[2]))
            elif numbered is not None and not self._ended:
                self._await(numbered[1], int(numbered[2]), now_ns)

    def _await(self, stem: str, later: int, now_ns: int) -> None:
        """Remember that the next file of a series lacks while a later one is there; names come in their order."""
        number = self._series[stem][0]
        known = self._awaited.get(stem)
        if later > number and stem in self._worker_of and (known is None or known.number != number):
            self._awaited[stem] = Awaited(number, later, self._worker_of[stem], now_ns)

    def _wait(self, names: Iterable[str]) -> int:
        """Let files wait until they are read, behind the earlier ones of their series; returns how many."""
        count = 0
        for name in names:
            numbered = NUMBERED.fullmatch(name)
            stem = numbered[1] if numbered else ""
            self._waiting.setdefault(stem, deque()).append(name)
            if len(self._waiting[stem]) == 1:
                heappush(self._heads, (self._into_log(name), stem))
            count += 1
        return count

    def _next(self) -> str:
        """Return the file to be read next: of several workers, the one is read on whose log is behind the others."""
        _, stem = heappop(self._heads)
        name = self._waiting[stem].popleft()
        if self._waiting[stem]:
            heappush(self._heads, (self._into_log(self._waiting[stem][0]), stem))
        else:
            del self._waiting[stem]
        return name

    def _into_log(self, name: str) -> int:
        """Return how long after the beginning of its worker's log a file begins; 0 where its footer does not tell."""
        groups = self._inspect(name).file.groups
        if not groups or groups[0] is None:
            return 0
        return groups[0].t_min - self._begins.setdefault(groups[0].worker, groups[0].t_min)

    def _inspect(self, name: str) -> Newest:
        """Look at the footer of a file, again only where the file changed."""
        path = self._root / EVENTS / name
        # In this order: a file that takes its place meanwhile has another stamp.
        stamp, known = _stamp(path), self._inspected.get(name)
        if known is None or known.stamp != stamp:
            known = self._inspected[name] = Newest(name, stamp, inspect(self._root, f"{EVENTS}/{name}", path.stat()))
        return known

    def _take(self, name: str, now_ns: int) -> None:
        """Read a file, or what has come to the last one of its series since it was read."""
        trace, path = self._trace, self._root / EVENTS / name
        if trace is None:
            return
        newest = self._inspect(name)
        del self._inspected[name]
        file, published = newest.file, now_ns if newest.stamp is None else newest.stamp[1]
        numbered = NUMBERED.fullmatch(name)
        known = self._newest.get(numbered[1]) if numbered else None
        before = known.file if known is not None and known.name == name else None
        if numbered:
            self._newest[numbered[1]] = newest
        first = len(before.groups) if before else 0
        if before is not None and (file.groups[:first], file.numbers[:first]) != (before.groups, before.numbers):
            message = f"{path} does not begin any more with what was read of it."
            raise TraceFormatError(message, "A file may only grow at its end.", {"file": str(path)})
        if len(file.groups) == first:
            return
        if self._gaps is not None:
            self._gaps.look(file, first)
        check_known(file.workers, set(trace.workers["worker"].to_pylist()), where=str(path))
        if numbered is not None and len(file.workers) == 1:
            self._worker_of[numbered[1]] = file.workers[0]
        self._index(trace, file, first, published, now_ns)
        self.rows += file.rows - (before.rows if before else 0)
        self._files[file.name] = file

    def _index(self, trace: Trace, file: EventFile, first: int, published: int, now_ns: int) -> None:
        """Remember where the rows of a file lie, from its row group `first` on; read those that are needed."""
        wanted, seen = set(), set()
        for worker, group, offset, rows, t_min, t_max in stretches(trace, file):
            if group < first:
                continue
            known, arrivals = self._chunks.setdefault(worker, []), self._arrivals.setdefault(worker, [])
            if arrivals and arrivals[-1].file > file.name:
                path = self._root / file.name
                message = f"{path} came after {arrivals[-1].file}, and holds rows of worker {worker} as well."
                hint = "Number the files of a worker in the order of its log."
                raise TraceFormatError(message, hint, {"file": str(path), "worker": worker})
            first_row = self.rows_of(worker)
            self._fresh += max(0, rows - max(0, self._done.get(worker, 0) - first_row))
            chunk = Chunk(file.name, group, offset, rows, first_row, t_min, t_max)
            if worker in seen:
                arrivals[-1] = arrivals[-1]._replace(t_max=t_max)
            else:
                arrivals.append(Arrival(first_row, file.name, published, now_ns, t_max))
                seen.add(worker)
            # Of what is done, the last row is asked for.
            if known and known[-1].first_row + known[-1].rows < self._done.get(worker, 0):
                known.clear()
            known.append(chunk)
            if first_row + rows >= self._done.get(worker, 0):
                wanted.add(group)
        self._keep(file.name, sorted(wanted))

    def _keep(self, name: str, groups: Sequence[int]) -> None:
        """Read row groups of a file into memory, if there is room."""
        if not groups or self._bytes >= self._memory:
            return
        with open_events(self._root, name, encoded=ENCODED_WORDS) as parquet:
            for group in groups:
                columns = with_values(parquet.metadata, [group], TraceLog.columns)
                table = read_groups(parquet, [group], columns, where=str(self._root / name), threads=False)
                self._content[name, group] = table
                self._bytes += table.nbytes


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what differs between a file and one that takes its place, or a folder before and after it changed."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
