"""Events of the canonical trace from requests: lanes as workers, requests laid end to end (`docs/spans.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl

from pag_graph.kernels.span_paths import covered
from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.sources.spans.layout import sender_is_elsewhere
from pag_graph.sources.spans.requests import NEVER
from pag_graph.sources.spans.table import CLIENT, DATABASE, PRODUCER, SERVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.sources.spans.layout import Layout, Stretch
    from pag_graph.sources.spans.requests import Requests

    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]

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


@dataclass(slots=True)
class Written:
    """What has been written of a layout when its next requests are."""

    rows: I64
    """Per worker, how many rows."""
    links: int = 0


def events(piece: Stretch, written: Written) -> pl.DataFrame:
    """Return the rows of the canonical trace in the time of some requests.

    Parameters
    ----------
    piece
        The requests that follow those that were written.
    written
        What was written, to which this is added.

    Returns
    -------
    DataFrame
        Columns of `TRACE_EVENTS`, by worker and time.
    """
    links = _links(piece)
    frames = [
        _activities(piece),
        _waits(piece),
        _between(piece),
        _messages(piece),
        _link_messages(piece, links, written.links),
        _epoch_ends(piece),
    ]
    if not piece.first:
        frames.append(_before_all(piece.layout))
    if piece.first + piece.count == len(piece.layout.begin):
        frames.append(_after_all(piece.layout))
    written.links += len(links.child)
    rows = pl.concat(frames).with_columns(
        # Spans that end together end from the inside out.
        turn=pl.when(pl.col("phase") == _END).then(-pl.col("span")).otherwise("span")
    )
    rows = rows.sort("worker", "t_ns", "phase", "turn", "step", maintain_order=True)
    epoch_times = np.stack([piece.layout.begin, piece.layout.end], axis=1).reshape(-1) + 1
    epoch = 1 + np.searchsorted(epoch_times, rows["t_ns"].to_numpy(), side="left").astype(np.int64)
    worker = rows["worker"].to_numpy()
    begins = np.flatnonzero(np.diff(worker, prepend=-1))
    sizes = np.diff(begins, append=rows.height)
    seq = np.arange(rows.height) - np.repeat(begins - written.rows[worker[begins]], sizes)
    written.rows[worker[begins]] += sizes
    rows = rows.with_columns(epoch=pl.coalesce("ends", pl.Series(epoch)), seq=pl.Series(seq))
    # Spans say nothing of sizes, records, and when messages arrived before they were read.
    return rows.with_columns(
        pl.lit(None, pl.Int64).alias(name) for name in TRACE_EVENTS.names if name not in rows.columns
    )


def _rows(count: int, **columns: Any) -> pl.DataFrame:
    """Return rows; a column that is not given is empty, a single value stands in all."""
    series = []
    for name, kind in _ROW.items():
        value = columns.get(name)
        if isinstance(value, np.ndarray | list | pl.Series):
            series.append(pl.Series(name, value, dtype=kind, strict=False))
        else:
            series.append(pl.repeat(value, count, dtype=kind, eager=True).alias(name))
    return pl.DataFrame(series)


def _activities(piece: Stretch) -> pl.DataFrame:
    requests = piece.requests
    span, worker = piece.members, piece.worker[piece.members]
    start, end = (times[span] + piece.move[span] for times in (requests.spans.start, requests.spans.end))
    common_columns: dict[str, Any] = {"span": span, "worker": worker, "operator": requests.operation[span]}
    begins = _rows(
        len(span),
        **common_columns,
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
        **common_columns,
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


def _waits(piece: Stretch) -> pl.DataFrame:
    """Return the time in which spans wait for what they called."""
    requests = piece.requests
    chosen = piece.worker[requests.waiting.span] >= 0
    span = requests.waiting.span[chosen]
    begin, end = requests.waiting.begin[chosen], requests.waiting.end[chosen]
    common_columns = {"span": span, "worker": piece.worker[span]}
    at_start = begin == requests.spans.start[span]
    starts = _rows(
        len(span),
        **common_columns,
        t_ns=begin + piece.move[span],
        phase=np.where(at_start, _BEGIN, _WAIT_START),
        step=_FIRST_WAIT,
        kind=str(EventKind.START),
        activity=str(ActivityType.WAITING),
        operator=requests.operation[span],
        inferred=~requests.certain[span],
    )
    stops = _rows(
        len(span),
        **common_columns,
        t_ns=end + piece.move[span],
        phase=_WAIT_STOP,
        kind=str(EventKind.STOP),
        operator=requests.operation[span],
    )
    return pl.concat([starts, stops])


def _between(piece: Stretch) -> pl.DataFrame:
    """Return what lanes do behind their spans: wait for a call, for input before a root, or nothing after the last."""
    spans, layout = piece.requests.spans, piece.layout
    outer = piece.members[~piece.requests.nested[piece.members]]
    start, end = (times[outer] + piece.move[outer] for times in (spans.start, spans.end))
    order = np.lexsort((outer, start, piece.worker[outer]))
    outer, start, end = outer[order], start[order], end[order]
    worker = piece.worker[outer]
    stops = _rows(
        len(outer), worker=worker, t_ns=start, phase=_BEGIN, span=outer, step=_FREE_STOP, kind=str(EventKind.STOP)
    )
    final = np.flatnonzero(np.diff(worker, append=-1))
    after = np.append(outer[1:], 0)
    called, below = sender_is_elsewhere(piece.requests, after), spans.parent[after] >= 0
    stays, called[final], below[final] = _next_stays(layout, worker[final], piece.first + piece.count)
    is_over = np.zeros(len(outer), np.bool_)
    is_over[final[~stays]] = True
    # Some spans end in the instant they begin in.
    instant = start == end
    rows = _frees(
        worker,
        end,
        (called, below, is_over),
        phase=np.where(instant, _BEGIN, _FREE),
        span=outer,
        step=np.where(instant, _MARKED, 0),
    )
    return pl.concat([stops, rows.filter(~(is_over & (end >= layout.over)))])


def _next_stays(layout: Layout, worker: I64, request: int) -> tuple[Flags, Flags, Flags]:
    """Say whether workers have spans from some request on, and of the first whether it is called, and is below one."""
    stays = layout.stays
    keys = stays["worker"].to_numpy() * len(layout.begin) + stays["request"].to_numpy()
    place = np.searchsorted(keys, worker * len(layout.begin) + request)
    has_more = place < np.searchsorted(keys, (worker + 1) * len(layout.begin))
    place = np.minimum(place, len(keys) - 1)
    called, below = (stays[name].to_numpy()[place] for name in ("called", "below"))
    return has_more, called, below


def _frees(worker: I64, time: I64, following: tuple[Flags, Flags, Flags], **places: Any) -> pl.DataFrame:
    """Return the beginnings of time without spans: what follows is called, is below another span, or nothing does."""
    called, below, is_over = following
    activity = np.where(called, str(ActivityType.WAITING), str(ActivityType.INPUT_WAIT))
    return _rows(
        len(worker),
        worker=worker,
        t_ns=time,
        kind=str(EventKind.START),
        activity=np.where(is_over, str(ActivityType.IDLE), activity).tolist(),
        inferred=np.where(is_over, np.array(None), ~called & below).tolist(),
        **places,
    )


def _before_all(layout: Layout) -> pl.DataFrame:
    """Return what workers do before their first spans."""
    worker = np.arange(len(layout.lanes))
    has_spans, called, below = _next_stays(layout, worker, 0)
    return _frees(worker, np.zeros(len(worker), np.int64), (called, below, ~has_spans), phase=_FREE, span=-1, step=0)


def _after_all(layout: Layout) -> pl.DataFrame:
    """Return where workers end that do nothing after their last spans."""
    ends = layout.stays.group_by("worker", maintain_order=True).agg(pl.col("end").last())
    idle = ends.filter(pl.col("end") < layout.over)["worker"]
    return _rows(len(idle), worker=idle, t_ns=layout.over, phase=_OVER, kind=str(EventKind.STOP))


def _messages(piece: Stretch) -> pl.DataFrame:
    """Return calls, and the returns that ended waits."""
    requests, spans = piece.requests, piece.requests.spans
    outer = piece.members[~requests.nested[piece.members]]
    away = outer[sender_is_elsewhere(requests, outer)]
    back = piece.members[requests.returned[piece.members] != NEVER]
    sent = spans.called[away]
    return pl.concat(
        [
            _sends(piece, (spans.parent[away], away, sent), (CALLS, _CALL)),
            _receives(piece, (away, spans.parent[away], away), spans.start[away], CALLS),
            _sends(piece, (back, back, spans.end[back]), (RETURNS, _CALL)),
            _receives(piece, (spans.parent[back], back, back), requests.returned[back], RETURNS),
        ]
    )


class _Links(NamedTuple):
    """Links within requests, by the span that states them: it, the other span, and when that one sends."""

    child: I64
    other: I64
    sent: I64


def _links(piece: Stretch) -> _Links:
    requests, spans = piece.requests, piece.requests.spans
    child, source = requests.links
    sent = np.minimum(spans.start[child], spans.end[source])
    good = (piece.worker[child] >= 0) & (requests.request[child] == requests.request[source])
    good &= (piece.worker[child] != piece.worker[source]) & (sent >= spans.start[source])
    order = np.flatnonzero(good)
    order = order[np.argsort(child[order], kind="stable")]
    return _Links(child[order], source[order], _last_own(requests, source[order], sent[order]))


def _link_messages(piece: Stretch, links: _Links, before: int) -> pl.DataFrame:
    """Return a message for each link, from the other span to the start of the one that states it."""
    child, source, sent = links
    number = piece.layout.spans[-1] + before + np.arange(len(child))
    return pl.concat(
        [
            _sends(piece, (source, child, sent), (LINKS, _CALL), number),
            _receives(piece, (child, source, child), piece.requests.spans.start[child], LINKS, number),
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
    stretch_before = np.maximum(place[stretches:], 0)
    within = (
        (waiting.span[stretch_before] == span)
        & (waiting.begin[stretch_before] < time)
        & (time < waiting.end[stretch_before])
    )
    return np.where(within, waiting.begin[stretch_before], time)


def _sends(
    piece: Stretch, ends: tuple[I64, I64, I64], kind: tuple[int, int], number: I64 | None = None
) -> pl.DataFrame:
    """Return sends, of (sender, the span that the message is of, time)."""
    sender, span, time = ends
    channel, step = kind
    spans = piece.requests.spans
    # Whoever is not the sender reads it: the span itself, or for its own return its parent.
    reader = np.where(sender == span, spans.parent[span], span)
    starts, stops = time == spans.start[sender], time == spans.end[sender]
    return _rows(
        len(span),
        worker=piece.worker[sender],
        t_ns=time + piece.move[span],
        phase=np.where(starts, _BEGIN, np.where(stops, _END, _SENT)),
        span=sender,
        step=step,
        kind=str(EventKind.SEND),
        activity=_message_type(channel),
        channel=channel,
        peer=piece.worker[reader],
        message_seq=piece.number[span] if number is None else number,
    )


def _receives(
    piece: Stretch, ends: tuple[I64, I64, I64], time: I64, channel: int, number: I64 | None = None
) -> pl.DataFrame:
    """Return reads, of (reader, sender, the span that the message is of)."""
    reader, sender, span = ends
    return _rows(
        len(span),
        worker=piece.worker[reader],
        t_ns=time + piece.move[span],
        phase=_READ if channel == RETURNS else _BEGIN,
        span=reader,
        step=_LINKED if channel == LINKS else _CALLED,
        kind=str(EventKind.RECEIVE),
        activity=_message_type(channel),
        channel=channel,
        peer=piece.worker[sender],
        message_seq=piece.number[span] if number is None else number,
    )


def _message_type(channel: int) -> str:
    return str(ActivityType.DATA_MESSAGE if channel == LINKS else ActivityType.CONTROL_MESSAGE)


def _epoch_ends(piece: Stretch) -> pl.DataFrame:
    """Return the ends of epochs: 2k is request k, of which the root tells; other lanes are told an instant later."""
    layout, count = piece.layout, piece.count
    chosen = slice(piece.first, piece.first + count)
    number = piece.first + np.arange(1, count + 1)
    closing, begin, end = layout.worker[chosen], layout.begin[chosen], layout.end[chosen]
    root = piece.members[layout.spans[chosen] - layout.spans[piece.first]]
    kind = str(EventKind.EPOCH_END)
    begins = _rows(
        count, worker=closing, t_ns=begin, phase=_BEGIN, span=root, step=_MARK, kind=kind, ends=2 * number - 1
    )
    ends = _rows(count, worker=closing, t_ns=end, phase=_END, span=root, step=_MARKED, kind=kind, ends=2 * number)
    lanes = len(layout.lanes)
    epoch = np.tile(np.repeat(2 * number, 2) - np.tile([1, 0], count), lanes)
    time = np.tile(np.stack([begin, end], axis=1).reshape(-1) + 1, lanes)
    worker = np.repeat(np.arange(lanes), 2 * count)
    elsewhere = worker != np.tile(np.repeat(closing, 2), lanes)
    notices = _rows(
        int(elsewhere.sum()),
        worker=worker[elsewhere],
        t_ns=time[elsewhere],
        phase=_TOLD,
        kind=kind,
        ends=epoch[elsewhere],
    )
    return pl.concat([begins, ends, notices])
