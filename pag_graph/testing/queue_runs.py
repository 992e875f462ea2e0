"""Stated traces of a queue that is rescaled, with the truth: when it happened, and what it did to latencies.

A source takes one epoch after the other, when it is due and the one before is complete, and gives each worker its part;
the epoch is complete when the source has heard from all of them. Between two epochs workers join or leave.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from pag_graph.model.enums import EventKind, RuleSet
from pag_graph.testing.traces import Event, SmallTrace

__all__ = ["QueueRun", "Truth", "simulate"]

_SOURCE, _WORK, _REQUEST, _DRAIN, _SERVER, _CLIENT = range(1, 7)
_OPERATORS = (
    (_SOURCE, "source"),
    (_WORK, "work"),
    (_REQUEST, "rescale:request"),
    (_DRAIN, "rescale:drain"),
    (_SERVER, "rescale:server:send_state"),
    (_CLIENT, "rescale:client:state"),
)
_DATA, _ACKS, _BOOTSTRAP, _STATE = range(10, 14)
_CHANNELS = ((_DATA, "tuples"), (_ACKS, "acks"), (_BOOTSTRAP, "rescale:bootstrap"), (_STATE, "rescale:state"))
_TRANSFER, _SHARE_OUT, _STEP, _UPDATES = 100, 1_000, 500, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRun:
    """A queue, and what becomes of its workers."""

    period_ns: int = 1_000_000
    """An epoch is due once in this time, epoch 0 when the run begins."""
    work_ns: int = 1_200_000
    """What all workers of an epoch work together."""
    coordination_ns: int = 0
    """What each worker works in addition, per worker that there is."""
    noise: float = 0.02
    """Deviation of a worker's part, as a share."""
    workers: int = 2
    """How many work beside the source."""
    added: int = 1
    """How many more there are from then on; fewer where negative; 0 for no rescaling."""
    before: int = 16
    """Epochs before that."""
    after: int = 64
    """And behind it."""
    bootstrap_ns: int = 1_500_000
    """What a client's step takes."""
    records: int = 60
    """Of an epoch, shared out among the workers."""
    seed: int = 0

    def utilisation(self, workers: int) -> float:
        """Return what an epoch takes with so many workers, as a share of the period: above 1 the queue grows."""
        share_ns = self.work_ns / workers + self.coordination_ns * workers
        return (_SHARE_OUT + 2 * _TRANSFER + share_ns) / self.period_ns


class Truth(NamedTuple):
    """What happened; times are nanoseconds from the begin of the run."""

    request_ns: int
    birth_ns: int
    """First spawn, or exit."""
    ready_ns: int
    work_ns: int | None
    """When a new worker first read data."""
    backlog: tuple[int, ...]
    """Per epoch: how long after it was due it was taken."""
    records: tuple[dict[int, int], ...]
    """Per epoch: records that each worker read."""


class _Log:
    """The log of a worker as it is written."""

    def __init__(self, worker: int) -> None:
        self.worker, self.epoch = worker, 0
        self.events: list[Event] = []

    def add(self, t_ns: int, kind: EventKind, **columns: Any) -> None:
        self.events.append(
            Event(worker=self.worker, seq=len(self.events), epoch=self.epoch, t_ns=t_ns, kind=kind, **columns)
        )

    def start(self, t_ns: int, activity: str, operator: int | None = None) -> None:
        self.add(t_ns, EventKind.START, activity=activity, operator=operator)

    def stop(self, t_ns: int, operator: int | None = None) -> None:
        self.add(t_ns, EventKind.STOP, operator=operator)

    def end_epoch(self, t_ns: int) -> None:
        self.add(t_ns, EventKind.EPOCH_END)
        self.epoch += 1


class _Queue:
    """A queue as it runs."""

    def __init__(self, run: QueueRun) -> None:
        self.run = run
        self.chance = random.Random(run.seed)  # noqa: S311  (no secret)
        self.source = _Log(0)
        self.logs = [self.source, *(_Log(1 + place) for place in range(run.workers))]
        self.active = self.logs[1:]
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.source.start(0, "input_wait")
        for log in self.active:
            log.start(0, "waiting")

    def send(self, channel: int, sender: _Log, reader: _Log, sent_ns: int, read_ns: int, **columns: Any) -> None:
        """Write both ends of a message; the reader's log must be at that instant."""
        key = (channel, sender.worker, reader.worker)
        number = self.numbers[key] = self.numbers.get(key, -1) + 1
        sender.add(sent_ns, EventKind.SEND, channel=channel, peer=reader.worker, message_seq=number, **columns)
        reader.add(read_ns, EventKind.RECEIVE, channel=channel, peer=sender.worker, message_seq=number, **columns)

    def epoch(self, number: int, free_ns: int) -> tuple[int, int, dict[int, int]]:
        """Do an epoch; return when it was taken, when it was complete, and the records that each worker read."""
        run, source = self.run, self.source
        taken_ns = max(number * run.period_ns, free_ns)
        source.stop(taken_ns)
        source.start(taken_ns, "processing", _SOURCE)
        given_ns = taken_ns + _SHARE_OUT
        source.stop(given_ns, _SOURCE)
        count = len(self.active)
        finished: list[tuple[int, int, _Log]] = []
        shares = {}
        for place, log in enumerate(self.active):
            shares[log.worker] = run.records // count + (place < run.records % count)
            self.send(_DATA, source, log, given_ns, given_ns + _TRANSFER, records=shares[log.worker])
            log.stop(given_ns + _TRANSFER)
            share_ns = run.work_ns / count * (1 + run.noise * self.chance.gauss(0, 1)) + run.coordination_ns * count
            log.start(given_ns + _TRANSFER, "processing", _WORK)
            end = given_ns + _TRANSFER + max(1, int(share_ns))
            log.stop(end, _WORK)
            finished.append((end, place, log))
        source.start(given_ns, "waiting")
        for end, _, log in sorted(finished):
            self.send(_ACKS, log, source, end, end + _TRANSFER, activity="control_message")
            log.start(end, "waiting")
        complete = max(finished)[0] + _TRANSFER
        source.stop(complete)
        source.start(complete, "input_wait")
        for log in (source, *self.active):
            log.end_epoch(complete)
        return taken_ns, complete, shares

    def join(self, t_ns: int) -> tuple[int, int, int]:
        """Let workers join; return when the first was born, when the last was ready, and when the source goes on."""
        source = self.source
        source.stop(t_ns)
        source.start(t_ns, "application", _REQUEST)
        now = birth = t_ns + _STEP
        source.stop(now, _REQUEST)
        for _ in range(self.run.added):
            joined_log = _Log(len(self.logs))
            joined_log.epoch = source.epoch
            self.logs.append(joined_log)
            source.add(now, EventKind.SPAWN, peer=joined_log.worker)
            source.start(now, "application", _SERVER)
            joined_log.start(now + 2 * _TRANSFER, "waiting")
            sent = now + _STEP
            self.send(
                _BOOTSTRAP, source, joined_log, sent, sent + _TRANSFER, records=_UPDATES, activity="control_message"
            )
            self.send(_STATE, source, source, sent, sent, records=_UPDATES)
            source.stop(sent, _SERVER)
            source.start(sent, "waiting")
            joined_log.stop(sent + _TRANSFER)
            joined_log.start(sent + _TRANSFER, "application", _CLIENT)
            ready_ns = sent + _TRANSFER + self.run.bootstrap_ns
            joined_log.stop(ready_ns, _CLIENT)
            self.send(
                _BOOTSTRAP, joined_log, source, ready_ns, ready_ns + _TRANSFER, records=0, activity="control_message"
            )
            joined_log.start(ready_ns, "waiting")
            now = ready_ns + _TRANSFER
            source.stop(now)
            self.active = [*self.active, joined_log]
        source.start(now, "input_wait")
        return birth, ready_ns, now

    def leave(self, t_ns: int) -> tuple[int, int, int]:
        """Let the last workers leave; return as `join` does, with exits for births."""
        source = self.source
        source.stop(t_ns)
        source.start(t_ns, "processing", _SOURCE)
        source.stop(t_ns + _STEP, _SOURCE)
        now = t_ns + _STEP
        exit_ns = now + _TRANSFER + self.run.bootstrap_ns
        for log in self.active[self.run.added :]:
            self.send(_BOOTSTRAP, source, log, now, now + _TRANSFER, activity="control_message")
            log.stop(now + _TRANSFER)
            log.start(now + _TRANSFER, "application", _DRAIN)
            log.stop(exit_ns, _DRAIN)
            log.add(exit_ns, EventKind.EXIT)
        self.active = self.active[: self.run.added]
        source.start(now, "input_wait")
        return exit_ns, exit_ns, exit_ns


def simulate(run: QueueRun) -> tuple[SmallTrace, Truth]:
    """Let a queue run.

    Parameters
    ----------
    run
        What happens.

    Returns
    -------
    trace
        For the rule set `stated`.
    truth
        What happened.

    Examples
    --------
    >>> trace, truth = simulate(QueueRun(before=2, after=1))
    >>> trace.workers, truth.ready_ns - truth.birth_ns
    (4, 1500600)
    """
    queue = _Queue(run)
    backlog, records, free = [], [], 0
    request = birth = ready_ns = 0
    work: int | None = None
    for number in range(run.before + run.after):
        if number == run.before and run.added:
            request = free
            birth, ready_ns, free = queue.join(free) if run.added > 0 else queue.leave(free)
            if run.added < 0:
                request = birth - run.bootstrap_ns
        taken_ns, free, shares = queue.epoch(number, free)
        if number == run.before and run.added > 0:
            work = taken_ns + _SHARE_OUT + _TRANSFER
        backlog.append(taken_ns - number * run.period_ns)
        records.append(shares)
    queue.source.stop(free)
    for log in queue.active:
        queue.send(_ACKS, queue.source, log, free, free + _TRANSFER, activity="control_message")
        log.stop(free + _TRANSFER)
        log.add(free + _TRANSFER, EventKind.EXIT)
    queue.source.add(free, EventKind.EXIT)
    count = len(queue.logs)
    trace = SmallTrace(
        events=tuple(tuple(log.events) for log in queue.logs),
        processes=tuple(range(count)),
        offsets_ns=(0,) * count,
        uncertainty_ns=(None,) * count,
        rules=RuleSet.STATED,
        operators=_OPERATORS,
        channels=_CHANNELS,
    )
    return trace, Truth(request, birth, ready_ns, work, tuple(backlog), tuple(records))
