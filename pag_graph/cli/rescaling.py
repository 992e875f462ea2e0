"""`pag rescale` and `pag rescale-overhead`: what it brought, and what it cost, that workers joined or left."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stderr, stdout
from pag_graph.model.names import with_worker_names
from pag_graph.model.units import nanoseconds
from pag_graph.store.in_place import check_output, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pag_graph.analyses.reports import Report


class _Table(StrEnum):
    """What to list."""

    OPERATIONS = "operations"
    PHASES = "phases"
    LATENCY = "latency"
    STEPS = "steps"
    HELD_UP = "held_up"
    ROUTING = "routing"
    STATE = "state"


class _Weight(StrEnum):
    """What percentiles count."""

    EPOCHS = "epochs"
    RECORDS = "records"


_COLUMNS = {
    "operations": [
        "operation",
        "kind",
        "request_ns",
        "ready_ns",
        "settled_ns",
        "saturated",
        "verdict",
        "before_ns",
        "after_ns",
        "worst_ns",
        "payback_epoch",
        "payback_status",
    ],
}
"""Columns of a table for people, where those are not all."""


Period = Annotated[
    str | None, typer.Option(metavar="TIME", help="Time from one input to the next, by the clock: 10ms. Needs --first.")
]
First = Annotated[
    str | None, typer.Option(metavar="TIME", help="When the input of epoch 0 was due, from the run's origin.")
]
Inputs = Annotated[Path | None, typer.Option(metavar="TRACE", help="Trace of the run, which says when input was due.")]


class Due(TypedDict):
    """When input was due, as `pag_graph.api.rescale` takes it."""

    period_ns: int | None
    first_ns: int | None
    inputs: Path | None


def when_due(period: str | None, first: str | None, inputs: Path | None) -> Due:
    """Read what the options `--period`, `--first` and `--inputs` say."""
    return {
        "period_ns": None if period is None else nanoseconds(period),
        "first_ns": None if first is None else nanoseconds(first),
        "inputs": inputs,
    }


def rescale(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a built store.", show_default=False)],
    period: Period = None,
    first: First = None,
    inputs: Inputs = None,
    cores: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Cores of each host; tells when there are more workers than cores."),
    ] = None,
    table: Annotated[_Table, typer.Option(help="What to list.")] = _Table.OPERATIONS,
    weight: Annotated[_Weight, typer.Option(help="What percentiles count.")] = _Weight.EPOCHS,
    routing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV file with the columns t,bin,from,to: which bins of keys moved."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows to show in a table.")] = 20,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Also draw a picture of it.")] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="Output format.")] = Format.TABLE,
) -> None:
    """Say what was gained, and what it cost, when workers joined or left.

    Example: pag rescale run.pag --period 10ms --first 0ms --table phases
    """
    from pag_graph import api

    check_output(picture, ".svg")
    answer = api.rescale(
        store,
        **when_due(period, first, inputs),
        cores=cores,
        weight=weight.value,
        routing=routing,
    )
    if picture is not None:
        from pag_graph.sinks.rescaling import rescaling_picture

        write_whole(picture, rescaling_picture(answer))
        stderr().print(f"Wrote {picture}.")
    _show(answer, answer.named(str(table)), str(table), form, top, answer.run.worker_names)


def rescale_overhead(
    base: Annotated[
        list[Path],
        typer.Argument(metavar="BASE...", help="Stores of runs of the program that cannot rescale, four or more."),
    ],
    fork: Annotated[
        list[Path],
        typer.Option(
            "--fork",
            metavar="FORK",
            help="Store of a run of the program that can rescale; repeat it for four or more runs.",
        ),
    ],
    form: Annotated[Format, typer.Option("--format", "-f", help="Output format.")] = Format.TABLE,
) -> None:
    """Say how much slower a program is because it is able to rescale, while no worker joins or leaves.

    Example: pag rescale-overhead b1.pag b2.pag b3.pag b4.pag --fork f1.pag --fork f2.pag --fork f3.pag --fork f4.pag
    """
    from pag_graph import api

    answer = api.rescale_overhead(base, fork)
    _show(answer, answer.table, "measures", form, answer.table.num_rows, {})


def _show(answer: Report, table: pa.Table, name: str, form: Format, top: int, workers: Mapping[int, str]) -> None:
    rows = table.to_pylist()
    if form is Format.JSON:
        print_json({**answer.summary(), "table": name, "rows": rows})
    elif form is Format.CSV:
        print_csv(rows, table.column_names)
    else:
        for line in answer.headline().splitlines():
            stdout().print(line, markup=False)
        columns = _COLUMNS.get(name, table.column_names)
        print_rows(with_worker_names(rows[:top], workers), columns, f"{name} ({min(top, len(rows))} of {len(rows)})")
