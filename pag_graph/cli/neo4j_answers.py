"""`pag neo4j advise` and `pag neo4j rescale`: answers that are put beside a run's epochs in Neo4j."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pag_graph.cli.neo4j_reach import Home, Uri, reach
from pag_graph.cli.output import stdout
from pag_graph.cli.rescaling import First, Inputs, Period, when_due

_Store = Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a built store.", show_default=False)]
_Cores = Annotated[int | None, typer.Option(min=1, metavar="N", help="Cores of the machine.")]


def advise(
    store: _Store,
    epoch: Annotated[
        int | None, typer.Option("--epoch", "-e", help="Epoch to look at. Default: the slowest round.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(help="Look at all rounds from the chosen epoch to this one as one window.")
    ] = None,
    beta: Annotated[
        float, typer.Option(help="A thread that works for at least this share of its time is a bottleneck.")
    ] = 0.7,
    cores: _Cores = None,
    state: Annotated[Path | None, typer.Option(help="File of advise-evaluate; its trials are written too.")] = None,
    home: Home = None,
    uri: Uri = None,
) -> None:
    """Write the answer of pag advise (where one more thread would help) into Neo4j, beside the loaded epochs.

    Example: pag neo4j advise run.pag --epoch 4
    """
    from pag_graph.analyses.advising.advice_state import read_state
    from pag_graph.api import Pag
    from pag_graph.sinks.neo4j.answers import write_advice

    pag = Pag(store)
    advice_state = None if state is None else read_state(state)
    advice = pag.advise(epoch=epoch, until=until, beta=beta, cores=cores, state=None if state is None else str(state))
    server = reach(home, uri)
    with server.open() as driver:
        count = write_advice(driver, pag.run, advice, advice_state)
    stdout().print(f"Wrote {count:,} nodes of advice on {advice.window.name} to {server.uri}.", markup=False)


def rescale(
    store: _Store,
    period: Period = None,
    first: First = None,
    inputs: Inputs = None,
    cores: _Cores = None,
    home: Home = None,
    uri: Uri = None,
) -> None:
    """Write the answer of pag rescale (was adding workers worth it) into Neo4j, beside the loaded run.

    An earlier answer is replaced.

    Example: pag neo4j rescale run.pag --period 10ms --first 0ms
    """
    from pag_graph import api
    from pag_graph.sinks.neo4j.answers import write_rescalings

    answer = api.rescale(store, **when_due(period, first, inputs), cores=cores)
    server = reach(home, uri)
    with server.open() as driver:
        count = write_rescalings(driver, answer)
    stdout().print(f"Wrote {count:,} nodes of rescalings to {server.uri}.", markup=False)
