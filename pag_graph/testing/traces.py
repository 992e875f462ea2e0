"""Small traces drawn by hand: a line of text per worker becomes a canonical trace on disk.

An event is ``time kind arguments``; events are separated by ``|`` or line ends::

    0 start 7 | 10 send 3>1 #0 *5 | 12 stop 7 | 20 park 100 | 40 unpark | 41 recv 3<1 #0 *2 | 50 end

==================  ======================================================================================
``start 7``         operator 7 starts; ``stop 7`` and ``push 7`` (progress was pushed to it) likewise
``send 3>1 #0 *5``  a data message leaves on channel 3 to worker 1; number 0 (also when absent), 5 records
``recv 3<1 #0``     a data message is read on channel 3, which worker 1 sent
``psend 9 #0``      a progress message is broadcast on channel 9
``precv 9<1 #0``    a progress message of worker 1 is read
``app 7``           the program's own activity 7 starts; ``endapp 7`` ends it
``park``            the worker sleeps, without a limit; ``park 100`` for at most 100 ns
``unpark``          it runs again
``end``             the end of the worker's epoch; events after it are of the next one
``spawn 1``         worker 1 is started; ``exit`` ends the worker
``=gc`` (anywhere)  the type that the source states for the activity that starts, or for the message that is read
``?`` (anywhere)    the place of the activity is inferred
``@T`` (a read)     the message was there at T
``~4`` (anywhere)   this event and those after it are of epoch 4
``lost``            no event, but one that the source numbered and lost; a trace with any is `SmallTrace.gapless`
==================  ======================================================================================

Other kinds are written by their names, without arguments. Times are nanoseconds of the worker's own clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from pag_graph.model.enums import ActivityType, EventKind, RuleSet
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_EVENTS, TRACE_OPERATORS, TRACE_WORKERS
from pag_graph.store.meta import TraceMeta, TraceSource
from pag_graph.store.trace import write_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_KINDS = {
    "recv": EventKind.RECEIVE,
    "psend": EventKind.PROGRESS_SEND,
    "precv": EventKind.PROGRESS_RECEIVE,
    "push": EventKind.PUSH_PROGRESS,
    "end": EventKind.EPOCH_END,
    "app": EventKind.APPLICATION_START,
    "endapp": EventKind.APPLICATION_STOP,
    "stepped": EventKind.STEP_STOP,
}
_MESSAGES = {EventKind.SEND, EventKind.RECEIVE, EventKind.PROGRESS_SEND, EventKind.PROGRESS_RECEIVE}
_OPERATORS = {
    EventKind.START,
    EventKind.STOP,
    EventKind.PUSH_PROGRESS,
    EventKind.APPLICATION_START,
    EventKind.APPLICATION_STOP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of `TRACE_EVENTS`, but for columns that no test needs; `model/tables.py` says what each column means."""

    worker: int
    seq: int
    epoch: int
    t_ns: int
    kind: EventKind
    operator: int | None = None
    channel: int | None = None
    peer: int | None = None
    message_seq: int | None = None
    records: int | None = None
    bytes: int | None = None
    timeout_ns: int | None = None
    activity: str | None = None
    inferred: bool | None = None
    arrived_ns: int | None = None

    def shifted(self, by_ns: int) -> Event:
        """Return the event on a clock that is ahead by so many nanoseconds."""
        arrived_ns = None if self.arrived_ns is None else self.arrived_ns + by_ns
        return replace(self, t_ns=self.t_ns + by_ns, arrived_ns=arrived_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTrace:
    """A trace in memory, small enough to look at."""

    events: tuple[tuple[Event, ...], ...]
    """Per worker: its log."""
    processes: tuple[int, ...]
    """Per worker: the process that it is a thread of."""
    offsets_ns: tuple[int, ...]
    """Per worker: what leads from its clock to the common one."""
    uncertainty_ns: tuple[int | None, ...]
    """Per worker: how far off the offset may be."""
    complete: bool = True
    """Whether the run had ended when the log was read."""
    rules: RuleSet = RuleSet.TIMELY
    """What the source asks for."""
    idle_logged: bool = True
    """Whether the logs say when their workers had nothing to do."""
    gapless: bool = False
    """Whether the source numbers the events of each worker without gaps, so that a missing number is a lost event."""
    operators: tuple[tuple[int, str], ...] = ()
    """Operators that have a name."""
    channels: tuple[tuple[int, str], ...] = ()
    """Channels of whose data the type is known."""

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.events)

    @property
    def rows(self) -> int:
        """Number of events."""
        return sum(len(log) for log in self.events)

    def shifted(self, by_ns: int) -> SmallTrace:
        """Return the trace with every worker's clock ahead by the same time."""
        return replace(
            self,
            events=tuple(tuple(event.shifted(by_ns) for event in log) for log in self.events),
        )

    def silenced(self) -> SmallTrace:
        """Return the trace as a log that says nothing of idleness would hold it."""
        idle = {EventKind.PARK, EventKind.UNPARK, EventKind.IDLE_START, EventKind.IDLE_STOP}
        events = tuple(tuple(event for event in log if event.kind not in idle) for log in self.events)
        return replace(self, events=events, idle_logged=False)

    def losing(self, chance: random.Random) -> SmallTrace:
        """Return the trace as a source that numbers all events, and loses some of them, would leave it.

        Each worker loses up to three runs of up to three events, drawn by `chance`, and never its last event.
        """
        logs = []
        for log in self.events:
            numbered = [replace(event, seq=seq) for seq, event in enumerate(log, 1)]
            for _ in range(chance.randrange(4)):
                first_lost = chance.randrange(len(numbered)) if numbered else 0
                # The loss of the last events would show nowhere, so they stay.
                del numbered[first_lost : min(first_lost + chance.randint(1, 3), len(numbered) - 1)]
            logs.append(tuple(numbered))
        return replace(self, events=tuple(logs), gapless=True)

    def changed(self, worker: int, index: int, **changes: object) -> SmallTrace:
        """Return the trace with other values in one event; without values the event is left out.

        Parameters
        ----------
        worker, index
            Whose event, and which one of its log, from 0.
        **changes
            Fields of `Event`.
        """
        log = list(self.events[worker])
        log[index : index + 1] = [replace(log[index], **changes)] if changes else []  # type: ignore[arg-type]
        return self._with_log(worker, log)

    def until_epoch(self, epoch: int) -> SmallTrace:
        """Return what every worker logged up to the end of `epoch`, which is included."""
        return replace(self, events=tuple(tuple(event for event in log if event.epoch <= epoch) for log in self.events))

    def _with_log(self, worker: int, log: Iterable[Event]) -> SmallTrace:
        events = (*self.events[:worker], tuple(log), *self.events[worker + 1 :])
        return replace(self, events=events)

    def write(self, path: Path, *, shuffle: int | None = None, trace_id: str = "small", replace: bool = False) -> Path:
        """Write the trace.

        Parameters
        ----------
        path
            Directory to make.
        shuffle
            Without it there is one file per worker. With it, a seed, rows are spread over files anyhow; only the
            order of each worker's rows stays.
        trace_id
            Its identity.
        replace
            Whether to replace a trace that is there.

        Returns
        -------
        Path
            `path`.
        """
        # A source that numbers events writes files of one worker each: only there are gaps looked for.
        files = self._by_worker() if shuffle is None or self.gapless else self._spread(random.Random(shuffle))  # noqa: S311
        meta = TraceMeta(
            trace_id=trace_id,
            source=TraceSource(system="timely", version="0.0", format="pag-timely" if self.gapless else "drawn"),
            workers=self.workers,
            complete=self.complete,
            rules=self.rules,
            idle_logged=self.idle_logged,
        )
        write_trace(
            path,
            meta=meta,
            events=[(stem, event_table(rows)) for stem, rows in files if rows],
            operators=pa.Table.from_pylist(
                [{"operator": number, "address": str(number), "name": name} for number, name in self.operators],
                TRACE_OPERATORS,
            ),
            channels=pa.Table.from_pylist(
                [{"channel": number, "scope": "", "type": kind} for number, kind in self.channels], TRACE_CHANNELS
            ),
            workers=self._worker_table(),
            replace=replace,
        )
        return path

    def _by_worker(self) -> list[tuple[str, Sequence[Event]]]:
        return [(f"worker-{number:03}", log) for number, log in enumerate(self.events)]

    def _spread(self, chance: random.Random) -> list[tuple[str, Sequence[Event]]]:
        turns = [worker for worker, log in enumerate(self.events) for _ in log]
        if chance.random() < 0.5:  # noqa: PLR2004 every second time, rows of workers alternate within files
            chance.shuffle(turns)
        logs = [iter(log) for log in self.events]
        rows = [next(logs[worker]) for worker in turns]
        inner = sorted(chance.sample(range(1, len(rows)), min(chance.randrange(6), len(rows) - 1)))
        cuts = [0, *inner, len(rows)]
        return [(f"part-{number:03}", rows[low:high]) for number, (low, high) in enumerate(pairwise(cuts))]

    def _worker_table(self) -> pa.Table:
        return pa.Table.from_pylist(
            [
                {
                    "worker": worker,
                    "process": self.processes[worker],
                    "clock_domain": str(self.processes[worker]),
                    "offset_ns": self.offsets_ns[worker],
                    "uncertainty_ns": self.uncertainty_ns[worker],
                }
                for worker in range(self.workers)
            ],
            TRACE_WORKERS,
        )


def event_table(events: Iterable[Event]) -> pa.Table:
    """Return events as `TRACE_EVENTS`, one row each; columns that `Event` lacks are null."""
    names = set(Event.__dataclass_fields__)
    rows = list(events)
    return pa.Table.from_pydict(
        {
            field.name: [getattr(event, field.name) if field.name in names else None for event in rows]
            for field in TRACE_EVENTS
        },
        schema=TRACE_EVENTS,
    )


def draw(
    *logs: str,
    processes: Sequence[int] | None = None,
    offsets_ns: Sequence[int] | None = None,
    uncertainty_ns: Sequence[int | None] | None = None,
    rules: RuleSet = RuleSet.TIMELY,
    idle_logged: bool = True,
) -> SmallTrace:
    """Read a trace drawn in the notation of this module.

    Parameters
    ----------
    logs
        Per worker, from 0: its events.
    processes, offsets_ns, uncertainty_ns
        Per worker; one process, no offsets and no known uncertainty when absent.
    rules
        What the source asks for.
    idle_logged
        Whether the logs say when their workers had nothing to do.

    Returns
    -------
    SmallTrace
        `seq` counts the events of a worker from 0, or from 1 where one is lost.

    Examples
    --------
    >>> trace = draw("0 start 1 | 4 send 3>1 *2 | 5 stop 1 | 9 end", "5 recv 3<0 *2 | 9 end")
    >>> trace.events[0][1].records
    2
    """
    count = len(logs)
    gapless = any("lost" in word_group.split() for text in logs for word_group in text.split("|"))
    return SmallTrace(
        events=tuple(_log(worker, text, first_seq=int(gapless)) for worker, text in enumerate(logs)),
        processes=tuple(processes or [0] * count),
        offsets_ns=tuple(offsets_ns or [0] * count),
        uncertainty_ns=tuple(uncertainty_ns or [None] * count),
        rules=rules,
        idle_logged=idle_logged,
        gapless=gapless,
    )


def _log(worker: int, text: str, *, first_seq: int) -> tuple[Event, ...]:
    events: list[Event] = []
    epoch, lost = 0, first_seq
    for event_text in text.replace("\n", "|").split("|"):
        words = event_text.split()
        if not words:
            continue
        if words == ["lost"]:
            lost += 1
            continue
        for word in words:
            if word.startswith("~"):
                epoch = int(word[1:])
        words = [word for word in words if not word.startswith("~")]
        events.append(_event(words, worker=worker, seq=len(events) + lost, epoch=epoch))
        epoch += events[-1].kind is EventKind.EPOCH_END
    return tuple(events)


def _event(words: Sequence[str], *, worker: int, seq: int, epoch: int) -> Event:
    t_ns, name, *arguments = words
    kind = _KINDS[name] if name in _KINDS else EventKind(name)
    event = Event(worker=worker, seq=seq, epoch=epoch, t_ns=int(t_ns), kind=kind)
    if kind in _MESSAGES:
        event = replace(event, message_seq=0)
    for word in arguments:
        if word.startswith("#"):
            event = replace(event, message_seq=int(word[1:]))
        elif word.startswith("="):
            event = replace(event, activity=str(ActivityType(word[1:])))
        elif word.startswith("@"):
            event = replace(event, arrived_ns=int(word[1:]))
        elif word == "?":
            event = replace(event, inferred=True)
        elif word.startswith("*"):
            event = replace(event, records=int(word[1:]))
        elif kind in _MESSAGES:
            channel, _, peer = word.replace(">", "<").partition("<")
            event = replace(event, channel=int(channel), peer=int(peer) if peer else None)
        elif kind in _OPERATORS:
            event = replace(event, operator=int(word))
        elif kind is EventKind.PARK:
            event = replace(event, timeout_ns=int(word))
        else:
            event = replace(event, peer=int(word))
    return event
