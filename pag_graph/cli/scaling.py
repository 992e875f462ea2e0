"""`pag scaling`: several runs of one program, by number of workers."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 Typer reads the annotations
from typing import Annotated

import typer

from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stderr, stdout
from pag_graph.store.in_place import check_output, write_whole


def scaling(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Stores of two or more runs.", show_default=False)
    ],
    n: Annotated[
        int, typer.Option("-n", min=1, help="Number of types and of operators to list; the rest is summed up.")
    ] = 5,
    cores: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Cores that the runs had; tells when there were more workers than cores."
        ),
    ] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Also draw a picture of it.")] = None,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
) -> None:
    """Compare the critical paths of runs of one program with different numbers of workers.

    Runs with the same number of workers are repetitions. Only the rounds that all runs have are compared.

    Example: pag scaling w1.pag w2.pag w4.pag --cores 4
    """
    from pag_graph import api

    check_output(picture, ".svg")
    study = api.scaling(runs, n=n, cores=cores)
    rows = study.table.to_pylist()
    if picture is not None:
        from pag_graph.sinks.scaling import scaling_picture

        write_whole(picture, scaling_picture(study))
        stderr().print(f"Wrote {picture}.")
    if form is Format.JSON:
        print_json({**study.summary(), "rows": rows})
    elif form is Format.CSV:
        print_csv(rows, study.table.column_names)
    else:
        for line in study.headline().splitlines():
            stdout().print(line, markup=False)
        columns = ["by", "key", "workers", "runs", "mean_ns", "deviation_ns", "share", "ideal_ns", "speed_up"]
        rounded = [
            {name: round(value) if name.endswith("_ns") and value is not None else value for name, value in row.items()}
            for row in rows
        ]
        print_rows(rounded, columns, "scaling")
