"""Where the time of two runs differs: rows of both paths side by side, whose differences add up to the nanosecond.

Definitions stand in `docs/spark.md`, "Two runs".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.diagnosis.spark.comparison.attribution import Attribution, attribute
from pag_graph.diagnosis.spark.comparison.differences import Difference, differences
from pag_graph.diagnosis.spark.comparison.followed import Followed, followed
from pag_graph.diagnosis.spark.comparison.matching import Pair, match_units, root_of, units_of
from pag_graph.diagnosis.spark.plan_view import PlanView

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.answer import SparkAnswer

__all__ = ["Comparison", "Row", "compare", "volume_part"]


class _Key(NamedTuple):
    """What a row is about, the same in both runs where they did the same."""

    unit: int
    """Place of the pair of units; -1 for what belongs to none."""
    kind: str
    name: str
    place: int
    """Which of the nodes of this name, in the order of the plan; 0 for rows of no single node."""
    activity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A part of both paths; times in nanoseconds, differences new less base."""

    unit: str
    """The pair of units; empty for what belongs to none."""
    name: str
    kind: str
    activity: str
    new_ns: int
    base_ns: int
    volume_ns: int | None
    """Part of the difference that goes with the rows that the node made; None where they are not counted in both."""
    new_rows: int | None
    base_rows: int | None

    @property
    def difference_ns(self) -> int:
        """New less base."""
        return self.new_ns - self.base_ns

    @property
    def rate_ns(self) -> int:
        """Rest of the difference: the same rows took longer, or less long."""
        return self.difference_ns - (self.volume_ns or 0)

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        names = ("unit", "name", "kind", "activity", "new_ns", "base_ns", "difference_ns", "volume_ns", "rate_ns")
        return {name: getattr(self, name) for name in (*names, "new_rows", "base_rows")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs of the same work."""

    new: SparkAnswer
    base: SparkAnswer
    pairs: list[Pair]
    rows: list[Row]
    """Largest difference first; they add up to the difference of the two spans."""
    differences: list[Difference]
    """What is not the same in the two: settings first."""
    matched: tuple[float, float]
    """Share of the work's path, in new and base, that is in units which both have."""
    attribution: Attribution
    """What the difference goes back to, as replayed."""
    followed: list[Followed]
    """Settings that the base's answer proposes and the new run has, with what came of them."""

    @property
    def difference_ns(self) -> int:
        """Span of new less that of base."""
        return self.new.diagnosis.span_ns - self.base.diagnosis.span_ns

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "new": self.new.log.name,
            "base": self.base.log.name,
            "new_ns": self.new.diagnosis.span_ns,
            "base_ns": self.base.diagnosis.span_ns,
            "difference_ns": self.difference_ns,
            "matched_new": round(self.matched[0], 6),
            "matched_base": round(self.matched[1], 6),
            "differences": [difference.facts() for difference in self.differences],
            "attribution": self.attribution.facts(),
            "followed": [change.facts() for change in self.followed],
            "rows": [row.facts() for row in self.rows],
            "only_new": [pair.new.name for pair in self.pairs if pair.new and not pair.base],
            "only_base": [pair.base.name for pair in self.pairs if pair.base and not pair.new],
        }


def compare(new: SparkAnswer, base: SparkAnswer) -> Comparison:
    """Say where the time of two runs differs.

    Parameters
    ----------
    new, base
        Answers for two logs.

    Returns
    -------
    Comparison
        Of one log with itself all differences are 0; the other way round they change their sign.
    """
    pairs = match_units(units_of(new), units_of(base))
    sides = [_Side(answer, pairs, place) for place, answer in enumerate((new, base))]
    rows = []
    for key in sorted(sides[0].times.keys() | sides[1].times.keys()):
        times = [side.times[key] for side in sides]
        counts = [side.rows.get(key[:4]) for side in sides]
        rows.append(
            Row(
                unit=_label(pairs[key.unit]) if key.unit >= 0 else "",
                name=key.name,
                kind=key.kind,
                activity=key.activity,
                new_ns=times[0],
                base_ns=times[1],
                volume_ns=volume_part(times[0], counts[0], times[1], counts[1]),
                new_rows=counts[0],
                base_rows=counts[1],
            )
        )
    rows.sort(key=lambda row: (-abs(row.difference_ns), -row.new_ns, row.unit, row.name, row.activity))
    matched = (sides[0].matched, sides[1].matched)
    return Comparison(
        new=new,
        base=base,
        pairs=pairs,
        rows=rows,
        differences=differences(new, base, pairs),
        matched=matched,
        attribution=attribute(new, base, pairs, matched),
        followed=followed(new, base),
    )


def volume_part(new_ns: int, new_rows: int | None, base_ns: int, base_rows: int | None) -> int | None:
    """Return the part of a difference that goes with the number of rows, by the mean of both rates.

    Parameters
    ----------
    new_ns, base_ns
        Times of the two runs, in nanoseconds.
    new_rows, base_rows
        Rows that were made in these times.

    Returns
    -------
    int or None
        (new_rows - base_rows) x (new_ns / new_rows + base_ns / base_rows) / 2, rounded to whole nanoseconds, halves
        away from 0; so the other way round it only changes its sign. None where the rows of a run are not known, or
        none.

    Examples
    --------
    >>> volume_part(30, 20, 10, 10), volume_part(10, 10, 30, 20), volume_part(5, 3, 4, 3)
    (12, -12, 0)
    """
    if not new_rows or not base_rows:
        return None
    above = (new_rows - base_rows) * (new_ns * base_rows + base_ns * new_rows)
    below = 2 * new_rows * base_rows
    size = (2 * abs(above) + below) // (2 * below)
    return size if above >= 0 else -size


def _label(pair: Pair) -> str:
    unit = pair.new or pair.base
    if unit is None:
        return ""
    number = f"{unit.kind} {unit.number}"
    return f"{number}: {unit.name}" if unit.name else number


class _Side:
    """The path of one run by rows that the other run can have too."""

    def __init__(self, answer: SparkAnswer, pairs: list[Pair], place_in_pair: int) -> None:
        self.answer = answer
        self.times: Counter[_Key] = Counter()
        self.rows: dict[tuple[Any, ...], int] = {}
        self._units: dict[tuple[str, int], int] = {}
        for place, pair in enumerate(pairs):
            unit = pair[place_in_pair]
            if unit is not None:
                self._units[unit.kind, unit.number] = place
        self._roots = root_of(answer)
        self._places = self._places_of_nodes()
        self._add_pieces()
        paired = {place for place, pair in enumerate(pairs) if pair.new and pair.base}
        work: defaultdict[bool, int] = defaultdict(int)
        for key, ns in self.times.items():
            if key.unit >= 0:
                work[key.unit in paired] += ns
        self.matched = work[True] / max(work[True] + work[False], 1) if self._units else 1.0

    def _places_of_nodes(self) -> dict[tuple[int, int], int]:
        """Return which of the nodes of its name in its plan each node is, in the order of the plan."""
        counts: Counter[tuple[int, str]] = Counter()
        places = {}
        for execution, node, name in self.answer.log.nodes.select("execution", "node", "name").iter_rows():
            places[execution, node] = counts[execution, name]
            counts[execution, name] += 1
        return places

    def _add_pieces(self) -> None:
        view = {(node.execution, node.node): node for node in PlanView(self.answer.mapped.schedule)}
        for query, job, of_query, node, name, kind, activity, ns in self.answer.pieces.iter_rows():
            unit = -1
            if query is not None:
                unit = self._units.get(("query", self._roots.get(query, query)), -1)
            if unit < 0 and job is not None:
                unit = self._units.get(("job", job), -1)
            plain = "driver of the query" if kind == "driver" and unit >= 0 else name
            place = self._places.get((of_query, node), 0)
            key = _Key(unit, kind, _unnumbered(plain, kind), place, activity)
            self.times[key] += ns
            plan_node = view.get((of_query, node))
            if plan_node is not None and plan_node.rows:
                self.rows[key[:4]] = plan_node.rows


def _unnumbered(name: str, kind: str) -> str:
    """Return a row's name without the number of its stage, which is another in each run."""
    if kind == "shared" and name.startswith("stage ") and ": " in name:
        return name.partition(": ")[2].partition(" of query ")[0]
    return name
