"""`pag spark LOG --against LOG...`: where two runs differ, and whether the new one took too long."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from pag_graph import errors
from pag_graph.cli.analyses import ALARM
from pag_graph.cli.output import Format, print_csv, print_json, stdout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.comparison.accounting import Comparison
    from pag_graph.diagnosis.spark.comparison.gate import Measure, Verdict

__all__ = ["say_against"]

_LEAST_MATCHED = 0.8
"""Share of the work that both runs must have in common to be of the same kind."""

_COLUMNS = ["unit", "name", "kind", "activity", "new_ns", "base_ns", "difference_ns", "volume_ns", "rate_ns"]


def say_against(
    new: SparkAnswer, baselines: Sequence[SparkAnswer], *, fail_over: str | None, of: Measure, top: int, form: Format
) -> None:
    """Print where a run differs from the middle one of its baselines; end with a code if it took too long.

    Raises
    ------
    AnalysisError
        If it is to be judged, and a run is incomplete, or they have less than 80 % of their work in common.
    """
    from pag_graph.diagnosis.spark.comparison.accounting import compare
    from pag_graph.diagnosis.spark.comparison.gate import judge, measured, share_of
    from pag_graph.diagnosis.spark.comparison.told import comparison_lines

    share = None if fail_over is None else share_of(fail_over)
    measures = [measured(base, of) for base in baselines]
    middle = statistics.median_low(measures)
    comparison = compare(new, baselines[measures.index(middle)])
    verdict = None if share is None else judge(measured(new, of), measures, share, of)
    if form is Format.JSON:
        print_json({"comparison": comparison.facts(), **({} if verdict is None else {"gate": verdict.facts()})})
    elif form is Format.CSV:
        print_csv([part.facts() for part in comparison.rows], _COLUMNS)
    else:
        lines = comparison_lines(comparison, top)
        stdout().print("\n".join([*lines, *([] if verdict is None else ["", verdict.text])]), markup=False)
    if verdict is not None:
        _end(verdict, comparison, [new, *baselines])


def _end(verdict: Verdict, comparison: Comparison, answers: Sequence[SparkAnswer]) -> None:
    """End with the code of an alarm, or an error where runs cannot be judged; return where all is well."""
    cut = [answer.log.name for answer in answers if not answer.log.complete]
    if cut:
        message = f"{', '.join(cut)}: the log lacks the application's end, so the run cannot be judged."
        raise errors.AnalysisError(message, "Compare complete runs.", {"logs": cut})
    if min(comparison.matched) < _LEAST_MATCHED:
        message = (
            f"The runs have only {min(comparison.matched):.0%} of their work in common: they are not of the same kind."
        )
        raise errors.AnalysisError(
            message, "Give baselines of the same program.", {"matched": list(comparison.matched)}
        )
    if verdict.too_long:
        sys.exit(ALARM)
