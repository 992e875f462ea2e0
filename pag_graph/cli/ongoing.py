"""`pag ongoing`: what a run that is followed is doing now."""

from __future__ import annotations

import time
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

from pag_graph.builder.engine import silent
from pag_graph.cli.analyses import FormatOption, StoreArgument  # noqa: TC001  (Typer reads them)
from pag_graph.cli.follow import slow_batch
from pag_graph.cli.output import Format, compiling, print_csv, print_json, print_rows, stdout
from pag_graph.model.units import duration


def ongoing(
    store: StoreArgument,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="TRACE", help="The trace that is followed: also show the critical path so far."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say what a followed run is doing: which epoch is open, which worker it waits for, which numbers can only grow.

    This is what the follower saw when it last looked. None of it is final, and none of it is in a table of the store.
    --trace also reads the rows that are not committed. It shows the critical path from the end of the last closed
    epoch to the point that the slowest worker's log has reached; what still waits there is unknown.

    Example: pag ongoing run.pag --trace run.trace
    """
    from pag_graph.builder.ongoing import HOLDING
    from pag_graph.store.live import read_status, read_units

    now, units, path = read_status(store), read_units(store), None
    if trace is not None:
        from pag_graph.engines.so_far import path_so_far

        with compiling("build", quiet=form is not Format.TABLE, report=silent):
            path = path_so_far(trace, store)
    if form is Format.JSON:
        print_json({"store": str(store), **now, "units": units, "path": path and path.summary()})
        return
    if form is Format.CSV:
        print_csv(now["workers"], list(now["workers"][0]))
        return
    console = stdout()
    ago = duration(max(time.time_ns() - now["looked_ns"], 0))
    console.print(f"So far, as of {duration(now['as_of_ns'])} of the run, seen {ago} ago ({now['events']:,} events):")
    if now["complete"]:
        console.print("the run has ended.")
    elif now["epoch"] is None:
        console.print("no epoch goes on.")
    else:
        console.print(f"epoch {now['epoch']} has taken {duration(now['epoch_ns'])} at least.")
        if (holder := now["holder"]) is not None:
            waited = duration(holder["since_ns"])
            console.print(f"It waits for worker {holder['worker']} since {waited}: {HOLDING[holder['why']]}.")
    if now["unread"]:
        age = duration(max(now["as_of_ns"] - now["oldest_unread_ns"], 0))
        console.print(
            f"{now['unread']:,} messages are unread; the oldest, of worker {now['oldest_unread_by']}, for {age}."
        )
    for unit in units:
        so_far = duration(unit["so_far_ms"] * 1_000_000)
        text = slow_batch(unit) if unit.get("slow") else f"{unit['name']} has taken {so_far} so far."
        console.print(text, style="yellow" if unit.get("slow") else None, markup=False)
    if path is not None:
        console.print(f"So far, {path.headline()}", markup=False)
    print_rows(now["workers"], list(now["workers"][0]))
