"""The answer for a log as lines of text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.model.units import printable

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.causes import Diagnosis
    from pag_graph.diagnosis.spark.changes import Change
    from pag_graph.diagnosis.spark.costs import Cost
    from pag_graph.diagnosis.spark.look import Cause
    from pag_graph.diagnosis.spark.what_if import WithCores

__all__ = [
    "CHANGE_COLUMNS",
    "change_rows",
    "cost_text",
    "nothing_lines",
    "replay_text",
    "saving_text",
    "seconds",
    "text_lines",
    "together_lines",
]

_SHOWN = 6
_SAVINGS = 3
_CHANGED = 3
"""Causes whose changes come first in what people read."""
CHANGE_COLUMNS = ["cause", "what to change", "recorded", "proposed", "saves", "with this and those above"]


def seconds(ns: float) -> str:
    """Return nanoseconds as people read them.

    Examples
    --------
    >>> seconds(12_070_000_000), seconds(3_000_000)
    ('12.07 s', '3 ms')
    """
    return f"{ns / 1e9:,.2f} s" if abs(ns) >= 1e9 else f"{ns / 1e6:.0f} ms"  # noqa: PLR2004 a second


def text_lines(answer: SparkAnswer, top: int = _SHOWN) -> list[str]:
    """Return the answer as lines of text.

    Parameters
    ----------
    answer
        Of one log.
    top
        Rows of each table.

    Returns
    -------
    list of str
        The causes come first.
    """
    log, diagnosis = answer.log, answer.diagnosis
    name = log.app_name or log.app_id or log.name
    before = diagnosis.span_ns - diagnosis.active_ns
    spark = f"{log.name}, Spark {log.version or '?'}"
    lines = [f"{name} ({spark}): {seconds(diagnosis.span_ns)}, of which {seconds(before)} before the first job."]
    if not log.complete:
        lines.append("The log does not have the application's end: this is about what is there.")
    lines.append("")
    if diagnosis.causes:
        lines.append("Why it was slow (what the application would have saved without it):")
        for number, cause in enumerate(diagnosis.causes, 1):
            lines += [
                f"  {number}. {cause.title}: {saving_text(cause, diagnosis.active_ns)}",
                f"     {cause.text}",
                f"     {cause.advice}",
                *(f"     change: {change.text}" for change in cause.changes),
            ]
        lines += [f"  {line}" for line in [*together_lines(diagnosis), *_cumulative_lines(diagnosis)]]
    else:
        lines += nothing_lines(answer)
    if diagnosis.minor:
        lines.append("Also seen, each too little to matter: " + "; ".join(cause.text for cause in diagnosis.minor))
    if diagnosis.suspicions:
        lines.append("Worth a look, though the log does not say how much time it took:")
        lines += [f"  {pattern.node}: {pattern.text} {pattern.advice}" for pattern in diagnosis.suspicions[:top]]
    if diagnosis.costs:
        lines.append("What could be given back, without time to save:")
        lines += [f"  {cost_text(cost)}" for cost in diagnosis.costs]
    lines += ["", *_path_lines(answer, top)]
    busy = diagnosis.core_ns
    core_time_ns = max(sum(busy.values()), 1)
    used, wasted, idle = (f"{busy[name] / core_time_ns:.0%}" for name in ("busy", "wasted", "idle"))
    lines += [
        "",
        f"Core time since the first job: {used} in tasks that counted, {wasted} wasted on others, {idle} idle.",
    ]
    if answer.what_if:
        lines += ["", "What if (the recorded tasks scheduled again):"]
        lines += [f"  {what_if.change}: {what_if.saving.text(seconds)} sooner" for what_if in answer.what_if[:top]]
    if answer.cores:
        lines.append("  " + ", ".join(_cores_text(prediction, diagnosis) for prediction in answer.cores))
        lines.append(f"  ({replay_text(diagnosis)})")
    counted = ", ".join(f"{count} x {name}" for name, count in answer.findings.items())
    if counted:
        lines += ["", f"Findings: {counted}."]
    if diagnosis.not_recorded:
        lines.append("Not in this log: " + "; ".join(missing.text for missing in diagnosis.not_recorded) + ".")
    return [printable(line) for line in lines]


def _path_lines(answer: SparkAnswer, top: int) -> list[str]:
    """Say where the time of the critical path went, by each of its divisions and by plan node."""
    lines = [f"Critical path, {seconds(int(answer.steps['duration_ns'].sum()))} = the whole application:"]
    for title, rows in answer.shares.items():
        if title == "query" and len(rows) == 1:
            continue
        shares = [f"{path_row['key']} {path_row['share']:.0%}" for path_row in rows[:top]]
        lines.append(f"  by {title}: " + ", ".join(shares) + (", ..." if len(rows) > top else ""))
    if answer.plan_nodes:
        timed = [node_row for node_row in answer.plan_nodes[:top] if node_row["path_ns"]]
        times = [f"{node_row['name']} {seconds(node_row['path_ns'])}" for node_row in timed]
        lines.append("  by plan node: " + ", ".join(times))
    lines.append(
        f"  {answer.explained:.1%} of it is explained; for {answer.inferred:.0%} the place within a task is by policy."
    )
    return lines


def cost_text(cost: Cost) -> str:
    """Spell what could be given back, and what that is worth."""
    return f"{cost.text} change: {cost.change.text} (saves {cost.saved:,.3g} {cost.unit})"


def nothing_lines(answer: SparkAnswer) -> list[str]:
    """Say what the time is bound by where no cause stands out, and which changes would save most."""
    lines = ["Nothing stands out: no single cause would save much.", f"  Most of the time: {answer.bound.text}."]
    if savings := _largest_savings(answer):
        lines.append(f"  Largest savings, replayed: {savings}.")
    return lines


def change_rows(diagnosis: Diagnosis) -> list[list[str]]:
    """Return what to change for the causes that cost most.

    Parameters
    ----------
    diagnosis
        Of one log.

    Returns
    -------
    list
        One row per change, with the texts of `CHANGE_COLUMNS`; a cause and its saving stand in its first row only.
    """
    rows = []
    for cause in diagnosis.causes[:_CHANGED]:
        after = "" if cause.cumulative is None else cause.cumulative.text(seconds)
        saving = saving_text(cause, diagnosis.active_ns)
        for number, change in enumerate(cause.changes or (None,)):
            change_cells = [cause.advice, "", ""] if change is None else _change_cells(change)
            rows.append(
                [cause.title if number == 0 else "", *change_cells, *((saving, after) if number == 0 else ("", ""))]
            )
    return rows


def _change_cells(change: Change) -> list[str]:
    recorded = "unknown" if change.recorded is None else change.recorded
    origin = f" ({change.source})" if change.source in {"query", "default"} else ""
    place = f", in {change.place}" if change.place else ""
    return [f"{change.what}{place}", f"{recorded}{origin}", change.proposed]


def _largest_savings(answer: SparkAnswer) -> str:
    rows = answer.what_if[:_SAVINGS]
    return "; ".join(f"{what_if.change}: {what_if.saving.text(seconds)}" for what_if in rows)


def _cumulative_lines(diagnosis: Diagnosis) -> list[str]:
    """Say when the application ends with one change after the other."""
    ends = [(number, cause.cumulative) for number, cause in enumerate(diagnosis.causes, 1) if cause.cumulative]
    if len(ends) < 2:  # noqa: PLR2004 several add up, or do not
        return []
    spelt_ends = ", ".join(f"{number}: {end.text(seconds)}" for number, end in ends)
    return [f"With each change and those before it the application takes at least: {spelt_ends}."]


def together_lines(diagnosis: Diagnosis) -> list[str]:
    """Say what several savings mean together; nothing where there are no two."""
    if len(diagnosis.causes) < 2:  # noqa: PLR2004 two
        return []
    together = (
        "Each saving is of its change alone: they do not add up, and where causes share the time of tasks or of the"
        " driver, one change can save more than its bound."
    )
    return [together]


def saving_text(cause: Cause, active_ns: int) -> str:
    """Spell what would be saved without a cause: a time, and its share of the time since the first job.

    Parameters
    ----------
    cause
        With its `saving`; of a bound it says ``at most``.
    active_ns
        The time since the first job, in nanoseconds.
    """
    share = cause.saving.text(lambda ns: f"{ns / active_ns:.0%}")
    at_most = "at most " if cause.bound and cause.saving.reliable else ""
    return f"{at_most}{cause.saving.text(seconds)} ({share} of the time since the first job)"


def _cores_text(prediction: WithCores, diagnosis: Diagnosis) -> str:
    if prediction.recorded:
        return f"{prediction.label} {seconds(diagnosis.span_ns)}"
    return f"{prediction.label} {prediction.end.text(seconds)}"


def replay_text(diagnosis: Diagnosis) -> str:
    """Say how far off the replay of what was recorded is, and what follows from it."""
    replay = (
        f"scheduled again with the recorded cores: {seconds(diagnosis.simulated_ns)}, off by"
        f" {diagnosis.replay_error:+.1%} of the time since the first job"
    )
    return replay if diagnosis.reliable else f"{replay}: too far for single numbers, so replayed times are intervals"
