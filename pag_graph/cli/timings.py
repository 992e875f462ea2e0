"""`pag timings`: how long epochs took from the recorder to the answer."""

from __future__ import annotations

from typing import Annotated

import typer

from pag_graph.cli.analyses import FormatOption, StoreArgument  # noqa: TC001  (Typer reads them)
from pag_graph.cli.output import Format, print_csv, print_json, print_rows, stdout
from pag_graph.model.units import duration


def timings(
    store: StoreArgument,
    by_size: Annotated[bool, typer.Option("--by-size", help="Also list epochs of different sizes separately.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say how long epochs of a followed store took from the recorder's file to the answer.

    Quantiles are exact: p50, p99 and the maximum over all epochs that a follower closed. csv has a row per epoch; json
    has both, and the distribution.

    Example: pag timings run.pag --by-size
    """
    from pag_graph.graph.timings import SPANS, distribution, lags
    from pag_graph.store.delta import open_store
    from pag_graph.store.live import read_timings

    info = open_store(store)
    measured_epochs = read_timings(store)
    lag_rows = [lag._asdict() for lag in lags(measured_epochs, by_size=by_size)]
    if form is Format.CSV:
        print_csv(measured_epochs.to_pylist(), measured_epochs.column_names)
        return
    if form is Format.JSON:
        spread = {span: distribution(measured_epochs, span) for span in SPANS}
        print_json(
            {"store": str(store), "lags": lag_rows, "distribution": spread, "epochs": measured_epochs.to_pylist()}
        )
        return
    console = stdout()
    if not lag_rows:
        console.print(f"{store} was not followed, or no epoch of it is closed.")
        return
    shown = [
        {
            "step": row["span"],
            **({"events from": row["size"]} if by_size else {}),
            "epochs": row["epochs"],
            **{name: duration(row[f"{name}_ns"]) for name in ("p50", "p99", "max")},
        }
        for row in lag_rows
    ]
    print_rows(shown, list(shown[0]), f"{measured_epochs.num_rows:,} epochs")
    if unknown := info.closed_epochs - measured_epochs.num_rows:
        console.print(
            f"Of {unknown:,} more epochs nothing is noted: they are not answered yet, or their follower ended.",
            style="yellow",
        )
