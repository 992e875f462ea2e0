"""The answer for a log as one HTML page without anything to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

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
from pag_graph.diagnosis.spark.timeline import timeline
from pag_graph.model.units import in_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.look import Cause

__all__ = ["html_page"]

_MOST_STAGES = 30


def html_page(answers: list[SparkAnswer]) -> str:
    """Return a page with all answers, each with its timeline.

    Parameters
    ----------
    answers
        Of one log or more.

    Returns
    -------
    str
        HTML that loads nothing.
    """
    body = "\n".join(_section(answer) for answer in answers)
    title = answers[0].log.app_name if len(answers) == 1 else f"{len(answers)} applications"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{in_html(title or 'Spark application')}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


_STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;max-width:1150px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:.5em 0 1.2em}td,th{padding:.15em .8em .15em 0;text-align:left;"
    "vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
    "li{margin:.5em 0}.advice{color:#555}.bar{display:inline-block;height:.7em;background:#4e79a7}"
    "svg{max-width:100%;height:auto}"
)


def _section(answer: SparkAnswer) -> str:
    """Return one application: verdict, what to change, where the time went, then the rest."""
    html = [
        *_verdict(answer),
        *_changes(answer),
        *_causes(answer),
        *_where(answer),
        "<h2>Timeline</h2>",
        timeline(answer),
        *_what_if(answer),
        "<h2>Stages</h2>",
        _stage_rows(answer),
    ]
    if answer.diagnosis.suspicions:
        html.append("<h2>Worth a look</h2><p>Patterns of the plans; the log does not say how much time they took.</p>")
        rows = [[pattern.node, pattern.text, pattern.advice] for pattern in answer.diagnosis.suspicions]
        html.append(_table(["node", "what was seen", "what to look at"], rows))
    if answer.diagnosis.costs:
        items = "".join(f"<li>{in_html(cost_text(cost))}</li>" for cost in answer.diagnosis.costs)
        html.append(f"<h2>What could be given back</h2><p>No time is saved by it.</p><ul>{items}</ul>")
    if answer.diagnosis.not_recorded:
        items = "".join(f"<li>{in_html(missing.text)}</li>" for missing in answer.diagnosis.not_recorded)
        html.append(f"<h2>Not in this log</h2><ul>{items}</ul>")
    if answer.findings:
        html.append("<h2>What is odd about the log</h2><ul>")
        html += [f"<li>{count} x {in_html(name)}</li>" for name, count in answer.findings.items()]
        html.append("</ul>")
    return "\n".join(html)


def _verdict(answer: SparkAnswer) -> list[str]:
    log, diagnosis = answer.log, answer.diagnosis
    spark = f"{in_html(log.name)}, Spark {in_html(log.version or '?')}"
    before = f"{seconds(diagnosis.span_ns - diagnosis.active_ns)} before the first job"
    cut = "" if log.complete else " <b>The log does not have the application's end.</b>"
    html = [
        f"<h1>{in_html(log.app_name or log.app_id or log.name)}</h1>",
        f"<p>{spark}: {seconds(diagnosis.span_ns)}, of which {before}.{cut}</p>",
    ]
    if not diagnosis.causes:
        return [*html, *(f"<p>{in_html(line)}</p>" for line in nothing_lines(answer))]
    worst = diagnosis.causes[0]
    verdict = f"{worst.title}: {saving_text(worst, diagnosis.active_ns)}."
    return [*html, f"<p><b>{in_html(verdict)}</b> Most of the time: {in_html(answer.bound.text)}.</p>"]


def _changes(answer: SparkAnswer) -> list[str]:
    """Return the changes that save most, each with the values before and after it and what it saves."""
    if not answer.diagnosis.causes:
        return []
    replay = f"<p>{in_html(replay_text(answer.diagnosis))}.</p>"
    return ["<h2>What to change</h2>", _table(CHANGE_COLUMNS, change_rows(answer.diagnosis)), replay]


def _causes(answer: SparkAnswer) -> list[str]:
    diagnosis = answer.diagnosis
    html = ["<h2>Why it was slow</h2>", "<ol>"] if diagnosis.causes else []
    for cause in diagnosis.causes:
        traps = "".join(f"<br>{in_html(trap)}" for trap in cause.traps)
        html.append(
            f"<li><b>{in_html(cause.title)}</b>: {in_html(saving_text(cause, diagnosis.active_ns))},"
            f" {_KINDS[cause.kind]}<br>{_linked(cause)}"
            f'<br><span class="advice">{in_html(cause.advice)}{traps}</span></li>'
        )
    if diagnosis.causes:
        html.append("</ol>")
    html += [f"<p>{in_html(line)}</p>" for line in together_lines(diagnosis)]
    if diagnosis.minor:
        minor_causes = "; ".join(cause.text for cause in diagnosis.minor)
        html.append(f"<p>Also seen, each too little to matter: {in_html(minor_causes)}</p>")
    return html


_KINDS = {"M": "measured, then replayed", "B": "modelled"}


def _linked(cause: Cause) -> str:
    """Return what a cause says, with its stage as a link to the stage's row."""
    text = in_html(cause.text)
    name = f"Stage {cause.stage}"
    if cause.stage is None or not text.startswith(name):
        return text
    return f'<a href="#stage-{cause.stage}">{name}</a>{text[len(name) :]}'


def _where(answer: SparkAnswer) -> list[str]:
    """Return where the time went: the path by several divisions and by plan node, and the cores."""
    diagnosis = answer.diagnosis
    sentence = (
        f"Most of the time: {answer.bound.text}. Shares are of the critical path, which is as long as the application;"
        f" {answer.explained:.1%} of it is known, and for {answer.inferred:.0%} the place within a task is a policy."
    )
    html = ["<h2>Where the time went</h2>", f"<p>{in_html(sentence)}</p>"]
    for title, rows in answer.shares.items():
        html.append(_table([title, "time", "share", ""], [_share_row(path_row) for path_row in rows[:12]]))
    nodes = [
        [
            "" if node_row["query"] is None else f"query {node_row['query']}",
            str(node_row["name"]),
            seconds(node_row["path_ns"]),
            seconds(node_row["task_ns"]),
            "" if node_row["measured"] else "not measured apart",
        ]
        for node_row in answer.plan_nodes[:15]
    ]
    if nodes:
        html.append(_table(["query", "plan node", "time on the path", "time of all tasks", ""], nodes))
    core_time_ns = max(sum(diagnosis.core_ns.values()), 1)
    used, wasted, idle = (f"{diagnosis.core_ns[name] / core_time_ns:.0%}" for name in ("busy", "wasted", "idle"))
    sentence = f"Core time since the first job: {used} in tasks that counted, {wasted} wasted on others, {idle} idle."
    return [*html, f"<p>{sentence}</p>"]


def _what_if(answer: SparkAnswer) -> list[str]:
    diagnosis = answer.diagnosis
    changes = [[what_if.change, what_if.end.text(seconds), what_if.saving.text(seconds)] for what_if in answer.what_if]
    changes += [
        [prediction.label, seconds(diagnosis.span_ns) if prediction.recorded else prediction.end.text(seconds), ""]
        for prediction in answer.cores
    ]
    html = ["<h2>Other cores, and other changes</h2>", _table(["change", "predicted", "saved"], changes)]
    return [*html, f"<p>{in_html(replay_text(diagnosis))}.</p>"] if answer.cores else html


class _Bar:
    """A cell that shows a share: the only one that is no text."""

    def __init__(self, share: float) -> None:
        self.html = f'<span class="bar" style="width:{max(1, round(share * 300))}px"></span>'


def _share_row(path_row: dict[str, Any]) -> list[str | _Bar]:
    return [path_row["key"], seconds(path_row["path_ns"]), f"{path_row['share']:.1%}", _Bar(path_row["share"])]


def _table(head: list[str], rows: Sequence[Sequence[str | _Bar]], marks: Sequence[str] = ()) -> str:
    """Return a table; `marks` are the names by which its rows can be linked to."""

    def cell(tag: str, text: str | _Bar) -> str:
        number = isinstance(text, str) and text[:1].isdigit() and tag == "td"
        content = text.html if isinstance(text, _Bar) else in_html(text)
        return f"<{tag}{' class=n' if number else ''}>{content}</{tag}>"

    lines = ["<table><tr>" + "".join(cell("th", text) for text in head) + "</tr>"]
    for number, cells in enumerate(rows):
        mark = f' id="{marks[number]}"' if number < len(marks) and marks[number] else ""
        lines.append(f"<tr{mark}>" + "".join(cell("td", text) for text in cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _stage_rows(answer: SparkAnswer) -> str:
    names = answer.mapped.operators
    rows: list[list[str]] = []
    marks: list[str] = []
    cause_stages = {cause.stage for cause in answer.diagnosis.causes}
    # Those that a cause names are there, whatever they took.
    stages = answer.diagnosis.stages.sort(
        pl.col("stage").is_in(list(cause_stages - {None})), "busy_ns", descending=True
    )
    for stage_row in stages.head(_MOST_STAGES).iter_rows(named=True):
        mark = f"stage-{stage_row['stage']}"
        marks.append("" if mark in marks else mark)
        operator = names.stages.get((stage_row["stage"], stage_row["stage_attempt"]))
        rows.append(
            [
                names.names[operator] if operator is not None else f"stage {stage_row['stage']}",
                f"{stage_row['tasks']:,}",
                f"{stage_row['failed']:,}",
                seconds(stage_row["busy_ns"]),
                seconds(stage_row["median_ns"]),
                seconds(stage_row["max_ns"]),
                f"{stage_row['gc_ns'] / max(stage_row['run_ns'], 1):.0%}",
                f"{stage_row['read_bytes'] / 2**20:,.1f} MiB",
                f"{stage_row['spilled_bytes'] / 2**20:,.1f} MiB",
            ]
        )
    return _table(["stage", "tasks", "failed", "core time", "median", "longest", "GC", "read", "spilled"], rows, marks)
