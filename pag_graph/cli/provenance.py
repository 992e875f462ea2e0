"""`pag provenance`: where a store comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pag_graph.cli.analyses import StoreArgument, open_pag
from pag_graph.cli.output import print_csv, print_json, print_rows, stdout
from pag_graph.model.units import printable


class ProvenanceFormat(StrEnum):
    """How to print it."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PROV_JSON = "prov-json"


def provenance(
    store: StoreArgument,
    form: Annotated[
        ProvenanceFormat,
        typer.Option("--format", "-f", help="table for people, json or csv for programs, prov-json for tools of PROV."),
    ] = ProvenanceFormat.TABLE,
) -> None:
    """Say which commands made a store, when, on which machine, by which rules and of which trace.

    prov-json is a document with everything: the run, its epochs, the states of its store, the files of the trace with
    sizes and checksums, rules, parameters, commits, releases and users.

    Example: pag provenance run.pag --format prov-json
    """
    from pag_graph.sinks.provenance import history, prov_json

    run = open_pag(store).run
    if form is ProvenanceFormat.PROV_JSON:
        print_json(prov_json(run))
        return
    rows = history(run)
    if form is ProvenanceFormat.JSON:
        print_json(rows)
    elif form is ProvenanceFormat.CSV:
        print_csv(rows, list(rows[0]))
    else:
        columns = ["version", "committed", "events", "rules", "release", "user", "host", "command"]
        print_rows(rows, columns, f"{len(rows):,} commits")
        stdout().print(printable(f"Trace: {rows[-1]['trace'] or 'not written down'}"), markup=False)
