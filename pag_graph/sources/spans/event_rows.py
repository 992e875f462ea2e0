"""Events of the canonical trace from requests: lanes as workers, requests laid end to end (`docs/spans.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from pag_graph.errors import TraceFormatError
from pag_graph.kernels.span_paths import covered
from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.sources.spans.requests import NEVER
from pag_graph.sources.spans.table import CLIENT, DATABASE, PRODUCER, SERVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.sources.spans.requests import Requests

    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]

GAP_NS: Final = 1_000
"""Between two requests, and before the first."""
_MOST_NS = 1 << 61
CALLS, RETURNS, LINKS = 0, 1, 2
"""Channels."""
# The order of rows in one instant. First what ends, spans inside first; then what begins, outermost first.
_TOLD, _READ, _WAIT_STOP, _END, _SENT, _WAIT_START, _FREE, _OVER, _BEGIN = range(9)
# The order of rows of one span, where it begins or ends.
_CALLED, _FREE_STOP, _MARK, _START, _LINKED, _CALL, _FIRST_WAIT, _STOP, _MARKED = range(9)
_ROW: Final[dict[str, Any]] = {
    "worker": pl.Int64,
    "t_ns": pl.Int64,
    "phase": pl.Int64,
    "span": pl.Int64,
    "step": pl.Int64,
    "kind": pl.String,
    "activity": pl.String,
    "operator": pl.Int64,
    "channel": pl.Int64,
    "peer": pl.Int64,
    "message_seq": pl.Int64,
    "inferred": pl.Boolean,
    "ends": pl.Int64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Chosen requests, end to end; times from the origin, `GAP_NS` before the first begins."""

    spans: I64
    """Indexes of the spans of chosen requests, in order."""
    number: I64
    """Per span of all requests: its place in `spans`; -1 for spans that are not chosen."""
    worker: I64
    """Per span of all requests: number of its lane; -1 for spans that are not chosen."""
    lanes: list[tuple[int, int]]
    """Per worker: process, and lane within it."""
    move: I64
    """Per span of all requests: what is added to its times."""
    begin: I64
    """Per chosen request: when its root starts."""
    end: I64
    """When its root ends."""
    root: I64
    """Index of its root."""
    over: int
    """When the run ends."""
    origin: int
    """Unix time of the origin."""


def lay_end_to_end(requests: Requests, chosen: I64) -> Layout:
    """Give chosen requests workers and times.

    Parameters
    ----------
    requests
        All of them.
    chosen
        Indexes of requests, ascending.

    Raises
    ------
    TraceFormatError
        If they last too long together.
    """
    begins, ends = requests.first[chosen], requests.first[chosen + 1]
    members = np.concatenate([np.arange(low, high) for low, high in zip(begins, ends, strict=True)])
    request_of = np.repeat(np.arange(len(chosen)), ends - begins)
    low, high = np.full(len(chosen), np.iinfo(np.int64).max), np.full(len(chosen), np.iinfo(np.int64).min)
    np.minimum.at(low, request_of, requests.spans.start[members])
    np.maximum.at(high, request_of, requests.spans.end[members])
    if float((high - low).astype(np.float64).sum()) > _MOST_NS:
        message = "The requests last longer together than a trace can (146 years): children far outlive their parents."
        raise TraceFormatError(
            message, "Choose some: pag spans TRACES --out DIR --slowest N.", {"requests": len(chosen)}
        )
    base = np.cumsum(high - low + GAP_NS) - (high - low)
    move = np.zeros(len(requests.row), np.int64)
    move[members] = (base - low)[request_of]
    lanes, lane_of = np.unique(requests.spans.lane[members], return_inverse=True)
    worker, number = np.full(len(requests.row), -1, np.int64), np.full(len(requests.row), -1, np.int64)
    worker[members], number[members] = lane_of, np.arange(len(members))
    first = np.zeros(len(lanes), np.int64)
    first[lane_of] = members
    roots = begins
    return Layout(
        spans=members,
        number=number,
        worker=worker,
        lanes=[(int(requests.process[span]), int(requests.lane[span])) for span in first],
        move=move,
        begin=requests.spans.start[roots] + move[roots],
        end=requests.spans.end[roots] + move[roots],
        root=roots,
        over=int(base[-1] + (high - low)[-1]),
        origin=int(low[0]) - GAP_NS,
    )


def events(requests: Requests, layout: Layout) -> pl.DataFrame:
    """Return the rows of the canonical trace.

    Parameters
    ----------
    requests, layout
        What to write.

    Returns
    -------
    DataFrame
        Columns of `TRACE_EVENTS`, by worker and time.
    """
    parts = [
        _activities(requests, layout),
        _waits(requests, layout),
        _between(requests, layout),
        _messages(requests, layout),
        _link_messages(requests, layout),
        _epoch_ends(layout),
    ]
    rows = pl.concat(parts).with_columns(
        # Spans that end together end from the inside out.
        turn=pl.when(pl.col("phase") == _END).then(-pl.col("span")).otherwise("span")
    )
    rows = rows.sort("worker", "t_ns", "phase", "turn", "step", maintain_order=True)
    told = np.sort(np.concatenate([layout.begin, layout.end])) + 1
    epoch = 1 + np.searchsorted(told, rows["t_ns"].to_numpy(), side="left").astype(np.int64)
    worker = rows["worker"].to_numpy()
    begins = np.flatnonzero(np.diff(worker, prepend=-1))
    seq = np.arange(rows.height) - np.repeat(begins, np.diff(begins, append=rows.height))
    rows = rows.with_columns(epoch=pl.coalesce("ends", pl.Series(epoch)), seq=pl.Series(seq))
    # Spans say nothing of sizes, records, and when messages arrived before they were read.
    return rows.with_columns(
        pl.lit(None, pl.Int64).alias(name) for name in TRACE_EVENTS.names if name not in rows.columns
    )


def _rows(count: int, **columns: Any) -> pl.DataFrame:
    """Return rows; a column that is not given is empty, a single value stands in all."""
    made = []
    for name, kind in _ROW.items():
        value = columns.get(name)
        if isinstance(value, np.ndarray | list | pl.Series):
            made.append(pl.Series(name, value, dtype=kind, strict=False))
        else:
            made.append(pl.repeat(value, count, dtype=kind, eager=True).alias(name))
    return pl.DataFrame(made)


def _activities(requests: Requests, layout: Layout) -> pl.DataFrame:
    span, where = layout.spans, layout.worker[layout.spans]
    start, end = (times[span] + layout.move[span] for times in (requests.spans.start, requests.spans.end))
    same: dict[str, Any] = {"span": span, "worker": where, "operator": requests.operation[span]}
    begins = _rows(
        len(span),
        **same,
        t_ns=start,
        phase=_BEGIN,
        step=_START,
        kind=str(EventKind.START),
        activity=_activity(requests)[span].tolist(),
        inferred=~requests.certain[span],
    )
    # A span without duration ends where it begins.
    stops = _rows(
        len(span),
        **same,
        t_ns=end,
        phase=np.where(end > start, _END, _BEGIN),
        step=_STOP,
        kind=str(EventKind.STOP),
    )
    return pl.concat([begins, stops])


def _activity(requests: Requests) -> NDArray[np.object_]:
    """Return what each span's own time is: `io` where it talks to what has no spans here."""
    flags = requests.table.spans["flags"].to_numpy()[requests.row]
    parent = requests.spans.parent
    served = np.zeros(len(parent), np.bool_)
    served[parent[(parent >= 0) & (requests.kind == SERVER)]] = True
    outward = (requests.kind == PRODUCER) | ((requests.kind == CLIENT) & ~served) | ((flags & DATABASE) > 0)
    return np.where(outward, str(ActivityType.IO), str(ActivityType.PROCESSING)).astype(object)


def _waits(requests: Requests, layout: Layout) -> pl.DataFrame:
    """Return the stretches in which spans wait for what they called."""
    chosen = layout.worker[requests.waiting.span] >= 0
    span = requests.waiting.span[chosen]
    begin, end = requests.waiting.begin[chosen], requests.waiting.end[chosen]
    same = {"span": span, "worker": layout.worker[span]}
    at_start = begin == requests.spans.start[span]
    starts = _rows(
        len(span),
        **same,
        t_ns=begin + layout.move[span],
        phase=np.where(at_start, _BEGIN, _WAIT_START),
        step=_FIRST_WAIT,
        kind=str(EventKind.START),
        activity=str(ActivityType.WAITING),
        operator=requests.operation[span],
        inferred=~requests.certain[span],
    )
    stops = _rows(
        len(span),
        **same,
        t_ns=end + layout.move[span],
        phase=_WAIT_STOP,
        kind=str(EventKind.STOP),
        operator=requests.operation[span],
    )
    return pl.concat([starts, stops])


def _between(requests: Requests, layout: Layout) -> pl.DataFrame:
    """Return what lanes do between their spans: wait for a call, for input before a root, or nothing after the last."""
    outer = layout.spans[~requests.nested[layout.spans]]
    start, end = (times[outer] + layout.move[outer] for times in (requests.spans.start, requests.spans.end))
    order = np.lexsort((outer, start, layout.worker[outer]))
    outer, start, end = outer[order], start[order], end[order]
    where = layout.worker[outer]
    first = np.diff(where, prepend=-1) > 0
    before = np.where(first, -1, np.concatenate([[-1], np.arange(len(outer) - 1)]))
    called = _sender_is_elsewhere(requests, layout, outer)
    inferred = ~called & (requests.spans.parent[outer] >= 0)
    activity = np.where(called, str(ActivityType.WAITING), str(ActivityType.INPUT_WAIT))
    free = np.where(first, 0, end[before])
    begins = _rows(
        len(outer),
        worker=where,
        t_ns=free,
        **_after(outer, start == end, before),
        kind=str(EventKind.START),
        activity=activity.tolist(),
        inferred=inferred,
    )
    stops = _rows(
        len(outer), worker=where, t_ns=start, phase=_BEGIN, span=outer, step=_FREE_STOP, kind=str(EventKind.STOP)
    )
    last = np.flatnonzero(np.diff(where, append=len(layout.lanes)) > 0)
    last = last[end[last] < layout.over]
    idle = _rows(
        len(last),
        worker=where[last],
        t_ns=end[last],
        **_after(outer, start == end, last),
        kind=str(EventKind.START),
        activity=str(ActivityType.IDLE),
    )
    over = _rows(len(last), worker=where[last], t_ns=layout.over, phase=_OVER, kind=str(EventKind.STOP))
    return pl.concat([begins, stops, idle, over])


def _after(outer: I64, instant: Flags, before: I64) -> dict[str, Any]:
    """Return where rows stand that follow the ends of spans (-1: of none): some end in the instant they begin in."""
    behind = (before >= 0) & instant[before]
    return {
        "phase": np.where(behind, _BEGIN, _FREE),
        "span": np.where(before >= 0, outer[before], -1),
        "step": np.where(behind, _MARKED, 0),
    }


def _sender_is_elsewhere(requests: Requests, layout: Layout, span: I64) -> Flags:
    """Tell which spans are called from another lane, by a span that had begun."""
    parent = np.maximum(requests.spans.parent[span], 0)
    begun = requests.spans.start[parent] <= requests.spans.called[span]
    elsewhere: Flags = (requests.spans.parent[span] >= 0) & begun & (layout.worker[parent] != layout.worker[span])
    return elsewhere


def _messages(requests: Requests, layout: Layout) -> pl.DataFrame:
    """Return calls, and the returns that ended waits."""
    spans = requests.spans
    outer = layout.spans[~requests.nested[layout.spans]]
    away = outer[_sender_is_elsewhere(requests, layout, outer)]
    back = layout.spans[requests.returned[layout.spans] != NEVER]
    sent = spans.called[away]
    return pl.concat(
        [
            _sends(requests, layout, (spans.parent[away], away, sent), (CALLS, _CALL)),
            _receives(layout, (away, spans.parent[away], away), spans.start[away], CALLS),
            _sends(requests, layout, (back, back, spans.end[back]), (RETURNS, _CALL)),
            _receives(layout, (spans.parent[back], back, back), requests.returned[back], RETURNS),
        ]
    )


def _link_messages(requests: Requests, layout: Layout) -> pl.DataFrame:
    """Return a message for each link within a request, from the other span to the start of the one that states it."""
    child, other = requests.links
    spans = requests.spans
    sent = np.minimum(spans.start[child], spans.end[other])
    good = (
        (layout.worker[child] >= 0) & (layout.worker[other] >= 0) & (requests.request[child] == requests.request[other])
    )
    good &= (layout.worker[child] != layout.worker[other]) & (sent >= spans.start[other])
    child, other = child[good], other[good]
    sent = _last_own(requests, other, sent[good])
    number = len(layout.spans) + np.arange(len(child))
    return pl.concat(
        [
            _sends(requests, layout, (other, child, sent), (LINKS, _CALL), number),
            _receives(layout, (child, other, child), spans.start[child], LINKS, number),
        ]
    )


def _last_own(requests: Requests, span: I64, time: I64) -> I64:
    """Return when spans last did something themselves, up to some times: a message does not leave in a wait."""
    inner = np.flatnonzero(requests.nested)
    inner = inner[np.lexsort((inner, requests.spans.start[inner], requests.spans.parent[inner]))]
    over = covered(requests.spans, inner, span, time)
    inside = (over >= 0) & (requests.spans.end[np.maximum(over, 0)] > time)
    time = np.where(inside, requests.spans.start[np.maximum(over, 0)], time)
    waiting = requests.waiting
    if not len(waiting.span):
        return time
    # Stretches are by span and time: of those of a span, the last one that began before.
    order = np.lexsort((np.concatenate([waiting.begin, time]), np.concatenate([waiting.span, span])))
    stretches = len(waiting.span)
    before = np.cumsum(order < stretches) - 1
    place = np.empty(len(order), np.int64)
    place[order] = before
    last = np.maximum(place[stretches:], 0)
    within = (waiting.span[last] == span) & (waiting.begin[last] < time) & (time < waiting.end[last])
    return np.where(within, waiting.begin[last], time)


def _sends(
    requests: Requests, layout: Layout, ends: tuple[I64, I64, I64], kind: tuple[int, int], number: I64 | None = None
) -> pl.DataFrame:
    """Return sends, of (sender, the span that the message is of, time)."""
    sender, span, time = ends
    channel, step = kind
    # Whoever is not the sender reads it: the span itself, or for its own return its parent.
    reader = np.where(sender == span, requests.spans.parent[span], span)
    starts, stops = time == requests.spans.start[sender], time == requests.spans.end[sender]
    return _rows(
        len(span),
        worker=layout.worker[sender],
        t_ns=time + layout.move[span],
        phase=np.where(starts, _BEGIN, np.where(stops, _END, _SENT)),
        span=sender,
        step=step,
        kind=str(EventKind.SEND),
        activity=_message_type(channel),
        channel=channel,
        peer=layout.worker[reader],
        message_seq=layout.number[span] if number is None else number,
    )


def _receives(
    layout: Layout, ends: tuple[I64, I64, I64], time: I64, channel: int, number: I64 | None = None
) -> pl.DataFrame:
    """Return reads, of (reader, sender, the span that the message is of)."""
    reader, sender, span = ends
    return _rows(
        len(span),
        worker=layout.worker[reader],
        t_ns=time + layout.move[span],
        phase=_READ if channel == RETURNS else _BEGIN,
        span=reader,
        step=_LINKED if channel == LINKS else _CALLED,
        kind=str(EventKind.RECEIVE),
        activity=_message_type(channel),
        channel=channel,
        peer=layout.worker[sender],
        message_seq=layout.number[span] if number is None else number,
    )


def _message_type(channel: int) -> str:
    return str(ActivityType.DATA_MESSAGE if channel == LINKS else ActivityType.CONTROL_MESSAGE)


def _epoch_ends(layout: Layout) -> pl.DataFrame:
    """Return the ends of epochs: 2k is request k, of which the root tells; other lanes are told an instant later."""
    count = len(layout.root)
    number = np.arange(1, count + 1)
    own = layout.worker[layout.root]
    kind = str(EventKind.EPOCH_END)
    begins = _rows(
        count, worker=own, t_ns=layout.begin, phase=_BEGIN, span=layout.root, step=_MARK, kind=kind, ends=2 * number - 1
    )
    ends = _rows(
        count, worker=own, t_ns=layout.end, phase=_END, span=layout.root, step=_MARKED, kind=kind, ends=2 * number
    )
    lanes = len(layout.lanes)
    epoch = np.tile(np.repeat(2 * number, 2) - np.tile([1, 0], count), lanes)
    time = np.tile(np.stack([layout.begin, layout.end], axis=1).reshape(-1) + 1, lanes)
    worker = np.repeat(np.arange(lanes), 2 * count)
    others = worker != np.tile(np.repeat(own, 2), lanes)
    told = _rows(
        int(others.sum()), worker=worker[others], t_ns=time[others], phase=_TOLD, kind=kind, ends=epoch[others]
    )
    return pl.concat([begins, ends, told])
