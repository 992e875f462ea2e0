"""`pag ongoing`: what a run that is followed is doing now."""

from __future__ import annotations

import time

from pag_graph.cli.analyses import FormatOption, StoreArgument  # noqa: TC001  (Typer reads them)
from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stdout
from pag_graph.model.units import duration


def ongoing(store: StoreArgument, form: FormatOption = Format.TABLE) -> None:
    """Say what a run that is followed is doing: which epoch goes on, whom it waits for, and what can only grow.

    It is what the follower saw when it looked last. None of it is final, and none of it is in a table of the store.

    Example: pag ongoing run.pag
    """
    from pag_graph.builder.ongoing import HOLDING
    from pag_graph.store.live import read_status

    now = read_status(store)
    if form is Format.JSON:
        print_json({"store": str(store), **now})
        return
    if form is Format.CSV:
        print_csv(now["workers"], list(now["workers"][0]))
        return
    out = stdout()
    ago = duration(max(time.time_ns() - now["looked_ns"], 0))
    out.print(f"So far, as of {duration(now['as_of_ns'])} of the run, seen {ago} ago ({now['events']:,} events):")
    if now["complete"]:
        out.print("the run has ended.")
    elif now["epoch"] is None:
        out.print("no epoch goes on.")
    else:
        out.print(f"epoch {now['epoch']} has taken {duration(now['epoch_ns'])} at least.")
        if (holder := now["holder"]) is not None:
            since = duration(holder["since_ns"])
            out.print(f"It waits for worker {holder['worker']} since {since}: {HOLDING[holder['why']]}.")
    if now["unread"]:
        age = duration(max(now["as_of_ns"] - now["oldest_unread_ns"], 0))
        out.print(f"{now['unread']:,} messages are unread; the oldest, of worker {now['oldest_unread_by']}, for {age}.")
    print_rows(now["workers"], list(now["workers"][0]))
