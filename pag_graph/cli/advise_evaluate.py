"""`pag advise-evaluate`: whether inserted ports helped."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 Typer reads the annotations
from typing import Annotated

import typer

from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stdout


def advise_evaluate(
    before: Annotated[
        list[Path],
        typer.Argument(metavar="BEFORE...", help="Stores of runs without the ports, four or more.", show_default=False),
    ],
    after: Annotated[
        list[Path],
        typer.Option(
            "--after", metavar="STORE", help="Store of a run with the ports; repeat it for four or more runs."
        ),
    ],
    state: Annotated[
        Path,
        typer.Option(
            metavar="FILE.json", help="File that remembers which ports helped; it is created if it does not exist."
        ),
    ],
    port: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPERATOR", help="Operator that got a port. Default: all operators that now read across threads."
        ),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="BEFORE=AFTER",
            help="Addresses of one operator before and after, if its name does not tell.",
        ),
    ] = None,
    single: Annotated[bool, typer.Option("--single", help="Decide even with fewer than four runs a side.")] = False,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Compare only the medians, and revert what is not faster, as the paper does."),
    ] = False,
    alpha: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Stop proposing ports when this share of the candidates did not help."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> None:
    """Compare runs before and after ports were inserted, and remember which ports helped.

    The state file is replaced as a whole: if the command is killed, the old or the new file is there.

    Example: pag advise-evaluate b*.pag --after a1.pag --after a2.pag --after a3.pag --after a4.pag --state advice.json
    """
    from pag_graph import api

    evaluation = api.advise_evaluate(
        before, after, state, ports=port or (), pairs=pair or (), single=single, paper=paper, alpha=alpha
    )
    rows = evaluation.table.to_pylist()
    if form is Format.JSON:
        print_json({**evaluation.summary(), "trials": rows})
    elif form is Format.CSV:
        print_csv(rows, evaluation.table.column_names)
    else:
        for line in evaluation.headline().splitlines():
            stdout().print(line, markup=False)
        print_rows(rows, evaluation.table.column_names, "advise-evaluate")
