"""A recorded trace, written once more as its recorder did: in portions, each when it is due.

The loop is open: what is due is written then, or as soon as possible, whether somebody keeps up with it or not. All
files are made before the first is due, so that writing them costs only their names.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import InvalidParameterError, StoreError
from pag_graph.model.enums import Severity
from pag_graph.model.ranks import nearest_rank
from pag_graph.model.tables import PAG_FINDINGS, TRACE_EVENTS
from pag_graph.model.units import FARTHEST_NS
from pag_graph.sources.wire.encrypted import client_context
from pag_graph.sources.wire.frames import SCHEME, Hello, place_of
from pag_graph.sources.wire.send import Portion, Sender
from pag_graph.store.access import is_loopback, read_token
from pag_graph.store.findings import findings
from pag_graph.store.in_place import refusals, whole_folder
from pag_graph.store.log import TraceLog, column
from pag_graph.store.meta import write_meta
from pag_graph.store.trace import Trace, check_trace_place, write_table
from pag_graph.store.trace_columns import conform
from pag_graph.store.trace_files import EVENTS, FINDINGS, INPUTS, META

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

LATE_NS = 50_000_000
"""A run in which more than one of a hundred events came later than so long after it was due measures nothing."""
_MOST_ROWS = 1 << 18
"""Rows of one file: of so many, none is too long to be sent at once."""
_HIDDEN = "prepared"
"""Folder of files that are not due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay did."""

    events: int
    files: int
    duration_s: float
    """From the first file to the last one."""
    offered_per_s: float | None
    """Events per second as they were due; None where they were written as fast as possible."""
    achieved_per_s: float
    late_p50_ns: int | None
    """How much later than due events were written: the median, at least so much for one in a hundred, and the most."""
    late_p99_ns: int | None
    late_max_ns: int | None

    @property
    def valid(self) -> bool:
        """Whether events came when they were due, so that what somebody measured meanwhile means something."""
        return self.late_p99_ns is None or self.late_p99_ns <= LATE_NS


class _Due(NamedTuple):
    """A file that waits until it is due."""

    due_ns: int
    """After the start."""
    name: str
    rows: int
    worker: int
    first: int
    last: int
    """Numbers of its first and last event."""
    lost: tuple[tuple[int, int], ...]
    """Stretches of numbers, before it or in it, that the trace lacks."""


def speed_of(text: str) -> float | None:
    """Return what ``2x`` or ``0.5x`` says as a number; None for ``max``.

    Raises
    ------
    InvalidParameterError
        If it says nothing of that.
    """
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        message = f"{text!r} is not a speed; write 1x, 2x, 0.5x or max."
        raise InvalidParameterError(message)
    return speed


def replay(
    trace: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    speed: float | None = 1.0,
    flush_every_s: float = 0.5,
    replace_target: bool = False,
    token_file: str | os.PathLike[str] | None = None,
    authority: str | os.PathLike[str] | None = None,
    now: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayReport:
    """Write a recorded trace as its recorder did, or send it as its recorder did.

    Parameters
    ----------
    trace
        The recorded trace.
    to
        Directory to make, or ``tcp://HOST:PORT`` of a follower that listens.
    speed
        How much faster than it was recorded; None: as fast as possible.
    flush_every_s
        How often events are written; each then becomes a file per worker, with all that is due.
    replace_target
        Whether to replace a trace that is there.
    token_file
        For a follower: file of mode 600 with the token that it expects.
    authority
        For a follower, and needed if it is on another machine: file of PEM with who must have signed its certificate.
        What is sent is then encrypted.
    now, sleep
        The clock, in nanoseconds, and what waits for it, in seconds.

    Returns
    -------
    ReplayReport
        How well it kept to the time.

    Raises
    ------
    InvalidParameterError
        If a number is out of range.
    StoreExistsError
        If something is in the place of `to`.
    TraceFormatError
        If the trace cannot be read.
    SinkError
        If the follower does not take it.
    """
    if flush_every_s <= 0 or (speed is not None and speed <= 0):
        message = "Speed and the time between two files must be more than 0."
        raise InvalidParameterError(message)
    # No trace is longer than that, however fast it is written once more.
    opened, every_ns = Trace.open(trace), round(min(flush_every_s * 1e9 * (speed or 1.0), FARTHEST_NS))
    if isinstance(to, str) and to.startswith(SCHEME):
        if token_file is None:
            message = f"{to} takes only what comes with a token."
            raise InvalidParameterError(message, "Give --token-file, the one that the follower has.")
        tls = None if authority is None else client_context(Path(authority))
        if tls is None and not is_loopback(place_of(to)[0]):
            message = f"Whoever is between this machine and {to} could read what is sent: nothing is encrypted."
            raise InvalidParameterError(message, "Give --authority, who has signed the follower's certificate.")
        sender = partial(Sender, to, read_token(Path(token_file)), tls=tls)
        return _send(opened, sender, every_ns, _Clock(speed, now, sleep))
    target = Path(to).absolute()
    check_trace_place(target, replace=replace_target)
    check = partial(check_trace_place, target, replace=replace_target)
    with refusals(target, "The trace", StoreError), whole_folder(target, check=check) as folder:
        _describe(opened, folder)
        if (opened.path / INPUTS).is_dir():
            shutil.copytree(opened.path / INPUTS, folder / INPUTS)
        portions = _prepare(opened, folder / _HIDDEN, every_ns)
    with refusals(target, "The trace", StoreError):
        return _publish(opened, target, portions, _Clock(speed, now, sleep))


class _Clock(NamedTuple):
    """How fast to replay, and by which clock."""

    speed: float | None
    now: Callable[[], int]
    sleep: Callable[[float], None]


def _describe(trace: Trace, folder: Path) -> None:
    """Write what a recorder writes before the first event."""
    for name in (EVENTS, _HIDDEN):
        (folder / name).mkdir()
    for name, table in (("operators", trace.operators), ("channels", trace.channels), ("workers", trace.workers)):
        write_table(folder / f"{name}.parquet", table)
    if (trace.path / FINDINGS).is_file():
        shutil.copyfile(trace.path / FINDINGS, folder / FINDINGS)
    write_meta(dataclasses.replace(trace.meta, complete=False), folder / META)


def _say_what_is_not_sent(trace: Trace, folder: Path) -> None:
    """Add to the findings that a follower does not get to know when input was due: no frame holds that."""
    if not any((trace.path / INPUTS).glob("*.parquet")):
        return
    action = "when input was due is not sent; copy the folder `inputs` of the sent trace into the received one"
    tables = [findings("inputs_not_sent", Severity.WARNING, action)]
    if (folder / FINDINGS).is_file():
        tables.insert(0, pq.read_table(folder / FINDINGS, partitioning=None))
    found = pa.concat_tables(tables, promote_options="default")
    write_table(folder / FINDINGS, conform(found, PAG_FINDINGS, where=f"findings of {trace.path}"))


def _prepare(trace: Trace, folder: Path, every_ns: int) -> list[_Due]:
    """Write all files, and say when each is due, in time of the trace; in that order."""
    log = TraceLog.index(trace)
    offsets = dict(zip(trace.workers["worker"].to_pylist(), trace.workers["offset_ns"].to_pylist(), strict=True))
    begin_ns = min(chunks[0].t_min + offsets[worker] for worker, chunks in log.chunks.items())
    portions = []
    for worker in log.chunks:
        worker_portions = _portions(log, worker, begin_ns - offsets[worker], max(every_ns, 1))
        last_seq = 0
        sendable_portions = (
            (tick, portion) for tick, table in worker_portions for portion in _sendable_portions(table)
        )
        for number, (tick, table) in enumerate(sendable_portions):
            name = f"worker-{worker:07}-{number:07}.parquet"
            write_table(folder / name, conform(table, TRACE_EVENTS, where=name))
            seq = column(table, "seq")
            missing_seqs = tuple(_missing(last_seq, seq))
            last_seq = int(seq[-1])
            portions.append(_Due(tick * every_ns, name, table.num_rows, worker, int(seq[0]), last_seq, missing_seqs))
    return sorted(portions)


def _sendable_portions(table: pa.Table) -> Iterator[pa.Table]:
    """Cut a portion into files that can be sent."""
    return (table.slice(first, _MOST_ROWS) for first in range(0, table.num_rows, _MOST_ROWS))


def _missing(before: int, seq: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Find stretches of numbers that come neither in a portion nor up to the number before it."""
    all_seqs = np.concatenate([[before], seq])
    for place in np.flatnonzero(np.diff(all_seqs) > 1).tolist():
        yield int(all_seqs[place]) + 1, int(all_seqs[place + 1]) - 1


def _portions(log: TraceLog, worker: int, begin_ns: int, every_ns: int) -> Iterator[tuple[int, pa.Table]]:
    """Cut the log of a worker at every tick; ticks count from `begin_ns` on the worker's own clock."""
    tables: list[pa.Table] = []
    current = 0
    for table in log.tables(worker, 0, log.rows_of(worker), TraceLog.columns):
        # Rows are due at the first tick that is not before them.
        ticks = -(-(column(table, "t_ns") - begin_ns) // every_ns)
        row = 0
        while row < len(ticks):
            end = int(np.searchsorted(ticks, ticks[row], side="right"))
            if tables and ticks[row] != current:
                yield current, pa.concat_tables(tables, promote_options="default")
                tables = []
            current = int(ticks[row])
            tables.append(table.slice(row, end - row))
            row = end
    if tables:
        yield current, pa.concat_tables(tables, promote_options="default")


def _publish(trace: Trace, target: Path, portions: list[_Due], clock: _Clock) -> ReplayReport:
    """Give each file its name when it is due."""

    def give(portion: _Due) -> None:
        hidden = target / _HIDDEN / portion.name
        # The file's time is the time when it arrives.
        os.utime(hidden)
        hidden.replace(target / EVENTS / portion.name)

    def end() -> None:
        shutil.rmtree(target / _HIDDEN)
        if trace.meta.complete:
            write_meta(trace.meta, target / f"{META}.tmp")
            (target / f"{META}.tmp").replace(target / META)

    return _in_time(portions, clock, give, end)


def _send(trace: Trace, sender_of: Callable[[Hello], Sender], every_ns: int, clock: _Clock) -> ReplayReport:
    """Hand each file over when it is due, to be sent as soon as the follower takes it."""
    workers = tuple(trace.workers["worker"].to_pylist())
    gapless = trace.meta.gapless
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _describe(trace, folder)
        _say_what_is_not_sent(trace, folder)
        portions = _prepare(trace, folder / _HIDDEN, every_ns)
        last = dict.fromkeys(workers, 0) | {portion.worker: portion.last for portion in portions}
        with sender_of(Hello(trace.meta.trace_id, 0, 1, workers)) as sender:
            sender.describe({file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()})

            def give(due: _Due) -> None:
                lost = due.lost if gapless else ()
                file = folder / _HIDDEN / due.name
                sender.send(Portion(due.worker, due.first, due.last, time.time_ns(), file, lost))

            return _in_time(portions, clock, give, lambda: sender.finish(last, finished=trace.meta.complete))


def _in_time(
    portions: list[_Due], clock: _Clock, give: Callable[[_Due], None], end: Callable[[], None]
) -> ReplayReport:
    """Give each portion when it is due, whether somebody keeps up with it or not."""
    speed, now, sleep = clock
    start = now()
    late = np.zeros(len(portions), np.int64)
    for number, portion in enumerate(portions):
        due_ns = start if speed is None else start + round(portion.due_ns / speed)
        while (wait_ns := due_ns - now()) > 0:
            sleep(wait_ns / 1e9)
        give(portion)
        late[number] = now() - due_ns
    end()
    seconds = max((now() - start) / 1e9, 1e-9)
    rows = np.array([portion.rows for portion in portions], np.int64)
    events = int(rows.sum())

    def quantile(share: float) -> int | None:
        return None if speed is None else nearest_rank(late, share, rows)

    due_s = portions[-1].due_ns / 1e9 / (speed or 1.0)
    return ReplayReport(
        events=events,
        files=len(portions),
        duration_s=seconds,
        offered_per_s=None if speed is None or not due_s else events / due_s,
        achieved_per_s=events / seconds,
        late_p50_ns=quantile(0.5),
        late_p99_ns=quantile(0.99),
        late_max_ns=quantile(1.0),
    )
