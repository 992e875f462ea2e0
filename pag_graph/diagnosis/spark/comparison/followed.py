"""Advice of one run that another one followed: what was predicted, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.diagnosis.spark.changes import bytes_of
from pag_graph.sources.spark.settings import SETTINGS, setting

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.look import Estimate

__all__ = ["Followed", "followed"]


class Followed(NamedTuple):
    """A setting that an answer for the base proposed, and that the new run has."""

    cause: str
    title: str
    setting: str
    recorded: str | None
    """In the base."""
    proposed: str
    predicted: Estimate
    """What the base's answer says that it saves."""
    bound: bool
    """Whether that is only a bound."""
    got_ns: int
    """How much sooner the new run ended, from its first job on; whatever else was changed is in it."""

    @property
    def text(self) -> str:
        """Spell it for people."""
        at_most = "at most " if self.bound and self.predicted.reliable else ""
        predicted = self.predicted.text(lambda ns: f"{ns / 1e9:,.2f} s")
        before = "unknown" if self.recorded is None else self.recorded
        change = f"{self.setting}: {before} -> {self.proposed}"
        return f"{change} ({self.title}): predicted {at_most}{predicted}, got {self.got_ns / 1e9:,.2f} s"

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        change = {"cause": self.cause, "setting": self.setting, "recorded": self.recorded, "proposed": self.proposed}
        return {**change, **self.predicted.facts("predicted"), "upper_bound": self.bound, "got_ns": self.got_ns}


def followed(new: SparkAnswer, base: SparkAnswer) -> list[Followed]:
    """Return the settings that the base's causes propose and the new run changed so, largest prediction first.

    Parameters
    ----------
    new, base
        Answers for two logs.
    """
    got_ns = base.diagnosis.active_ns - new.diagnosis.active_ns
    rows = []
    for cause in base.diagnosis.causes:
        for change in cause.changes:
            if change.what not in SETTINGS:
                continue
            before, after = (setting(spark_answer.log, change.what).value for spark_answer in (base, new))
            if before != after and _reaches(change.what, after, change.proposed, before):
                rows.append(
                    Followed(
                        cause=cause.cause,
                        title=cause.title,
                        setting=change.what,
                        recorded=change.recorded,
                        proposed=change.proposed,
                        predicted=cause.saving,
                        bound=cause.bound,
                        got_ns=got_ns,
                    )
                )
    return rows


def _reaches(name: str, setting_now: str | None, proposed: str, before: str | None) -> bool:
    """Return whether a value is what was proposed, or lies beyond it as seen from what it was."""
    if setting_now == proposed:
        return True
    numbers = [_number(name, text) for text in (before, proposed, setting_now)]
    if any(number is None for number in numbers):
        return False
    number_before, number_proposed, number_now = (number or 0 for number in numbers)
    return number_now <= number_proposed < number_before or number_before < number_proposed <= number_now


def _number(name: str, text: str | None) -> int | None:
    return -1 if text == "-1" else bytes_of(name, text)
