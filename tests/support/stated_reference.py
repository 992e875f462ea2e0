"""The rule set `stated` a second time, slowly: straight from `docs/model.md`, on Python objects, in no clever order.

It shares nothing with the product but names. `random_stated` makes traces for both to agree on.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pag_graph.model.enums import EventKind, RuleSet
from pag_graph.model.ids import vertex_id
from pag_graph.testing.reference import traffic_of
from pag_graph.testing.traces import Event, SmallTrace

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]

_READS = (EventKind.RECEIVE, EventKind.PROGRESS_RECEIVE)
_ENDS_OF_MESSAGES = (EventKind.SEND, *_READS)
_STATED_MESSAGES = ("data_message", "progress_message", "control_message", "spawn")


@dataclass
class _Item:
    """An event with what the definitions say of it."""

    event: Event
    t: int
    id: int
    stack: list[_Item]
    """What was open right before it, outermost first."""
    dropped: str | None = None
    sender: _Item | None = None


@dataclass
class StatedReference:
    """What the graph of a stated trace must be."""

    vertices: list[Row] = field(default_factory=list)
    edges: list[Row] = field(default_factory=list)
    traffic: list[Row] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


def _type(item: _Item) -> str:
    stated = item.event.activity or "processing"
    return "unknown" if stated in _STATED_MESSAGES else stated


def _logs(trace: SmallTrace, graph: StatedReference) -> list[list[_Item]]:
    clocks = [[event.t_ns + trace.offsets_ns[worker] for event in log] for worker, log in enumerate(trace.events)]
    origin = min(t for times in clocks for t in times)
    logs = []
    for worker, log in enumerate(trace.events):
        stack: list[_Item] = []
        items = []
        for place, event in enumerate(log, 1):
            item = _Item(event, clocks[worker][place - 1] - origin, vertex_id(worker, 2 * place), list(stack))
            items.append(item)
            if event.kind is EventKind.START:
                stack.append(item)
                graph.findings["start_of_message_type"] += event.activity in _STATED_MESSAGES
            elif event.kind is EventKind.STOP:
                graph.findings["records_on_stop"] += event.records is not None
                fitting = [i for i, activity in enumerate(stack) if activity.event.operator == event.operator]
                if not fitting:
                    graph.findings["stop_without_start"] += 1
                else:
                    graph.findings["stop_of_outer_activation"] += fitting[-1] != len(stack) - 1
                    del stack[fitting[-1] :]
            elif event.kind is EventKind.EPOCH_END and stack and _type(stack[-1]) == "waiting":
                item.dropped = "epoch_end_in_wait"
            if event.kind in _ENDS_OF_MESSAGES and event.peer == worker:
                item.dropped = "worker_local_message"
            if event.kind is EventKind.EXIT and event is not log[-1]:
                graph.findings["exit_before_last_event"] += 1
            if event.kind in (EventKind.PARK, EventKind.UNPARK):
                graph.findings["park_in_stated_trace"] += 1
        graph.findings["activation_not_stopped"] += len(stack)
        graph.dropped.update(item.dropped for item in items if item.dropped)
        logs.append(items)
    return logs


def _match(logs: list[list[_Item]], graph: StatedReference) -> None:
    sends = [item for log in logs for item in log if item.event.kind in (EventKind.SEND, EventKind.PROGRESS_SEND)]
    for log in logs:
        for item in log:
            event = item.event
            if event.kind not in _READS:
                continue
            for send in sends:
                sent = send.event
                kind = EventKind.SEND if event.kind is EventKind.RECEIVE else EventKind.PROGRESS_SEND
                to_me = sent.kind is EventKind.PROGRESS_SEND or sent.peer == event.worker
                key = (sent.worker, sent.channel, sent.message_seq)
                if sent.kind is kind and to_me and key == (event.peer, event.channel, event.message_seq):
                    item.sender = send
                    break
            negative = item.sender is not None and item.sender.t > item.t and event.peer != event.worker
            graph.findings["negative_transfer"] += negative


def _births(logs: list[list[_Item]], graph: StatedReference) -> dict[int, _Item]:
    births: dict[int, _Item] = {}
    spawns = [item for log in logs for item in log if item.event.kind is EventKind.SPAWN]
    for item in sorted(spawns, key=lambda item: (item.t, item.id)):
        child = item.event.peer
        child_items = (
            [entry for entry in logs[child] if not entry.dropped] if child is not None and child < len(logs) else []
        )
        if child is None or not child_items or child == item.event.worker:
            graph.findings["spawn_of_nobody"] += 1
        elif child in births:
            graph.findings["spawned_twice"] += 1
        elif child_items[0].t < item.t:
            graph.findings["spawned_after_birth"] += 1
        else:
            births[child] = item
    if births:
        for worker, log in enumerate(logs):
            kept_items = [item for item in log if not item.dropped]
            graph.findings["worker_without_spawn"] += bool(kept_items) and worker not in births and kept_items[0].t > 0
    return births


def _ender(log: list[_Item], item: _Item) -> _Item | None:
    """Return the message, read in the instant of `item` from there on and before another start, that was sent last."""
    candidates = []
    for candidate in log[log.index(item) :]:
        if candidate.t != item.t or candidate.event.kind is EventKind.START:
            break
        if (
            candidate.sender is not None
            and candidate.event.peer != candidate.event.worker
            and candidate.sender.t <= candidate.t
        ):
            candidates.append(candidate)
    return max(
        candidates,
        key=lambda candidate: (
            candidate.sender.t if candidate.sender else 0,
            -(candidate.sender.id if candidate.sender else 0),
        ),
        default=None,
    )


def build_stated(trace: SmallTrace) -> StatedReference:
    """Build the graph of a stated trace in one process, one event after the other.

    Parameters
    ----------
    trace
        Whose clocks have no uncertainty; epochs are not looked at.

    Returns
    -------
    StatedReference
        Vertices with `id, t_ns, segment`, edges with `src, dst, type, start_ns, duration_ns, operator, activation,
        records, read, flags`, and traffic.
    """
    graph = StatedReference()
    logs = _logs(trace, graph)
    _match(logs, graph)
    graph.traffic = traffic_of((item.event, item.sender.event) for log in logs for item in log if item.sender)
    births = _births(logs, graph)
    end = max(item.t for log in logs for item in log)
    ended_by: dict[int, int] = {}
    for worker, log in enumerate(logs):
        kept_items = [item for item in log if not item.dropped]
        points: list[tuple[int, int, _Item | None]] = [(item.id, item.t, item) for item in kept_items]
        if not points:
            points = [(vertex_id(worker, 1), 0, None)]
        elif points[0][1] > 0 and worker not in births:
            points.insert(0, (points[0][0] - 1, 0, None))
        exits = bool(log) and log[-1].event.kind is EventKind.EXIT
        if not exits and points[-1][1] < end:
            place = vertex_id(worker, 2 * (len(log) + 1) - 1)
            points.append((place + 2 * (place == points[-1][0]), end, None))
        segment = points[0][0]
        judged: int | None = None
        for i, (number, t, item) in enumerate(points):
            if i == 0:
                graph.vertices.append({"id": number, "t_ns": t, "segment": segment})
                continue
            previous_id, begin, source = points[i - 1]
            edge: Row = {"src": previous_id, "dst": number, "start_ns": begin, "duration_ns": t - begin, "read": None}
            edge |= {"type": "unknown", "operator": None, "activation": None, "records": None, "flags": 0}
            edge["receive_buffer_ns"] = None
            top = item.stack[-1] if item is not None and item.stack else None
            if top is not None:
                edge |= {"type": _type(top), "operator": top.event.operator, "activation": top.id}
                edge["flags"] = int(bool(top.event.inferred))
                if top is source:
                    edge["records"] = top.event.records
            if item is not None and edge["type"] == "waiting":
                leftover = begin == t and judged == t
                ender = None if leftover else _ender(log, item)
                judged = t
                if ender is not None:
                    segment = number
                    ended_by[ender.id] = number
                elif begin < t:
                    edge["type"] = "unknown"
                    graph.findings["wait_without_ender"] += 1
                else:
                    edge["type"] = "busy"
            if item is not None and source is not None and edge["type"] == "unknown" and begin == t:
                edge["type"] = "busy"
            graph.vertices.append({"id": number, "t_ns": t, "segment": segment})
            graph.edges.append(edge)
    _messages(logs, ended_by, graph)
    for child, spawn in births.items():
        born = next(item for item in logs[child] if not item.dropped)
        graph.edges.append(_message(spawn, born, born.id, born.t, "spawn", 0))
    graph.findings = +graph.findings
    return graph


def _messages(logs: list[list[_Item]], ended_by: dict[int, int], graph: StatedReference) -> None:
    time_of = {row["id"]: row["t_ns"] for row in graph.vertices}
    for log in logs:
        for item in log:
            if item.sender is None or item.event.peer == item.event.worker:
                continue
            dst = ended_by.get(item.id, item.id)
            kind = "progress_message" if item.event.kind is EventKind.PROGRESS_RECEIVE else "data_message"
            if item.event.activity in _STATED_MESSAGES:
                kind = str(item.event.activity)
            flags = 2 * (item.sender.t > item.t)
            edge = _message(item.sender, item, dst, time_of[dst], kind, flags)
            arrived, lag = item.event.arrived_ns, item.t - item.event.t_ns
            if flags:
                edge["receive_buffer_ns"] = None
            elif arrived is not None and item.id not in ended_by:
                edge["receive_buffer_ns"] = item.t - max(item.sender.t, arrived + lag)
            graph.edges.append(edge)


def _message(send: _Item, read: _Item, dst: int, end: int, kind: str, flags: int) -> Row:
    return {
        "src": send.id,
        "dst": dst,
        "type": kind,
        "start_ns": send.t,
        "duration_ns": end - send.t,
        "operator": None,
        "activation": None,
        "records": None if kind == "spawn" else read.event.records,
        "read": read.id,
        "receive_buffer_ns": None if kind == "spawn" else 0,
        "flags": flags,
    }


_LOCAL = ("processing", "waiting", "waiting", "gc", "io", "input_wait", "scheduling", None, "data_message")


def random_stated(seed: int, *, causal: bool = False) -> SmallTrace:
    """Make a small stated trace at random, well nested for the most part.

    Parameters
    ----------
    seed
        The same seed, the same trace.
    causal
        Whether every message takes time and nothing is odd about the trace, so that critical paths exist.

    Returns
    -------
    SmallTrace
        Up to five workers; ties, empty intervals, nested activities, several messages in one instant, births and exits.
    """
    chance = random.Random(seed)
    workers = chance.randint(1, 5)
    length = chance.choice([6, 30, 200])
    logs: list[list[tuple[int, int, Event]]] = [[] for _ in range(workers)]
    begins = [0] + [chance.choice([0, 0, chance.randint(0, length // 2)]) for _ in range(workers - 1)]

    def add(worker: int, t: int, kind: EventKind, **columns: Any) -> None:
        event = Event(worker=worker, seq=0, epoch=0, t_ns=t, kind=kind, **columns)
        logs[worker].append((t, len(logs[worker]), event))

    for worker in range(workers):
        times = sorted(chance.randint(begins[worker], length) for _ in range(chance.randint(1, 14)))
        stack: list[int | None] = []
        for t in times:
            if stack and chance.random() < 0.55:
                operator = stack.pop() if causal or chance.random() < 0.95 else chance.randint(1, 3)
                records = chance.choice([None, None, 3]) if not causal else None
                add(worker, t, EventKind.STOP, operator=operator, records=records)
            elif chance.random() < 0.85:
                stack.append(chance.choice([None, 1, 2, 3]))
                add(
                    worker,
                    t,
                    EventKind.START,
                    operator=stack[-1],
                    activity=chance.choice(_LOCAL[:-1] if causal else _LOCAL),
                    records=chance.choice([None, 5]),
                    inferred=chance.choice([None, True]),
                )
            else:
                add(
                    worker,
                    t,
                    chance.choice(
                        [EventKind.EPOCH_END, EventKind.APPLICATION_STOP, EventKind.EXIT][: 1 if causal else 3]
                    ),
                )
    for number in range(chance.randint(0, 14)):
        sender, receiver = chance.randrange(workers), chance.randrange(workers)
        sent_t = chance.randint(begins[sender], length)
        least_ns = 1 if causal else chance.choice([0, 0, -2])
        places = [t for t, _, event in logs[receiver] if event.kind is EventKind.STOP and t >= sent_t + least_ns]
        read_t = chance.choice(places) if places and chance.random() < 0.7 else sent_t + least_ns + chance.randint(0, 5)
        read_t = max(read_t, begins[receiver], 0)
        if causal and read_t < sent_t + least_ns:
            continue
        activity = chance.choice([None, "control_message"])
        add(sender, sent_t, EventKind.SEND, channel=7, peer=receiver, message_seq=number)
        if causal or chance.random() < 0.9:
            logs[receiver].insert(
                0,
                (
                    read_t,
                    -1,
                    Event(
                        worker=receiver,
                        seq=0,
                        epoch=0,
                        t_ns=read_t,
                        kind=EventKind.RECEIVE,
                        channel=7,
                        peer=sender,
                        message_seq=number,
                        activity=activity,
                        arrived_ns=chance.choice([None, None, read_t, chance.randint(0, read_t)]),
                    ),
                ),
            )
    for worker in range(1, workers):
        if chance.random() < 0.5:
            parent = chance.randrange(worker)
            first_t = min((t for t, *_ in logs[worker]), default=0)
            late = 0 if causal else chance.choice([0, 0, 1])
            if first_t - chance.randint(0, 3) + late >= begins[parent] or not causal:
                t = max(begins[parent], first_t - chance.randint(0, 3)) + late
                if t <= first_t or not causal:
                    add(parent, t, EventKind.SPAWN, peer=worker)
    return _numbered(logs, chance)


def _numbered(logs: Iterable[list[tuple[int, int, Event]]], chance: random.Random) -> SmallTrace:
    events = []
    for worker, log in enumerate(logs):
        rows = [event for *_, event in sorted(log, key=lambda row: row[:2])]
        if rows and chance.random() < 0.3:
            t = rows[-1].t_ns + chance.randint(0, 4)
            rows.append(Event(worker=worker, seq=0, epoch=0, t_ns=t, kind=EventKind.EXIT))
        numbered, epoch = [], 0
        for seq, event in enumerate(rows):
            numbered.append(
                Event(
                    **{name: getattr(event, name) for name in Event.__dataclass_fields__} | {"seq": seq, "epoch": epoch}
                )
            )
            epoch += event.kind is EventKind.EPOCH_END
        events.append(tuple(numbered))
    if not any(events):
        events[0] = (Event(worker=0, seq=0, epoch=0, t_ns=0, kind=EventKind.EPOCH_END),)
    count = len(events)
    processes = tuple(chance.randrange(2) for _ in range(count))
    return SmallTrace(
        events=tuple(events),
        processes=processes,
        offsets_ns=(0,) * count,
        uncertainty_ns=(None,) * count,
        rules=RuleSet.STATED,
    )
