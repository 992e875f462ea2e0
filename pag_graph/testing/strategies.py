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
        worker = self.workers[step.worker]
        if worker.parked:
            worker.parked = False
            self._log(worker, EventKind.UNPARK, step.gap)
        getattr(self, f"_{step.action}")(worker, step.argument, step.gap)

    def finish(self, *, epochs: int) -> None:
        """Let all workers stop, read all that was sent to them, and end their epochs."""
        for worker in self.workers:
            if not worker.log:
                continue
            if worker.parked:
                worker.parked = False
                self._log(worker, EventKind.UNPARK, 1)
            while worker.inbox:
                self._receive(worker, 0, 1)
            while worker.open:
                self._stop(worker, 0, 1)
            while worker.epoch < epochs:
                self._end(worker, 0, 1)

    def leave(self, workers: list[int]) -> None:
        """Let workers that did something end."""
        for number in workers:
            if self.workers[number].log:
                self._log(self.workers[number], EventKind.EXIT, number % 3)

    @staticmethod
    def _log(worker: _Worker, kind: EventKind, gap: int, **columns: Any) -> None:
        # At equal times a log has an order all the same: `seq`.
        worker.now += gap
        worker.log.append(
            Event(worker=worker.number, seq=len(worker.log), epoch=worker.epoch, t_ns=worker.now, kind=kind, **columns)
        )

    def _start(self, worker: _Worker, argument: int, gap: int) -> None:
        if len(worker.open) < 3:  # noqa: PLR2004 dataflow, scope, operator
            worker.open.append(argument % 4)
            self._log(worker, EventKind.START, gap, operator=argument % 4)

    def _push(self, worker: _Worker, argument: int, gap: int) -> None:
        self._log(worker, EventKind.PUSH_PROGRESS, gap, operator=argument % 4)

    def _push_start(self, worker: _Worker, argument: int, gap: int) -> None:
        self._push(worker, argument, gap)
        self._start(worker, argument, gap)

    def _stop(self, worker: _Worker, argument: int, gap: int) -> None:
        del argument
        if worker.open:
            self._log(worker, EventKind.STOP, gap, operator=worker.open.pop())

    def _number(self, channel: int, sender: int, receiver: int) -> int:
        key = (channel, sender, receiver)
        self.numbers[key] = self.numbers.get(key, -1) + 1
        return self.numbers[key]

    def _send(self, worker: _Worker, argument: int, gap: int) -> None:
        peer, channel, records = argument % len(self.workers), 10 + argument // 8 % 2, argument % 5
        number = self._number(channel, worker.number, peer)
        self._log(worker, EventKind.SEND, gap, channel=channel, peer=peer, message_seq=number, records=records)
        message = _Message(EventKind.RECEIVE, channel, worker.number, number, records, worker.now)
        self.workers[peer].inbox.append(message)

    def _progress(self, worker: _Worker, argument: int, gap: int) -> None:
        channel = 20 + argument % 2
        number = self._number(channel, worker.number, -1)
        self._log(worker, EventKind.PROGRESS_SEND, gap, channel=channel, message_seq=number, records=1)
        message = _Message(EventKind.PROGRESS_RECEIVE, channel, worker.number, number, 1, worker.now)
        for receiver in self.workers:
            receiver.inbox.append(message)

    def _receive(self, worker: _Worker, argument: int, gap: int) -> None:
        if worker.inbox:
            message = worker.inbox.pop(argument % len(worker.inbox))
            worker.read.append(message)
            self._read(worker, message, max(gap, message.sent + self.delay - worker.now))

    def _read(self, worker: _Worker, message: _Message, gap: int) -> None:
        key = {"channel": message.channel, "peer": message.sender, "message_seq": message.number}
        # Some do not tell how large a message is.
        size = {"records": message.records, "bytes": 8 * message.records or None}
        # Of some it is known when they came in: at once, when they were read, or in between.
        now, sixth = worker.now + gap, (worker.number + message.number + message.sent) % 6
        arrived = message.sent + (now - message.sent) * sixth // 3
        stated = {"arrived_ns": arrived} if self.arrivals and message.sent <= arrived <= now else {}
        self._log(worker, message.kind, gap, **key, **size, **stated)

    def _read_again(self, worker: _Worker, argument: int, gap: int) -> None:
        """Log the read of a message once more."""
        if worker.read:
            self._read(worker, worker.read[argument % len(worker.read)], gap)

    def _nap(self, worker: _Worker, argument: int, gap: int) -> None:
        limit = argument if argument % 2 else None
        self._log(worker, EventKind.PARK, 1, timeout_ns=limit)
        self._log(worker, EventKind.UNPARK, gap if limit is None else limit)

    def _await(self, worker: _Worker, argument: int, gap: int) -> None:
        """Sleep until some message is there, and read it: maybe, by then, others are there too."""
        limit = 5_000 if argument % 3 == 0 else None
        self._log(worker, EventKind.PARK, argument % 4, timeout_ns=limit)
        sent = worker.inbox[argument % len(worker.inbox)].sent if worker.inbox else worker.now
        self._log(worker, EventKind.UNPARK, max(gap, sent + self.delay - worker.now))
        self._receive(worker, argument, argument % 3)

    def _sleep(self, worker: _Worker, argument: int, gap: int) -> None:
        self._log(worker, EventKind.PARK, gap, timeout_ns=argument if argument % 4 == 1 else None)
        worker.parked = True

    def _cut_park(self, worker: _Worker, argument: int, gap: int) -> None:
        """Log the park alone: its other end was lost."""
        self._log(worker, EventKind.PARK, gap, timeout_ns=argument if argument % 4 == 1 else None)

    @staticmethod
    def _skip(worker: _Worker, argument: int, gap: int) -> None:
        """Go on to a later epoch without having ended this one: seldom, because no later epoch can be closed then."""
        del gap
        worker.epoch += argument % 16 == 0

    def _end(self, worker: _Worker, argument: int, gap: int) -> None:
        del argument
        self._log(worker, EventKind.EPOCH_END, gap)
        worker.epoch += 1

    def _spin(self, worker: _Worker, argument: int, gap: int) -> None:
        self._log(worker, EventKind.IDLE_START, 1)
        self._log(worker, EventKind.IDLE_STOP, gap, records=argument)
        if argument % 4:
            self._receive(worker, argument, 1)

    def _step_stop(self, worker: _Worker, argument: int, gap: int) -> None:
        """End a step, after which the program itself runs for a while; mostly where no operator is active."""
        self._log(worker, EventKind.STEP_STOP, 1)
        if argument % 4:
            self._log(worker, EventKind.PROGRAM, gap)

    def _apply(self, worker: _Worker, argument: int, gap: int) -> None:
        """Start or stop one of two activities of the program, properly nested or not, with a type or without."""
        kind = (EventKind.APPLICATION_START, EventKind.APPLICATION_STOP)[argument % 2]
        types = (None, "io", "gc", "waiting") if kind is EventKind.APPLICATION_START else (None,)
        self._log(worker, kind, gap, operator=100 + argument // 2 % 2, activity=types[argument // 4 % len(types)])

    def _spawn(self, worker: _Worker, argument: int, gap: int) -> None:
        child = self.workers[argument % len(self.workers)]
        self._log(worker, EventKind.SPAWN, gap, peer=child.number)
        if not child.log:
            child.now = max(child.now, worker.now + self.delay)

    def _exit(self, worker: _Worker, argument: int, gap: int) -> None:
        """Log an exit; seldom the last thing that the worker does."""
        if argument % 8 == 0:
            self._log(worker, EventKind.EXIT, gap)


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
    for drawn_step in draw(st.lists(step, min_size=1, max_size=max_steps)):
        program.act(drawn_step)
    if complete or (complete is None and draw(st.booleans())):
        program.finish(epochs=max(1, *(worker.epoch for worker in program.workers)))
    leave = draw(st.lists(st.sampled_from((False, False, True)), min_size=count, max_size=count))
    program.leave([number for number, is_leaving in enumerate(leave) if is_leaving])
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
    damaged = [list(log) for log in logs]
    for worker, kind, number in losses:
        of_kind = [event for event in damaged[worker] if event.kind is kind]
        if of_kind:
            damaged[worker].remove(of_kind[number % len(of_kind)])
    return damaged


def slice_sizes() -> st.SearchStrategy[int]:
    """Return sizes of slices that cut a small trace anyhow, or not at all."""
    return st.sampled_from((1, 2, 3, 5, 8, 13, 40, 1_000_000))
