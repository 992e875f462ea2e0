"""`pag changes`, `pag alerts`, and the options by which builds keep standing queries."""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph.cli.analyses import ALARM, FormatOption, StoreArgument
from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stdout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pag_graph.sinks.delivery.targets import Delivery


class FailOn(StrEnum):
    """What makes a command that went well fail."""

    ALERT = "alert"


QueryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--query",
        metavar="NAME[:k=v]",
        help="A standing query to keep from now on, such as k-hops:k=3 or motif:pattern=late_sender:last=20;"
        " may be repeated.",
    ),
]
AlertsOption = Annotated[
    Path | None,
    typer.Option(
        "--alerts", metavar="RULES.toml", help="File of rules of alerts to keep from now on.", show_default=False
    ),
]
ToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to", metavar="FILE|-|URL", help="Where to deliver changes and alerts; may be repeated. URLs get only alerts."
    ),
]
FailOnOption = Annotated[
    FailOn | None, typer.Option("--fail-on", help="Exit with 9 if an alert opened.", show_default=False)
]
SinceOption = Annotated[int, typer.Option(metavar="COMMIT", help="Only changes of commits after this one.")]


@contextmanager
def delivering(store: Path, to: Sequence[str] | None, fail_on: FailOn | None) -> Iterator[Delivery]:
    """Keep the promises of `--to` and `--fail-on` around what commits to a store.

    Parameters
    ----------
    store
        Directory of the store; need not be there yet.
    to, fail_on
        The options.

    Yields
    ------
    Delivery
        Hands out what is committed whenever it is asked to, and once more at the end.

    Raises
    ------
    Exit
        With code 9 if an alert opened meanwhile, and `fail_on` says so.
    """
    from pag_graph.sinks.delivery.targets import delivery
    from pag_graph.store.delta import open_store

    place = store.absolute()
    before = _newest(place)
    with delivery(place, to or ()) as deliveries:
        yield deliveries
        if _newest(place) >= 0:
            deliveries.deliver(open_store(place))
    if fail_on is FailOn.ALERT and _newest(place) >= 0:
        from pag_graph.api.standing import alerts

        opened = [row for row in alerts(place, since=before).to_pylist() if row["event"] == "opened"]
        if opened:
            raise typer.Exit(ALARM)


def _newest(store: Path) -> int:
    """Return the number of a store's last commit; -1 where there is none."""
    from pag_graph.errors import StoreNotFoundError
    from pag_graph.store.delta import open_store

    try:
        return open_store(store).versions["epochs"]
    except StoreNotFoundError:
        return -1


def changes(
    store: StoreArgument,
    query: Annotated[str, typer.Option("--query", metavar="NAME[:k=v]", help="One of the store's standing queries.")],
    since: SinceOption = -1,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show how the answer of a standing query changed from commit to commit.

    Example: pag changes run.pag --query metrics --since 3 --format csv
    """
    from pag_graph.api.standing import changes as read_changes

    _print(read_changes(store, query, since=since), "changes", form)


def alerts(store: StoreArgument, since: SinceOption = -1, form: FormatOption = Format.TABLE) -> None:
    """Show the alerts of a store: which opened, and which were resolved.

    Example: pag alerts run.pag --format json
    """
    from pag_graph.api.standing import alerts as read_alerts

    table = read_alerts(store, since=since)
    shown = ["event", "severity", "rule", "subject", "first_epoch", "epoch", "observed", "limit", "coverage"]
    _print(table, "alerts", form, shown)


def _print(table: pa.Table, title: str, form: Format, shown: Sequence[str] | None = None) -> None:
    rows: list[dict[str, Any]] = table.to_pylist()
    if form is Format.JSON:
        print_json(rows)
    elif form is Format.CSV:
        print_csv(rows, table.column_names)
    elif rows:
        print_rows(rows, shown or table.column_names, title)
    else:
        stdout().print(f"No {title}.")
