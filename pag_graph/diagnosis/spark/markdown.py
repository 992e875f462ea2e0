"""The answer for a log as Markdown of at most 60 lines: for a comment under a change, or an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.lines import (
    CHANGE_COLUMNS,
    change_rows,
    cost_text,
    nothing_lines,
    replay_text,
    saving_text,
    seconds,
    together_lines,
)
from pag_graph.model.units import in_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer

__all__ = ["LINES", "markdown_text"]

LINES = 60
"""Lines of an answer, at most."""
_ROWS = 5
"""Rows of each table, at most."""
_LONGEST = 400
"""Characters of a cell, at most."""


def markdown_text(answer: SparkAnswer) -> str:
    """Return the answer for a log as Markdown.

    Parameters
    ----------
    answer
        Of one log.

    Returns
    -------
    str
        The verdict, what to change, where the time went, what is worth a look, and how sure all this is. At most
        `LINES` lines; texts of the log show as they are, and do nothing.
    """
    log, diagnosis = answer.log, answer.diagnosis
    before = seconds(diagnosis.span_ns - diagnosis.active_ns)
    lines = [
        f"### {in_markdown(log.app_name or log.app_id or log.name)}: {seconds(diagnosis.span_ns)}",
        "",
        in_markdown(f"{log.name}, Spark {log.version or '?'}; {before} of it before the first job."),
    ]
    if not log.complete:
        lines.append("**The log does not have the application's end: this is about what is there.**")
    lines.append("")
    if diagnosis.causes:
        worst = diagnosis.causes[0]
        lines.append(f"**{in_markdown(worst.title)}**: {in_markdown(saving_text(worst, diagnosis.active_ns))}.")
        lines += [in_markdown(_cut(worst.text)), "", *_table(CHANGE_COLUMNS, change_rows(diagnosis)[:_ROWS])]
    else:
        lines += [in_markdown(line.strip()) for line in nothing_lines(answer)]
    for title in ("activity", "stage"):
        rows = [
            [str(path_row["key"]), seconds(path_row["path_ns"]), f"{path_row['share']:.0%}"]
            for path_row in answer.shares[title][:_ROWS]
        ]
        lines += ["", *_table([f"critical path by {title}", "time", "share"], rows)]
    if diagnosis.suspicions:
        rows = [[pattern.node, pattern.text, pattern.advice] for pattern in diagnosis.suspicions[:_ROWS]]
        lines += ["", *_table(["worth a look", "seen", "what to look at"], rows)]
    if diagnosis.costs:
        lines += ["", *(in_markdown(_cut(cost_text(cost))) for cost in diagnosis.costs)]
    sure = f"{answer.explained:.1%} of the path is explained; {replay_text(diagnosis)}."
    lines += ["", in_markdown(" ".join([sure, *together_lines(diagnosis)]))]
    if diagnosis.not_recorded:
        lines.append(in_markdown(f"Not in this log: {'; '.join(missing.text for missing in diagnosis.not_recorded)}."))
    if answer.findings:
        counted = ", ".join(f"{count} x {name}" for name, count in answer.findings.items())
        lines.append(in_markdown(f"Findings: {counted}."))
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = ["| " + " | ".join(in_markdown(_cut(cell)) for cell in cells) + " |" for cells in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
