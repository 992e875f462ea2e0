"""Requests laid end to end: lanes as workers, and when each request begins and ends (`docs/spans.md`)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.errors import InvalidParameterError, TraceFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.spans.requests import Requests

    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]

GAP_NS: Final = 1_000
"""Between two requests, and before the first."""
_MOST_NS = 1 << 61
_MOST_ROWS: Final = 2_000_000


class Measures(NamedTuple):
    """What requests are laid end to end by."""

    requests: pl.DataFrame
    """One row per request: real times `low` and `high` of all its spans, `begin` and `end` of its root, `process` and
    `lane` of it, `size` in spans, and `digest` of what they are."""
    stays: pl.DataFrame
    """One row per (request, lane): `request` (its row), `process`, `lane`, real `end` of the last span there that lies
    in no other one, and of the first whether it is `called` from another lane, and `below` another span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Chosen requests, end to end; times from the origin, `GAP_NS` before the first begins.

    One element per request, but for lanes and stays.
    """

    move: I64
    """What is added to its real times."""
    begin: I64
    """When its root starts."""
    end: I64
    """When its root ends."""
    worker: I64
    """Its root's."""
    spans: I64
    """How many spans those before it have, and at last how many all have."""
    lanes: list[tuple[int, int]]
    """Per worker: process, and lane within it; ascending."""
    stays: pl.DataFrame
    """One row per (worker, request) with spans there, in this order: `worker`, `request`, `called` and `below` of the
    first of them, and `end` of the last."""
    over: int
    """When the run ends."""
    origin: int
    """Unix time of the origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Requests of a layout that follow each other, and their spans; one element per span of all `requests`."""

    requests: Requests
    """These, and others."""
    layout: Layout
    first: int
    """The first one's place in the layout."""
    count: int
    """How many there are."""
    members: I64
    """Indexes of their spans, in order."""
    number: I64
    """The span's place among all that are laid out; -1 for spans of other requests."""
    worker: I64
    """Of its lane; -1 for spans of other requests."""
    move: I64
    """What is added to its times."""


def measure(requests: Requests, chosen: I64) -> Measures:
    """Return what some requests are laid end to end by.

    Parameters
    ----------
    requests
        These, and others.
    chosen
        Indexes of requests, in the order in which they are laid out.
    """
    spans, roots = requests.spans, requests.first[chosen]
    members, number = _members(requests, chosen)
    starts = np.append(0, np.cumsum(requests.first[chosen + 1] - roots))[:-1]
    rows = pl.DataFrame(
        {
            "low": np.minimum.reduceat(spans.start[members], starts),
            "high": np.maximum.reduceat(spans.end[members], starts),
            "begin": spans.start[roots],
            "end": spans.end[roots],
            "process": requests.process[roots],
            "lane": requests.lane[roots],
            "size": requests.first[chosen + 1] - roots,
            "digest": _digests(requests, members, starts),
        }
    )
    outer = ~requests.nested[members]
    span, request = members[outer], number[outer]
    order = np.lexsort((span, spans.start[span], spans.lane[span], request))
    span, request = span[order], request[order]
    begins = np.flatnonzero((np.diff(request, prepend=-1) != 0) | (np.diff(spans.lane[span], prepend=-1) != 0))
    ends = np.append(begins[1:], len(span)) - 1
    first_spans = span[begins]
    stays = {
        "request": request[begins],
        "process": requests.process[first_spans],
        "lane": requests.lane[first_spans],
        "end": spans.end[span[ends]],
        "called": sender_is_elsewhere(requests, first_spans),
        "below": spans.parent[first_spans] >= 0,
    }
    return Measures(rows, pl.DataFrame(stays))


def lay_end_to_end(measures: Sequence[Measures]) -> Layout:
    """Give requests workers and times.

    Parameters
    ----------
    measures
        Of requests that follow each other.

    Raises
    ------
    TraceFormatError
        If they last too long together.
    InvalidParameterError
        If lanes times epochs are more than two million.
    """
    rows = pl.concat([part_measures.requests for part_measures in measures])
    before = np.cumsum([0, *(part_measures.requests.height for part_measures in measures)]).tolist()
    stays = pl.concat(
        [
            part_measures.stays.with_columns(pl.col("request") + first_number)
            for part_measures, first_number in zip(measures, before, strict=False)
        ]
    )
    low, length = rows["low"].to_numpy(), (rows["high"] - rows["low"]).to_numpy()
    if float(length.astype(np.float64).sum()) > _MOST_NS:
        message = "The requests last longer together than a trace can (146 years): children far outlive their parents."
        raise TraceFormatError(message, "Choose some: pag spans TRACES --out DIR --slowest N.", {"requests": len(low)})
    base = np.cumsum(length + GAP_NS) - length
    lanes = stays.select("process", "lane").unique().sort("process", "lane").with_row_index("worker")
    check_size(rows.height, lanes.height)
    move = base - low
    lane_key = ["process", "lane"]
    by_worker = stays.join(lanes, on=lane_key).with_columns(pl.col("end") + pl.lit(pl.Series(move)).gather("request"))
    return Layout(
        move=move,
        begin=rows["begin"].to_numpy() + move,
        end=rows["end"].to_numpy() + move,
        worker=rows.join(lanes, on=lane_key, maintain_order="left")["worker"].to_numpy().astype(np.int64),
        spans=np.append(0, np.cumsum(rows["size"].to_numpy())),
        lanes=lanes.select("process", "lane").rows(),
        stays=by_worker.select("worker", "request", "called", "below", "end").sort("worker", "request"),
        over=int(base[-1] + length[-1]),
        origin=int(low[0]) - GAP_NS,
    )


def stretch(requests: Requests, layout: Layout, chosen: I64, first: int) -> Stretch:
    """Return requests that follow each other in a layout, with the workers and times of their spans.

    Parameters
    ----------
    requests
        These, and others.
    layout
        Of these, and others.
    chosen
        Indexes of requests, in the order of the layout.
    first
        The place of the first one in the layout.
    """
    members, request = _members(requests, chosen)
    number, worker = (np.full(len(requests.row), -1, np.int64) for _ in range(2))
    move = np.zeros(len(requests.row), np.int64)
    number[members] = layout.spans[first] + np.arange(len(members))
    move[members] = layout.move[first:][request]
    lanes = np.array(layout.lanes, np.int64)
    wide = int(lanes[:, 1].max()) + 1
    worker[members] = np.searchsorted(lanes @ [wide, 1], requests.process[members] * wide + requests.lane[members])
    return Stretch(
        requests=requests,
        layout=layout,
        first=first,
        count=len(chosen),
        members=members,
        number=number,
        worker=worker,
        move=move,
    )


def sender_is_elsewhere(requests: Requests, span: I64) -> Flags:
    """Tell of spans whether each was called from another lane, by a span that had begun.

    Parameters
    ----------
    requests
        All spans.
    span
        Numbers of those in question.

    Returns
    -------
    array of bool
        One element per number; false for roots.
    """
    spans = requests.spans
    parent = np.maximum(spans.parent[span], 0)
    had_begun = spans.start[parent] <= spans.called[span]
    elsewhere: Flags = (spans.parent[span] >= 0) & had_begun & (spans.lane[parent] != spans.lane[span])
    return elsewhere


def check_size(requests: int, lanes: int) -> None:
    """Refuse requests that are too many for one trace.

    Parameters
    ----------
    requests
        How many; each makes two epochs, one between it and the request before.
    lanes
        On how many lanes their spans lie together.

    Raises
    ------
    InvalidParameterError
        If lanes times epochs are more than two million.
    """
    if lanes * 2 * requests > _MOST_ROWS:
        message = f"{requests:,} requests on {lanes:,} lanes are too many for one trace."
        hint = "Choose some: pag spans TRACES --out DIR with --slowest N or --request ID."
        raise InvalidParameterError(message, hint, {"requests": requests, "lanes": lanes})


def _members(requests: Requests, chosen: I64) -> tuple[I64, I64]:
    """Return the spans of requests, one request after the other, and the place of each one's request."""
    begins, sizes = requests.first[chosen], requests.first[chosen + 1] - requests.first[chosen]
    number = np.repeat(np.arange(len(chosen)), sizes)
    return np.arange(len(number)) + (begins - np.cumsum(sizes) + sizes)[number], number


def _digests(requests: Requests, members: I64, starts: I64) -> list[bytes]:
    """Return a digest of ids and real times of each request's spans."""
    spans = requests.table.spans[requests.row[members]]
    times = spans.select("start", "end").to_numpy(order="c")
    ids = spans["id"].to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_binary())
    _, offsets, text = ids.buffers()
    ends = np.frombuffer(offsets, np.int64)[ids.offset :]
    digests = []
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(members)], strict=True):
        digest = hashlib.blake2b(times[low:high].tobytes(), digest_size=16)
        digest.update((ends[low : high + 1] - ends[low]).tobytes())
        digest.update(memoryview(text)[ends[low] : ends[high]])
        digests.append(digest.digest())
    return digests
