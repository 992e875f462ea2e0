"""How long a window would be if ports handed work to threads of their own, or if there were more workers.

Definition: `docs/model.md`, section "Advice". The constraint graph of the window is replayed with what the old threads
keep; beside it each new thread is a chain of what it takes over, in the order of the recording.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.analyses.advising.completions import completions
from pag_graph.analyses.advising.sharing import even_share, lives_of, operators_on_one_worker
from pag_graph.kernels.replay import NEVER, Arcs, earliest, group_arcs
from pag_graph.model.enums import COUNTED_TYPES, ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.ranks import nearest_rank

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.analyses.advising.completions import Completions
    from pag_graph.analyses.advising.handed_over import Moved
    from pag_graph.analyses.advising.sharing import Lives, OnOneWorker
    from pag_graph.analyses.advising.thread_work import ThreadWork
    from pag_graph.analyses.constraints import ConstraintGraph
    from pag_graph.graph.snapshot import Snapshot

    I64 = NDArray[np.int64]
    F64 = NDArray[np.float64]

ASSUMED_NS = 50_000
"""The longest hand-over that is reckoned with where a recording has no message between threads: a thread that sleeps
is woken up in less."""

OCCUPIED_NS = 20_000
"""The most that a hand-over keeps a thread from its work: 11 to 18 us were measured (`docs/advice.md`)."""

OWNING_NS = 1_000
"""The most that is reckoned with for every record that has memory of its own, where nobody says what handing it over
costs: memory that one thread asks for and another one gives back comes from the system again and again. With 4 KiB a
record 1.1 to 2.2 us were measured, with 512 bytes nothing that could be seen (`docs/advice.md`)."""


_FARTHEST_NS = 2**60
"""More than all hand-overs of a window take; waits, and what threads lose, fit into an int64 beside each other."""


class Transfer(NamedTuple):
    """What a hand-over to another thread takes, at least and at most: nanoseconds, and more for every record."""

    low_ns: float
    high_ns: float
    low_record_ns: float = 0.0
    high_record_ns: float = 0.0


class Bound(NamedTuple):
    """Lengths of a window with ports: at least, probably and at most; and if hand-overs took no time."""

    low_ns: int
    predicted_ns: int
    high_ns: int
    instant_ns: int
    """As predicted, but for the hand-overs."""
    moved_ns: int
    """Work that changed its thread."""
    by_cores: bool
    """Whether there are too few cores for less than `predicted_ns`."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A window that can be replayed with ports."""

    graph: ConstraintGraph
    counted: NDArray[np.bool_]
    """Per row: whether it is work that can be handed over."""
    completed: Completions
    wake_up_ns: int
    """The 95th percentile of what it took to wake a thread up in the run."""
    remote: pl.DataFrame
    """The slowest message between workers by size: ``size`` (power of two of its records) and ``slowest_ns``."""
    work_ns: int
    """All counted time in the window."""
    lives: Lives
    """Of the threads that are there in the window."""
    cores: int | None

    @property
    def transfer_assumed(self) -> bool:
        """Whether the recording has no message between workers from which to tell what a hand-over takes."""
        return self.remote.height == 0

    def with_ports(self, moved: Moved, transfer: Transfer | None) -> Bound:
        """Replay the window with ports.

        Parameters
        ----------
        moved
            What is handed over.
        transfer
            What a hand-over takes; from nothing to the slowest message of like size that the recording has where
            absent.

        Returns
        -------
        Bound
            With ``low_ns <= predicted_ns <= high_ns``. O(vertices + edges).
        """
        graph = self.graph
        share = np.where(self.counted, moved.share, 0.0)
        taken_ns = np.rint(graph.duration * share).astype(np.int64)
        weight = graph.weights(graph.duration - taken_ns)
        chains = _chains(graph, moved, taken_ns)
        least_ns = int(np.bincount(chains.thread, chains.work, 1).max()) if len(chains.work) else 0
        by_cores = -(-self.work_ns // self.cores) if self.cores else 0
        shortest = max(least_ns, by_cores)
        low = max(shortest, int(graph.replay(weight)[graph.end]) - graph.window.start_ns)
        if not len(chains.work):
            return Bound(low, low, low, low, 0, by_cores > 0 and low == by_cores)
        # However much it is, what all hand-overs cost together is a number of nanoseconds that an int64 holds.
        most_ns = _FARTHEST_NS // (len(chains.work) + 1)
        least_wait, longest_wait = (np.minimum(wait, most_ns) for wait in self._transfers(chains, transfer))
        wider = _Wider(graph, chains, self.completed)
        middle = np.rint((least_wait + longest_wait) / 2).astype(np.int64)
        late_ns = np.rint(longest_wait).astype(np.int64) + self.wake_up_ns
        occupied = np.where(chains.handed, np.minimum(np.rint(longest_wait), OCCUPIED_NS), 0).astype(np.int64)
        nothing = np.zeros_like(middle)
        owned_ns = np.minimum(chains.records, most_ns // OWNING_NS) * OWNING_NS * chains.handed
        memory = owned_ns if moved.owning and transfer is None else nothing
        instant, predicted, high = (
            max(shortest, wider.replayed(weight, costs))
            for costs in (
                _Costs(nothing, nothing, nothing, at_ends=False),
                _Costs(middle, occupied // 2, nothing, at_ends=False),
                _Costs(late_ns, occupied, occupied + memory, at_ends=True),
            )
        )
        return Bound(low, predicted, high, instant, int(taken_ns.sum()), by_cores > 0 and predicted == by_cores)

    def with_workers(self, more: int) -> Bound:
        """Replay the window of a dataflow with more workers, which all run everything.

        Parameters
        ----------
        more
            How many there are besides those of the recording.

        Returns
        -------
        Bound
            At least: the work of each worker gets less by as much as there are more workers, or by more where it has
            more than its share. Probably: operators get less by as much everywhere, so that skew stays, but for those
            that one worker alone runs while another one is there. At most: as it was, for one key may have all the
            work. A worker counts as the part of the longest life for which it is there, and its share is never more
            than its life; one of which nothing is recorded counts as none. O(vertices + edges).
        """
        graph, base = self.graph, self.graph.base
        work, worker = self._work, base.number("src") >> POSITION_BITS
        work_of_worker = np.bincount(worker, work, 1)
        even_ns = even_share(work_of_worker.sum(), self.lives, more)
        kept_share = self.lives.all_ns / (self.lives.all_ns + more * self.lives.longest_ns)
        shares = np.minimum(
            kept_share, np.divide(even_ns, work_of_worker, out=np.ones_like(work_of_worker), where=work_of_worker > 0)
        )
        by_cores = -(-self.work_ns // self.cores) if self.cores else 0
        operator = base.number("operator")
        divided = (operator >= 0) & ~np.isin(operator, self._operators.alone)

        def replayed(share: F64) -> int:
            duration_left = graph.duration - np.rint(work * (1 - share)).astype(np.int64)
            return int(graph.replay(graph.weights(duration_left))[graph.end]) - graph.window.start_ns

        low = max(by_cores, math.ceil(even_ns), replayed(shares[worker]))
        predicted = max(low, replayed(np.where(divided, kept_share, 1.0)))
        high = max(predicted, graph.window.span_ns)
        moved = round(float(work_of_worker.sum()) * (1 - kept_share))
        return Bound(low, predicted, high, predicted, moved, by_cores > 0 and predicted == by_cores)

    @property
    def division_assumed(self) -> bool:
        """Whether an operator ran on one worker, and only while no other was there: it may be divisible or not."""
        return len(self._operators.unwitnessed) > 0

    @cached_property
    def _work(self) -> I64:
        """Per row: nanoseconds of it that more workers may divide."""
        return np.where(self.counted, self.graph.duration, 0)

    @cached_property
    def _operators(self) -> OnOneWorker:
        return operators_on_one_worker(self.graph.base, self._work, self.lives)

    def _transfers(self, chains: _Chains, transfer: Transfer | None) -> tuple[F64, F64]:
        """Return per hand-over what it takes at least and at most."""
        if transfer is not None:
            records = chains.records.astype(np.float64)
            least_ns = np.asarray(transfer.low_ns + transfer.low_record_ns * records, dtype=np.float64)
            return least_ns, np.asarray(transfer.high_ns + transfer.high_record_ns * records, dtype=np.float64)
        nothing = np.zeros(len(chains.records))
        if self.transfer_assumed:
            return nothing, np.full(len(chains.records), float(ASSUMED_NS))
        slowest_by_size = dict(self.remote.iter_rows())
        longest = max(slowest_by_size.values())
        high = [slowest_by_size.get(size, longest) for size in _sizes(chains.records).tolist()]
        return nothing, np.array(high, np.float64)


def port_replay(snapshot: Snapshot, graph: ConstraintGraph, work: ThreadWork, cores: int | None) -> Replay:
    """Prepare the replay of a window.

    Parameters
    ----------
    snapshot, graph, work
        One window.
    cores
        Cores that all threads share; not a limit where absent.
    """
    base = graph.base
    data = base.is_type(ActivityType.DATA_MESSAGE) & graph.elements
    messages = pl.DataFrame({"size": _sizes(base.number("records")[data]), "slowest_ns": graph.duration[data]})
    wake_ups = snapshot.run.scan("edges").filter(pl.col("type") == str(ActivityType.WAKE_UP))
    woken = wake_ups.select("duration_ns").collect()["duration_ns"].to_numpy()
    return Replay(
        graph=graph,
        counted=graph.movable & base.is_type(*COUNTED_TYPES),
        completed=completions(snapshot, graph),
        wake_up_ns=nearest_rank(woken, 0.95) or 0,
        remote=messages.group_by("size").max().sort("size"),
        work_ns=sum(work.counted.values()),
        lives=lives_of(snapshot, work),
        cores=cores,
    )


def _sizes(records: I64) -> I64:
    """Return sizes that are alike as one number."""
    return np.frexp(np.maximum(records, 0).astype(np.float64))[1].astype(np.int64)


class _Costs(NamedTuple):
    """What a replay takes hand-overs to cost, per occurrence."""

    wait: I64
    """From one thread to the other, and back where an epoch is complete."""
    giving: I64
    """Time that the old thread loses."""
    taking: I64
    """Time that the new thread loses."""
    at_ends: bool
    """Whether messages leave only at the end of what sends them."""


class _Chains(NamedTuple):
    """What is handed over: one element per occurrence, in the order in which they began."""

    begin: I64
    """Vertex at which it began on the old thread."""
    arc: I64
    """The arc with which it begins there."""
    thread: I64
    worker: I64
    """The old thread."""
    work: I64
    """Nanoseconds that change their thread."""
    records: I64
    handed: NDArray[np.bool_]
    """Whether it is handed over itself; else it follows from what is, on the new thread."""
    epoch: I64
    inside: I64
    """Vertices inside of occurrences, but for their first, ascending."""
    inside_of: I64
    """The same: the occurrence."""
    work_before: I64
    """The same: work of the occurrence up to there."""
    outer: I64
    """Per occurrence: the one of another port that it lies in, or -1."""
    outer_done: I64
    """The same: work of that one up to there."""


def _chains(graph: ConstraintGraph, moved: Moved, taken_ns: I64) -> _Chains:
    base = graph.base
    arc = np.flatnonzero((graph.edge >= 0) & (moved.occurrence[graph.edge] >= 0) & base.is_local[graph.edge])
    row = graph.edge[arc]
    src, dst, worker = graph.src[arc], graph.dst[arc], base.number("src")[row] >> POSITION_BITS
    order = np.lexsort((dst, src, worker))
    arc, row, src, dst, worker = arc[order], row[order], src[order], dst[order], worker[order]
    names, first, occurrence = np.unique(moved.occurrence[row], return_index=True, return_inverse=True)
    by_begin = np.lexsort((worker[first], src[first]))
    rank = np.empty(len(names), np.int64)
    rank[by_begin] = np.arange(len(names))
    occurrence, first_row = rank[occurrence], first[by_begin]
    work, records = np.zeros((2, len(names)), np.int64)
    np.add.at(work, occurrence, taken_ns[row])
    np.add.at(records, occurrence, np.maximum(base.number("records")[row], 0))
    # Rows of an occurrence are in time order, with those of others in between at most.
    grouped = np.argsort(occurrence, kind="stable")
    so_far = np.cumsum(taken_ns[row][grouped])
    before = np.append(0, np.cumsum(work)[:-1])
    done_ns = np.empty(len(row), np.int64)
    done_ns[grouped] = so_far - before[occurrence[grouped]]
    inside = np.argsort(dst, kind="stable")
    begin = src[first_row]
    chains = _Chains(
        begin=begin,
        arc=arc[first_row],
        thread=moved.thread[row][first_row],
        worker=worker[first_row],
        work=work,
        records=records,
        handed=moved.handed[row][first_row],
        epoch=base.number("epoch")[row][first_row],
        inside=dst[inside],
        inside_of=occurrence[inside],
        work_before=done_ns[inside],
        outer=np.full(len(names), -1),
        outer_done=np.zeros(len(names), np.int64),
    )
    outer_name, first_of = moved.outer[row][first_row], np.searchsorted(names, moved.outer[row][first_row])
    nested = np.flatnonzero((outer_name >= 0) & (names[np.minimum(first_of, len(names) - 1)] == outer_name))
    if not len(nested):
        return chains
    outer = rank[first_of[nested]]
    # Work of the outer one up to the last of its own vertices before the inner one begins.
    keys = occurrence * len(graph.ids) + dst
    by_key = np.argsort(keys)
    place = np.searchsorted(keys[by_key], outer * len(graph.ids) + begin[nested], side="right") - 1
    is_inside = (place >= 0) & (occurrence[by_key[place]] == outer)
    chains.outer[nested] = outer
    chains.outer_done[nested] = np.where(is_inside, done_ns[by_key[place]], 0)
    return chains


class _Wider:
    """A constraint graph with two more vertices for each occurrence: where its new thread begins it, and ends it."""

    def __init__(self, graph: ConstraintGraph, chains: _Chains, completed: Completions) -> None:
        self.graph, self.chains = graph, chains
        count = len(chains.work)
        vertices = np.arange(len(graph.ids))
        # Right behind the vertex where it began on its old thread: so all arcs lead forward.
        self.number = vertices + 2 * np.searchsorted(chains.begin, vertices, side="left")
        self.begins = chains.begin + 1 + 2 * np.arange(count)
        self.finishes = self.begins + 1
        previous, following = self._neighbours()
        sent, occurrence = self._sent()
        done_ns = chains.work_before[np.searchsorted(chains.inside, graph.src[sent])]
        closing_vertices, last = self._closes(completed)
        nested = np.flatnonzero(chains.outer >= 0)
        number, begins, finishes = self.number, self.begins, self.finishes
        self.sent, self.work_before, self.last = sent, done_ns, last
        self.parts = {
            "old": (number[graph.src], number[graph.dst]),
            "hand_over": (number[chains.begin], begins),
            "nested": (begins[chains.outer[nested]], begins[nested]),
            "work": (begins, finishes),
            "chain": (finishes[previous], begins[following]),
            "sent": (begins[occurrence], number[graph.dst[sent]]),
            "sent_late": (finishes[occurrence], number[graph.dst[sent]]),
            "completed": (finishes[last], number[closing_vertices]),
        }
        self.nested = nested
        dst = np.concatenate([part[1] for part in self.parts.values()])
        src = np.concatenate([part[0] for part in self.parts.values()])
        self.first, self.position = group_arcs(dst, len(graph.ids) + 2 * count)
        self.src = src[self.position]
        # Where nothing says that an epoch is complete, a window is over when all is done.
        self.all_done = not len(completed.vertex)

    def _neighbours(self) -> tuple[I64, I64]:
        """Return occurrences that follow each other on a thread."""
        order = np.argsort(self.chains.thread, kind="stable")
        same_thread = np.diff(self.chains.thread[order]) == 0
        return order[:-1][same_thread], order[1:][same_thread]

    def _sent(self) -> tuple[I64, I64]:
        """Return arcs of messages that were sent inside of occurrences, and which these are."""
        graph, chains = self.graph, self.chains
        message = np.flatnonzero((graph.edge >= 0) & ~graph.base.is_local[graph.edge])
        place = np.searchsorted(chains.inside, graph.src[message])
        place = np.minimum(place, len(chains.inside) - 1)
        is_inside = chains.inside[place] == graph.src[message]
        return message[is_inside], chains.inside_of[place[is_inside]]

    def _closes(self, completed: Completions) -> tuple[I64, I64]:
        """Return the vertices that complete epochs, and per thread the last occurrence that they wait for."""
        chains = self.chains
        told_ns = completed.told(chains.worker, self.graph.t[chains.begin])
        closing_vertices: list[int] = []
        last: list[int] = []
        columns = (completed.vertex, completed.epoch, completed.worker, completed.t_ns, completed.own_ns)
        ends = list(zip(*(column.tolist() for column in columns), strict=True))
        for thread in np.unique(chains.thread):
            chain = np.flatnonzero(chains.thread == thread)
            before = np.searchsorted(chains.begin[chain], completed.vertex, side="left") - 1
            of_chain = (chains.epoch[chain], chains.worker[chain], told_ns[chain])
            epochs, workers, told_of_chain = (column.tolist() for column in of_chain)
            for (vertex, epoch, worker, t_ns, own_ns), place in zip(ends, before.tolist(), strict=True):
                latest = place
                while latest >= 0 and (
                    epochs[latest] > epoch or told_of_chain[latest] > (own_ns if workers[latest] == worker else t_ns)
                ):
                    latest -= 1
                if latest >= 0:
                    closing_vertices.append(vertex)
                    last.append(int(chain[latest]))
        return np.array(closing_vertices, np.int64), np.array(last, np.int64)

    def replayed(self, weight: I64, costs: _Costs) -> int:
        """Return the window's length.

        Parameters
        ----------
        weight
            Per arc of the graph.
        costs
            What hand-overs take.
        """
        chains, parts = self.chains, self.parts
        sent = weight[self.sent]
        weight_before = weight.copy()
        np.add.at(weight_before, chains.arc, costs.giving)
        weights = {
            "old": weight_before,
            "hand_over": costs.wait,
            "nested": chains.outer_done[self.nested] + costs.wait[self.nested],
            "work": chains.work + costs.taking,
            "chain": np.zeros(len(parts["chain"][0]), np.int64),
            "sent": self.work_before + sent,
            "sent_late": sent if costs.at_ends else np.full(len(sent), NEVER),
            "completed": costs.wait[self.last],
        }
        start = self.graph.window.start_ns
        arcs = Arcs(self.first, self.src, np.concatenate([weights[name] for name in parts])[self.position])
        time = earliest(arcs, start)
        end = int(time[self.number[self.graph.end]])
        return (max(end, int(time[self.finishes].max())) if self.all_done else end) - start
