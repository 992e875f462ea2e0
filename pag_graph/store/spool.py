"""A trace that comes in portions from one process or several: what came is checked, and stays.

The spool is a directory in which a trace grows (`pag_graph.store.trace`), with a folder more::

    received/lock                 held by the one who receives
    received/process-0.json       what a process said of itself: its workers, what is lost, what has ended
    received/process-0/           the description of the trace as the process knows it

Nothing of it is in memory alone: whoever opens the spool again knows up to where each worker's log is there.

Small portions of a worker go into one file, which is replaced by one with the same row groups and those of the next
portion, as recorders to a directory do. It is whole at any moment, and a reader that comes again finds the row groups
that it knows at the same places.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pag_graph.errors import StoreConflictError, StoreError, TraceFormatError
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.runtime.locks import Lock, lock
from pag_graph.store.capacity import enough_memory
from pag_graph.store.description import read_description
from pag_graph.store.durable import to_disk
from pag_graph.store.event_files import inspect, open_events, read_events, read_groups
from pag_graph.store.in_place import refusals
from pag_graph.store.lanes import Lane, united
from pag_graph.store.log import column
from pag_graph.store.merged import Description, Part, merged_meta, merged_tables
from pag_graph.store.safe_files import parse_json
from pag_graph.store.trace import write_row_groups, write_table
from pag_graph.store.trace_columns import conform
from pag_graph.store.trace_files import EVENTS, FINDINGS, META

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

RECEIVED = "received"
MOST_ROWS = 1 << 20
"""Rows of one file of events."""
_MOST_LOST = 1 << 16
"""Stretches of lost events that are remembered of a worker."""
_DESCRIPTION = frozenset({META, "operators.parquet", "channels.parquet", "workers.parquet"})
_NAME = re.compile(r"worker-(\d{7})-(\d{7})\.parquet")
_HINT = "Record and follow with one release; `pag check` looks at a trace that was recorded to files."


class Spool:
    """A directory into which processes hand a trace over.

    Parameters
    ----------
    root
        The directory; made. What an earlier one received is gone on with.

    Raises
    ------
    StoreConflictError
        If somebody else receives into it.
    StoreError
        If the file system refuses, or something else is there.
    TraceFormatError
        If what is there is damaged.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._mutex = threading.Lock()
        self._parts: dict[int, Part] = {}
        self._lanes: dict[int, Lane] = {}
        self._written: dict[str, object] = {}
        self._trace_id: str | None = None
        with refusals(root, "The spool", StoreError):
            if root.is_dir() and not (root / RECEIVED).is_dir() and any(root.iterdir()):
                message = f"{root} is not empty, and is not a spool."
                raise StoreError(message, "Choose another place.", {"path": str(root)})
            (root / EVENTS).mkdir(parents=True, exist_ok=True)
            (root / RECEIVED).mkdir(exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._held = os.open(root / RECEIVED / "lock", flags, 0o600)
        try:
            self._lock()
            with refusals(root, "The spool", StoreError):
                self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let somebody else receive."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def join(self, trace_id: str, process: int, processes: int, workers: Iterable[int]) -> dict[int, int]:
        """Let a process hand over the logs of its workers.

        Parameters
        ----------
        trace_id
            What run it records.
        process, processes
            Which one it is, and how many there are.
        workers
            Its workers.

        Returns
        -------
        dict
            Per worker, the number of the event that is expected next.

        Raises
        ------
        StoreConflictError
            If the spool holds another run, or a worker is another process' one.
        """
        with self._mutex, refusals(self.root, "The spool", StoreError):
            if self._trace_id not in {None, trace_id}:
                message = f"{self.root} receives trace {self._trace_id}; trace {trace_id} came."
                raise StoreConflictError(message, "Receive the new one into a spool of its own.")
            joined_workers = set(workers)
            for worker in joined_workers & self._lanes.keys():
                if self._lanes[worker].process != process:
                    message = f"Worker {worker} is one of process {self._lanes[worker].process}; {process} names it."
                    raise StoreConflictError(message, "Number the processes of a run differently.")
            part_before = self._parts.get(process)
            if part_before is not None and (
                part_before.processes != processes or set(part_before.workers) != joined_workers
            ):
                message = f"Process {process} named other workers, or another number of processes, when it came first."
                raise StoreConflictError(message, "Receive the new run into a spool of its own.")
            self._trace_id = trace_id
            for worker in joined_workers:
                self._lanes.setdefault(worker, Lane(process))
            if part_before is None:
                self._parts[process] = Part(process, processes, tuple(sorted(joined_workers)))
                self._note(process)
            return self._next(process)

    def describe(self, process: int, files: Mapping[str, bytes]) -> None:
        """Take what a process knows of the trace besides its events.

        Parameters
        ----------
        process
            Has joined.
        files
            Content of the files of the trace's description, by name.

        Raises
        ------
        TraceFormatError
            If a file is missing, unknown or damaged, or contradicts another one, or a worker is missing.
        StoreConflictError
            If it describes another run.
        """
        if files.keys() - {FINDINGS} != _DESCRIPTION:
            message = f"A description has the files {', '.join(sorted(map(repr, files)))}."
            raise TraceFormatError(message, f"It has {', '.join(sorted(_DESCRIPTION))}.")
        folder = self.root / RECEIVED / f"process-{process}"
        coming = folder.with_suffix(".coming")
        with self._mutex, refusals(self.root, "The spool", StoreError):
            shutil.rmtree(coming, ignore_errors=True)
            coming.mkdir()
            for name, content in files.items():
                (coming / name).write_bytes(content)
            part = replace(self._parts[process], known=self._described(self._parts[process], coming))
            _take_place(coming, folder)
            self._parts[process] = part
            self._publish()

    def add(self, process: int, worker: int, first: int, published_ns: int, content: bytes) -> int:
        """Take a file of events.

        Parameters
        ----------
        process
            Has joined, and has described the trace.
        worker
            One of its workers; all rows are of it.
        first
            Number of the first row.
        published_ns
            When the recorder had written it, Unix time.
        content
            The file.

        Returns
        -------
        int
            How many of its rows were there already.

        Raises
        ------
        TraceFormatError
            If it is damaged or contradicts itself, or events are missing before it that are not known to be lost.
        StoreError
            If the file system refuses, or there is not enough memory now.
        """
        with self._mutex, refusals(self.root, "The spool", StoreError), enough_memory(f"A portion of worker {worker}"):
            lane = self._lane(process, worker)
            if self._parts[process].known is None:
                message = f"Events of worker {worker} came before the description of the trace."
                raise TraceFormatError(message, _HINT, {"worker": worker})
            hidden = self._place(worker, lane.next_file).with_suffix(".incoming")
            try:
                hidden.write_bytes(content)
                table = self._checked(hidden, worker, first)
                seq = column(table, "seq")
                repeated = int(np.searchsorted(seq, lane.next_seq))
                if repeated == len(seq):
                    return repeated
                self._check_gaps(self._parts[process], worker, lane, seq[repeated:])
                rows = len(seq) - repeated
                place = self._written_to(hidden, worker, lane, table.slice(repeated), whole=not repeated)
                os.utime(hidden, ns=(published_ns, published_ns))
                to_disk(hidden)
                hidden.replace(place)
                to_disk(place.parent)
            finally:
                hidden.unlink(missing_ok=True)
            lane.count(rows, joined=place != self._place(worker, lane.next_file))
            lane.next_seq = int(seq[-1]) + 1
            lane.step_over()
            return repeated

    def _written_to(self, hidden: Path, worker: int, lane: Lane, table: pa.Table, *, whole: bool) -> Path:
        """Make a file of events what it is to be, and return its place: that of the last file, if it joins that.

        `whole` says that the file holds these events alone. Without the memory to join files there is one more of them.
        """
        if lane.joins(table.num_rows):
            place = self._place(worker, lane.next_file - 1)
            with suppress(StoreError), enough_memory(f"A portion of worker {worker}"):
                _write_events(hidden, [*self._groups(place), table])
                return place
            whole = False
        if not whole:
            _write_events(hidden, [table])
        return self._place(worker, lane.next_file)

    def lose(self, process: int, worker: int, stretches: Iterable[tuple[int, int]]) -> None:
        """Take note that a program could not keep events of a worker: first and last number of each stretch.

        Parameters
        ----------
        process, worker
            Whose.
        stretches
            First and last number of each, from 1, in any order; those that came meanwhile do not count.

        Raises
        ------
        TraceFormatError
            If there are no such numbers, or too many such stretches.
        """
        with self._mutex, refusals(self.root, "The spool", StoreError):
            lane = self._lane(process, worker)
            lost_ranges = list(lane.lost)
            for first, last in stretches:
                if not 1 <= first <= last:
                    message = f"Events {first} to {last} of worker {worker} cannot be lost: there are none."
                    raise TraceFormatError(message, _HINT, {"worker": worker})
                if last >= lane.next_seq:
                    lost_ranges.append((max(first, lane.next_seq), last))
            lost_ranges = united(lost_ranges)
            if lost_ranges == lane.lost:
                return
            if len(lost_ranges) > _MOST_LOST:
                message = f"Worker {worker} lost events in more than {_MOST_LOST} places."
                raise TraceFormatError(message, "Give the recorder more room for what waits.", {"worker": worker})
            lane.lost = lost_ranges
            lane.step_over()
            self._note(process)
            self._publish()

    def end(self, process: int, worker: int, last: int, *, finished: bool) -> None:
        """Take note that nothing more comes of a worker.

        Parameters
        ----------
        process, worker
            Whose.
        last
            Number of its last event; 0 where it has none.
        finished
            Whether the program came to its end, so that the log is whole.

        Raises
        ------
        TraceFormatError
            If events are missing.
        """
        with self._mutex, refusals(self.root, "The spool", StoreError):
            lane = self._lane(process, worker)
            if last >= max(lane.next_seq, 1):
                message = f"Worker {worker} ended with event {last}, but {lane.next_seq} was the next to come."
                raise TraceFormatError(message, _HINT, {"worker": worker})
            lane.last, lane.finished = last, finished
            self._note(process)
            self._publish()

    def state(self, process: int) -> tuple[dict[int, int], list[int]]:
        """Return, of a process that has joined, per worker the number that is expected next, and who has ended."""
        with self._mutex:
            ended = [worker for worker in self._parts[process].workers if self._lanes[worker].ended]
            return self._next(process), ended

    # --- Files of events ----------------------------------------------------------------------------------------------

    def _lane(self, process: int, worker: int) -> Lane:
        lane = self._lanes.get(worker)
        if lane is None or lane.process != process:
            message = f"Process {process} has no worker {worker}."
            raise TraceFormatError(message, _HINT, {"worker": worker})
        return lane

    def _next(self, process: int) -> dict[int, int]:
        return {worker: self._lanes[worker].next_seq for worker in self._parts[process].workers}

    def _place(self, worker: int, number: int) -> Path:
        return self.root / EVENTS / f"worker-{worker:07}-{number:07}.parquet"

    def _groups(self, place: Path) -> list[pa.Table]:
        """Read a file of events that is there, a table for each row group."""
        names = list(TRACE_EVENTS.names)
        with open_events(self.root, f"{EVENTS}/{place.name}") as parquet:
            return [read_groups(parquet, [group], names, where=str(place)) for group in range(parquet.num_row_groups)]

    def _checked(self, hidden: Path, worker: int, first: int) -> pa.Table:
        """Read a file of events as one reads what somebody else wrote."""
        name = f"{EVENTS}/{hidden.name}"
        with open_events(self.root, name) as parquet:
            rows = parquet.metadata.num_rows
        if not 0 < rows <= MOST_ROWS:
            message = f"A portion of worker {worker} has {rows} events; it has 1 to {MOST_ROWS}."
            raise TraceFormatError(message, _HINT, {"worker": worker, "rows": rows})
        file = inspect(self.root, name, None)
        table = read_events(self.root, file, list(TRACE_EVENTS.names), None)
        if table is None or (column(table, "worker") != worker).any():
            message = f"A portion of worker {worker} holds events of another one."
            raise TraceFormatError(message, _HINT, {"worker": worker})
        seq = column(table, "seq")
        if seq[0] != first or first < 0 or (np.diff(seq) <= 0).any():
            message = f"A portion of worker {worker} from event {first} on is not in the order of their numbers."
            raise TraceFormatError(message, _HINT, {"worker": worker})
        return table

    def _check_gaps(self, part: Part, worker: int, lane: Lane, seq: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Refuse events before which others are missing that are not known to be lost."""
        if part.known is None or not part.known.gapless:
            return
        before = np.concatenate([[max(lane.next_seq, 1) - 1], seq[:-1]])
        for place in np.flatnonzero(seq - before > 1).tolist():
            gap = int(before[place]) + 1, int(seq[place]) - 1
            if not any(first <= gap[0] and gap[1] <= last for first, last in lane.lost):
                message = f"Events {gap[0]} to {gap[1]} of worker {worker} did not come."
                raise TraceFormatError(message, _HINT, {"worker": worker})

    # --- What is noted ------------------------------------------------------------------------------------------------

    def _note(self, process: int) -> None:
        """Write down what a process said of itself."""
        part = self._parts[process]
        lanes = {worker: self._lanes[worker] for worker in part.workers}
        content = {
            "trace_id": self._trace_id,
            "processes": part.processes,
            "workers": list(part.workers),
            "lost": {worker: lane.lost for worker, lane in lanes.items() if lane.lost},
            "ended": {worker: [lane.last, lane.finished] for worker, lane in lanes.items() if lane.last is not None},
        }
        _write(self.root / RECEIVED / f"process-{process}.json", json.dumps(content).encode())

    def _publish(self) -> None:
        """Write the description that all processes make together, its parts that changed; ``meta.json`` last."""
        described = [self._parts[process] for process in sorted(self._parts)]
        parts = [(part, part.known) for part in described if part.known is not None]
        if not parts:
            return
        tables = merged_tables(parts)
        for name, table in tables.items():
            written_table = self._written.get(name)
            if not isinstance(written_table, pa.Table) or not written_table.equals(table):
                place = self.root / f"{name}.parquet"
                write_table(place.with_suffix(".tmp"), table)
                place.with_suffix(".tmp").replace(place)
                self._written[name] = table
        findings = parts[0][1].findings
        if findings is not None and self._written.get(FINDINGS) != findings:
            _write(self.root / FINDINGS, findings)
            self._written[FINDINGS] = findings
        is_complete = len(parts) == parts[0][0].processes and all(
            self._lanes[worker].ended and self._lanes[worker].finished for part, _ in parts for worker in part.workers
        )
        lost = [[worker, *stretch] for worker, lane in sorted(self._lanes.items()) for stretch in lane.lost]
        meta = merged_meta(parts, workers=tables["workers"].num_rows, complete=is_complete, lost=lost)
        if self._written.get(META) != meta:
            _write(self.root / META, meta)
            self._written[META] = meta

    def _described(self, part: Part, folder: Path) -> Description:
        """Read what a process described, as one reads the description of any trace."""
        meta, tables = read_description(folder)
        if meta.trace_id != self._trace_id:
            message = f"A description of trace {meta.trace_id} came; trace {self._trace_id} is received."
            raise StoreConflictError(message, "Receive it into a spool of its own.")
        if missing := set(part.workers) - set(tables["workers"]["worker"].to_pylist()):
            message = f"The table of workers lacks worker {min(missing)} of process {part.process}."
            raise TraceFormatError(message, _HINT, {"worker": min(missing)})
        return Description(
            meta=parse_json((folder / META).read_text(encoding="utf-8")),
            tables=tables,
            gapless=meta.gapless,
            findings=(folder / FINDINGS).read_bytes() if (folder / FINDINGS).is_file() else None,
        )

    def _lock(self) -> None:
        if lock(self._held) is Lock.OTHERS:
            message = f"Another process receives into {self.root}."
            raise StoreConflictError(message, "Choose another place for the spool.", {"path": str(self.root)})

    def _load(self) -> None:
        """Find out what an earlier one received."""
        last: dict[int, int] = {}
        for name in os.listdir(self.root / EVENTS):  # noqa: PTH208  (it may have many files)
            if name.endswith(".incoming"):
                (self.root / EVENTS / name).unlink()
            elif match := _NAME.fullmatch(name):
                last[int(match[1])] = max(last.get(int(match[1]), 0), int(match[2]))
        for file in sorted((self.root / RECEIVED).glob("process-*.json")):
            self._load_process(file, int(file.stem.removeprefix("process-")), last)
        self._publish()

    def _load_process(self, file: Path, process: int, last: Mapping[int, int]) -> None:
        try:
            content = parse_json(file.read_text(encoding="utf-8"))
            self._trace_id = content["trace_id"]
            part = Part(process, content["processes"], tuple(content["workers"]))
            for worker in part.workers:
                lane = Lane(process, lost=[(first, end) for first, end in content["lost"].get(str(worker), ())])
                if (number := last.get(worker)) is not None:
                    lane.next_file = number + 1
                    lane.next_seq = self._last_seq(worker, number) + 1
                lane.step_over()
                lane.last, lane.finished = content["ended"].get(str(worker), (None, False))
                self._lanes[worker] = lane
        except (ValueError, KeyError, TypeError) as error:
            message = f"{file} cannot be read: {error}."
            raise TraceFormatError(message, "Receive into another spool.", {"file": str(file)}) from error
        folder = file.with_suffix("")
        aside = folder.with_suffix(".old")
        if aside.is_dir() and not folder.is_dir():
            aside.rename(folder)
        self._parts[process] = part
        if folder.is_dir():
            self._parts[process] = replace(part, known=self._described(part, folder))

    def _last_seq(self, worker: int, number: int) -> int:
        file = inspect(self.root, f"{EVENTS}/{self._place(worker, number).name}", None)
        table = read_events(self.root, file, ["seq"], None)
        return -1 if table is None else int(column(table, "seq")[-1])


def _take_place(coming: Path, folder: Path) -> None:
    """Put a folder in the place of another one; who is killed meanwhile leaves one of them, aside or in place."""
    aside = folder.with_suffix(".old")
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(aside)
    coming.rename(folder)
    shutil.rmtree(aside, ignore_errors=True)


def _write(place: Path, content: bytes) -> None:
    """Put a file in its place at once."""
    hidden = place.with_name(f"{place.name}.tmp")
    hidden.write_bytes(content)
    hidden.replace(place)


def _write_events(hidden: Path, tables: Sequence[pa.Table]) -> None:
    """Write a file of events, a row group for each table at least."""
    write_row_groups(hidden, [conform(table, TRACE_EVENTS, where=str(hidden)) for table in tables])
