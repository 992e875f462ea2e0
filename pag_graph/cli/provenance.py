"""`pag provenance`: where a store comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.analyses import StoreArgument, open_pag
from pag_graph.cli.output import print_csv, print_json, print_rows, stdout
from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import printable

if TYPE_CHECKING:
    from pag_graph.graph.run import Run


class ProvenanceFormat(StrEnum):
    """How to print it."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PROV_JSON = "prov-json"


def provenance(
    store: StoreArgument,
    epoch: Annotated[
        int | None,
        typer.Option(
            "--epoch", "-e", help="Backward: the rows of the log that the critical path of this epoch is made of."
        ),
    ] = None,
    clock: Annotated[
        int | None,
        typer.Option("--clock", metavar="WORKER", help="Forward: what a wrong clock of this worker has affected."),
    ] = None,
    parameter: Annotated[
        str | None,
        typer.Option("--parameter", metavar="NAME", help="Forward: what the values of this parameter have affected."),
    ] = None,
    form: Annotated[
        ProvenanceFormat,
        typer.Option("--format", "-f", help="table for people, json or csv for programs, prov-json for tools of PROV."),
    ] = ProvenanceFormat.TABLE,
) -> None:
    """Say which commands made a store, when, on which machine, with which rules and of which trace.

    --format prov-json gives a document with everything: the run, its epochs, the states of its store, the files of the
    trace with sizes and checksums, rules, parameters, commits, releases and users.

    Example: pag provenance run.pag --format prov-json
    """  # noqa: DOC501  (errors are shown)
    from pag_graph.sinks.provenance import history, prov_json

    run = open_pag(store).run
    if sum(choice is not None for choice in (epoch, clock, parameter)) > 1:
        message = "--epoch, --clock and --parameter exclude each other."
        raise InvalidParameterError(message, "Give one of them.")
    walked = _walk(run, epoch, clock, parameter)
    if form is ProvenanceFormat.PROV_JSON:
        if walked is not None:
            message = "With --epoch, --clock or --parameter there is no document of PROV."
            raise InvalidParameterError(message, "Use --format json, or leave out --epoch, --clock and --parameter.")
        print_json(prov_json(run))
        return
    rows = history(run) if walked is None else walked
    if form is ProvenanceFormat.JSON:
        print_json(rows)
    elif form is ProvenanceFormat.CSV:
        print_csv(rows, list(rows[0]) if rows else [])
    elif walked is not None:
        print_rows(rows, list(rows[0]) if rows else [], f"{len(rows):,} rows")
    else:
        columns = ["version", "committed", "events", "rules", "release", "user", "host", "command"]
        print_rows(rows, columns, f"{len(rows):,} commits")
        stdout().print(printable(f"Trace: {rows[-1]['trace'] or 'not written down'}"), markup=False)


def _walk(run: Run, epoch: int | None, clock: int | None, parameter: str | None) -> list[dict[str, Any]] | None:
    """Return the rows of the walk that is asked for; none where none is."""
    from pag_graph.sinks.provenance_walks import log_rows, touched_by_clock, touched_by_parameter

    if epoch is not None:
        return log_rows(run, epoch).to_dicts()
    if clock is not None:
        return touched_by_clock(run, clock).to_dicts()
    return None if parameter is None else touched_by_parameter(run, parameter)
