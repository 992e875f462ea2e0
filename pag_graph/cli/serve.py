"""`pag serve`: look at runs in a browser."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pag_graph.cli.output import stdout
from pag_graph.errors import MissingExtraError

if TYPE_CHECKING:
    from pag_graph.workbench.server import Place


def serve(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[STORE|DIR]...", help="Stores, event logs of Spark, or folders. Default: the current folder."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Only this machine can reach the default.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port. Default: the first free port from 8765 on.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of mode 600 with the token for the link. Default: a random token."),
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="What browsers call it elsewhere: a name of this machine, or of a proxy. May be repeated.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve the workbench: explore runs in a browser, until Ctrl-C.

    The page shows all runs of the given folders: their epochs, lanes with the critical path, all analyses, replays and
    comparisons. Open it with the printed link. It changes no run, and loads nothing from other hosts.

    Example: pag serve .pag --open
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise MissingExtraError.from_extra(what="`pag serve`", extra="serve")
    from pag_graph.store.access import read_token
    from pag_graph.workbench.library import Library
    from pag_graph.workbench.server import serve as run_server

    token = None if token_file is None else read_token(token_file)
    library = Library(places or [Path()])
    count = len(library.stores())

    def ready(place: Place) -> None:
        runs = f"{count} run{'' if count == 1 else 's'}"
        stdout().print(f"Serving {runs} at {place.link}\nCtrl-C ends it.")
        if not count:
            folders = ", ".join(map(str, places or [Path().absolute()]))
            stdout().print(f"No run is in {folders} yet: `pag demo` makes one, `pag build TRACE STORE` one of yours.")
        if show:
            import webbrowser

            webbrowser.open(place.link)

    run_server(library, host=host, port=port, token=token, aliases=alias or (), ready=ready)
