"""What is not the same in two logs of the same work: settings, versions, cores, and what scans read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.diagnosis.spark.cores import most_cores
from pag_graph.sources.spark.settings import settings_of

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.answer import SparkAnswer

__all__ = ["Difference", "differences"]

_NAMES_OF_RUNS = frozenset({"spark.app.id", "spark.app.name"})
_BYTES, _FILES = "size of files read", "number of files read"


class Difference(NamedTuple):
    """Something that both logs have, and not alike."""

    what: str
    """``setting``, ``version``, ``cores``, ``plan`` or ``input``."""
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


def differences(new: SparkAnswer, base: SparkAnswer) -> list[Difference]:
    """Return what differs between two runs, in the order in which it is worth knowing: what people set comes first."""
    found = _settings(new, base)
    pairs = [
        ("version", "Spark", new.log.version, base.log.version),
        ("cores", "most cores at a time", *(str(most_cores(side.diagnosis.cores)) for side in (new, base))),
        ("input", "bytes that scans read", *(str(_read(side, _BYTES)) for side in (new, base))),
        ("input", "files that scans read", *(str(_read(side, _FILES)) for side in (new, base))),
    ]
    found += [Difference(*pair) for pair in pairs if pair[2] != pair[3]]
    return found + _plans(new, base)


def _settings(new: SparkAnswer, base: SparkAnswer) -> list[Difference]:
    own, other = settings_of(new.log), settings_of(base.log)
    found = []
    for name in own:
        values = [_spelt(side[name]) for side in (own, other)]
        if name not in _NAMES_OF_RUNS and values[0] != values[1]:
            found.append(Difference("setting", name, *values))
    return found


def _spelt(setting: dict[str, Any]) -> str:
    value = "unknown" if setting["value"] is None else str(setting["value"])
    changed = Counter((setting.get("queries") or {}).values())
    more = ", ".join(f"{own} in {count} queries" for own, count in sorted(changed.items(), key=str))
    return f"{value} ({more})" if more else value


def _read(side: SparkAnswer, metric: str) -> int:
    rows = side.log.node_metrics
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
