"""What happened in all answered epochs together: `metrics`, summed up.

Only standing queries ask for it; offline it is a sum over `metrics` of all windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from pag_graph.analyses.definition import P, Standing, TableAnalysis
from pag_graph.analyses.expressions import known_records
from pag_graph.analyses.metrics import metrics
from pag_graph.analyses.view import View
from pag_graph.model.tables import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from pag_graph.analyses.standing import Delta
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

KEYS = ("from_worker", "to_worker", "type")
_SUMS = tuple(name for name in METRICS.names if name not in {*KEYS, "epoch"})


@dataclass(frozen=True, kw_only=True, eq=False)
class SumAnalysis(TableAnalysis[P]):
    """Sums over windows: its function makes rows of each, and those with equal keys are added up."""

    keys: tuple[str, ...]
    """Columns by which rows are added up, with ``type``; all others are numbers, with ``records`` (`known_records`)."""

    def over(self, run: Run, last: int, parameters: P | None = None) -> pa.Table:
        """Return the sums over all windows of epochs up to one.

        Parameters
        ----------
        run
            The run.
        last
            The last epoch.
        parameters
            Of the analysis.

        Returns
        -------
        Table
            Rows of the schema, one per key; they are of no epoch.
        """
        windows = run.windows(run.until(last).epochs["epoch"].to_list())
        return self.added([], run, windows, parameters).to_arrow().cast(self.schema)

    def step(
        self, before: pl.DataFrame, delta: Delta, parameters: P | None, warm: MutableMapping[str, Any]
    ) -> pl.DataFrame:
        """Return the sums after a commit.

        Parameters
        ----------
        before
            The sums before the commit.
        delta
            What it brings.
        parameters
            Of the analysis.
        warm
            Not used.

        Returns
        -------
        DataFrame
            The sums after it. Only the rows of new epochs are made, unless an old one changed.
        """
        del warm
        if not delta.labelled:
            return self.added([before], delta.state, delta.state.windows(delta.new), parameters)
        whole_run = delta.state.whole
        answered = whole_run.until(delta.answered).epochs["epoch"].to_list()
        return self.added([], whole_run, whole_run.windows(answered), parameters)

    def added(
        self, before: Iterable[pl.DataFrame], run: Run, windows: list[Window], parameters: P | None = None
    ) -> pl.DataFrame:
        """Add the rows of some windows to sums.

        Parameters
        ----------
        before
            Sums so far.
        run
            The run.
        windows
            Those whose rows are added.
        parameters
            Of the analysis.

        Returns
        -------
        DataFrame
            One row per key, sorted by it.
        """
        views: list[Any] = [View(run=run, windows=part) for part in run.stretches(windows)]
        parts = [pl.DataFrame(pl.from_arrow(self.table(view, parameters))) for view in views]
        nothing = pl.DataFrame(pl.from_arrow(self.schema.empty_table()))
        rows = pl.concat([nothing, *before, *(part.select(self.schema.names) for part in parts)])
        told = {"telling": pl.col("records").count(), "rows": pl.len()}
        sums = rows.group_by(self.keys).agg(pl.exclude(self.keys).sum(), **told)
        return sums.with_columns(records=known_records("rows")).sort(self.keys).select(self.schema.names)


def totals(view: View) -> pl.DataFrame:
    """Sum activities, their time and records over all epochs, per pair of workers and type.

    Parameters
    ----------
    view
        Of any run.

    Returns
    -------
    DataFrame
        Rows of `METRICS` without their epoch, one per window, worker or pair of workers, and type.
    """
    return metrics(view).drop("epoch")


TOTALS: SumAnalysis[None] = SumAnalysis(
    name="totals",
    function=totals,
    schema=pa.schema([METRICS.field(name) for name in (*KEYS, *_SUMS)]),
    output="TOTALS",
    keys=KEYS,
    standing=Standing.LINEAR,
)
