"""`pag latency` and `pag load-curve`: how long input took, from when it was due."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stdout
from pag_graph.model.units import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.analyses.due_times import LatencyReport

TraceOption = typer.Argument(
    metavar="TRACE", help="Trace of a program that says when input is due.", show_default=False
)
_QUANTILES = ("p50_ns", "p99_ns", "max_ns", "mean_ns")


def latency(
    trace: Annotated[Path, TraceOption],
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", metavar="STORE", help="Store of this trace: also say why the slowest input took so long."
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="Output format.")] = Format.TABLE,
) -> None:
    """Say how long input took, from when it was due to when the program saw it done.

    Inputs that were not done count too; a number that they can change is printed with ">=". csv has a row per input.

    Example: pag latency trace --store run.pag
    """
    from pag_graph import api

    report = api.latency(trace)
    curve, slowest = report.curve(), report.slowest()
    if form is Format.CSV:
        print_csv(report.table.to_pylist(), report.table.column_names)
        return
    explained = None if store is None or slowest is None else _explanation(store, report, slowest)
    if form is Format.JSON:
        parts = {"loop": report.loop, "not_due": report.not_due, "curve": curve, "slowest": slowest, "why": explained}
        print_json({**parts, "inputs": report.table.to_pylist()})
        return
    _print_curve(curve, f"{report.loop} loop: from {'given' if report.loop == 'closed' else 'due'} to done")
    console = stdout()
    if report.loop == "closed":
        console.print(
            "A closed loop: what would have come while the program was held up was never given, and is missing."
        )
    if report.not_due:
        console.print(f"{report.not_due:,} more inputs were not due before the log ended, and count nowhere.")
    if slowest is not None:
        not_done = "" if not slowest["censored"] else ", and was not done"
        took = duration(slowest["latency_ns"])
        console.print(
            f"Slowest: input {slowest['number']} of worker {slowest['worker']} took {took}{not_done}.", markup=False
        )
    if explained is not None:
        console.print(explained, markup=False)


def load_curve(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Traces of one program under different loads.", show_default=False),
    ],
    form: Annotated[Format, typer.Option("--format", "-f", help="Output format.")] = Format.TABLE,
) -> None:
    """Compare the latencies of runs under different loads.

    A run that did less than 99 % of what was offered is unstable: its latencies only tell how long it ran. In a closed
    loop, input waits for the program, so nothing is offered.

    Example: pag load-curve 100k 200k 400k
    """
    from pag_graph import api

    table = api.load_curve(traces)
    rows = table.to_pylist()
    if form is Format.JSON:
        print_json({"curve": rows})
    elif form is Format.CSV:
        print_csv(({**row, "at_least": " ".join(row["at_least"])} for row in rows), table.column_names)
    else:
        _print_curve(rows, "load curve", runs=True)


def _print_curve(rows: Sequence[Mapping[str, Any]], title: str, *, runs: bool = False) -> None:
    shown = [
        {
            **({"run": row["run"], "loop": row["loop"]} if runs else {}),
            "worker": "all" if row["worker"] is None else row["worker"],
            "inputs": row["inputs"],
            "not done": row["censored"],
            "offered/s": "" if row["offered_per_s"] is None else f"{row['offered_per_s']:,.1f}",
            "achieved/s": f"{row['achieved_per_s']:,.1f}",
            **{name[:-3]: ">= " * (name in row["at_least"]) + duration(row[name]) for name in _QUANTILES},
            **({"": "" if row["stable"] in (None, True) else "unstable"} if runs or row["stable"] is False else {}),
        }
        for row in rows
    ]
    print_rows(shown, list(dict.fromkeys(name for row in shown for name in row)), title)


def _explanation(store: Path, report: LatencyReport, slowest: Mapping[str, Any]) -> str:
    """Say why the slowest input took so long: of the time from when it was due to when it was done."""
    from pag_graph import api
    from pag_graph.api.latency import check_trace_of

    pag = api.open(store)
    check_trace_of(pag.run, report.run)
    origin = pag.run.info.run["origin_unix_ns"]
    start = max(slowest["due_ns"] - origin, 0)
    end = slowest["noticed_ns"] or report.ends_ns[slowest["worker"]]
    return str(pag.why(between=(start, min(end - origin, pag.run.end_ns))).text())
