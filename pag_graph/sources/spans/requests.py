"""Spans as requests: trees on one clock, lanes, who waited for whom, and the path of each (policy `pag`).

Definitions stand in `docs/spans.md`, "What is made of it".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pag_graph.errors import TraceFormatError
from pag_graph.kernels.span_paths import (
    CALL,
    INNER_END,
    INNER_START,
    MESSAGE,
    RETURN,
    Cuts,
    Parts,
    Spans,
    covered,
    waits,
    walk,
)
from pag_graph.kernels.span_trees import Places, Times, all_above, climb, fit, lay_out
from pag_graph.sources.spans import oddities
from pag_graph.sources.spans.agreement import evidence, recorded_columns, stated_threads
from pag_graph.sources.spans.clocks import shifts
from pag_graph.sources.spans.oddities import Odd
from pag_graph.sources.spans.parents import family
from pag_graph.sources.spans.table import CLIENT, CONSUMER, PRODUCER, SERVER

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.sources.spans.agreement import Agreed, Evidence
    from pag_graph.sources.spans.clocks import Columns
    from pag_graph.sources.spans.parents import Family
    from pag_graph.sources.spans.table import SpanTable

    I64 = NDArray[np.int64]
    Flags = NDArray[np.bool_]

NEVER: Final = -1
"""Of a span: it returned to nobody; nobody called it."""
_COARSE_NS = 1_000
"""How far children may reach out of their parents in formats whose times are microseconds."""


_MOST_NS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests and their spans, in order: requests by start, spans by start, the longest first.

    Columns with one element per span, and `first` and `orphan` with one per request. Times are nanoseconds since 1970.
    """

    table: SpanTable
    row: I64
    """Row of the table."""
    spans: Spans
    """Start and end on the root's clock; `parent` is an index; `called` is `start` where nobody called."""
    request: I64
    kind: I64
    process: I64
    operation: I64
    lane: I64
    """Within process and request."""
    nested: Flags
    """Whether it ran on its parent's lane."""
    returned: I64
    """When its return ended a wait of its parent; `NEVER` if it did not."""
    certain: Flags
    """Whether every return between it and the root is known to have been waited for."""
    depth: I64
    cuts: Cuts
    own: I64
    """Its time without waits and without what ran inside it."""
    waiting: Parts
    first: I64
    """Index of each request's root, and at last the count of spans."""
    orphan: Flags
    """Whether a request's root states a parent that is not there."""
    begins: I64
    """Where each request's path begins in `path`."""
    path: Parts
    links: tuple[I64, I64]
    odd: dict[str, Odd]
    """What is odd about these spans, by name."""
    findings: list[pa.Table]
    """All of that, and what is odd about files and clocks."""

    @property
    def count(self) -> int:
        """How many requests there are."""
        return len(self.orphan)

    @property
    def under_way(self) -> Flags:
        """Per part of the paths whether it is a call or return under way, and no span's own time."""
        is_message: Flags = self.path.kind == MESSAGE
        return is_message

    @property
    def path_owner(self) -> I64:
        """Per part of the paths the span that it counts for: the caller, while a call or return is under way."""
        return np.where(self.under_way, self.spans.parent[self.path.span], self.path.span)

    @property
    def latency(self) -> I64:
        """Per request the root's duration."""
        roots = self.first[:-1]
        return self.spans.end[roots] - self.spans.start[roots]


class Prepared(NamedTuple):
    """Spans of whole traces as far as they can be understood without others."""

    kin: Family
    recorded: Columns
    evidence: Evidence


def prepare(table: SpanTable) -> Prepared:
    """Find out whose child each span is, and what spans of whole traces say of clocks and threads."""
    kin = family(table)
    recorded = recorded_columns(table, kin)
    return Prepared(kin, recorded, evidence(table, kin, recorded))


def make_requests(table: SpanTable, prepared: Prepared, agreed: Agreed, *, sync: Collection[str] = ()) -> Requests:
    """Make requests of spans of whole traces.

    Parameters
    ----------
    table, prepared
        The spans.
    agreed
        What holds for these and for all others.
    sync
        Services, or ``service/operation``, that are known to wait for all that they call.

    Returns
    -------
    Requests
        With the path of each, and findings.

    Raises
    ------
    TraceFormatError
        If the spans last too long together.

    Notes
    -----
    Definitions stand in `docs/spans.md`. O(n log n).
    """
    kin, recorded, _ = prepared
    shift, uncertainty = shifts(table, recorded, agreed.clocks)
    fitting, sync_kind, outside = _fitted_spans(table, kin, recorded, uncertainty, shift)
    order, request, first = _in_order(kin, fitting)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    parent = np.where(kin.parent >= 0, place[kin.parent], -1)[order]
    _check_sums(fitting)
    start, end, kind = fitting.start[order], fitting.end[order], recorded.kind[order]
    process = recorded.process[order]
    thread = stated_threads(table, kin, recorded.process)[order]
    thread[np.isin(thread, agreed.mixed)] = -1
    times = Times(start, end)
    lane, nested = lay_out(times, Places(request, process, thread, parent))
    lanes = process * (int(lane.max(initial=0)) + 1) + lane
    bare = Spans(start, end, parent, start, lanes)
    called, returned, pair = _calls(bare, kind, nested, sync_kind[order])
    spans = Spans(start, end, parent, called, lanes)
    cuts = _cuts(spans, nested, returned)
    own_time, waiting = waits(spans, cuts)
    begins, path = walk(spans, cuts, first[:-1])
    operation = table.spans["operation"].to_numpy()[kin.row][order].astype(np.int64)
    # A span without a return is as certain as its parent: nobody is said to have waited for it.
    certain = _certain(table, parent, operation, nested | pair | (returned == NEVER), sync)
    odd = {**kin.odd, **outside, oddities.ROOTS: Odd(_traces_of_several(table, kin))}
    return Requests(
        table=table,
        row=kin.row[order],
        spans=spans,
        request=request,
        kind=kind,
        process=process,
        operation=operation,
        lane=lane,
        nested=nested,
        returned=returned,
        certain=certain,
        depth=kin.depth[order],
        cuts=cuts,
        own=own_time,
        waiting=waiting,
        first=first,
        orphan=kin.orphan[order][first[:-1]],
        begins=begins,
        path=path,
        links=(place[kin.links[0]], place[kin.links[1]]),
        odd=odd,
        findings=[*table.findings, *oddities.told(odd), *agreed.clocks.findings],
    )


def _check_sums(times: Times) -> None:
    if float((times.end - times.start).astype(np.float64).sum()) > _MOST_NS:
        message = "The spans last longer together than can be added up (146 years)."
        raise TraceFormatError(message, "Read them in parts.", {"spans": len(times.start)})


def _fitted_spans(
    table: SpanTable, kin: Family, recorded: Columns, uncertainty: I64, shift: I64
) -> tuple[Times, Flags, dict[str, Odd]]:
    """Return times on the root's clock, which spans are synchronous by their kind and times, and what is odd."""
    above = np.maximum(kin.parent, 0)
    tolerance = uncertainty + (_COARSE_NS if table.tick_ns >= _COARSE_NS else 0)
    queued = (recorded.kind[above] == PRODUCER) & (recorded.kind == CONSUMER)
    loose = kin.follows | queued | (kin.parent < 0)
    order = np.argsort(kin.depth, kind="stable")
    times, outside = fit(Times(recorded.start, recorded.end), kin.parent, order, shift, np.where(loose, -1, tolerance))
    far = (outside > tolerance) & ~loose
    is_near = (outside > 0) & ~far & ~loose
    odd = {
        name: Odd(int(chosen.sum()), int(outside[chosen].max()), int(tolerance[chosen].max()))
        for name, chosen in ((oddities.FAR, far), (oddities.NEAR, is_near))
        if chosen.any()
    }
    return times, ~loose & ~far, odd


def _in_order(kin: Family, times: Times) -> tuple[I64, I64, I64]:
    """Return the order of spans, the request of each, and where requests begin."""
    roots = kin.root
    order = np.lexsort((kin.rank, kin.depth, -times.end, times.start, kin.rank[roots], times.start[roots]))
    # A root stands first, though what was called in another way may have begun before it.
    changes = np.flatnonzero(np.diff(roots[order], prepend=-1))
    request = np.repeat(np.arange(len(changes)), np.diff(changes, append=len(order)))
    is_root = kin.parent[order] < 0
    order = order[np.lexsort((np.arange(len(order)), ~is_root, request))]
    return order, request, np.append(changes, len(order))


def _calls(spans: Spans, kind: I64, nested: Flags, sync: Flags) -> tuple[I64, I64, Flags]:
    """Return when each span was called, when its return ended a wait, and which are servers alone with a client."""
    parent, above = spans.parent, np.maximum(spans.parent, 0)
    has_parent = parent >= 0
    served = has_parent & sync & (kind == SERVER) & (kind[above] == CLIENT)
    servers = np.bincount(parent[served], minlength=len(parent))
    pair = served & (servers[above] == 1) & ~nested
    called = np.minimum(spans.start, spans.end[above])
    called = np.where(pair, spans.start[above], called)
    returned = np.where(pair, spans.end[above], spans.end)
    returned = np.where(has_parent & sync & ~nested & (spans.end > spans.start), returned, NEVER)
    # What runs inside the parent, on its lane, leaves it no time to call or to wait.
    inner = np.flatnonzero(nested)
    inner = inner[np.lexsort((inner, spans.start[inner], parent[inner]))]
    away = np.flatnonzero(has_parent & ~nested)
    over = covered(spans, inner, parent[away], called[away])
    busy = (over >= 0) & (spans.end[np.maximum(over, 0)] > called[away])
    called[away[busy]] = spans.start[over[busy]]
    waits_for = np.flatnonzero(returned != NEVER)
    over = covered(spans, inner, parent[waits_for], returned[waits_for])
    returned[waits_for[over >= 0]] = NEVER
    unknown = has_parent & ~nested & (called < spans.start[above])
    called[unknown | ~has_parent] = spans.start[unknown | ~has_parent]
    return called, returned, pair


def _cuts(spans: Spans, nested: Flags, returned: I64) -> Cuts:
    children = np.flatnonzero(spans.parent >= 0)
    inner, away = children[nested[children]], children[~nested[children]]
    back = np.flatnonzero(returned != NEVER)
    child = np.concatenate([away, back, inner, inner])
    time = np.concatenate([spans.called[away], returned[back], spans.start[inner], spans.end[inner]])
    counts = (len(away), len(back), len(inner), len(inner))
    kind = np.repeat(np.array([CALL, RETURN, INNER_START, INNER_END], np.int64), counts)
    parent = spans.parent[child]
    # Calls to what began before its parent, or while something else ran, may lie outside: they cut nothing.
    inside = (time >= spans.start[parent]) & (time <= spans.end[parent])
    order = np.flatnonzero(inside)
    order = order[np.lexsort((child[order], kind[order], time[order], parent[order]))]
    return Cuts(parent[order], time[order], kind[order], child[order])


def _certain(table: SpanTable, parent: I64, operation: I64, waited_for: Flags, sync: Collection[str]) -> Flags:
    """Say for which spans all returns up to the root are certain, given for which their own is, or is none."""
    names = table.operations
    stated = [code for code, (service, name) in enumerate(names) if service in sync or f"{service}/{name}" in sync]
    declared = np.isin(operation[np.maximum(parent, 0)], stated)
    order = np.argsort(climb(parent, np.arange(len(parent)))[2], kind="stable")
    return all_above(parent, order, (parent < 0) | waited_for | declared)


def _traces_of_several(table: SpanTable, kin: Family) -> int:
    """Count the traces that are several requests."""
    roots = np.flatnonzero((kin.parent < 0) & ~kin.orphan)
    traces = table.spans["trace"].to_numpy()[kin.row[roots]]
    return int((np.bincount(traces, minlength=1) > 1).sum())
