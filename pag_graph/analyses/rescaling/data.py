"""What a run says of rescaling by names, and its data messages by epoch without those of a rescaling itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.graph.membership import counted_epoch
from pag_graph.model.enums import ActivityType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.graph.run import Run

PREFIX = "rescale:"
"""How names of activities, and types of channels, begin that belong to a rescaling."""


def names_of_marks(run: Run) -> dict[int, str]:
    """Return, per operator whose name begins with `PREFIX`, what follows the prefix.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    dict
        Per operator: ``request``, ``drain``, ``SIDE:STEP`` and so on.
    """
    operators = run.operators.filter(pl.col("name").str.starts_with(PREFIX))
    return {number: name.removeprefix(PREFIX) for number, name in operators.select("operator", "name").iter_rows()}


def data_traffic(run: Run) -> pl.LazyFrame:
    """Return the rows of the table `traffic` about data messages that are no part of a rescaling.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    LazyFrame
        Rows of `PAG_TRAFFIC`; the epoch is that of the row of `epochs` that stands for it.

    Raises
    ------
    UnsupportedPlanError
        If the store lacks the table.
    """
    channels = run.channels.lazy().select("channel", data="type").unique("channel", keep="first")
    return (
        run.scan("traffic")
        .filter(pl.col("type") == str(ActivityType.DATA_MESSAGE))
        .join(channels, on="channel", how="left")
        .filter(~pl.col("data").fill_null("").str.starts_with(PREFIX))
        .drop("data")
        .with_columns(epoch=counted_epoch(run))
    )


def records_of(run: Run, epochs: Sequence[int]) -> list[int | None]:
    """Return how many records the data messages of epochs held.

    Parameters
    ----------
    run
        A committed run.
    epochs
        Numbers of epochs.

    Returns
    -------
    list of int
        Per epoch, messages of a worker to itself included; None where that is not known.
    """
    if not run.has_traffic:
        return [None] * len(epochs)
    total_records = pl.when(pl.col("records").is_not_null().all()).then(pl.col("records").sum())
    sums = dict(data_traffic(run).group_by("epoch").agg(total_records).collect().iter_rows())
    return [sums.get(epoch, 0) for epoch in epochs]
