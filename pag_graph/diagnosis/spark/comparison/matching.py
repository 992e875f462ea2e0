"""Which units of work of one log belong to which of another: queries by their plans, jobs by their call sites.

Definitions stand in `docs/spark.md`, "Two runs".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer

__all__ = ["Pair", "Unit", "match_units", "units_of"]

_SAME, _ALIKE, _OTHER, _GAP = 3, 2, -1, -1
_JACCARD = 0.5
_MOVING = frozenset(
    {"AQEShuffleRead", "BroadcastExchange", "CustomShuffleReader", "Exchange", "ReusedExchange", "Sort"}
)
"""Nodes that bring rows to where others want them: how is decided by settings and sizes, not by the query."""
_MOST_CELLS = 4_000_000
"""Longest table of an alignment; what is longer pairs by equal marks only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A query with the queries below it, or a job outside of queries."""

    kind: str
    """``query`` or ``job``."""
    number: int
    """Of the root query, or index of the job."""
    name: str
    start_ns: int
    mark: str
    """Equal for the same plan, or the same call site and steps, whatever the numbers in them."""
    nodes: Counter[str]
    """Names of plan nodes that say what is computed, or of steps; all kinds of joins are one."""

    def score(self, other: Unit) -> int:
        """Return how well two units go together: 3 for equal marks, 2 for alike ones, -1 (as a gap) for others.

        Alike are units of one kind and name that share half of their nodes (Jaccard index of the multisets).
        """
        if self.kind == other.kind and self.mark == other.mark:
            return _SAME
        common, either = (self.nodes & other.nodes).total(), (self.nodes | other.nodes).total()
        alike = self.kind == other.kind and self.name == other.name and common >= _JACCARD * max(either, 1)
        return _ALIKE if alike else _OTHER


class Pair(NamedTuple):
    """Units that belong together; None where a log has none."""

    new: Unit | None
    base: Unit | None


def units_of(answer: SparkAnswer) -> list[Unit]:
    """Return the units of a log, by start: queries that are part of no other, and jobs outside of them.

    Start times are nanoseconds from the origin. A query's number is that of its execution, a job's its place in the
    schedule.
    """
    log, schedule = answer.log, answer.mapped.schedule
    names: dict[int, Counter[str]] = {}
    for execution, name in log.nodes.select("execution", "name").iter_rows():
        if name not in _MOVING and not name.startswith("WholeStageCodegen"):
            names.setdefault(execution, Counter())["Join" if name.endswith("Join") else name] += 1
    units = []
    for query in log.executions.iter_rows(named=True):
        if query["root"] is None or query["root"] == query["execution"]:
            start = 0 if query["started_ms"] is None else (query["started_ms"] - schedule.origin_ms) * 1_000_000
            units.append(
                Unit(
                    kind="query",
                    number=query["execution"],
                    name=query["name"] or "",
                    start_ns=start,
                    mark=str(query["mark"]),
                    nodes=names.get(query["execution"], Counter()),
                )
            )
    query_numbers = {unit.number for unit in units}
    steps: dict[int, Counter[str]] = {}
    for job, scopes in log.job_stages.select("job", "scopes").iter_rows():
        steps.setdefault(job, Counter()).update(scopes or ())
    for index, job in enumerate(schedule.jobs):
        if job.execution is None or root_of(answer).get(job.execution, job.execution) not in query_numbers:
            job_steps = steps.get(job.job, Counter())
            mark = f"{job.name}|{sorted(job_steps.items())}"
            units.append(
                Unit(kind="job", number=index, name=job.name, start_ns=job.start_ns, mark=mark, nodes=job_steps)
            )
    return sorted(units, key=lambda unit: (unit.start_ns, unit.kind, unit.number))


def root_of(answer: SparkAnswer) -> dict[int, int]:
    """Return the root of each query that is part of another one, by execution."""
    rows = answer.log.executions.select("execution", "root").iter_rows()
    return {execution: root for execution, root in rows if root is not None}


def match_units(new: Sequence[Unit], base: Sequence[Unit]) -> list[Pair]:
    """Pair the units of two logs.

    Units whose mark is in each log once anchor the others, as far as they come in the same order; between anchors the
    best alignment counts (Needleman and Wunsch 1970): 3 for equal marks, 2 for one call site and half of the nodes, -1
    for others and for gaps. Units that no alignment pairs, but have equal marks, go together too: those of programs
    that run queries at the same time come in any order. The other way round the same units go together.

    Parameters
    ----------
    new, base
        Units of two logs, each by start.

    Returns
    -------
    list of Pair
        Every unit of both logs once.
    """
    if _order(base) < _order(new):
        # Which of several equal alignments is taken depends on the order: it is always the same one.
        return [Pair(pair.base, pair.new) for pair in match_units(base, new)]
    pairs: list[tuple[int | None, int | None]] = []
    before = (0, 0)
    for anchor in [*_anchors(new, base), (len(new), len(base))]:
        rows, columns = range(before[0], anchor[0]), range(before[1], anchor[1])
        pairs += _aligned(new, base, rows, columns)
        if anchor[0] < len(new):
            pairs.append(anchor)
        before = (anchor[0] + 1, anchor[1] + 1)
    pairs = _equal_marks(new, base, pairs)
    return [Pair(None if i is None else new[i], None if j is None else base[j]) for i, j in pairs]


def _order(units: Sequence[Unit]) -> tuple[object, ...]:
    return (len(units), *((unit.kind, unit.mark, unit.name, unit.start_ns) for unit in units))


def _anchors(new: Sequence[Unit], base: Sequence[Unit]) -> list[tuple[int, int]]:
    """Return the longest sequence of pairs with marks of their own that comes in the same order in both."""
    marks = [Counter((unit.kind, unit.mark) for unit in units) for units in (new, base)]
    places = {(unit.kind, unit.mark): place for place, unit in enumerate(base)}
    candidates = [
        (place, places[unit.kind, unit.mark])
        for place, unit in enumerate(new)
        if all(counts[unit.kind, unit.mark] == 1 for counts in marks)
    ]
    tails: list[int] = []
    tail_indices: list[int] = []
    before: list[int | None] = []
    for index, (_, place) in enumerate(candidates):
        length = bisect_left(tails, place)
        before.append(tail_indices[length - 1] if length else None)
        tails[length : length + 1] = [place]
        tail_indices[length : length + 1] = [index]
    chain: list[tuple[int, int]] = []
    step = tail_indices[-1] if tail_indices else None
    while step is not None:
        chain.append(candidates[step])
        step = before[step]
    return chain[::-1]


def _aligned(
    new: Sequence[Unit], base: Sequence[Unit], rows: range, columns: range
) -> list[tuple[int | None, int | None]]:
    """Return the best alignment of two stretches."""
    alone = [*((i, None) for i in rows), *((None, j) for j in columns)]
    if not rows or not columns or len(rows) * len(columns) > _MOST_CELLS:
        return alone
    best = [[_GAP * j for j in range(len(columns) + 1)]]
    for i, place in enumerate(rows, 1):
        line = [_GAP * i]
        for j, column in enumerate(columns, 1):
            paired = best[i - 1][j - 1] + new[place].score(base[column])
            line.append(max(paired, best[i - 1][j] + _GAP, line[j - 1] + _GAP))
        best.append(line)
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(rows), len(columns)
    while i or j:
        score = new[rows[i - 1]].score(base[columns[j - 1]]) if i and j else _OTHER
        if i and j and score > 0 and best[i][j] == best[i - 1][j - 1] + score:
            i, j = i - 1, j - 1
            pairs.append((rows[i], columns[j]))
        elif i and best[i][j] == best[i - 1][j] + _GAP:
            i -= 1
            pairs.append((rows[i], None))
        elif j and best[i][j] == best[i][j - 1] + _GAP:
            j -= 1
            pairs.append((None, columns[j]))
        else:
            # Two that do not go together stand beside each other.
            i, j = i - 1, j - 1
            pairs += [(rows[i], None), (None, columns[j])]
    return pairs[::-1]


def _equal_marks(
    new: Sequence[Unit], base: Sequence[Unit], pairs: list[tuple[int | None, int | None]]
) -> list[tuple[int | None, int | None]]:
    """Pair units left alone that have equal marks, in the order of their starts."""
    waiting: dict[tuple[str, str], list[int]] = {}
    for i, j in pairs:
        if i is None and j is not None:
            waiting.setdefault((base[j].kind, base[j].mark), []).append(j)
    paired: set[int] = set()
    all_pairs: list[tuple[int | None, int | None]] = []
    for i, j in pairs:
        place = j
        if i is not None and j is None and waiting.get((new[i].kind, new[i].mark)):
            place = waiting[new[i].kind, new[i].mark].pop(0)
            paired.add(place)
        all_pairs.append((i, place))
    return [(i, j) for i, j in all_pairs if not (i is None and j in paired)]
