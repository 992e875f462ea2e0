"""`pag spans`: point it at traces of requests and hear where their time goes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.output import (
    Format,
    compiling,
    print_csv,
    print_json,
    print_rows,
    progress,
    stderr,
    stdout,
    tell_next,
)
from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import duration, printable

if TYPE_CHECKING:
    from pag_graph.diagnosis.spans.answer import SpanAnswer

_OPERATION_COLUMNS = [
    *("operation", "calls", "path_ns", "share", "certain_ns", "network_ns"),
    *("path_mean_ns", "path_p50_ns", "path_p90_ns", "path_p95_ns", "path_p99_ns"),
    *("own_ns", "own_mean_ns", "own_p50_ns", "own_p90_ns", "own_p95_ns", "own_p99_ns"),
]
_SHADES = " .:-=+*#%@"


class Policy(StrEnum):
    """Whose rules say what a request's path is."""

    PAG = "pag"
    JAEGER = "jaeger"
    CRISP = "crisp"


def spans(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="Files of spans, or folders with such files.")
    ],
    policy: Annotated[
        Policy,
        typer.Option(help="Rules of the critical path: pag, or for comparison those of Jaeger's UI or of CRISP."),
    ] = (Policy.PAG),
    sync: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE[/OPERATION]",
            help="This service or operation waits for everything that it calls; may be repeated.",
        ),
    ] = None,
    request: Annotated[
        str | None, typer.Option(metavar="ID", help="Also show this trace. With --out: keep only this trace.")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="TRACE", help="Spans from before to compare with; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep trace and store here, for all other commands.")
    ] = None,
    slowest: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --out: keep only the N slowest requests.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what is in the directory.")] = False,
    top: Annotated[int, typer.Option(min=1, help="Rows of each part of the text.")] = 8,
    form: Annotated[Format, typer.Option("--format", help="table for people, json with all, csv by operation.")] = (
        Format.TABLE
    ),
) -> None:
    """Say where the time of requests goes, from spans of Jaeger, OpenTelemetry or Zipkin.

    Reads Jaeger JSON, OTLP (JSON lines and protobuf) and Zipkin v2, plain or compressed.

    Example: pag spans traces.json --against last-week.json
    """
    if policy is not Policy.PAG:
        _refuse_options(policy, are_given=bool(sync or request or against or out or slowest))
        _compare(traces, policy, top, form)
        return
    _check_selection(slowest, request, out)
    from pag_graph.diagnosis.spans.answer import answer

    with (
        progress(quiet=form is not Format.TABLE) as report,
        compiling("spans", quiet=form is not Format.TABLE, report=report),
        answer(traces, sync=sync or (), request=request, against=against or ()) as span_answer,
    ):
        store = None if out is None else _keep(span_answer, out, (slowest, request), replace=replace)
    if form is Format.JSON:
        print_json(span_answer.facts())
    elif form is Format.CSV:
        print_csv(span_answer.operations, _OPERATION_COLUMNS)
    else:
        _print(span_answer, top)
        if store is not None:
            tell_next("pag", "critical-path", store, "--epoch", "2")


def _refuse_options(policy: Policy, *, are_given: bool) -> None:
    if are_given:
        message = f"The policy {policy} only compares: it takes no --sync, --request, --against, --out, --slowest."
        raise InvalidParameterError(message, "Leave out the policy, or the other options.", {"policy": str(policy)})


def _check_selection(slowest: int | None, request: str | None, out: Path | None) -> None:
    if slowest is not None and (out is None or request is not None):
        message = "--slowest says which requests --out keeps, instead of --request."
        raise InvalidParameterError(message, "Give --out DIR with one of both.")


def _keep(span_answer: SpanAnswer, out: Path, selection: tuple[int | None, str | None], *, replace: bool) -> Path:
    """Write trace and store of the requests that are wanted; returns the store."""
    from pag_graph import api

    count, request = selection
    span_answer.write(out / "trace", slowest=count, request=request, replace=replace)
    api.build(out / "trace", out / "pag", engine="local", mode="replace" if replace else "error")
    return out / "pag"


def _compare(traces: list[Path], policy: Policy, top: int, form: Format) -> None:
    from pag_graph.diagnosis.spans.comparison import compared
    from pag_graph.sources.spans.files import read_parts

    with read_parts(traces) as parts:
        facts = compared((read_table() for read_table in parts.tables), str(policy))
    if form is Format.JSON:
        print_json(facts)
    elif form is Format.CSV:
        print_csv(facts["operations"], ["operation", "path_ns"])
    else:
        print_rows(_readable(facts["operations"][:top]), ["operation", "path"], f"Path by operation ({policy})")
        if facts["empty"]:
            stderr().print(f"{facts['empty']} traces have no path under this policy.", style="yellow")


def _readable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with times as people read them, ``_ns`` left out of their names."""
    return [
        {name.removesuffix("_ns"): duration(value) if name.endswith("_ns") else value for name, value in row.items()}
        for row in rows
    ]


def _print(span_answer: SpanAnswer, top: int) -> None:
    from pag_graph.diagnosis.spans.answer import path_rows

    facts = span_answer.facts()
    latency = facts["latency_ns"]
    certain = facts["certain_ns"] / latency if latency else 1.0
    _say(
        f"{facts['requests']:,} requests of {facts['spans']:,} spans ({facts['format']}); "
        f"{certain:.0%} of their paths is certain, the rest possible."
    )
    for shown_request in span_answer.shown:
        head = f"{shown_request['role'].capitalize()} request: {shown_request['operation']}"
        head += f", {duration(shown_request['latency_ns'])}"
        _say(f"\n{head}, {shown_request['certain_share']:.0%} certain, trace {shown_request['trace']}")
        rows = path_rows(shown_request, top)
        share = [{**row, "share": row["path_ns"] / max(1, shown_request["latency_ns"])} for row in rows]
        print_rows(_readable(share), ["operation", "path", "certain", "share"])
    _say("")
    columns = ["operation", "calls", "path", "share", "path_mean", "path_p99", "own_mean", "own_p99", "by latency"]
    heat = _heat(span_answer)
    rows = [{**row, "by latency": heat[row["operation"]]} for row in span_answer.operations[:top]]
    print_rows(_readable(rows), columns, "By operation (last column: share of the path, fastest requests first)")
    columns = ["call path", "calls", "own", "path", "share"]
    print_rows(
        _readable(_call_paths(span_answer, top)), columns, "Call paths with most of the path, below their callers"
    )
    if span_answer.changes:
        _print_changes(span_answer, top)
    _print_findings(span_answer.findings, top)
    if facts["left_out_requests"]:
        count = facts["left_out_requests"]
        stderr().print(f"left out: {count:,} requests without their roots", markup=False, style="yellow")


def _say(text: str) -> None:
    stdout().print(printable(text) if not text.startswith("\n") else "\n" + printable(text[1:]), markup=False)


def _heat(span_answer: SpanAnswer) -> dict[str, str]:
    """Return per operation a mark for each class of latency: the darker, the more of the paths it takes."""
    marks: dict[str, str] = {}
    for operation in span_answer.operations:
        letters = []
        for place in span_answer.latencies:
            total = sum(place["path_ns"].values())
            share = place["path_ns"].get(operation["operation"], 0) / total if total else 0.0
            letters.append(_SHADES[min(len(_SHADES) - 1, round(share * len(_SHADES)))])
        marks[operation["operation"]] = "".join(letters)
    return marks


def _call_paths(span_answer: SpanAnswer, top: int) -> list[dict[str, Any]]:
    """Return the call paths that paths spend most time in, and those above them, from the roots down."""
    rows = span_answer.call_paths
    latency = max(1, sum(call_path["path_ns"] for call_path in rows))
    chosen: set[int] = set()
    for place in sorted(range(len(rows)), key=lambda place: -rows[place]["path_ns"])[:top]:
        above = place
        while above >= 0 and above not in chosen:
            chosen.add(above)
            above = rows[above]["above"]
    return [
        {
            "call path": f"{'  ' * rows[place]['depth']}{rows[place]['operation']}",
            **{name: rows[place][name] for name in ("calls", "own_ns", "path_ns")},
            "share": rows[place]["path_ns"] / latency,
        }
        for place in sorted(chosen)
    ]


def _print_findings(findings: list[dict[str, Any]], top: int) -> None:
    """Say what is odd, the first ones of each name: hosts by the hundred have clocks by the thousand pairs."""
    often: dict[str, int] = {}
    for finding in findings:
        name = finding["finding"]
        often[name] = often.get(name, 0) + 1
        if often[name] <= top:
            measures = [f"{measure} {finding[measure]:,}" for measure in ("observed", "limit") if measure in finding]
            line = f"finding: {name}: {finding['action']} ({', '.join(measures)} {finding['unit']})"
            stderr().print(printable(line), markup=False, style="yellow")
    for name, count in often.items():
        if count > top:
            line = f"finding: {name}: {count - top:,} more (--format json has all)"
            stderr().print(printable(line), markup=False, style="yellow")


def _print_changes(span_answer: SpanAnswer, top: int) -> None:
    for name, title in (("all", "all requests"), ("slowest", "the slowest 1 %")):
        change = span_answer.changes[name]
        _say(f"\nAgainst the other set, {title}: {duration(change['mean_change_ns'])} in the mean, of which")
        rows = [operation for operation in change["operations"] if operation["mean_change_ns"]][:top]
        print_rows(_readable(rows), ["operation", "before_mean", "after_mean", "mean_change"])
