"""What is not the same in two logs of the same work: settings, versions, cores, and what scans read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.diagnosis.spark.comparison.matching import root_of
from pag_graph.diagnosis.spark.cores import most_cores
from pag_graph.diagnosis.spark.plan_view import PlanView
from pag_graph.sources.spark.operators import metrics_once
from pag_graph.sources.spark.settings import setting, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.comparison.matching import Pair

__all__ = ["Difference", "differences"]

_NAMES_OF_RUNS = frozenset({"spark.app.id", "spark.app.name"})
_BYTES, _FILES = "size of files read", "number of files read"


class Difference(NamedTuple):
    """Something that both logs have, and not alike."""

    what: str
    """``setting``, ``version``, ``cores``, ``executors``, ``plan`` or ``input``."""
    name: str
    new: str
    base: str

    @property
    def text(self) -> str:
        """Spell it for people."""
        return f"{self.name}: {self.new}, was {self.base}"

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(self._asdict())


def differences(new: SparkAnswer, base: SparkAnswer, pairs: Sequence[Pair]) -> list[Difference]:
    """Return what differs between two runs, in the order in which it is worth knowing: what people set comes first.

    Parameters
    ----------
    new, base
        Answers for two logs.
    pairs
        Their units of work: scans are compared within those that both have.
    """
    found = _settings(new, base)
    stated = [
        ("version", "Spark", new.log.version, base.log.version),
        ("cores", "most cores at a time", *(str(most_cores(side.diagnosis.cores)) for side in (new, base))),
        ("executors", "executors in all", *(str(side.mapped.schedule.executors.height) for side in (new, base))),
        ("input", "bytes that scans read", *(str(_read(side, _BYTES)) for side in (new, base))),
        ("input", "files that scans read", *(str(_read(side, _FILES)) for side in (new, base))),
    ]
    found += [Difference(*each) for each in stated if each[2] != each[3]]
    return found + _scans(new, base, pairs) + _plans(new, base)


def _settings(new: SparkAnswer, base: SparkAnswer) -> list[Difference]:
    own, other = settings_of(new.log), settings_of(base.log)
    found = []
    for name in own:
        values = [_spelt(side[name]) for side in (own, other)]
        if name in _NAMES_OF_RUNS:
            continue
        if values[0] != values[1]:
            found.append(Difference("setting", name, *values))
        elif setting(new.log, name) != setting(base.log, name):
            # Texts that are not shown, or a default that somebody stated: only the first is a difference.
            raw = [setting(side.log, name).value for side in (new, base)]
            if raw[0] != raw[1]:
                found.append(Difference("setting", name, values[0], f"another text ({values[1]})"))
    return found


def _spelt(setting: dict[str, Any]) -> str:
    value = "unknown" if setting["value"] is None else str(setting["value"])
    changed = Counter((setting.get("queries") or {}).values())
    more = ", ".join(f"{own} in {count} queries" for own, count in sorted(changed.items(), key=str))
    return f"{value} ({more})" if more else value


def _read(side: SparkAnswer, metric: str) -> int:
    rows = metrics_once(side.log)
    return int(rows.filter(rows["metric"] == metric)["driver_value"].sum() or 0)


def _plans(new: SparkAnswer, base: SparkAnswer) -> list[Difference]:
    """Return the operators of which there are more in one run's plans than in the other's."""
    counts = [
        Counter(name for name in side.log.nodes["name"].to_list() if not name.startswith("WholeStageCodegen"))
        for side in (new, base)
    ]
    return [
        Difference("plan", f"{name} in plans", str(counts[0][name]), str(counts[1][name]))
        for name in sorted(counts[0].keys() | counts[1].keys())
        if counts[0][name] != counts[1][name]
    ]


def _scans(new: SparkAnswer, base: SparkAnswer, pairs: Sequence[Pair]) -> list[Difference]:
    """Return the scans that do not read as much in both runs: a query's first scan of a name is its first in both."""
    counts = [_read_by_scan(side, pairs, place) for place, side in enumerate((new, base))]
    found = []
    for key in sorted(counts[0].keys() & counts[1].keys()):
        unit, name, number = key
        own, other = (count[key] for count in counts)
        if own != other:
            label = pairs[unit].new or pairs[unit].base
            where = "" if label is None else f" of {label.kind} {label.number}"
            again = f" {number + 1}" if number else ""
            found.append(Difference("input", f"{name}{again}{where}", _amount(*own), _amount(*other)))
    return found


def _read_by_scan(
    side: SparkAnswer, pairs: Sequence[Pair], place: int
) -> dict[tuple[int, str, int], tuple[int, int | None]]:
    """Return the bytes and rows of each scan, by pair of units, name, and which of this name it is."""
    units = {unit.number: at for at, pair in enumerate(pairs) if (unit := pair[place]) and unit.kind == "query"}
    roots, counts = root_of(side), Counter[tuple[int, str]]()
    found = {}
    for node in PlanView(side.mapped.schedule):
        place_of = units.get(roots.get(node.execution, node.execution))
        if place_of is not None and "Scan" in node.name and not node.children:
            found[place_of, node.name, counts[place_of, node.name]] = (node.total(_BYTES), node.rows)
            counts[place_of, node.name] += 1
    return found


def _amount(size: int, rows: int | None) -> str:
    return ", ".join([f"{size:,} bytes"] * bool(size) + ([] if rows is None else [f"{rows:,} rows"])) or "not counted"
