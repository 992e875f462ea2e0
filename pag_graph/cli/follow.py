"""`pag follow`: build the graph of a trace while the trace is written."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.analyses import FormatOption, FsyncOption  # noqa: TC001  (Typer reads them)
from pag_graph.cli.follow_neo4j import loading
from pag_graph.cli.output import Format, compiling, print_facts, stderr, stdout, tell_next
from pag_graph.cli.standing import AlertsOption, FailOnOption, QueryOption, ToOption, delivering
from pag_graph.model.enums import RuleSet
from pag_graph.model.units import duration, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from pag_graph.engines.following import FollowReport, Progress

    _Units = Callable[[list[dict[str, Any]]], None]

NOT_COMPLETE = 10
"""Exit code where following ended before the source did; what was decided is committed."""
_TELL_EVERY_S = 10.0
_UNJOINED = "Small files of the store were not joined, which is tried again after the next commit"


_Until = Annotated[
    str,
    typer.Option(
        metavar="WHEN",
        help="When to stop: complete (the program has ended), forever, or idle:30s (nothing new for 30 s).",
    ),
]
_CommitEvery = Annotated[str, typer.Option(metavar="TIME", help="Shortest time between two commits, such as 250ms.")]
_Keep = Annotated[
    str,
    typer.Option(metavar="all|N|TIME", help="Answered epochs to keep: a number such as 500, or an age such as 24h."),
]
_Settle = Annotated[
    str, typer.Option(metavar="TIME", help="After this time of the run, unread messages no longer hold up answers.")
]
_Memory = Annotated[
    str,
    typer.Option(
        "--memory", metavar="SIZE", help="Room for undecided rows and for those at work; further ones are read again."
    ),
]
_Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Receive the trace from recorders at this address; SOURCE is where it is kept."
    ),
]
_Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE", help="The trace that a recorder writes, or an event log of Spark.", show_default=False
    ),
]
_Rules = Annotated[
    RuleSet | None,
    typer.Option(
        help="Rules that give types to workers' time: timely, stated by the source, or st2 for comparison.",
        show_default="what the trace asks for",
    ),
]
_TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --listen: file of mode 600 with the token that recorders must send."),
]
_Certificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --listen, and needed where other machines send: PEM of this follower's certificate. Encrypts.",
    ),
]
_Key = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --certificate: PEM of its key, of mode 600, no password.")
]
_Trace = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where to write the trace of an event log. Default: STORE.trace.")
]
_Neo4j = Annotated[
    bool, typer.Option("--neo4j", help="Also keep Neo4j current, by pag neo4j follow, which has more options.")
]
_Epochs = Annotated[
    str | None,
    typer.Option(metavar="batch|query|job", help="If SOURCE is an event log of Spark: what an epoch is."),
]


def follow(
    source: _Source,
    store: Annotated[Path, typer.Argument(help="The store to make, or to continue.", show_default=False)],
    rules: _Rules = None,
    query: QueryOption = None,
    alert_rules: AlertsOption = None,
    to: ToOption = None,
    fail_on: FailOnOption = None,
    until: _Until = "complete",
    commit_every: _CommitEvery = "250ms",
    settle: _Settle = "1s",
    keep: _Keep = "all",
    in_memory: _Memory = "1GiB",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a store that exists.")] = False,
    epochs: _Epochs = None,
    trace: _Trace = None,
    listen: _Listen = None,
    token_file: _TokenFile = None,
    certificate: _Certificate = None,
    key: _Key = None,
    neo4j: _Neo4j = False,
    fsync: FsyncOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Build the graph of a trace while it is written: epochs can be queried as soon as they are closed.

    Start it before the program or after it, stop it (Ctrl-C) and start it again as you like: it goes on where it was.
    Rows that are committed never change, and once the program has ended the store is the one that pag build makes.
    Ends with exit code 10 if the source was not complete.

    With --listen, recorders send the trace by TCP instead (`Config::send`, pag replay --to tcp://HOST:PORT). What is in
    SOURCE, a trace itself, is acknowledged; a recorder that is cut off, or a follower that is killed, goes on there.

    An event log of Spark is mapped as it grows, to a trace beside the store, as by pag convert --epochs. Batches of
    streams that take more than twice as long as those before are named while they run.

    Example: pag follow run.trace run.pag --until idle:30s
    """  # noqa: DOC501  (an exit code is no error)
    from pag_graph.runtime import memory

    memory.keep()
    from pag_graph import api

    received: dict[str, Any] = {"listen": listen, "token_file": token_file, "certificate": certificate, "key": key}
    kernels = ("follow", "standing") if query or alert_rules else ("follow",)
    with (
        loading(store, wanted=neo4j, stopped=NOT_COMPLETE) as loader,
        delivering(store, to, fail_on) as delivery,
        _prepared(kernels, quiet=form is not Format.TABLE) as (stop, tell, units),
    ):
        result = api.follow(
            source,
            store,
            rules=rules,
            until=until,
            commit_every_s=nanoseconds(commit_every) / 1e9,
            settle_s=nanoseconds(settle) / 1e9,
            keep=keep,
            memory=in_memory,
            replace=replace,
            observers=[delivery, *([loader] if loader else [])],
            queries=query or (),
            alerts=alert_rules or (),
            stop=stop,
            progress=tell,
            **received,
            units=units,
            epochs=epochs,
            trace=trace,
            fsync=fsync,
            refused=lambda line: stderr().print(line, style="yellow", markup=False),
        )
        loaded = loader.end(complete=result.complete) if loader else 0
    _say_followed(result, source, store, form)
    if loaded or not result.complete:
        raise typer.Exit(loaded or NOT_COMPLETE)


def slow_batch(unit: dict[str, Any]) -> str:
    """Say that a batch takes long, while it runs."""
    grown = ""
    before, now = unit["state_rows_before"], unit["state_rows"]
    if before and now > before:
        grown = f"; the state grew from {before:,} to {now:,} rows"
    so_far, usual = duration(unit["so_far_ms"] * 1_000_000), duration(unit["usual_ms"] * 1_000_000)
    return f"{unit['name']} has taken {so_far} so far, where batches before it took {usual}{grown}."


@contextmanager
def _prepared(
    kernels: Sequence[str], *, quiet: bool
) -> Iterator[tuple[Event, Callable[[Progress], None] | None, _Units]]:
    """Load kernels, or compile them; give what asks to stop, and whom to tell how far it is."""
    from pag_graph.builder.engine import silent
    from pag_graph.kernels.compiling import prepare

    with compiling(*kernels, quiet=quiet, report=silent), stopping() as stop, _telling(quiet=quiet) as told:
        # Not when the first events are there, whose answers would wait for it.
        prepare(*kernels)
        yield stop, *told


def _say_followed(result: FollowReport, source: Path, store: Path, form: Format) -> None:
    facts = {
        "store": str(store),
        "ending": result.ending,
        "complete": result.complete,
        "events": result.events,
        "closed_epochs": result.closed,
        "commits": result.commits,
        "run_id": None if result.store is None else result.store.run["run_id"],
        "removed_epochs": result.removed,
        "untimed_epochs": result.untimed,
    }
    if result.trouble is not None:
        message = f"Not all could be noted beside the store, so pag timings and pag ongoing lack it: {result.trouble}"
        stderr().print(message, style="yellow")
    if result.unjoined is not None:
        stderr().print(f"{_UNJOINED}: {result.unjoined}", style="yellow", markup=False)
    if not print_facts(facts, form):
        out = stdout()
        out.print(
            f"Followed {source}: {result.events:,} events, {result.closed:,} epochs closed, {result.commits:,} commits."
        )
        if result.removed:
            out.print(f"Removed {result.removed:,} epochs, which were older than what is kept.")
        if not result.complete:
            committed = "nothing is committed yet" if result.store is None else "what is decided is committed"
            out.print(f"The source is not complete; {committed}.", style="yellow")
        if result.store is not None:
            tell_next("pag", "why", store)


@contextmanager
def stopping() -> Iterator[Event]:
    """Let the first Ctrl-C or SIGTERM ask to stop; a second one does what it usually does."""
    stop = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _telling(*, quiet: bool) -> Iterator[tuple[Callable[[Progress], None] | None, _Units]]:
    """Say on standard error how far it is: all the time to a terminal, now and then to a file."""
    console = stderr()
    said: set[str] = set()

    def name(units: list[dict[str, Any]]) -> None:
        for unit in units:
            if unit.get("slow") and unit["name"] not in said:
                said.add(unit["name"])
                console.print(slow_batch(unit), style="yellow", markup=False)

    if quiet:
        yield None, name
        return
    with console.status("waiting for the trace") as status:
        told = time.monotonic()

        def tell(now: Progress) -> None:
            nonlocal told
            line = (
                f"{now.events:,} events read, {now.decided:,} decided; {now.epochs:,} epochs closed"
                f" in {now.commits:,} commits"
            )
            if now.ongoing is not None and now.ongoing.holder is not None:
                line += f"; epoch {now.ongoing.epoch} waits for worker {now.ongoing.holder.worker}"
                line += f" ({now.ongoing.holder.why.replace('_', ' ')})"
            if now.unjoined is not None and _UNJOINED not in said:
                said.add(_UNJOINED)
                console.print(f"{_UNJOINED}: {now.unjoined}", style="yellow", markup=False)
            if console.is_terminal:
                status.update(line)
            elif time.monotonic() - told >= _TELL_EVERY_S:
                told = time.monotonic()
                console.print(line)

        yield tell, name
