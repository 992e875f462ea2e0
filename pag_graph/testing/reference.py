"""A second, slow implementation of the definitions: brute force in plain Python, for comparison on small traces.

Written from `docs/model.md` alone and on purpose without the rules, kernels and readers of this package: lists,
dictionaries and loops over all pairs. Where the definitions leave something open, the comment says what was chosen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pag_graph.testing.polling_reference import PolledRow, looked_in_vain, polled_stretches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pag_graph.testing.traces import Event, SmallTrace

Row = dict[str, Any]

_NO_TIME = 0
_READS = {"receive", "progress_receive"}
_STATED_MESSAGES = {"data_message", "progress_message", "control_message", "spawn"}
_APPLICATION_TYPES = {
    "processing",
    "serialization",
    "deserialization",
    "buffer",
    "io",
    "scheduling",
    "gc",
    "application",
}


@dataclass(slots=True)
class Reference:
    """A program activity graph as plain rows."""

    vertices: list[Row] = field(default_factory=list)
    """Columns of `PAG_VERTICES`."""
    edges: list[Row] = field(default_factory=list)
    """Columns of `PAG_EDGES`."""
    epochs: list[Row] = field(default_factory=list)
    """Columns of `PAG_EPOCHS`."""
    findings: Counter[tuple[str, int | None, int | None, int | None]] = field(default_factory=Counter)
    """(finding, worker, seq, observed)."""
    dropped: Counter[str] = field(default_factory=Counter)
    traffic: list[Row] = field(default_factory=list)
    """Columns of `PAG_TRAFFIC`."""


@dataclass(slots=True, eq=False)
class _Item:
    """An event with what the definitions say of it."""

    event: Event
    order: int
    t: int
    dropped: str | None = None
    after_gap: bool = False
    """Whether events that the worker logged right before this one are missing, or it had ended."""
    inside: _Activation | None = None
    """Innermost activation that is open after the event."""
    applied: _Item | None = None
    """Start of the innermost application activity that is open before the event."""
    sent: _Item | None = None
    """For a read: the send."""
    looked: int = _NO_TIME
    """For a read: the latest time at which the worker looked and did not find the message yet."""
    absent: int = _NO_TIME
    """The same, if it is known when the message arrived."""
    stated: int | None = None
    """For a read: when the message arrived, if the log says so."""

    @property
    def id(self) -> int:
        return self.event.worker * 2**40 + 2 * self.order

    @property
    def kind(self) -> str:
        return str(self.event.kind)

    @property
    def sleeps(self) -> bool:
        return self.kind in {"park", "idle_start"}

    @property
    def wakes(self) -> bool:
        return self.kind in {"unpark", "idle_stop"}

    @property
    def came(self) -> int:
        """For a read of what was sent: when the message arrived, or where nobody knows that when it was sent."""
        return max(_sender(self).t, self.absent, self.absent if self.stated is None else self.stated)

    @property
    def is_local(self) -> bool:
        return self.event.peer == self.event.worker and self.kind in {"send", *_READS}


@dataclass(slots=True, eq=False)
class _Activation:
    start: _Item
    parent: _Activation | None
    has_children: bool = False
    has_data: bool = False
    pushed: bool = False
    records: int | None = None

    @property
    def is_work(self) -> bool:
        return not self.has_children and (self.has_data or self.pushed)

    @property
    def type(self) -> str:
        if self.has_children:
            return "busy"
        return "processing" if self.is_work else "spinning"


@dataclass(slots=True, eq=False)
class _Interval:
    """A candidate idle interval: parks with nothing between, merged."""

    park: _Item
    unpark: _Item
    last_park: _Item
    reads: list[_Item]
    """What is read before the next one."""
    starts: list[_Activation]
    """Activations that start before the next one."""
    type: str = "unknown"
    ender: _Item | None = None
    arrival: int = _NO_TIME
    alternatives: int = 0
    polled: bool = False
    """Whether it is inferred, for a log that says nothing of idleness."""
    cut: bool = False
    """Whether rows are missing between it and the next one."""
    last_end: int = 0
    """Order of the last end of an epoch before the next one, and before rows are missing; 0 where there is none."""


def build_reference(trace: SmallTrace, *, busy_below_ns: int = 5_000) -> Reference:
    """Build the graph of a small trace.

    Parameters
    ----------
    trace
        The trace.
    busy_below_ns
        Unexplained idle intervals shorter than this are `busy`, longer ones `unknown`.

    Returns
    -------
    Reference
        Rows in no order.
    """
    times = [event.t_ns + trace.offsets_ns[event.worker] for log in trace.events for event in log]
    origin, end = min(times), max(times) - min(times)
    logs = [
        [
            _Item(
                event,
                number,
                event.t_ns + offset - origin,
                stated=None if event.arrived_ns is None else event.arrived_ns + offset - origin,
            )
            for number, event in enumerate(log, 1)
        ]
        for log, offset in zip(trace.events, trace.offsets_ns, strict=True)
    ]
    for log in logs:
        for before, item in pairwise(log):
            is_missing = trace.gapless and item.event.seq != before.event.seq + 1
            item.after_gap = is_missing or before.kind == "exit"
    graph = Reference()
    for log in logs if trace.gapless else ():
        if log and log[-1].event.seq != len(log):
            graph.findings["events_missing", log[0].event.worker, None, log[-1].event.seq - len(log)] += 1
    if not trace.complete:
        graph.findings["log_cut_short", None, None, None] += 1
    readers = _match(logs, graph)
    intervals = []
    opened = []
    for worker, log in enumerate(logs):
        activations = _activations(log, graph)
        if trace.idle_logged:
            worker_intervals = list(_intervals(log, activations, graph))
        else:
            worker_intervals = list(_polled(log, activations, trace, busy_below_ns))
            graph.findings["no_idle_logged", worker, None, None] += 1
        for interval in worker_intervals:
            _judge(interval, trace, busy_below_ns)
        intervals.append(worker_intervals)
        _drop(log, worker_intervals, graph)
        opened.append(_applications(log, graph))
    lives = _lives(logs, end, graph)
    _unread(logs, readers, lives, graph)
    rounds = _rounds(logs, lives, graph)
    open_epoch = rounds[-1]["epoch"] + 1 if rounds else 0
    for worker, (log, worker_intervals) in enumerate(zip(logs, intervals, strict=True)):
        _chain(worker, log, worker_intervals, end, open_epoch, graph, opened[worker], lives[worker])
        _messages(log, worker_intervals, trace, graph)
    _epochs(logs, rounds, end, lives, graph)
    graph.traffic = traffic_of((reading.event, reading.sent.event) for log in logs for reading in log if reading.sent)
    return graph


def traffic_of(messages: Iterable[tuple[Event, Event]]) -> list[Row]:
    """Return the traffic of some messages, as `PAG_TRAFFIC` has it.

    Parameters
    ----------
    messages
        Of each the event that read it, and the event that sent it.

    Returns
    -------
    list of dict
        One row per epoch, channel, pair of workers and type. Records and bytes are None where one message states none:
        of what is not known in part nothing is known.
    """
    groups: defaultdict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for reading, sent in messages:
        kind = "data_message" if str(reading.kind) == "receive" else "progress_message"
        if reading.activity in _STATED_MESSAGES:
            kind = str(reading.activity)
        groups[sent.epoch, reading.channel, sent.worker, reading.worker, kind].append(reading)
    return [
        dict(zip(("epoch", "channel", "from_worker", "to_worker", "type"), key, strict=True))
        | {"messages": len(reads)}
        | {name: _sum_of([getattr(reading, name) for reading in reads]) for name in ("records", "bytes")}
        for key, reads in groups.items()
    ]


def _sum_of(values: list[int | None]) -> int | None:
    """Return a sum; of what is not known in part nothing is known."""
    stated_values = [value for value in values if value is not None]
    return sum(stated_values) if len(stated_values) == len(values) else None


@dataclass(slots=True)
class _Life:
    birth: _Item | None
    begin: int
    end: int
    exits: bool


def _lives(logs: list[list[_Item]], end: int, graph: Reference) -> list[_Life]:
    """When each worker exists, and the edges of births."""
    kept_items = [[item for item in log if not item.dropped] for log in logs]
    births: dict[int, _Item] = {}
    for item in sorted((i for log in logs for i in log if i.kind == "spawn"), key=lambda item: (item.t, item.id)):
        child, parent = item.event.peer, item.event.worker
        problem = None
        if child is None or child == parent or child >= len(logs) or not kept_items[child]:
            problem = "spawn_of_nobody"
        elif child in births:
            problem = "spawned_twice"
        elif kept_items[child][0].t < item.t:
            problem = "spawned_after_birth"
        if problem:
            graph.findings[problem, parent, item.event.seq, -1 if child is None else child] += 1
            continue
        assert child is not None  # noqa: S101
        births[child] = item
        first_item = kept_items[child][0]
        edge = _edge(_vertex(item, 0), _vertex(first_item, 0), "spawn")
        graph.edges.append(edge | {"read": first_item.id})
    for worker, items in enumerate(kept_items):
        if births and worker not in births and items and items[0].t > 0:
            graph.findings["worker_without_spawn", worker, None, items[0].t] += 1
    lives = []
    for worker, log in enumerate(logs):
        for item in log[:-1]:
            if item.kind == "exit":
                graph.findings["exit_before_last_event", worker, item.event.seq, None] += 1
        exits = bool(log) and log[-1].kind == "exit"
        begin = kept_items[worker][0].t if worker in births else 0
        lives.append(_Life(births.get(worker), begin, log[-1].t if exits else end, exits))
    return lives


def _match(logs: list[list[_Item]], graph: Reference) -> defaultdict[int, set[int]]:
    """Find the send of every read; return who read each send."""
    sends: dict[tuple[object, ...], _Item] = {}
    readers: defaultdict[int, set[int]] = defaultdict(set)
    items = [item for log in logs for item in log]
    for item in items:
        event = item.event
        if item.kind == "send":
            sends.setdefault(("data", event.channel, event.worker, event.peer, event.message_seq), item)
        elif item.kind == "progress_send":
            sends.setdefault(("progress", event.channel, event.worker, event.message_seq), item)
    for item in items:
        event = item.event
        if item.kind not in _READS:
            continue
        data_key = ("data", event.channel, event.peer, event.worker, event.message_seq)
        progress_key = ("progress", event.channel, event.peer, event.message_seq)
        item.sent = sends.get(data_key if item.kind == "receive" else progress_key)
        if item.sent is not None and event.worker in readers[item.sent.id]:
            # A worker reads a message once.
            item.sent = None
        if item.sent is None:
            graph.findings["receive_without_send", event.worker, event.seq, None] += 1
        else:
            readers[item.sent.id].add(event.worker)
            if item.t < item.sent.t and event.peer != event.worker:
                graph.findings["negative_transfer", event.worker, event.seq, item.t - item.sent.t] += 1
    return readers


def _unread(logs: list[list[_Item]], readers: defaultdict[int, set[int]], lives: list[_Life], graph: Reference) -> None:
    """Say which sends were not read as often as there were workers to read them."""
    for item in (item for log in logs for item in log):
        if item.kind in {"send", "progress_send"}:
            missing = (1 if item.kind == "send" else len(logs)) - len(readers[item.id])
            if item.kind == "progress_send" and missing > 0:
                # Workers that join later or have left do not receive it. Without a birth, `begin` is the run's.
                absent = [life for life in lives if item.t < life.begin or (life.exits and item.t > life.end)]
                missing = max(missing - len(absent), 0)
            if missing:
                graph.findings["send_without_receive", item.event.worker, item.event.seq, missing] += 1


def _activations(log: list[_Item], graph: Reference) -> list[_Activation]:
    activations = []
    top: _Activation | None = None
    for item, logged_before in zip(log, [None, *log], strict=False):
        before = None if item.after_gap else logged_before
        if item.after_gap:
            # An activation that is open before the gap may have stopped in it.
            _not_stopped(top, graph)
            top = None
        if item.kind == "start":
            if top:
                top.has_children = True
            top = _Activation(item, top)
            # "Just before": the event right before it in the log, for the same operator.
            top.pushed = bool(
                before and before.kind == "push_progress" and before.event.operator == item.event.operator
            )
            activations.append(top)
        elif item.kind == "stop":
            closed = top
            while closed and closed.start.event.operator != item.event.operator:
                closed = closed.parent
            if closed is None:
                graph.findings["stop_without_start", item.event.worker, item.event.seq, None] += 1
            else:
                if closed is not top:
                    graph.findings["stop_of_outer_activation", item.event.worker, item.event.seq, None] += 1
                top = closed.parent
        elif item.kind in {"send", "receive"} and top:
            top.has_data = True
            if item.kind == "receive" and item.event.records is not None:
                top.records = (top.records or 0) + item.event.records
        item.inside = top
    _not_stopped(top, graph)
    return activations


def _not_stopped(top: _Activation | None, graph: Reference) -> None:
    while top:
        graph.findings["activation_not_stopped", top.start.event.worker, top.start.event.seq, None] += 1
        top = top.parent


def _intervals(log: list[_Item], activations: list[_Activation], graph: Reference) -> Iterator[_Interval]:
    pairs: list[tuple[int, int]] = []
    position = 0
    while position < len(log):
        if (
            log[position].sleeps
            and position + 1 < len(log)
            and log[position + 1].wakes
            and not log[position + 1].after_gap
        ):
            pairs.append((position, position + 1))
            position += 2
            continue
        if log[position].sleeps or log[position].wakes:
            name = "park_without_unpark" if log[position].sleeps else "unpark_without_park"
            graph.findings[name, log[position].event.worker, log[position].event.seq, None] += 1
        position += 1
    groups: list[list[tuple[int, int]]] = []
    for pair in pairs:
        if groups and groups[-1][-1][1] + 1 == pair[0] and not log[pair[0]].after_gap:
            groups[-1].append(pair)
        else:
            groups.append([pair])
    for number, group in enumerate(groups):
        low = group[-1][1]
        high = groups[number + 1][0][0] if number + 1 < len(groups) else len(log)
        gap = _first_gap(log, low, high)
        high = high if gap is None else gap
        yield _Interval(
            park=log[group[0][0]],
            unpark=log[low],
            last_park=log[group[-1][0]],
            reads=[item for item in log[low:high] if item.kind in _READS and item.sent],
            starts=[activation for activation in activations if low + 1 < activation.start.order <= high],
            cut=_lacks_rows(log, gap),
            last_end=_last_end(log[low:high]),
        )


def _first_gap(log: list[_Item], low: int, high: int) -> int | None:
    """Return the first place behind `low`, up to `high`, right before which rows are missing or an exit lies."""
    return next((place for place in range(low + 1, min(high + 1, len(log))) if log[place].after_gap), None)


def _lacks_rows(log: list[_Item], gap: int | None) -> bool:
    """Say whether rows are missing there, which may have explained what came before; behind an exit none are."""
    return gap is not None and log[gap - 1].kind != "exit"


def _last_end(items: list[_Item]) -> int:
    return max((item.order for item in items if item.kind == "epoch_end"), default=0)


def _polled(log: list[_Item], activations: list[_Activation], trace: SmallTrace, pause_ns: int) -> Iterator[_Interval]:
    """Stretches in which the worker had nothing to do, though its log does not say it."""
    works = {activation.start.order for activation in activations if activation.is_work}
    rows = []
    for item in log:
        is_read = item.kind in _READS and item.sent is not None
        rows.append(
            PolledRow(
                t=item.t,
                kind=item.kind,
                operator=item.event.operator,
                depth=int(item.inside is not None),
                works=item.order in works,
                of_scope=item.kind == "send" and item.inside is not None and item.inside.has_children,
                sent=item.came if is_read and _sender(item).t <= item.t else None,
                same_process=is_read and _of_one_process(item, trace),
                after_gap=item.after_gap,
                logged=item.stated is not None,
            )
        )
    for place, looked in looked_in_vain(rows).items():
        log[place].looked = looked
        log[place].absent = looked if _arrival_known(log[place], trace) else _NO_TIME
    stretches = polled_stretches(rows, pause_ns)
    for number, (low, high) in enumerate(stretches):
        last_row = stretches[number + 1][0] if number + 1 < len(stretches) else len(log)
        gap = _first_gap(log, high, last_row)
        end = last_row + 1 if gap is None else gap
        yield _Interval(
            park=log[low],
            unpark=log[high],
            last_park=log[low],
            reads=[item for item in log[high:end] if item.kind in _READS and item.sent],
            starts=[activation for activation in activations if high < activation.start.order <= min(last_row, end)],
            polled=True,
            cut=_lacks_rows(log, gap),
            last_end=_last_end(log[high:end]),
        )


def _of_one_process(item: _Item, trace: SmallTrace) -> bool:
    return trace.processes[_sender(item).event.worker] == trace.processes[item.event.worker]


def _arrival_known(item: _Item, trace: SmallTrace) -> bool:
    return item.stated is not None or _of_one_process(item, trace)


def _judge(interval: _Interval, trace: SmallTrace, busy_below_ns: int) -> None:
    begin, end = interval.park.t, interval.unpark.t
    reader = interval.park.event.worker

    def known(item: _Item) -> bool:
        return _arrival_known(item, trace)

    # Without a park, a message may have been there since it was sent if no step looked for it.
    if any(item.came < begin and (known(item) or (interval.polled and item.looked < begin)) for item in interval.reads):
        interval.type = "busy"
        return
    # A message with negative transfer ends no wait.
    remote = [item for item in interval.reads if not item.is_local and item.came <= min(end, item.t)]
    inside = [item for item in remote if item.came >= begin]
    before = [item for item in remote if item.came < begin]

    def key(item: _Item) -> tuple[int, ...]:
        sent = _sender(item)
        arrival = item.came if known(item) else end
        numbers = (sent.event.worker, sent.event.channel, sent.event.message_seq)
        return (item.came if inside else -item.came, arrival, *(number or 0 for number in numbers))

    if candidates := inside or before:
        ender = min(candidates, key=key)
        interval.type, interval.ender = "waiting", ender
        interval.arrival = ender.came if known(ender) else end

        def slop(item: _Item) -> int:
            if known(item):
                return 0
            return (trace.uncertainty_ns[_sender(item).event.worker] or 0) + (trace.uncertainty_ns[reader] or 0)

        interval.alternatives = sum(
            abs(item.came - ender.came) <= max(slop(item), slop(ender)) for item in candidates if item is not ender
        )
        return
    limit = interval.last_park.event.timeout_ns
    if limit is not None and end - interval.last_park.t >= limit:
        interval.type = "idle"
    elif interval.cut and not any(
        activation.is_work and activation.start.order < interval.last_end for activation in interval.starts
    ):
        # The missing events may have explained the pause, unless the worker has worked and ended an epoch before.
        interval.type = "unknown"
    elif any(activation.is_work for activation in interval.starts):
        interval.type = "input_wait"
    else:
        interval.type = "busy" if end - begin < busy_below_ns else "unknown"


def _sender(item: _Item) -> _Item:
    assert item.sent is not None  # noqa: S101  (callers look at matched reads only)
    return item.sent


def _drop(log: list[_Item], intervals: list[_Interval], graph: Reference) -> None:
    ends = {end.order for interval in intervals for end in (interval.park, interval.unpark) if interval.polled}
    for item in log:
        if item.order in ends:
            continue
        if any(interval.park.order < item.order < interval.unpark.order and interval.polled for interval in intervals):
            item.dropped = "polling_activation"
        elif item.is_local:
            item.dropped = "worker_local_message"
        elif item.kind == "push_progress":
            item.dropped = "push_progress"
        elif any(interval.park.order < item.order < interval.unpark.order for interval in intervals):
            item.dropped = "merged_park"
        if item.dropped:
            graph.dropped[item.dropped] += 1


def _vertex(item: _Item, segment: int) -> Row:
    event = item.event
    return _point(item.id, event.epoch, item.t, item.kind, segment, seq=event.seq, operator=event.operator)


def _point(
    number: int, epoch: int, t: int, kind: str, segment: int, *, seq: int | None = None, operator: int | None = None
) -> Row:
    return {
        "id": number,
        "worker": number // 2**40,
        "pos": number % 2**40,
        "seq": seq,
        "epoch": epoch,
        "t_ns": t,
        "kind": kind,
        "operator": operator,
        "segment": segment,
    }


def _edge(src: Row, dst: Row, kind: str, **columns: int | None) -> Row:
    return {
        "src": src["id"],
        "dst": dst["id"],
        "type": kind,
        "epoch": dst["epoch"],
        "src_epoch": src["epoch"],
        "start_ns": src["t_ns"],
        "duration_ns": dst["t_ns"] - src["t_ns"],
        "operator": None,
        "activation": None,
        "channel": None,
        "records": None,
        "bytes": None,
        "send_buffer_ns": None,
        "receive_buffer_ns": None,
        "read": None,
        "flags": 0,
        "alternatives": 0,
        **columns,
    }


def _applications(log: list[_Item], graph: Reference) -> _Item | None:
    """Note for each event which application activity is open before it, and return the one after the last."""
    stack: list[_Item] = []
    for item in log:
        if item.after_gap:
            for start in stack:
                graph.findings["application_not_stopped", start.event.worker, start.event.seq, None] += 1
            stack = []
        item.applied = stack[-1] if stack else None
        if item.kind == "application_start":
            stack.append(item)
            if item.event.activity is not None and item.event.activity not in _APPLICATION_TYPES:
                graph.findings["application_of_other_type", item.event.worker, item.event.seq, None] += 1
        elif item.kind == "application_stop":
            of_operator = [place for place, start in enumerate(stack) if start.event.operator == item.event.operator]
            if not of_operator:
                graph.findings["application_stop_without_start", item.event.worker, item.event.seq, None] += 1
            else:
                if of_operator[-1] != len(stack) - 1:
                    graph.findings["application_stop_of_outer", item.event.worker, item.event.seq, None] += 1
                stack = stack[: of_operator[-1]]
    for item in stack:
        graph.findings["application_not_stopped", item.event.worker, item.event.seq, None] += 1
    return stack[-1] if stack else None


def _covered(edge: Row, application: _Item | None) -> Row:
    """Lay an application activity over an edge; only waiting shows through."""
    if application is None or edge["type"] == "waiting":
        return edge
    return {
        **edge,
        "type": application.event.activity if application.event.activity in _APPLICATION_TYPES else "application",
        "operator": application.event.operator,
        "activation": application.id,
        "flags": 0,
    }


def _chain(
    worker: int,
    log: list[_Item],
    intervals: list[_Interval],
    end: int,
    open_epoch: int,
    graph: Reference,
    open_at_end: _Item | None,
    life: _Life,
) -> None:
    """Vertices of a worker, and the edge between each two that follow each other."""
    ended_intervals = {interval.unpark.order: interval for interval in intervals}
    kept_items = [item for item in log if not item.dropped]
    vertices: list[Row] = []
    base = worker * 2**40
    if not kept_items:
        vertices.append(_point(base + 1, log[0].event.epoch if log else open_epoch, 0, "run_start", base + 1))
    elif kept_items[0].t > 0 and life.birth is None:
        first_item = kept_items[0]
        vertices.append(_point(first_item.id - 1, first_item.event.epoch, 0, "run_start", first_item.id - 1))
    previous: _Item | None = None
    for item in kept_items:
        # Rows that are missing before one that is no vertex are missing before the next one that is.
        after = previous.order if previous else 0
        lacks = any(missing_item.after_gap for missing_item in log[after : item.order])
        segment = vertices[-1]["segment"] if vertices else item.id
        interval = ended_intervals.get(item.order)
        if interval and interval.type == "waiting":
            arrival = _point(item.id - 1, item.event.epoch, interval.arrival, "arrival", item.id - 1)
            graph.edges.append(_edge(vertices[-1], arrival, "waiting", flags=int(interval.polled)))
            vertices.append(arrival)
            segment = arrival["id"]
        vertex = _vertex(item, segment)
        if vertices:
            if lacks:
                graph.edges.append(_edge(vertices[-1], vertex, "unknown"))
            else:
                edge = _local_edge(vertices[-1], vertex, previous, interval, ends_program=item.kind == "program")
                graph.edges.append(_covered(edge, item.applied))
        vertices.append(vertex)
        previous = item
    if vertices[-1]["t_ns"] < end and not life.exits:
        # The run's end never belongs to a closed epoch.
        epoch = max([open_epoch, *(item.event.epoch + (item.kind == "epoch_end") for item in log[-1:])])
        number = base + max(2 * (len(log) + 1) - 1, 3)
        vertices.append(_point(number, epoch, end, "run_end", vertices[-1]["segment"]))
        graph.edges.append(_covered(_edge(vertices[-2], vertices[-1], "unknown"), open_at_end))
    graph.vertices.extend(vertices)


def _local_edge(src: Row, dst: Row, previous: _Item | None, interval: _Interval | None, *, ends_program: bool) -> Row:
    if interval:
        kind = "wake_up" if interval.type == "waiting" else interval.type
        return _edge(src, dst, kind, flags=int(interval.polled and kind == "input_wait"))
    if previous is None or previous.sleeps:
        return _edge(src, dst, "unknown")
    activation = previous.inside
    if activation is None:
        return _edge(src, dst, "program" if ends_program else "busy")
    return _edge(
        src,
        dst,
        activation.type,
        operator=activation.start.event.operator,
        activation=None if activation.start.dropped else activation.start.id,
        records=activation.records if previous is activation.start else None,
        flags=1 if activation.type == "processing" and not activation.has_data else 0,
    )


def _messages(log: list[_Item], intervals: list[_Interval], trace: SmallTrace, graph: Reference) -> None:
    by_ender = {interval.ender.order: interval for interval in intervals if interval.ender}
    for reading in log:
        if reading.kind not in _READS or reading.is_local or reading.sent is None:
            continue
        interval = by_ender.get(reading.order)
        src, read_vertex = _vertex(reading.sent, 0), _vertex(reading, 0)
        dst = read_vertex
        if interval:
            unpark = interval.unpark
            dst = _point(unpark.id - 1, unpark.event.epoch, interval.arrival, "arrival", 0)
        negative = reading.t < reading.sent.t
        arrival: int | None = None
        if reading.stated is not None:
            arrival = max(reading.stated, reading.sent.t)
        elif _of_one_process(reading, trace):
            arrival = reading.sent.t
        elif interval:
            arrival = interval.arrival
        graph.edges.append(
            _edge(
                src,
                dst,
                "data_message" if reading.kind == "receive" else "progress_message",
                channel=reading.event.channel,
                records=reading.event.records,
                bytes=reading.event.bytes,
                receive_buffer_ns=None if negative or arrival is None else reading.t - arrival,
                read=reading.id,
                flags=4 * (reading.stated is None or reading.stated < reading.sent.t) + 2 * negative,
                alternatives=interval.alternatives if interval else 0,
            )
        )


def _rounds(logs: list[list[_Item]], lives: list[_Life], graph: Reference) -> list[Row]:
    """Return the windows of the epochs that every worker ended, the startup among them, in time order."""
    items = [item for log in logs for item in log]
    present = {item.event.worker for item in items}
    ends: dict[int, dict[int, _Item]] = defaultdict(dict)
    for item in items:
        if item.kind == "epoch_end":
            ends[item.event.epoch][item.event.worker] = item
    if not ends:
        # Without a single end in the log, the last vertex of every epoch stands in for it.
        graph.findings["epoch_end_not_logged", None, None, None] += 1
        for item in items:
            if not item.dropped:
                ends[item.event.epoch][item.event.worker] = item
    rows: list[Row] = []
    begin = 0

    def needed(epoch: int) -> set[int]:
        """Who exists when the epoch ends for the first time."""
        close = min(item.t for item in ends[epoch].values())
        return {worker for worker in present if lives[worker].begin <= close <= lives[worker].end}

    def rested(end: _Item) -> bool:
        """Whether the worker's last event of the epoch, but for its end, is older than the end."""
        own_items = (
            item for item in items if item.event.worker == end.event.worker and item.event.epoch == end.event.epoch
        )
        return max((item.t for item in own_items if item.kind != "epoch_end"), default=end.t - 1) < end.t

    unfinished = [epoch for epoch in sorted(ends) if needed(epoch) - set(ends[epoch])]
    for epoch in unfinished:
        graph.findings["epoch_incomplete", None, None, epoch] += 1
    for epoch in sorted(ends):
        if unfinished and epoch >= unfinished[0]:
            break
        first_end = min(
            ends[epoch].values(),
            key=lambda item: (item.t, item.dropped is not None, rested(item), item.event.worker),
        )
        close = max(first_end.t, begin)
        role = "round" if rows else "startup"
        rows.append({"epoch": epoch, "role": role, "start_ns": begin, "end_ns": close, "end_vertex": first_end.id})
        begin = close
    return rows


def _epochs(logs: list[list[_Item]], rounds: list[Row], end: int, lives: list[_Life], graph: Reference) -> None:
    items = [item for log in logs for item in log]
    rows = list(rounds)
    begin = rows[-1]["end_ns"] if rows else 0
    if not rows or begin < end:
        epoch = rows[-1]["epoch"] + 1 if rows else min(item.event.epoch for item in items)
        role = "shutdown" if rows else "startup"
        rows.append({"epoch": epoch, "role": role, "start_ns": begin, "end_ns": end, "end_vertex": None})

    def counts_for(epoch: int) -> Row:
        """Return the window that counts an epoch: its own, else the next one, at the end the last."""
        return next((window for window in rows if window["epoch"] >= epoch), rows[-1])

    for window in rows:
        epoch_items = [item for item in items if counts_for(item.event.epoch) is window]
        unknown, waiting = (_time_inside(graph.edges, kind, window) for kind in ("unknown", "waiting"))
        span = sum(max(0, min(window["end_ns"], life.end) - max(window["start_ns"], life.begin)) for life in lives)
        window.update(
            entry_ns=min((item.t for item in epoch_items), default=None),
            exit_ns=max((item.t for item in epoch_items), default=None),
            events=len(epoch_items),
            vertices=sum(counts_for(vertex["epoch"]) is window for vertex in graph.vertices),
            edges=sum(counts_for(edge["epoch"]) is window for edge in graph.edges),
            waiting_ns=waiting,
            unknown_ns=unknown,
            coverage=1 - unknown / span if span else 1.0,
        )
    graph.epochs.extend(rows)


def inside_ns(edge: Row, start: int, end: int) -> int:
    """Return for how many nanoseconds an edge lies inside a window.

    Parameters
    ----------
    edge
        Has `start_ns` and `duration_ns`.
    start, end
        Of the window, in nanoseconds.

    Returns
    -------
    int
        0 for one outside of it.
    """
    begin: int = max(edge["start_ns"], start)
    finish: int = min(edge["start_ns"] + edge["duration_ns"], end)
    return max(0, finish - begin)


def _time_inside(edges: Sequence[Row], kind: str, window: Row) -> int:
    return sum(inside_ns(edge, window["start_ns"], window["end_ns"]) for edge in edges if edge["type"] == kind)
