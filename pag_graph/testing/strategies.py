"""Hypothesis strategies: random traces that a real program could have logged, and damaged ones.

The strategies simulate workers that run operators, talk and sleep; a message is never read before it was sent on the
true clock. What is logged is each worker's own clock, so with `skewed` the common clock errs by process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from pag_graph.model.enums import EventKind
from pag_graph.testing.traces import Event, SmallTrace

_STEPS = (0, 1, 1, 1, 2, 3, 10, 40, 7_000)
"""Times between events of a worker; parks that nothing explains become `unknown` from 5,000 ns on."""


class _Message(NamedTuple):
    kind: EventKind
    channel: int
    sender: int
    number: int
    records: int
    sent: int


class _Step(NamedTuple):
    worker: int
    action: str
    argument: int
    gap: int


_ACTIONS = (
    "start",
    "start",
    "push_start",
    "stop",
    "stop",
    "send",
    "send",
    "receive",
    "receive",
    "progress",
    "nap",
    "spin",
    "step_stop",
    "step_stop",
    "apply",
    "apply",
    "await",
    "await",
    "await",
    "sleep",
    "end",
    "push",
    "spawn",
    "spawn",
    "exit",
    "skip",
)

_DAMAGE = ("cut_park", "cut_park", "cut_park", "read_again")
"""What only a log that lost or repeated something shows."""

_LOSABLE = (
    EventKind.PARK,
    EventKind.UNPARK,
    EventKind.UNPARK,
    EventKind.START,
    EventKind.STOP,
    EventKind.SEND,
    EventKind.RECEIVE,
    EventKind.PROGRESS_SEND,
    EventKind.PROGRESS_RECEIVE,
    EventKind.EPOCH_END,
)


@dataclass(slots=True)
class _Worker:
    number: int
    now: int
    epoch: int = 0
    parked: bool = False
    open: list[int] = field(default_factory=list)
    inbox: list[_Message] = field(default_factory=list)
    read: list[_Message] = field(default_factory=list)
    log: list[Event] = field(default_factory=list)


class _Program:
    """Workers that act; every action logs what a worker would log."""

    def __init__(self, starts: list[int], *, instant: bool, arrivals: bool) -> None:
        self.workers = [_Worker(number, start) for number, start in enumerate(starts)]
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.delay = 0 if instant else 1
        self.arrivals = arrivals

    def act(self, step: _Step) -> None:
        """Let a worker do something; what it cannot do it leaves."""
        me = self.workers[step.worker]
        if me.parked:
            me.parked = False
            self._log(me, EventKind.UNPARK, step.gap)
        getattr(self, f"_{step.action}")(me, step.argument, step.gap)

    def finish(self, *, epochs: int) -> None:
        """Let all workers stop, read all that was sent to them, and end their epochs."""
        for me in self.workers:
            if not me.log:
                continue
            if me.parked:
                me.parked = False
                self._log(me, EventKind.UNPARK, 1)
            while me.inbox:
                self._receive(me, 0, 1)
            while me.open:
                self._stop(me, 0, 1)
            while me.epoch < epochs:
                self._end(me, 0, 1)

    def leave(self, workers: list[int]) -> None:
        """Let workers that did something end."""
        for number in workers:
            if self.workers[number].log:
                self._log(self.workers[number], EventKind.EXIT, number % 3)

    @staticmethod
    def _log(me: _Worker, kind: EventKind, gap: int, **columns: Any) -> None:
        # At equal times a log has an order all the same: `seq`.
        me.now += gap
        me.log.append(Event(worker=me.number, seq=len(me.log), epoch=me.epoch, t_ns=me.now, kind=kind, **columns))

    def _start(self, me: _Worker, argument: int, gap: int) -> None:
        if len(me.open) < 3:  # noqa: PLR2004 dataflow, scope, operator
            me.open.append(argument % 4)
            self._log(me, EventKind.START, gap, operator=argument % 4)

    def _push(self, me: _Worker, argument: int, gap: int) -> None:
        self._log(me, EventKind.PUSH_PROGRESS, gap, operator=argument % 4)

    def _push_start(self, me: _Worker, argument: int, gap: int) -> None:
        self._push(me, argument, gap)
        self._start(me, argument, gap)

    def _stop(self, me: _Worker, argument: int, gap: int) -> None:
        del argument
        if me.open:
            self._log(me, EventKind.STOP, gap, operator=me.open.pop())

    def _number(self, channel: int, sender: int, receiver: int) -> int:
        key = (channel, sender, receiver)
        self.numbers[key] = self.numbers.get(key, -1) + 1
        return self.numbers[key]

    def _send(self, me: _Worker, argument: int, gap: int) -> None:
        peer, channel, records = argument % len(self.workers), 10 + argument // 8 % 2, argument % 5
        number = self._number(channel, me.number, peer)
        self._log(me, EventKind.SEND, gap, channel=channel, peer=peer, message_seq=number, records=records)
        message = _Message(EventKind.RECEIVE, channel, me.number, number, records, me.now)
        self.workers[peer].inbox.append(message)

    def _progress(self, me: _Worker, argument: int, gap: int) -> None:
        channel = 20 + argument % 2
        number = self._number(channel, me.number, -1)
        self._log(me, EventKind.PROGRESS_SEND, gap, channel=channel, message_seq=number, records=1)
        message = _Message(EventKind.PROGRESS_RECEIVE, channel, me.number, number, 1, me.now)
        for worker in self.workers:
            worker.inbox.append(message)

    def _receive(self, me: _Worker, argument: int, gap: int) -> None:
        if me.inbox:
            message = me.inbox.pop(argument % len(me.inbox))
            me.read.append(message)
            self._read(me, message, max(gap, message.sent + self.delay - me.now))

    def _read(self, me: _Worker, message: _Message, gap: int) -> None:
        key = {"channel": message.channel, "peer": message.sender, "message_seq": message.number}
        # Some do not tell how large a message is.
        size = {"records": message.records, "bytes": 8 * message.records or None}
        # Of some it is known when they came in: at once, when they were read, or in between.
        now, part = me.now + gap, (me.number + message.number + message.sent) % 6
        arrived = message.sent + (now - message.sent) * part // 3
        stated = {"arrived_ns": arrived} if self.arrivals and message.sent <= arrived <= now else {}
        self._log(me, message.kind, gap, **key, **size, **stated)

    def _read_again(self, me: _Worker, argument: int, gap: int) -> None:
        """Log the read of a message once more."""
        if me.read:
            self._read(me, me.read[argument % len(me.read)], gap)

    def _nap(self, me: _Worker, argument: int, gap: int) -> None:
        limit = argument if argument % 2 else None
        self._log(me, EventKind.PARK, 1, timeout_ns=limit)
        self._log(me, EventKind.UNPARK, gap if limit is None else limit)

    def _await(self, me: _Worker, argument: int, gap: int) -> None:
        """Sleep until some message is there, and read it: maybe, by then, others are there too."""
        limit = 5_000 if argument % 3 == 0 else None
        self._log(me, EventKind.PARK, argument % 4, timeout_ns=limit)
        sent = me.inbox[argument % len(me.inbox)].sent if me.inbox else me.now
        self._log(me, EventKind.UNPARK, max(gap, sent + self.delay - me.now))
        self._receive(me, argument, argument % 3)

    def _sleep(self, me: _Worker, argument: int, gap: int) -> None:
        self._log(me, EventKind.PARK, gap, timeout_ns=argument if argument % 4 == 1 else None)
        me.parked = True

    def _cut_park(self, me: _Worker, argument: int, gap: int) -> None:
        """Log the park alone: its other end was lost."""
        self._log(me, EventKind.PARK, gap, timeout_ns=argument if argument % 4 == 1 else None)

    @staticmethod
    def _skip(me: _Worker, argument: int, gap: int) -> None:
        """Go on to a later epoch without having ended this one: seldom, because no later epoch can be closed then."""
        del gap
        me.epoch += argument % 16 == 0

    def _end(self, me: _Worker, argument: int, gap: int) -> None:
        del argument
        self._log(me, EventKind.EPOCH_END, gap)
        me.epoch += 1

    def _spin(self, me: _Worker, argument: int, gap: int) -> None:
        self._log(me, EventKind.IDLE_START, 1)
        self._log(me, EventKind.IDLE_STOP, gap, records=argument)
        if argument % 4:
            self._receive(me, argument, 1)

    def _step_stop(self, me: _Worker, argument: int, gap: int) -> None:
        """End a step, after which the program itself runs for a while; mostly where no operator is active."""
        self._log(me, EventKind.STEP_STOP, 1)
        if argument % 4:
            self._log(me, EventKind.PROGRAM, gap)

    def _apply(self, me: _Worker, argument: int, gap: int) -> None:
        """Start or stop one of two activities of the program, properly nested or not, with a type or without."""
        kind = (EventKind.APPLICATION_START, EventKind.APPLICATION_STOP)[argument % 2]
        types = (None, "io", "gc", "waiting") if kind is EventKind.APPLICATION_START else (None,)
        self._log(me, kind, gap, operator=100 + argument // 2 % 2, activity=types[argument // 4 % len(types)])

    def _spawn(self, me: _Worker, argument: int, gap: int) -> None:
        child = self.workers[argument % len(self.workers)]
        self._log(me, EventKind.SPAWN, gap, peer=child.number)
        if not child.log:
            child.now = max(child.now, me.now + self.delay)

    def _exit(self, me: _Worker, argument: int, gap: int) -> None:
        """Log an exit; seldom the last thing that the worker does."""
        if argument % 8 == 0:
            self._log(me, EventKind.EXIT, gap)


@st.composite
def small_traces(
    draw: st.DrawFn,
    *,
    max_workers: int = 4,
    max_steps: int = 70,
    skewed: bool = False,
    damaged: bool = False,
    instant: bool = True,
    arrivals: bool = False,
    complete: bool | None = None,
) -> SmallTrace:
    """Return traces of a few workers.

    Parameters
    ----------
    draw
        Given by Hypothesis.
    max_workers, max_steps
        How large they get.
    skewed
        Whether the clocks of processes disagree: some messages are then read before they were sent.
    damaged
        Whether events may be missing from the logs.
    instant
        Whether effects may happen at the very instant of their causes, as on coarse clocks.
    arrivals
        Whether some reads tell when their message arrived.
    complete
        Whether all workers end all epochs; both when absent.

    Returns
    -------
    SmallTrace
        With at least one event; some workers may have none.
    """
    count = draw(st.integers(1, max_workers))
    processes = draw(st.lists(st.sampled_from((0, 0, 1)), min_size=count, max_size=count))
    starts = draw(st.lists(st.sampled_from((0, 0, 1, 5, 20)), min_size=count, max_size=count))
    step = st.builds(
        _Step,
        st.integers(0, count - 1),
        st.sampled_from(_ACTIONS + _DAMAGE if damaged else _ACTIONS),
        st.integers(0, 31),
        st.sampled_from(_STEPS if instant else _STEPS[1:]),
    )
    program = _Program(starts, instant=instant, arrivals=arrivals)
    for number in range(count) if complete else ():
        program.act(_Step(number, "start", number, 1))
    for taken in draw(st.lists(step, min_size=1, max_size=max_steps)):
        program.act(taken)
    if complete or (complete is None and draw(st.booleans())):
        program.finish(epochs=max(1, *(worker.epoch for worker in program.workers)))
    leave = draw(st.lists(st.sampled_from((False, False, True)), min_size=count, max_size=count))
    program.leave([number for number, gone in enumerate(leave) if gone])
    logs = [worker.log for worker in program.workers]
    if damaged:
        loss = st.tuples(st.integers(0, count - 1), st.sampled_from(_LOSABLE), st.integers(0, 5))
        logs = _damage(logs, draw(st.lists(loss, min_size=1, max_size=6)))
    if not any(logs):
        logs[0] = [Event(worker=0, seq=0, epoch=0, t_ns=0, kind=EventKind.EPOCH_END)]
    errors = draw(st.lists(st.sampled_from((0, 2, 50)), min_size=2, max_size=2)) if skewed else [0, 0]
    offsets = draw(st.lists(st.integers(-50, 10**12), min_size=count, max_size=count))
    events = (
        tuple(event.shifted(errors[process] - offset) for event in log)
        for log, offset, process in zip(logs, offsets, processes, strict=True)
    )
    uncertainty = draw(st.lists(st.sampled_from((None, 0, 2, 30)), min_size=count, max_size=count))
    return SmallTrace(
        events=tuple(events),
        processes=tuple(processes),
        offsets_ns=tuple(offsets),
        uncertainty_ns=tuple(uncertainty),
    )


def _damage(logs: list[list[Event]], losses: list[tuple[int, EventKind, int]]) -> list[list[Event]]:
    """Lose, per entry, the n-th event of a kind from a worker's log."""
    result = [list(log) for log in logs]
    for worker, kind, number in losses:
        of_kind = [event for event in result[worker] if event.kind is kind]
        if of_kind:
            result[worker].remove(of_kind[number % len(of_kind)])
    return result


def slice_sizes() -> st.SearchStrategy[int]:
    """Return sizes of slices that cut a small trace anyhow, or not at all."""
    return st.sampled_from((1, 2, 3, 5, 8, 13, 40, 1_000_000))
