"""The state that a commit keeps for the next append: JSON with a version, checked value by value when it is read."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from pag_graph.builder.clocks import Clock, ClockEstimate
from pag_graph.builder.epochs import NONE_CLOSED, Closed, EpochRows
from pag_graph.builder.frontier import Answered
from pag_graph.builder.made import Counts, SliceResult, Times
from pag_graph.builder.match import SENDS
from pag_graph.builder.plan import Known
from pag_graph.builder.sends import SendBook
from pag_graph.builder.spilled import Spilled, SpilledFile
from pag_graph.builder.state import RowAt, RunState, Spawn, VertexAt, WorkerState
from pag_graph.errors import FormatVersionError
from pag_graph.kernels import NEVER
from pag_graph.rules.rows import Open
from pag_graph.store.event_files import EventFile, Numbers, RowGroup
from pag_graph.store.parts import damaged
from pag_graph.store.state_files import read_state_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.store.delta import StoreInfo

    I64 = NDArray[np.int64]

_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What an append goes on from."""

    state: RunState = field(default_factory=RunState)
    """Where the decided rows end."""
    closed: Closed = NONE_CLOSED
    """Epochs that are closed for good."""
    answered: Answered = field(default_factory=Answered)
    """Those of them about which nothing is left to be learned."""
    result: SliceResult = field(default_factory=SliceResult)
    """Counts of the decided rows that later windows need."""
    fingerprint: int = 0
    """Of all rows of closed epochs."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows that stay, per table."""
    estimate: ClockEstimate | None = None
    """What the messages said of the clocks, where they were asked."""
    complete: bool = False
    """Whether the log had ended."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Checksums of the small tables of the trace."""
    files: Sequence[EventFile] = ()
    """Files of the trace as they were: those that have not changed need not be opened again."""

    def known(self, run: Mapping[str, Any]) -> Known:
        """Return what the plan of the next build takes from it.

        Parameters
        ----------
        run
            As the commit has it.

        Returns
        -------
        Known
            How far each worker's log is done, which workers park, and the clocks.
        """
        workers = self.state.workers
        return Known(
            run=run,
            estimate=self.estimate,
            rows=self.state.rows,
            parks=frozenset(worker for worker, worker_state in workers.items() if worker_state.parks),
            last_rows={
                w: (worker_state.rows, worker_state.last_row)
                for w, worker_state in workers.items()
                if worker_state.last_row is not None
            },
        )

    def content(self) -> bytes:
        """Write it down; the state may not go on meanwhile.

        Returns
        -------
        bytes
            JSON, which `load` reads. The state must not change meanwhile.
        """
        state = self.state
        epochs = EpochRows.merged(state.epochs).after(self.closed.last)._asdict()
        later_counts = self.result.after(self.closed)
        return orjson.dumps(
            {
                "version": _VERSION,
                "closed": self.closed,
                "answered": self.answered,
                "fingerprint": self.fingerprint,
                "rows": dict(self.rows),
                "complete": self.complete,
                "tables": dict(self.tables),
                "files": [file_entry for file in self.files if (file_entry := _file_entry(file)) is not None],
                "estimate": self.estimate and _estimate(self.estimate),
                "workers": {
                    str(worker): {name: getattr(worker_state, name) for name in _OF_WORKER}
                    for worker, worker_state in state.workers.items()
                },
                "spawns": [
                    (spawn.worker, spawn.child, spawn.pos, spawn.t, spawn.epoch, spawn.seq) for spawn in state.spawns
                ],
                "operators": sorted(state.operators),
                "channels": sorted(state.channels),
                "epochs": {name: _or_null(values) for name, values in epochs.items()},
                "sends": {name: values.tolist() for name, values in state.sends.columns().items()},
                "readers": _reader_entries(state.sends.readers),
                "spilled": [(file.name, file.rows, file.first) for file in state.sends.spilled.files],
                "back": sorted(state.sends.spilled.back),
                "early": _reader_entries(state.sends.early),
                "counts": [values.tolist() for values in later_counts.counts],
                "waiting": [values.tolist() for values in later_counts.waiting],
                "unknown": [values.tolist() for values in later_counts.unknown],
                "dropped": dict(later_counts.dropped),
            },
            # Named tuples, which are lists to a reader.
            default=tuple,
        )


_OF_WORKER = ("rows", "first", "last", "segment", "activities", "applications", "last_row", "exit_ns", "parks")


def _estimate(estimate: ClockEstimate) -> dict[str, Any]:
    return {
        "clocks": {str(w): (clock.offset_ns, clock.drift) for w, clock in estimate.clocks.items()},
        "uncertainty_ns": {str(w): bound for w, bound in estimate.uncertainty_ns.items()},
        "margin_ns": estimate.margin_ns,
        "messages": estimate.messages,
    }


def load(info: StoreInfo) -> Saved | None:
    """Read what a commit keeps for the next append.

    Parameters
    ----------
    info
        The committed state of the store.

    Returns
    -------
    Saved or None
        None where the build kept nothing: then all is built again.

    Raises
    ------
    StoreError
        If the file is missing or damaged.
    FormatVersionError
        If another release wrote it in another form.
    """
    return read(info.path, info.state)


def read(store: Path, state: Mapping[str, Any] | None) -> Saved | None:
    """Read a state, which need not be committed.

    Parameters
    ----------
    store
        Directory of the store.
    state
        The file, as `pag_graph.store.state_files.write_state` returned it; None where there is none.

    Returns
    -------
    Saved or None
        None where there is none.

    Raises
    ------
    StoreError
        If the file is missing or damaged.
    FormatVersionError
        If another release wrote it in another form.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    if state is None:
        return None
    file = store / "epochs" / str(state.get("file"))
    content = read_state_file(store, state)
    try:
        saved_content = orjson.loads(content)
        version = saved_content["version"]
        if version == _VERSION:
            return _saved(saved_content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise damaged(file, f"it is not a state of a build ({error!r})") from error
    raise FormatVersionError.from_found_and_known(where=str(file), found=version, known=_VERSION)


def _saved(saved_content: Mapping[str, Any]) -> Saved:
    counts = saved_content["counts"]
    slice_sum = SliceResult(
        counts=Counts(_ints(counts[0]), _ints(counts[1]), _ints(counts[2]), np.array(counts[3], np.uint64)),
        waiting=Times(*(_ints(values) for values in saved_content["waiting"])),
        unknown=Times(*(_ints(values) for values in saved_content["unknown"])),
        dropped={str(reason): _int(count) for reason, count in saved_content["dropped"].items()},
    )
    sends = {name: _ints(saved_content["sends"][name]) for name in SENDS}
    state = RunState(
        workers={int(worker): _worker(entry) for worker, entry in saved_content["workers"].items()},
        spawns=tuple(_spawn(values) for values in saved_content["spawns"]),
        operators=frozenset(_ints(saved_content["operators"]).tolist()),
        channels=frozenset(_ints(saved_content["channels"]).tolist()),
        epochs=[_epochs(saved_content["epochs"])],
        sends=SendBook(
            sends, _readers(saved_content["readers"]), _readers(saved_content["early"]), _spilled(saved_content)
        ),
    )
    estimate = saved_content["estimate"]
    return Saved(
        state=state,
        closed=Closed(*(_int(value) for value in saved_content["closed"])),
        answered=_answered(*saved_content["answered"]),
        result=slice_sum,
        fingerprint=_int(saved_content["fingerprint"]),
        rows={str(name): _int(count) for name, count in saved_content["rows"].items()},
        estimate=None if estimate is None else _clocks(estimate),
        complete=bool(saved_content["complete"]),
        tables={str(name): _int(checksum) for name, checksum in saved_content["tables"].items()},
        files=[_file(name, size, mtime, tuple(map(tuple, rows))) for name, size, mtime, rows in saved_content["files"]],
    )


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"{value!r} is not a number"
        raise TypeError(message)
    return value


def _ints(values: Any) -> I64:
    if {type(value) for value in values} - {int}:
        message = f"{values!r} are no numbers"
        raise TypeError(message)
    return np.array(values, np.int64)


def _or_none(make: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else make(value)


def _worker(entry: Mapping[str, Any]) -> WorkerState:
    def vertex(values: Any) -> VertexAt:
        return VertexAt(*(_int(value) for value in values))

    def stack(values: Any) -> tuple[Open, ...]:
        return tuple(Open(*(_int(value) for value in activity)) for activity in values)

    return WorkerState(
        rows=_int(entry["rows"]),
        first=_or_none(vertex, entry["first"]),
        last=_or_none(vertex, entry["last"]),
        segment=_int(entry["segment"]),
        activities=stack(entry["activities"]),
        applications=stack(entry["applications"]),
        last_row=_or_none(lambda values: RowAt(*(_int(value) for value in values)), entry["last_row"]),
        exit_ns=_or_none(_int, entry["exit_ns"]),
        parks=bool(entry["parks"]),
    )


def _file_entry(file: EventFile) -> list[Any] | None:
    """Return what a file of events is known by; None where its footer does not tell all, so that it is opened again."""
    if not file.groups or None in file.groups or None in file.numbers:
        return None
    groups = [
        [*group, *numbers[:2]] for group, numbers in zip(file.groups, file.numbers, strict=True) if group and numbers
    ]
    return [file.name, file.size_bytes, file.mtime_ns, groups]


@lru_cache(maxsize=1 << 12)
def _file(name: Any, size: Any, mtime: Any, groups: tuple[tuple[Any, ...], ...]) -> EventFile:
    """Make a file of what `_file_entry` wrote; there may be thousands, and the next append asks for the same."""
    if {type(value) for value in (size, mtime, *chain.from_iterable(groups))} != {int} or not isinstance(name, str):
        message = f"{name!r} of {size!r} bytes, changed at {mtime!r}, with {groups!r} is not a file"
        raise TypeError(message)
    return EventFile(
        name=name,
        rows=sum(group[1] for group in groups),
        workers=tuple(sorted({group[0] for group in groups})),
        groups=tuple(RowGroup(*group[:4]) for group in groups),
        numbers=tuple(Numbers(low, high, rows) for _, rows, _, _, low, high in groups),
        size_bytes=size,
        mtime_ns=mtime,
    )


def _answered(last: Any, pending: Any) -> Answered:
    return Answered(_int(last), tuple((_int(epoch), _int(end_ns)) for epoch, end_ns in pending))


def _spawn(values: Any) -> Spawn:
    worker, child, pos, t, epoch, seq = (_int(value) for value in values)
    return Spawn(worker=worker, child=child, pos=pos, t=t, epoch=epoch, seq=seq)


def _or_null(values: I64) -> list[int | None]:
    return [None if value == NEVER else value for value in values.tolist()]


def _epochs(columns: Mapping[str, Any]) -> EpochRows:
    rows = [_ints([NEVER if value is None else value for value in columns[name]]) for name in EpochRows._fields]
    return EpochRows.of([np.vstack(rows)])


def _reader_entries(readers: Mapping[int, frozenset[int]]) -> list[tuple[int, list[int]]]:
    return [(vertex, sorted(workers)) for vertex, workers in readers.items()]


def _readers(values: Any) -> dict[int, set[int]]:
    return {_int(vertex): {_int(worker) for worker in workers} for vertex, workers in values}


def _spilled(saved_content: Mapping[str, Any]) -> Spilled:
    files = [
        SpilledFile(str(name), _int(rows), tuple((_int(worker), _int(t), _int(vertex)) for worker, t, vertex in first))
        for name, rows, first in saved_content["spilled"]
    ]
    return Spilled(files, _ints(saved_content["back"]).tolist())


def _clocks(entry: Mapping[str, Any]) -> ClockEstimate:
    return ClockEstimate(
        clocks={
            int(worker): Clock(offset_ns=_int(offset), drift=float(drift))
            for worker, (offset, drift) in entry["clocks"].items()
        },
        uncertainty_ns={int(worker): _or_none(_int, bound) for worker, bound in entry["uncertainty_ns"].items()},
        margin_ns=_or_none(_int, entry["margin_ns"]),
        messages=_int(entry["messages"]),
    )


def checksum(table: pa.Table) -> int:
    """Return a number that tells a small table from another one.

    Parameters
    ----------
    table
        Held in memory.

    Returns
    -------
    int
        CRC-32 of its schema and rows as Arrow writes them.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return zlib.crc32(sink.getvalue())
