"""`pag export`: a graph for other programs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

from pag_graph.cli.analyses import (
    BetweenOption,
    LatencyOption,
    RoleOption,
    StoreArgument,
    check_window,
    open_pag,
)
from pag_graph.cli.output import progress, stdout

_FORMATS = "perfetto, chrome, graphml, csv or svg"


def export(
    store: StoreArgument,
    output: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="File to write, or a folder for csv; the ending .gz compresses.", show_default=False
        ),
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="FORMAT", help=f"{_FORMATS}. Default: by the name of FILE.")
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", "-e", help="Epoch to write. Default: the whole run; for a picture, the slowest round."),
    ] = None,
    role: RoleOption = None,
    between: BetweenOption = None,
    latency: LatencyOption = None,
    path_only: Annotated[bool, typer.Option("--path-only", help="Write only the critical path.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite what is there.")] = False,
) -> None:
    """Write a run, or a window of it, for Perfetto, Chrome, GraphML readers or spreadsheets, or as a picture.

    Without a window the whole run is written. For networkx: pag_graph.open(STORE).to_networkx() in Python.

    Example: pag export run.pag run.json.gz --to perfetto
    """
    from pag_graph.sinks.export import ExportFormat, format_of
    from pag_graph.sinks.export import export as write

    chosen = format_of(output, to)
    window = {key: value for key, value in check_window(epoch, role, between, latency).items() if value is not None}
    pag = open_pag(store)
    with progress() as report:
        exported = write(
            pag.run,
            output,
            chosen,
            window=pag.run.window(**window) if window else None,
            path_only=path_only,
            replace=replace,
            progress=report,
        )
    counted = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in exported.rows.items() if count)
    console = stdout()
    console.print(f"Wrote {exported.path} ({exported.bytes / 1e6:,.1f} MB): {counted or 'nothing'}.")
    if chosen == ExportFormat.PERFETTO:
        console.print("Open it with ui.perfetto.dev; the file stays on this machine.", style="dim")
