"""The `pag` command: every command says what it did, what it could not explain, and what to do next.

Exit codes: 0 done; 2 wrong usage or parameter; 3 a trace cannot be used; 4 a store exists, is missing, is in use or
cannot be written; 5 Spark failed; 6 Neo4j failed, or an answer cannot be written where it should go; 7 an optional part
is missing; 8 the analysis has no exact answer; 9 an analysis that looks for violations found some, or a check findings;
10 `pag follow` ended before its source; 130 interrupted; 143 ended by SIGTERM; 1 anything else.
"""

from __future__ import annotations

import sys
from copy import copy
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.main import get_command_name

from pag_graph import errors
from pag_graph.analyses import all_entries, find_analysis
from pag_graph.cli.advise_evaluate import advise_evaluate
from pag_graph.cli.analyses import (
    AnalysisGroup,
    BetweenOption,
    EpochOption,
    FormatOption,
    FsyncOption,
    LatencyOption,
    RoleOption,
    StoreArgument,
    TopOption,
    check_window,
    open_pag,
)
from pag_graph.cli.check import check
from pag_graph.cli.ending import ending_at_sigterm, refusal, write_no_more
from pag_graph.cli.export import export
from pag_graph.cli.follow import follow
from pag_graph.cli.latency import latency, load_curve
from pag_graph.cli.mcp import mcp
from pag_graph.cli.motif import k_hop_paths, motif
from pag_graph.cli.ongoing import ongoing
from pag_graph.cli.output import (
    Format,
    compiling,
    print_csv,
    print_facts,
    print_json,
    print_rows,
    progress,
    stderr,
    stdout,
    tell_next,
)
from pag_graph.cli.page import page
from pag_graph.cli.provenance import provenance
from pag_graph.cli.record import record
from pag_graph.cli.replay import replay
from pag_graph.cli.rescaling import rescale, rescale_overhead
from pag_graph.cli.scaling import scaling
from pag_graph.cli.serve import serve
from pag_graph.cli.spans import spans
from pag_graph.cli.spark import spark
from pag_graph.cli.standing import AlertsOption, FailOnOption, QueryOption, ToOption, alerts, changes, delivering
from pag_graph.cli.timings import timings
from pag_graph.cli.torch import torch
from pag_graph.cli.vacuum import vacuum
from pag_graph.model.enums import RuleSet
from pag_graph.model.units import duration
from pag_graph.store.in_place import check_output, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.builder.report import BuildReport
    from pag_graph.store.commit import Mode

app = typer.Typer(
    cls=AnalysisGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich help looks nicer, and makes `pag --help` take three times as long.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Why was this distributed dataflow slow, and what would make it faster?\n\n"
    "Start with pag demo; then pag convert a log, pag build its graph, and ask"
    " with pag why, pag critical-path and pag k-hops.",
)

EXIT_CODES: tuple[tuple[type[errors.PagGraphError], int], ...] = (
    (errors.TraceFormatError, 3),
    (errors.SchemaError, 3),
    (errors.StoreError, 4),
    (errors.EngineError, 5),
    (errors.SinkError, 6),
    (errors.MissingExtraError, 7),
    (errors.InvalidParameterError, 2),
    (errors.AnalysisError, 8),
    (errors.PagError, 8),
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pag_graph {version('pag-graph')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


class EngineName(StrEnum):
    """Where a build runs."""

    SPARK = "spark"
    LOCAL = "local"


class Clocks(StrEnum):
    """What aligns the workers' clocks."""

    AUTO = "auto"
    RECORDED = "recorded"
    MESSAGES = "messages"


def only_called(commands: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Leave out all commands but the one that is called: Typer takes longer to make all than many take to run.

    Parameters
    ----------
    commands
        All commands but analyses.
    words
        What `pag` was called with, up to the first word.

    Returns
    -------
    Typer
        With the command that is called, or none if it is an analysis; all of them where the word is something else.
    """
    called = copy(commands)
    called.registered_groups = [group for group in commands.registered_groups if group.name in words]
    called.registered_commands = [
        command
        for command in commands.registered_commands
        # Typer itself takes it that a command has a callback.
        if (command.name or get_command_name(command.callback.__name__)) in words  # type: ignore[union-attr]
    ]
    is_known = called.registered_groups or called.registered_commands or any(e.name in words for e in all_entries())
    return called if is_known else commands


def main() -> None:
    """Run the command; turn our own errors into a message and a stable exit code."""
    try:
        with ending_at_sigterm():
            try:
                only_called(app, sys.argv[1:2])()
            finally:
                # A full disk or a closed pipe is reported by this flush; at exit it could not be caught.
                sys.stdout.flush()
    except errors.PagGraphError as error:
        _fail(error)
    except BrokenPipeError:
        # The reader of our output has seen enough (as `head` does).
        write_no_more()
        sys.exit(0)
    except OSError as error:
        refused = refusal(error)
        if refused is None:
            raise
        _fail(refused)


def _fail(error: errors.PagGraphError) -> None:
    console = stderr()
    console.print(f"[bold red]error[/bold red] [dim]{error.condition}[/dim]", end=" ", markup=True)
    console.print(error.message, soft_wrap=True)
    if error.hint:
        # The terminal breaks the line, not we: so a command that it names can be copied whole.
        console.print(f"hint: {error.hint}", style="yellow", soft_wrap=True)
    sys.exit(exit_code(error))


def exit_code(error: errors.PagGraphError) -> int:
    """Return the exit code for an error, of the command and of every job."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


def _misuse(message: str) -> NoReturn:
    raise errors.InvalidParameterError(message)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A log: a directory or a file.", show_default=False)],
    trace: Annotated[Path, typer.Argument(help="Where to write the trace.", show_default=False)],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="Format of the log, such as activities. Default: it is detected."
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a trace that already exists.")] = False,
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", help="Keep the texts of a Spark log: descriptions, SQL, reasons.")
    ] = False,
    epochs: Annotated[
        str | None,
        typer.Option(
            metavar="batch|query|job", help="For a Spark log: what an epoch is. The log is then converted in portions."
        ),
    ] = None,
) -> None:
    """Convert a log to the canonical trace that everything else reads.

    Example: pag convert logs/ run.trace
    """
    from pag_graph.sources import convert as convert_source

    with stderr().status(f"converting {source}"):
        meta = convert_source(source, trace, format=form, replace=replace, keep_texts=keep_texts, epochs=epochs)
    dropped = ", ".join(f"{count} x {reason}" for reason, count in meta.dropped.items()) or "nothing"
    console = stdout()
    console.print(f"Wrote {trace}: trace {meta.trace_id} of {meta.workers} workers ({meta.source.format}).")
    console.print(f"Left out, because it is no event: {dropped}.")
    tell_next("pag", "build", trace, "STORE")


# Unknown options go to the program, which has an option -h of its own.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}
app.command(context_settings=_PASS_ON)(record)
app.command()(check)
app.command()(motif)
app.command()(k_hop_paths)
app.command()(export)
app.command()(scaling)
app.command()(latency)
app.command()(load_curve)
app.command()(rescale)
app.command()(rescale_overhead)
app.command()(advise_evaluate)
app.command()(spark)
app.command()(spans)
app.command()(torch)
app.command()(vacuum)
app.command()(provenance)
app.command()(follow)
app.command()(replay)
app.command()(timings)
app.command()(ongoing)
app.command()(changes)
app.command()(alerts)
app.command()(serve)
app.command()(mcp)
app.command()(page)


@app.command()
def build(
    trace: Annotated[Path, typer.Argument(help="A canonical trace.", show_default=False)],
    store: Annotated[Path, typer.Argument(help="Where to make the store.", show_default=False)],
    rules: Annotated[
        RuleSet | None,
        typer.Option(
            help="Rules that give types to workers' time: timely, stated by the source, or st2 for comparison.",
            show_default="what the trace asks for",
        ),
    ] = None,
    force_rules: Annotated[
        bool, typer.Option("--force-rules", help="Use rules that contradict the trace; answers are then doubtful.")
    ] = False,
    engine: Annotated[EngineName, typer.Option(help="spark runs Spark jobs, local needs no Java.")] = EngineName.SPARK,
    append: Annotated[bool, typer.Option("--append", help="Add the epochs that ended since the last build.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a store that already exists.")] = False,
    slice_events: Annotated[
        int | None, typer.Option(min=1, help="Events that a task works on at a time; this limits its memory.")
    ] = None,
    clocks: Annotated[
        Clocks,
        typer.Option(
            help="How to align workers' clocks: by recorded offsets, by messages, or as the trace says (auto)."
        ),
    ] = Clocks.AUTO,
    level: Annotated[
        int, typer.Option(min=0, help="Tell nested operators apart down to this level; 0 means the innermost.")
    ] = 0,
    query: QueryOption = None,
    alert_rules: AlertsOption = None,
    to: ToOption = None,
    fail_on: FailOnOption = None,
    fsync: FsyncOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Build the program activity graph of a trace and commit it to a store.

    Example: pag build run.trace run.pag --engine local
    """
    from pag_graph.runtime import memory

    # Before anything starts threads; conversions leave it, for they need no column twice.
    memory.keep()
    from pag_graph import api
    from pag_graph.rules.rows import RuleParameters

    if append and replace:
        _misuse("Give only one of --append and --replace.")
    mode: Mode = "append" if append else "replace" if replace else "error"
    quiet = form is not Format.TABLE
    with delivering(store, to, fail_on):
        with progress(quiet=quiet) as report, compiling("build", quiet=quiet, report=report):
            result = api.build(
                trace,
                store,
                rules=rules,
                parameters=RuleParameters(clocks=clocks.value, level=level),
                force_rules=force_rules,
                engine=str(engine),
                mode=mode,
                slice_events=slice_events,
                progress=report,
                queries=query or (),
                alerts=alert_rules or (),
                fsync=fsync,
            )
        _say_built(result, store, form)


def _say_built(result: BuildReport, store: Path, form: Format) -> None:
    counted: dict[str, int] = {}
    for name in result.findings["finding"].to_pylist():
        counted[name] = counted.get(name, 0) + 1
    facts = {
        "store": str(store),
        "run_id": result.store.run["run_id"],
        "rules": result.store.run["rules"],
        "committed": result.committed,
        "events": result.store.events,
        "dropped": dict(result.store.dropped),
        "rows": result.rows,
        "findings": counted,
    }
    if print_facts(facts, form):
        return
    console = stdout()
    if not result.committed:
        console.print(f"{store} holds all of this already; nothing to do.")
        return
    rows = result.rows
    console.print(
        f"Built run {facts['run_id']} from {result.store.events:,} events: {rows['vertices']:,} vertices,"
        f" {rows['edges']:,} edges, {rows['epochs']:,} windows."
    )
    for reason, count in result.store.dropped.items():
        console.print(f"  {count:,} events are no vertices: {reason.replace('_', ' ')}")
    for name, count in counted.items():
        console.print(f"  finding: {count:,} x {name}", style="yellow")
    explained = find_analysis("why").needs.met_by(RuleSet(str(facts["rules"])))
    tell_next("pag", "why" if explained else "metrics", store)


@app.command()
def info(store: StoreArgument, form: FormatOption = Format.TABLE, top: TopOption = 20) -> None:
    """Show what a store holds: the run, its windows, and what is odd about it.

    Example: pag info run.pag --top 5
    """
    pag = open_pag(store)
    for table in pag.run.info.tables:
        # What it says of them stands in the table of epochs; that they are there, only their logs do.
        pag.run.info.table(table)
    columns, epochs = [*pag.epochs.columns, "span_ns", "window"], pag.epochs.to_dicts()
    for row, window in zip(epochs, pag.run.windows(), strict=True):
        row["span_ns"] = window.span_ns
        row["window"] = window.name
    findings = pag.findings()
    counted = dict(findings.group_by("finding", "severity").len().sort("finding").select("finding", "len").iter_rows())
    if form is Format.CSV:
        print_csv(epochs, columns)
        return
    if form is Format.JSON:
        facts = {**pag.run.info.run, "events": pag.run.info.events, "dropped": dict(pag.run.info.dropped)}
        print_json({**facts, "store": str(store), "findings": counted, "epochs": epochs})
        return
    run, console = pag.run.info.run, stdout()
    source = run["source"]
    system = " ".join(word for word in (source["system"], source["version"]) if word)
    workers = f"{run['workers']} worker{'' if run['workers'] == 1 else 's'}"
    console.print(f"Run {run['run_id']} of trace {run['trace_id']}: {system}, {workers}")
    console.print(f"rules {run['rules']} {run['parameters']}; built with pag_graph {run['product_version']}")
    if (removed := pag.run.info.removed) is not None:
        console.print(
            f"{removed.epochs:,} epochs, up to epoch {removed.last_epoch}, were removed by its follower (--keep)"
        )
    if run.get("idle") == "inferred":
        waiting = duration(sum(row["waiting_ns"] for row in epochs))
        console.print(f"waits are inferred ({waiting} in all): the log does not say when workers had nothing to do")
    ranked = sorted(epochs, key=lambda row: -row["span_ns"])[:top]
    title = f"windows, longest first ({len(ranked)} of {len(epochs)})"
    names = ["epoch", "window", "start_ns", "span_ns", "events", "vertices", "edges", "waiting_ns", "coverage"]
    print_rows(ranked, names, title)
    for name, count in counted.items():
        console.print(f"finding: {count:,} x {name}", style="yellow")


@app.command()
def draw(
    store: StoreArgument,
    picture: Annotated[Path, typer.Argument(metavar="FILE.svg", help="File to write.", show_default=False)],
    epoch: EpochOption = None,
    role: RoleOption = None,
    between: BetweenOption = None,
    latency: LatencyOption = None,
    width: Annotated[int, typer.Option(min=300, help="Width in pixels.")] = 1100,
) -> None:
    """Draw a window: who did what when, who sent to whom, and the critical path.

    Example: pag draw run.pag epoch5.svg --epoch 5
    """
    from pag_graph.sinks.timeline import timeline

    chosen = check_window(epoch, role, between, latency)
    check_output(picture, ".svg")
    write_whole(picture, timeline(open_pag(store).snapshot(**chosen), width=width))
    stdout().print(f"Wrote {picture}.")


@app.command()
def doctor(form: FormatOption = Format.TABLE) -> None:
    """Check what this machine has, what is missing, and how to get it.

    Example: pag doctor
    """
    from dataclasses import asdict

    from pag_graph.cli.doctor import checks

    results = checks()
    rows = [asdict(result) for result in results]
    if form is Format.JSON:
        print_json(rows)
        return
    if form is Format.CSV:
        print_csv(rows, list(rows[0]))
        return
    console = stdout()
    for result in results:
        console.print("ok     " if result.ok else "missing", style="green" if result.ok else "yellow", end=" ")
        console.print(f"{result.name}: {result.found}", end=" ")
        console.print(f"(for {result.needed_for})", style="dim")
        if not result.ok and result.advice:
            console.print(f"        {result.advice}", markup=False, style="yellow")


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Leave the Neo4j server running at the end.")] = True,
    trace: Annotated[str, typer.Option(help="Bundled trace: skewed or bfs.")] = "skewed",
    folder: Annotated[Path, typer.Option(help="Where to put the store.")] = Path(".pag"),
    live: Annotated[
        bool, typer.Option("--live", help="Follow a running program instead; takes 10 s and needs no Java.")
    ] = False,
) -> None:
    """See everything once: build a real trace on Spark, say why it was slow, and query it in Neo4j.

    With --live, a program is followed while it runs: it sends its trace, epochs close, and alerts open.

    Example: pag demo --no-keep
    """
    if live:
        from pag_graph.cli.demo_live import run_live_demo

        run_live_demo(trace=trace, folder=folder)
        return
    from pag_graph.cli.demo import run_demo

    run_demo(trace=trace, folder=folder, keep=keep)


def _add_neo4j() -> None:
    from pag_graph.cli.neo4j import app as neo4j_app

    app.add_typer(neo4j_app, name="neo4j")


_add_neo4j()
