"""`pag page`: windows of a run as one file to send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pag_graph.cli.analyses import StoreArgument, open_pag
from pag_graph.cli.output import stdout


def page(
    store: StoreArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")] = Path("page.html"),
    epoch: Annotated[
        list[int] | None,
        typer.Option("--epoch", "-e", help="Epoch to show; may be repeated. Default: the slowest."),
    ] = None,
    panel: Annotated[
        list[str] | None,
        typer.Option("--panel", metavar="ANALYSIS", help="Analysis to show; may be repeated. Default: the usual ones."),
    ] = None,
) -> None:
    """Write lanes, report and analyses of some epochs into one HTML file of at most 5 MB that you can send.

    The file is the workbench with its answers inside: you can zoom and click without a server, and it loads nothing.
    An existing file is replaced.

    Example: pag page run.pag -o page.html
    """
    from pag_graph.store.in_place import check_output, write_whole
    from pag_graph.workbench.page import page as make_page

    check_output(output, ".html", ".htm")
    text = make_page(open_pag(store), epoch or (), panel or ())
    write_whole(output, text)
    stdout().print(f"Wrote {output} ({len(text) / 1e6:,.1f} MB). Open it in a browser.")
