"""The answer for a log as text for a terminal and as one HTML page without anything to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.formats import svg
from pag_graph.model.units import in_html, printable
from pag_graph.sources.spark.schedule import executor_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.causes import Diagnosis
    from pag_graph.diagnosis.spark.look import Cause
    from pag_graph.diagnosis.spark.what_if import WithCores

__all__ = ["html_page", "text_lines"]

_WIDTH, _ROW, _LEFT = 1100, 16, 150
_MOST_ROWS = 48
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7")
_WASTED, _PATH, _DRIVER = "#c0392b", "#111111", "#8a8f98"
_SHOWN = 6
_SAVINGS = 3


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
        lines += _cumulative_lines(diagnosis)
    else:
        lines += _nothing_lines(answer)
    if diagnosis.minor:
        lines.append("Also seen, each too little to matter: " + "; ".join(cause.text for cause in diagnosis.minor))
    lines += ["", f"Critical path, {seconds(int(answer.steps['duration_ns'].sum()))} = the whole application:"]
    for title, rows in answer.shares.items():
        if title == "query" and len(rows) == 1:
            continue
        shown = [f"{row['key']} {row['share']:.0%}" for row in rows[:top]]
        lines.append(f"  by {title}: " + ", ".join(shown) + (", ..." if len(rows) > top else ""))
    if answer.plan_nodes:
        shown = [f"{row['name']} {seconds(row['path_ns'])}" for row in answer.plan_nodes[:top] if row["path_ns"]]
        lines.append("  by plan node: " + ", ".join(shown))
    lines.append(
        f"  {answer.explained:.1%} of it is explained; for {answer.inferred:.0%} the place within a task is by policy."
    )
    busy = diagnosis.core_ns
    whole = max(sum(busy.values()), 1)
    used, wasted, idle = (f"{busy[name] / whole:.0%}" for name in ("busy", "wasted", "idle"))
    lines += [
        "",
        f"Core time since the first job: {used} in tasks that counted, {wasted} wasted on others, {idle} idle.",
    ]
    if answer.what_if:
        lines += ["", "What if (the recorded tasks scheduled again):"]
        lines += [f"  {row.change}: {row.saving.text(seconds)} sooner" for row in answer.what_if[:top]]
    if answer.cores:
        lines.append("  " + ", ".join(_cores_text(row, diagnosis) for row in answer.cores))
        lines.append(f"  ({_replay_text(diagnosis)})")
    counted = ", ".join(f"{count} x {name}" for name, count in answer.findings.items())
    if counted:
        lines += ["", f"Findings: {counted}."]
    return [printable(line) for line in lines]


def _nothing_lines(answer: SparkAnswer) -> list[str]:
    """Say what the time is bound by where no cause stands out, and which changes would save most."""
    lines = ["Nothing stands out: no single cause would save much.", f"  Most of the time: {answer.bound.text}."]
    if savings := _largest_savings(answer):
        lines.append(f"  Largest savings, replayed: {savings}.")
    return lines


def _largest_savings(answer: SparkAnswer) -> str:
    rows = answer.what_if[:_SAVINGS]
    return "; ".join(f"{row.change}: {row.saving.text(seconds)}" for row in rows)


def _cumulative_lines(diagnosis: Diagnosis) -> list[str]:
    """Say when the application ends with one change after the other."""
    ends = [(number, cause.cumulative) for number, cause in enumerate(diagnosis.causes, 1) if cause.cumulative]
    if len(ends) < 2:  # noqa: PLR2004 several add up, or do not
        return []
    told = ", ".join(f"{number}: {end.text(seconds)}" for number, end in ends)
    return [f"  With each change and those before it the application takes at least: {told}."]


def saving_text(cause: Cause, active_ns: int) -> str:
    """Spell what would be saved without a cause, as a time and a share of the time since the first job."""
    part = cause.saving.text(lambda ns: f"{ns / active_ns:.0%}")
    most = "at most " if cause.bound and cause.saving.reliable else ""
    return f"{most}{cause.saving.text(seconds)} ({part} of the time since the first job)"


def _cores_text(row: WithCores, diagnosis: Diagnosis) -> str:
    if row.recorded:
        return f"{row.label} {seconds(diagnosis.span_ns)}"
    return f"{row.label} {row.end.text(seconds)}"


def _replay_text(diagnosis: Diagnosis) -> str:
    """Say how far off the replay of what was recorded is, and what follows from it."""
    told = (
        f"scheduled again with the recorded cores: {seconds(diagnosis.simulated_ns)}, off by"
        f" {diagnosis.replay_error:+.1%} of the time since the first job"
    )
    return told if diagnosis.reliable else f"{told}: too far for single numbers, so replayed times are intervals"


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
    log, diagnosis = answer.log, answer.diagnosis
    spark = f"{in_html(log.name)}, Spark {in_html(log.version or '?')}"
    before = f"{seconds(diagnosis.span_ns - diagnosis.active_ns)} before the first job"
    cut = "" if log.complete else " <b>The log does not have the application's end.</b>"
    parts = [
        f"<h1>{in_html(log.app_name or log.app_id or log.name)}</h1>",
        f"<p>{spark}: {seconds(diagnosis.span_ns)}, of which {before}.{cut}</p>",
        "<h2>Why it was slow</h2>",
    ]
    if diagnosis.causes:
        parts.append("<ol>")
        parts += [
            f"<li><b>{in_html(cause.title)}</b>: {in_html(saving_text(cause, diagnosis.active_ns))}"
            f'<br>{in_html(cause.text)}<br><span class="advice">{in_html(cause.advice)}'
            f"{''.join(f'<br>{in_html(change.text)}' for change in cause.changes)}</span></li>"
            for cause in diagnosis.causes
        ]
        parts.append("</ol>")
    else:
        parts += [f"<p>{in_html(line)}</p>" for line in _nothing_lines(answer)]
    if diagnosis.minor:
        told = "; ".join(cause.text for cause in diagnosis.minor)
        parts.append(f"<p>Also seen, each too little to matter: {in_html(told)}</p>")
    parts += ["<h2>Timeline</h2>", _timeline(answer), "<h2>Critical path</h2>"]
    for title, rows in answer.shares.items():
        parts.append(_table([title, "time", "share", ""], [_share_row(row) for row in rows[:12]]))
    if answer.plan_nodes:
        nodes = [
            [
                "" if row["query"] is None else f"query {row['query']}",
                str(row["name"]),
                seconds(row["path_ns"]),
                seconds(row["task_ns"]),
                "" if row["measured"] else "not measured apart",
            ]
            for row in answer.plan_nodes[:15]
        ]
        parts.append(_table(["query", "plan node", "time on the path", "time of all tasks", ""], nodes))
    parts.append("<h2>What if</h2>")
    changes = [[row.change, row.end.text(seconds), row.saving.text(seconds)] for row in answer.what_if]
    changes += [
        [row.label, seconds(diagnosis.span_ns) if row.recorded else row.end.text(seconds), ""] for row in answer.cores
    ]
    parts.append(_table(["change", "predicted", "saved"], changes))
    if answer.cores:
        parts.append(f"<p>{in_html(_replay_text(diagnosis))}.</p>")
    parts += ["<h2>Stages</h2>", _stage_rows(answer)]
    if answer.findings:
        parts.append("<h2>Findings</h2><ul>")
        parts += [f"<li>{count} x {in_html(name)}</li>" for name, count in answer.findings.items()]
        parts.append("</ul>")
    return "\n".join(parts)


class _Bar:
    """A cell that shows a share: the only one that is no text."""

    def __init__(self, share: float) -> None:
        self.html = f'<span class="bar" style="width:{max(1, round(share * 300))}px"></span>'


def _share_row(row: dict[str, Any]) -> list[str | _Bar]:
    return [row["key"], seconds(row["path_ns"]), f"{row['share']:.1%}", _Bar(row["share"])]


def _table(head: list[str], rows: Sequence[Sequence[str | _Bar]]) -> str:
    def cell(tag: str, text: str | _Bar) -> str:
        number = isinstance(text, str) and text[:1].isdigit() and tag == "td"
        content = text.html if isinstance(text, _Bar) else in_html(text)
        return f"<{tag}{' class=n' if number else ''}>{content}</{tag}>"

    lines = ["<table><tr>" + "".join(cell("th", text) for text in head) + "</tr>"]
    lines += ["<tr>" + "".join(cell("td", text) for text in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _stage_rows(answer: SparkAnswer) -> str:
    names = answer.mapped.operators
    rows = []
    for row in answer.diagnosis.stages.sort("busy_ns", descending=True).head(30).iter_rows(named=True):
        operator = names.stages.get((row["stage"], row["stage_attempt"]))
        rows.append(
            [
                names.names[operator] if operator is not None else f"stage {row['stage']}",
                f"{row['tasks']:,}",
                f"{row['failed']:,}",
                seconds(row["busy_ns"]),
                seconds(row["median_ns"]),
                seconds(row["max_ns"]),
                f"{row['gc_ns'] / max(row['run_ns'], 1):.0%}",
                f"{row['read_bytes'] / 2**20:,.1f} MiB",
                f"{row['spilled_bytes'] / 2**20:,.1f} MiB",
            ]
        )
    return _table(["stage", "tasks", "failed", "core time", "median", "longest", "GC", "read", "spilled"], rows)


def _timeline(answer: SparkAnswer) -> str:
    """Draw who did what: the driver's jobs, every core's tasks by stage, and the critical path above them."""
    schedule, mapped = answer.mapped.schedule, answer.mapped
    scale = _WIDTH / max(schedule.end_ns, 1)
    rows: list[str] = []
    shapes: list[str] = []

    def box(row: int, start: int, end: int, colour: str, words: str, *, thin: bool = False) -> None:
        x, width = _LEFT + start * scale, max((end - start) * scale, 0.4)
        y, height = row * _ROW + (0 if thin else 3), (2.5 if thin else _ROW - 5)
        shapes.append(svg.rect(x, y, width, height, colour, title=words))

    lanes = min(mapped.lanes, 8)
    rows += ["driver" if lane == 0 else f"driver lane {lane + 1}" for lane in range(lanes)]
    for job in schedule.jobs:
        if job.lane < lanes:
            span = seconds(job.end_ns - job.start_ns)
            box(job.lane, job.start_ns, job.end_ns, _DRIVER, f"{job.label}: {job.name} ({span})")
    ends = executor_ends(schedule)
    executors = schedule.executors.to_dicts()
    shown = min(len(schedule.cores), _MOST_ROWS)
    for index in range(shown):
        core = schedule.cores[index]
        executor = executors[core.executor]
        label = "local" if executor["executor"] == "driver" else f"executor {executor['executor']}"
        rows.append(f"{label} core {core.number + 1}")
        box(lanes + index, executor["added"], ends[core.executor], "#eceff3", f"{label} on {executor['host']}")
    for place, stage, colour, start, end, count, counted in _boxes(schedule.tasks, shown, 1 / scale):
        text = f"stage {stage}, {count} task{'s' if count > 1 else ''}, {seconds(end - start)}"
        box(lanes + place, start, end, colour if counted else _WASTED, text + ("" if counted else ", did not count"))
    row_of = {**{lane: lane for lane in range(lanes)}, **{mapped.lanes + k: lanes + k for k in range(shown)}}
    for worker, start, length in _path(answer.steps, 0.5 / scale):
        if worker in row_of:
            box(row_of[worker], start, start + length, _PATH, "critical path", thin=True)
    labels = [svg.text(0, row * _ROW + 12, words, font_size=11) for row, words in enumerate(rows)]
    height = len(rows) * _ROW + 20
    tenths = [(_LEFT + _WIDTH * k / 10, f"{schedule.end_ns * k / 10 / 1e9:.1f} s") for k in range(11)]
    left_out = len(schedule.cores) - shown + sum(max(0, more) for more in schedule.more_cores)
    note = f"<p>{left_out:,} more cores are not drawn.</p>" if left_out else ""
    drawn = [*labels, *shapes, *svg.marks(tenths, height - 4, font_size=10)]
    return (
        svg.document(drawn, _LEFT + _WIDTH + 30, height, family="system-ui,sans-serif")
        + "<p>Grey: jobs. Coloured: tasks by stage; red: attempts that did not count. The line above: the critical"
        f" path.</p>{note}"
    )


def _boxes(tasks: pl.DataFrame, cores: int, pixel: float) -> list[tuple[int, int, str, int, int, int, bool]]:
    """Return what to draw: tasks of one stage that touch within a pixel are one box."""
    rows = (
        tasks.filter(pl.col("core") < cores)
        .with_columns(counted=pl.col("succeeded") | pl.col("running"))
        .sort("core", "receipt")
        .with_columns(
            new=(
                (pl.col("stage") != pl.col("stage").shift(1).over("core"))
                | (pl.col("counted") != pl.col("counted").shift(1).over("core"))
                | (pl.col("receipt") - pl.col("free").shift(1).over("core") > pixel)
                | (pl.col("free") - pl.col("receipt") > 3 * pixel)
            ).fill_null(value=True)
        )
        .with_columns(box=pl.col("new").cum_sum())
        .group_by("box", maintain_order=True)
        .agg(
            pl.col("core").first(),
            pl.col("stage").first(),
            pl.col("receipt").min().alias("start"),
            pl.col("free").max().alias("end"),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("counted").first(),
        )
    )
    return [
        (core, stage, _COLOURS[stage % len(_COLOURS)], start, end, count, counted)
        for _, core, stage, start, end, count, counted in rows.iter_rows()
    ]


def _path(steps: pl.DataFrame, pixel: float) -> list[tuple[int, int, int]]:
    """Return the path's local steps: neighbours on one worker are one line."""
    local = steps.filter((pl.col("worker") == pl.col("to_worker")) & (pl.col("duration_ns") > 0)).sort("start_ns")
    rows = (
        local.with_columns(
            new=(
                (pl.col("worker") != pl.col("worker").shift(1))
                | (pl.col("start_ns") - (pl.col("start_ns") + pl.col("duration_ns")).shift(1) > pixel)
            ).fill_null(value=True)
        )
        .with_columns(line=pl.col("new").cum_sum())
        .group_by("line", maintain_order=True)
        .agg(
            pl.col("worker").first(),
            pl.col("start_ns").min(),
            (pl.col("start_ns") + pl.col("duration_ns")).max().alias("end"),
        )
    )
    return [(worker, start, end - start) for _, worker, start, end in rows.iter_rows()]
