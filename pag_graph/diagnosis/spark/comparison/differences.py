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
    unlike = _settings(new, base)
    stated = [
        ("version", "Spark", new.log.version, base.log.version),
        (
            "cores",
            "most cores at a time",
            *(str(most_cores(spark_answer.diagnosis.cores)) for spark_answer in (new, base)),
        ),
        (
            "executors",
            "executors in all",
            *(str(spark_answer.mapped.schedule.executors.height) for spark_answer in (new, base)),
        ),
        ("input", "bytes that scans read", *(str(_driver_sum(spark_answer, _BYTES)) for spark_answer in (new, base))),
        ("input", "files that scans read", *(str(_driver_sum(spark_answer, _FILES)) for spark_answer in (new, base))),
    ]
    unlike += [Difference(*statement) for statement in stated if statement[2] != statement[3]]
    return unlike + _scans(new, base, pairs) + _plans(new, base)


def _settings(new: SparkAnswer, base: SparkAnswer) -> list[Difference]:
    new_settings, base_settings = settings_of(new.log), settings_of(base.log)
    unlike = []
    for name in new_settings:
        spelt = [_setting_text(settings[name]) for settings in (new_settings, base_settings)]
        if name in _NAMES_OF_RUNS:
            continue
        if spelt[0] != spelt[1]:
            unlike.append(Difference("setting", name, *spelt))
        elif setting(new.log, name) != setting(base.log, name):
            # Texts that are not shown, or a default that somebody stated: only the first is a difference.
            raw = [setting(spark_answer.log, name).value for spark_answer in (new, base)]
            if raw[0] != raw[1]:
                unlike.append(Difference("setting", name, spelt[0], f"another text ({spelt[1]})"))
    return unlike


def _setting_text(setting: dict[str, Any]) -> str:
    value = "unknown" if setting["value"] is None else str(setting["value"])
    changed = Counter((setting.get("queries") or {}).values())
    per_query = ", ".join(
        f"{query_value} in {count} queries" for query_value, count in sorted(changed.items(), key=str)
    )
    return f"{value} ({per_query})" if per_query else value


def _driver_sum(spark_answer: SparkAnswer, metric: str) -> int:
    rows = metrics_once(spark_answer.log)
    return int(rows.filter(rows["metric"] == metric)["driver_value"].sum() or 0)


def _plans(new: SparkAnswer, base: SparkAnswer) -> list[Difference]:
    """Return the operators of which there are more in one run's plans than in the other's."""
    counts = [
        Counter(name for name in spark_answer.log.nodes["name"].to_list() if not name.startswith("WholeStageCodegen"))
        for spark_answer in (new, base)
    ]
    return [
        Difference("plan", f"{name} in plans", str(counts[0][name]), str(counts[1][name]))
        for name in sorted(counts[0].keys() | counts[1].keys())
        if counts[0][name] != counts[1][name]
    ]


def _scans(new: SparkAnswer, base: SparkAnswer, pairs: Sequence[Pair]) -> list[Difference]:
    """Return the scans that do not read as much in both runs: a query's first scan of a name is its first in both."""
    counts = [_read_by_scan(spark_answer, pairs, place) for place, spark_answer in enumerate((new, base))]
    unlike = []
    for key in sorted(counts[0].keys() & counts[1].keys()):
        unit, name, number = key
        new_amounts, base_amounts = (count[key] for count in counts)
        if new_amounts != base_amounts:
            label = pairs[unit].new or pairs[unit].base
            of_unit = "" if label is None else f" of {label.kind} {label.number}"
            occurrence = f" {number + 1}" if number else ""
            unlike.append(
                Difference("input", f"{name}{occurrence}{of_unit}", _amount(*new_amounts), _amount(*base_amounts))
            )
    return unlike


def _read_by_scan(
    spark_answer: SparkAnswer, pairs: Sequence[Pair], place: int
) -> dict[tuple[int, str, int], tuple[int, int | None]]:
    """Return the bytes and rows of each scan, by pair of units, name, and which of this name it is."""
    units = {
        unit.number: pair_place
        for pair_place, pair in enumerate(pairs)
        if (unit := pair[place]) and unit.kind == "query"
    }
    roots, counts = root_of(spark_answer), Counter[tuple[int, str]]()
    amounts = {}
    for node in PlanView(spark_answer.mapped.schedule):
        place_of = units.get(roots.get(node.execution, node.execution))
        if place_of is not None and "Scan" in node.name and not node.children:
            amounts[place_of, node.name, counts[place_of, node.name]] = (node.total(_BYTES), node.rows)
            counts[place_of, node.name] += 1
    return amounts


def _amount(size: int, rows: int | None) -> str:
    return ", ".join([f"{size:,} bytes"] * bool(size) + ([] if rows is None else [f"{rows:,} rows"])) or "not counted"
