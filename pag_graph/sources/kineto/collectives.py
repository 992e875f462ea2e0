"""Collectives: which kernels of which ranks are one, who came last, and what that says about clocks.

Definitions stand in `docs/torch.md`, "The mapping".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pag_graph.model.enums import ActivityType
from pag_graph.sources.kineto import operators as classes
from pag_graph.sources.kineto.host_collectives import group_of, host_rows
from pag_graph.sources.kineto.rank_log import KERNEL, OP, number
from pag_graph.sources.kineto.spans import COLLECTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.kineto.operators import Operators
    from pag_graph.sources.kineto.rank_log import RankLog
    from pag_graph.sources.kineto.spans import Spans

    I64 = NDArray[np.int64]

__all__ = ["Collective", "Joined", "Joins", "Part", "estimate_clocks", "join_collectives"]

_ONE_SIDED: Final = ("broadcast", "reduce", "gather", "scatter")
"""Of these a rank may leave before others come. `allreduce`, `reduce_scatter` and the like begin otherwise."""
_POINT_TO_POINT: Final = ("send", "recv")
_PAIR: Final = "send/recv"
"""What both are called: they are one collective of two ranks."""
_LEAST_UNCERTAINTY_NS: Final = 1_000
_ELEMENT_BYTES: Final = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "float16", "int16", "uint16"), 2),
    **dict.fromkeys(("int", "float", "float32", "int32", "uint32"), 4),
    **dict.fromkeys(("long", "double", "complexfloat", "float64", "int64", "uint64"), 8),
    "complexdouble": 16,
}
"""Of types of PyTorch and of NCCL."""


class Part(NamedTuple):
    """A rank's kernel of a collective; `row` is of its log, times are nanoseconds."""

    rank: int
    row: int
    begin: int
    end: int
    given: int = -1
    """Bytes that the rank gives; -1 where the trace does not say."""
    gotten: int = -1
    """Bytes that it gets."""


@dataclass(slots=True)
class Collective:
    """Kernels of several ranks that are one collective."""

    name: str
    key: tuple[Any, ...]
    parts: list[Part]
    """By rank."""
    inferred: bool
    """Whether it was joined by order and size, for want of a number."""
    on_host: bool = False
    """Whether threads carried it out, which leave it as they get to run, and no device."""
    _last: Part | None = field(default=None, init=False, repr=False, compare=False)
    """Of all the one that came last, once somebody has asked."""

    @property
    def everybody_waits(self) -> bool:
        """Whether nobody leaves before all have come."""
        return not _is_one_sided(self.name)

    def last_before(self, part: Part) -> Part:
        """Return the part that came last of those that a rank may have waited for; of several the lowest rank's.

        Parameters
        ----------
        part
            The rank's own. Where not everybody waits, only parts that had come before its end count.
        """
        if not self.everybody_waits:
            return _last_of([candidate for candidate in self.parts if candidate.begin < part.end])
        if self._last is None:
            self._last = _last_of(self.parts)
        return self._last


def _last_of(parts: Sequence[Part]) -> Part:
    return max(parts, key=lambda part: (part.begin, -part.rank))


@dataclass(slots=True)
class Joins:
    """What was found of collectives."""

    collectives: list[Collective] = field(default_factory=list)
    without_group: Counter[int] = field(default_factory=Counter)
    """Kernels that name no group, by rank."""
    unjoined: Counter[int] = field(default_factory=Counter)
    """Kernels whose counterpart another rank's trace lacks, by rank."""
    missing: dict[int, int] = field(default_factory=dict)
    """Collectives of ranks without a trace, by the missing rank."""


class _Kernel(NamedTuple):
    rank: int
    row: int
    begin: int
    end: int
    name: str
    group: str
    ranks: tuple[int, ...]
    seq: int
    size: int
    step: int
    on_host: bool = False
    given: int = -1
    gotten: int = -1


def _is_one_sided(name: str) -> bool:
    return name.lower().lstrip("_").startswith((*_ONE_SIDED, *_POINT_TO_POINT)) and "reduce_scatter" not in name.lower()


def join_collectives(logs: Mapping[int, RankLog], steps: Mapping[int, Sequence[tuple[int, int]]]) -> Joins:
    """Join the kernels of all ranks.

    Parameters
    ----------
    logs
        Per rank.
    steps
        Per rank: number and start of each step, by start.

    Returns
    -------
    Joins
        Clocks play no part: O(kernels log kernels).
    """
    joins = Joins()
    lacking: Counter[tuple[int, ...]] = Counter()
    numbered: dict[tuple[Any, ...], dict[int, _Kernel]] = defaultdict(dict)
    unnumbered: dict[tuple[Any, ...], dict[int, list[_Kernel]]] = defaultdict(lambda: defaultdict(list))
    for rank, log in logs.items():
        starts = np.array([start for _, start in steps.get(rank, ())], np.int64)
        for kernel in (*_kernels(rank, log, starts, joins), *_of_threads(rank, log, starts, joins)):
            if len(kernel.ranks) < 2:  # noqa: PLR2004 a group of one waits for nobody
                continue
            if kernel.seq >= 0:
                # Messages between two ranks have numbers of their own.
                key = (kernel.group, kernel.ranks, kernel.name == _PAIR, kernel.seq)
                # Further kernels of one number go on with the same collective.
                numbered[key].setdefault(rank, kernel)
            else:
                unnumbered[kernel.group, kernel.ranks, kernel.name, kernel.step][rank].append(kernel)
    for key, kernels in numbered.items():
        _join(joins, logs, lacking, key, kernels, inferred=False)
    for key, lists in unnumbered.items():
        sizes = {tuple(kernel.size for kernel in kernels) for kernels in lists.values()}
        agreed = len(sizes) == 1
        longest = max(len(kernels) for kernels in lists.values())
        for place in range(longest):
            kernels = {rank: of_rank[place] for rank, of_rank in lists.items() if place < len(of_rank)}
            if agreed:
                _join(joins, logs, lacking, (*key, place), kernels, inferred=True)
            else:
                joins.unjoined.update(kernels.keys())
    for ranks, count in lacking.items():
        for rank in ranks:
            if rank not in logs:
                joins.missing[rank] = joins.missing.get(rank, 0) + count
    joins.collectives.sort(key=lambda collective: collective.parts[0].begin)
    return joins


def _join(
    joins: Joins,
    logs: Mapping[int, RankLog],
    lacking: Counter[tuple[int, ...]],
    key: tuple[Any, ...],
    kernels: Mapping[int, _Kernel],
    *,
    inferred: bool,
) -> None:
    """Join the kernels of one collective, or count what keeps them from being joined."""
    example = next(iter(kernels.values()))
    if any(rank not in logs for rank in example.ranks):
        lacking[example.ranks] += 1
        return
    if len(kernels) < len(example.ranks):
        joins.unjoined.update(kernels.keys())
        return
    parts = [
        Part(kernel.rank, kernel.row, kernel.begin, kernel.end, kernel.given, kernel.gotten)
        for _, kernel in sorted(kernels.items())
    ]
    joins.collectives.append(Collective(example.name, key, parts, inferred, example.on_host))


def _kernels(rank: int, log: RankLog, starts: I64, joins: Joins) -> list[_Kernel]:
    """Return the kernels of collectives of one rank, in the order of time."""
    by_id = {
        number(detail.get("External id")): detail
        for row, detail in log.details.items()
        if log.kind[row] == OP and "External id" in detail
    }
    kernels = []
    for row, detail in log.details.items():
        if log.kind[row] != KERNEL:
            continue
        facts = (
            detail if "Collective name" in detail else {**by_id.get(number(detail.get("External id")), {}), **detail}
        )
        name = facts.get("Collective name")
        group = facts.get("Process Group Name")
        if not isinstance(name, str):
            continue
        ranks = _ranks_of(facts, log, rank, name.lower())
        if group is None or not ranks:
            joins.without_group[rank] += 1
            continue
        begin = int(log.t[row])
        element = _element_bytes(facts.get("dtype"))
        elements_in, elements_out = (number(facts.get(f"{direction} msg nelems")) for direction in ("In", "Out"))
        kernels.append(
            _Kernel(
                rank=rank,
                row=row,
                begin=begin,
                end=int(log.end[row]),
                name=_PAIR if name.lower() in _POINT_TO_POINT else name,
                group=str(group),
                ranks=ranks,
                seq=number(facts.get("Seq")),
                size=elements_in,
                step=int(np.searchsorted(starts, begin, side="right")),
                given=elements_in * element if elements_in >= 0 < element else -1,
                gotten=elements_out * element if elements_out >= 0 < element else -1,
            )
        )
    return sorted(kernels, key=lambda kernel: kernel.begin)


def _element_bytes(kind: Any) -> int:
    """Return the bytes of an element of a tensor, by PyTorch's name of its type; 0 where that is unknown."""
    name = kind.lower() if isinstance(kind, str) else ""
    return 1 if name.startswith("float8") else _ELEMENT_BYTES.get(name, 0)


def _of_threads(rank: int, log: RankLog, starts: I64, joins: Joins) -> list[_Kernel]:
    """Return the collectives that threads of one rank carried out, in the order of time."""
    ranks = group_of(log)
    kernels = []
    for row, name in host_rows(log):
        if name in _POINT_TO_POINT or not ranks:
            joins.without_group[rank] += 1
            continue
        begin, end = int(log.t[row]), int(log.end[row])
        step = int(np.searchsorted(starts, begin, side="right"))
        kernels.append(_Kernel(rank, row, begin, end, name, "", ranks, -1, -1, step, on_host=True))
    return kernels


def _ranks_of(facts: Mapping[str, Any], log: RankLog, rank: int, name: str) -> tuple[int, ...]:
    if name in _POINT_TO_POINT:
        ends = {number(facts.get("Src Rank"), rank), number(facts.get("Dst Rank"), rank), rank}
        return tuple(sorted(ends)) if len(ends) == 2 else ()  # noqa: PLR2004 two ends
    listed = facts.get("Process Group Ranks")
    text = listed if isinstance(listed, str) else str(listed or "")
    # Long lists are cut short by dots.
    if "..." in text:
        return tuple(sorted(log.groups.get(str(facts.get("Process Group Name")), ())))
    return _numbers(listed) if isinstance(listed, list) else _ranks_in(text)


@lru_cache(maxsize=256)
def _ranks_in(text: str) -> tuple[int, ...]:
    """Read a list of ranks, ``[0, 1]``; every kernel of a collective has it, in the same words."""
    return _numbers(text.strip("[] ").split(","))


def _numbers(entries: Iterable[Any]) -> tuple[int, ...]:
    """Return the numbers that some values are, ascending and each once; none if one of them is no number."""
    numbers = {number(entry.strip() if isinstance(entry, str) else entry) for entry in entries}
    return () if -1 in numbers else tuple(sorted(numbers))


class ClockEstimate(NamedTuple):
    """How a clock is to be moved: nanoseconds to add to its times."""

    offset: int
    uncertainty: int
    """By how much that may be wrong; 0 for a clock that others are moved to."""


def estimate_clocks(joins: Joins, domains: Mapping[int, str]) -> dict[str, ClockEstimate]:
    """Estimate by how much clocks differ from that of the lowest rank.

    Parameters
    ----------
    joins
        Collectives, times as recorded.
    domains
        Per rank: its clock.

    Returns
    -------
    dict
        Per clock that collectives lead to. Nobody leaves a collective for all before all have come, which bounds each
        clock; within these bounds all are taken to leave together, so that who comes late is not aligned away. Threads
        leave as they get to run: maybe as far apart as the shortest collective takes.
    """
    first_domain = domains[min(domains)]
    estimates = {first_domain: ClockEstimate(0, 0)}
    by_domain: dict[str, list[Collective]] = defaultdict(list)
    for collective in joins.collectives:
        if collective.everybody_waits:
            for domain in {domains[part.rank] for part in collective.parts}:
                by_domain[domain].append(collective)
    bounded: set[int] = set()
    reached = [first_domain]
    for base in reached:
        bounds: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
        for collective in by_domain[base]:
            # Whose clocks are all known by way of another one is not looked at again: linear in ranks.
            if id(collective) not in bounded:
                bounded.add(id(collective))
                _bound(collective, domains, base, estimates, bounds)
        for domain in sorted(bounds):
            estimates[domain] = _moved_clock(estimates[base], np.array(bounds[domain], np.int64))
            reached.append(domain)
    return estimates


def _bound(
    collective: Collective,
    domains: Mapping[int, str],
    base: str,
    estimates: Mapping[str, ClockEstimate],
    bounds: dict[str, list[tuple[int, int, int, int]]],
) -> None:
    """Add what a collective says about clocks that are not known: least, greatest, likely difference, and its error."""
    unknown_parts = [part for part in collective.parts if domains[part.rank] not in estimates]
    for known_part in (part for part in collective.parts if domains[part.rank] == base):
        for unknown_part in unknown_parts:
            apart = (
                min(known_part.end - known_part.begin, unknown_part.end - unknown_part.begin)
                if collective.on_host
                else 0
            )
            bounds[domains[unknown_part.rank]].append(
                (
                    known_part.begin - unknown_part.end,
                    known_part.end - unknown_part.begin,
                    known_part.end - unknown_part.end,
                    apart,
                )
            )


def _moved_clock(base: ClockEstimate, bounds: I64) -> ClockEstimate:
    low, high = int(bounds[:, 0].max()), int(bounds[:, 1].min())
    median = int(np.median(bounds[:, 2]))
    spread = max(1.5 * float(np.subtract(*np.percentile(bounds[:, 2], [75, 25]))), float(bounds[:, 3].min()))
    if low > high:
        # Clocks that run unevenly: the bounds contradict each other.
        return ClockEstimate(base.offset + median, base.uncertainty + max(low - high, _LEAST_UNCERTAINTY_NS))
    offset = min(max(median, low), high)
    uncertainty = max(int(min((high - low) / 2, spread)), _LEAST_UNCERTAINTY_NS)
    return ClockEstimate(base.offset + offset, base.uncertainty + uncertainty)


@dataclass(slots=True)
class Joined:
    """A rank's part of a collective, and how it is written."""

    collective: Collective
    part: Part
    workers: Mapping[tuple[int, int], int]
    """Worker of each part, by rank and row."""

    def write(self, spans: Spans, operators: Operators, worker: int, begin: int, end: int) -> None:
        """Write it: the rank starts, waits for who comes last, and transfers.

        Parameters
        ----------
        spans, operators
            Where to write it.
        worker, begin, end
            The stream, and when its kernel ran.
        """
        number_of = operators.of(classes.COLLECTIVE, self.collective.name)
        inferred = self.collective.inferred or not self.collective.everybody_waits
        spans.span(worker, begin, end, ActivityType.IO, number_of, inferred=inferred)
        last_part = self.collective.last_before(self.part)
        if last_part.rank == self.part.rank or last_part.begin > end or begin > last_part.begin:
            return
        last_worker = self.workers[last_part.rank, last_part.row]
        arrived = begin
        if self.collective.everybody_waits:
            given_bytes = self.part.given
            spans.message(
                COLLECTIVE, worker, begin, last_worker, last_part.begin, arrived=arrived, size=given_bytes, inside=True
            )
        spans.message(
            *(COLLECTIVE, last_worker, last_part.begin, worker, last_part.begin),
            size=self.part.gotten,
            after=True,
            inside=begin == last_part.begin,
        )
        spans.span(worker, begin, last_part.begin, ActivityType.WAITING, number_of, inferred=inferred)
