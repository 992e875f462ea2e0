"""`pag neo4j load`, `export`, `follow` and `remove`: what goes into the database, and out of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pag_graph.cli.neo4j_reach import Home, Uri, elsewhere, reach
from pag_graph.cli.output import Format, print_facts, progress, stdout
from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import printable
from pag_graph.sinks.neo4j.detail import Detail, RunLabels

if TYPE_CHECKING:
    from pag_graph.sinks.neo4j.loader import LoadOptions

_Store = Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a built store.", show_default=False)]
_Detail = Annotated[
    Detail,
    typer.Option(
        help="How much to load: summary (sums), waits (also who waited for whom), critical (also the events on critical"
        " paths), full (everything)."
    ),
]
_Sessions = Annotated[
    int, typer.Option(min=0, help="Sessions that write at once; 0 means one per core of this machine.")
]
_Batch = Annotated[int, typer.Option("--batch-rows", min=1, help="Rows per transaction.")]
_Name = Annotated[str | None, typer.Option("--name", help="Name of the run. Default: the name of the store.")]
_Tags = Annotated[list[str] | None, typer.Option("--tag", help="Tag to find the run by; may be repeated.")]
_Program = Annotated[str | None, typer.Option("--program", help="The program that ran.")]
_Form = Annotated[Format, typer.Option("--format", "-f", help="table for people, json or csv for programs.")]


def load(
    store: _Store,
    epoch: Annotated[
        list[int] | None, typer.Option("--epoch", "-e", help="Epoch to load; may be repeated. Default: all epochs.")
    ] = None,
    detail: _Detail = Detail.WAITS,
    again: Annotated[
        bool, typer.Option("--again", help="Also check epochs that are already loaded, and repair them.")
    ] = False,
    bulk: Annotated[
        bool, typer.Option("--bulk", help="First load of all epochs into the embedded server, which must be stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With --bulk: replace a database that exists.")
    ] = False,
    home: Home = None,
    uri: Uri = None,
    sessions: _Sessions = 0,
    batch_rows: _Batch = 5_000,
    name: _Name = None,
    tag: _Tags = None,
    program: _Program = None,
    form: _Form = Format.TABLE,
) -> None:
    """Load epochs into Neo4j. Loading twice changes nothing, and a load that was killed can be continued.

    Example: pag neo4j load run.pag --detail full --epoch 5
    """
    from pag_graph.api import Pag
    from pag_graph.sinks.neo4j.export import record_load
    from pag_graph.sinks.neo4j.loader import load_run

    run = Pag(store).run
    options = _options(detail, sessions, batch_rows, _labels(name, tag, program))
    console = stdout()
    if bulk:
        _bulk(store, detail, overwrite, home, uri, epoch, options, form)
        return
    with reach(home, uri).open() as driver, progress(quiet=form is not Format.TABLE) as report:
        loaded = load_run(run, driver, epochs=epoch, again=again or bool(epoch), options=options, progress=report)
        record_load(driver, run, loaded)
    if print_facts(asdict(loaded), form):
        return
    skipped = f", {len(loaded.skipped):,} were there" if loaded.skipped else ""
    console.print(
        f"Loaded {len(loaded.epochs):,} epochs of run {loaded.run} ({loaded.detail}): {loaded.segments:,} segments,"
        f" {loaded.events:,} events, {loaded.relationships:,} relationships between them{skipped}."
    )
    console.print("Next: pag neo4j queries, or look at the graph in Neo4j Browser (pag neo4j status).", style="dim")


def export(
    store: _Store,
    detail: _Detail = Detail.WAITS,
    name: _Name = None,
    tag: _Tags = None,
    program: _Program = None,
    final: Annotated[
        bool, typer.Option("--final", help="Leave out epochs that may still change when the log grows.")
    ] = False,
    home: Home = None,
    uri: Uri = None,
    sessions: _Sessions = 0,
    batch_rows: _Batch = 5_000,
    form: _Form = Format.TABLE,
) -> None:
    """Load what was committed to a store since the last export. For schedulers: exit code 0 also if there was nothing.

    Example: pag neo4j export run.pag --format json
    """
    from pag_graph.api import Pag
    from pag_graph.sinks.neo4j.export import export_store

    run = Pag(store).run
    with progress(quiet=form is not Format.TABLE) as report:
        exported = export_store(
            run,
            reach(home, uri),
            options=_options(detail, sessions, batch_rows, _labels(name, tag, program)),
            final_only=final,
            progress=report,
        )
    if print_facts(exported.summary(), form):
        return
    if not exported.changed:
        stdout().print(f"Nothing new in {exported.store}: all {exported.skipped:,} epochs are there.")
        return
    stdout().print(
        f"Exported {len(exported.epochs):,} epochs of {exported.commits:,} commits; {exported.skipped:,} were there."
    )


def follow(
    store: _Store,
    detail: _Detail = Detail.WAITS,
    until: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="When to stop: complete (the program has ended), forever, or idle:30s (nothing new for 30 s).",
        ),
    ] = "complete",
    max_lag: Annotated[
        str, typer.Option(metavar="TIME", help="Longer than this no epoch waits: new ones get less detail then.")
    ] = "30s",
    keep: Annotated[
        str,
        typer.Option(
            metavar="all|DETAIL:N,...",
            help="How many of the latest epochs keep each detail: full:20,critical:200,waits:2000,summary:all.",
        ),
    ] = "all",
    name: _Name = None,
    tag: _Tags = None,
    program: _Program = None,
    home: Home = None,
    uri: Uri = None,
    sessions: _Sessions = 0,
    batch_rows: _Batch = 5_000,
    form: _Form = Format.TABLE,
) -> None:
    """Load epochs as soon as they are answered, while pag follow makes the store. You can stop it and start it again.

    Ends with exit code 10 if the store was not complete.

    Example: pag neo4j follow run.pag --until idle:30s
    """  # noqa: DOC501  (an exit code is no error)
    from pag_graph.cli.follow import NOT_COMPLETE, stopping
    from pag_graph.engines.following import Until
    from pag_graph.model.units import nanoseconds
    from pag_graph.sinks.neo4j.follow import FollowOptions, follow_store
    from pag_graph.sinks.neo4j.retention import KeepDetail

    options = FollowOptions(
        load=_options(detail, sessions, batch_rows, _labels(name, tag, program)),
        until=Until.of(until),
        max_lag_s=nanoseconds(max_lag) / 1e9,
        keep=KeepDetail.of(keep),
    )
    with stopping() as stop, progress(quiet=form is not Format.TABLE) as report:
        done = follow_store(store, reach(home, uri), options=options, stop=stop, progress=report)
    if not print_facts(asdict(done), form):
        counted = ", ".join(f"{count:,} {each}" for each, count in done.by_detail.items())
        said = f"Followed {done.store}: {done.epochs:,} epochs loaded ({counted or 'none'})"
        stdout().print(f"{said}; they waited {done.max_lag_s:.1f} s at most.", markup=False)
        if done.trimmed:
            stdout().print(f"Earlier epochs lost detail {done.trimmed:,} times.")
        if done.missed:
            stdout().print(
                f"{done.missed:,} epochs were removed from the store before they were loaded.", style="yellow"
            )
    if done.ending != "complete":
        raise typer.Exit(NOT_COMPLETE)


def remove(
    run: Annotated[str, typer.Argument(help="Id of the run.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: Home = None,
    uri: Uri = None,
) -> None:
    """Remove everything that was loaded of a run. It says from which server, and asks first.

    Example: pag neo4j remove d21394c77821d3a9 --yes
    """
    from pag_graph.sinks.neo4j.loader import remove_run

    server = reach(home, uri)
    with server.open() as driver:
        if not yes:
            typer.confirm(printable(f"Remove run {run} from the Neo4j server at {server.uri}?"), abort=True)
        removed = remove_run(driver, run)
    sentence = f"Removed {removed:,} nodes of run {run} from" if removed else f"Nothing of run {run} was at"
    stdout().print(f"{sentence} {server.uri}.")


def _bulk(
    store: Path,
    detail: Detail,
    overwrite: bool,
    home: Path | None,
    uri: str | None,
    epoch: list[int] | None,
    options: LoadOptions,
    form: Format,
) -> None:
    from pag_graph.api import Pag
    from pag_graph.sinks.neo4j.bulk import load_bulk
    from pag_graph.sinks.neo4j.connection import connection_to_home
    from pag_graph.sinks.neo4j.export import record_load

    if epoch or (address := elsewhere(home, uri)) is not None:
        named = "" if epoch else f" {address} is another one."
        message = f"--bulk loads all epochs into the embedded server: it goes with neither --uri nor --epoch.{named}"
        raise InvalidParameterError(message, "Name the embedded one by --home where NEO4J_URI names another.")
    run = Pag(store).run
    with progress(quiet=form is not Format.TABLE) as report:
        loaded = load_bulk(run, home, detail=detail, overwrite=overwrite, options=options, progress=report)
    with connection_to_home(home).open() as driver:
        record_load(driver, run, loaded)
    if print_facts(asdict(loaded), form):
        return
    rate = (loaded.nodes + loaded.relationships) / loaded.seconds
    stdout().print(
        f"Imported {len(loaded.epochs):,} epochs of run {loaded.run}: {loaded.nodes:,} nodes, {loaded.relationships:,}"
        f" relationships, in {loaded.seconds:.1f} s: {rate:,.0f} a second with all steps; the server runs."
    )


def _options(detail: Detail, sessions: int, batch_rows: int, labels: RunLabels) -> LoadOptions:
    from pag_graph.sinks.neo4j.loader import LoadOptions

    return replace(LoadOptions(), detail=detail, sessions=sessions, batch_rows=batch_rows, labels=labels)


def _labels(name: str | None, tags: list[str] | None, program: str | None) -> RunLabels:
    return RunLabels(name=name, tags=tuple(dict.fromkeys(tags)) if tags else None, program=program)
