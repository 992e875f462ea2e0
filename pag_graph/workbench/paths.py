"""Critical paths as they are drawn: of a long one, as much as can be told apart at some width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from pag_graph.analyses.critical_path import critical_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

Times = TypeVar("Times", pl.Series, pl.Expr)
"""A column of instants, or an expression of one."""


def pixel_of(t_ns: Times, begin_ns: int, end_ns: int, pixels: int) -> Times:
    """Return the pixels at which instants are drawn.

    Parameters
    ----------
    t_ns
        Instants: a column, or an expression.
    begin_ns, end_ns
        What is drawn.
    pixels
        How wide.

    Returns
    -------
    Series or Expr
        Whole numbers, as `t_ns` is.
    """
    # Months times pixels are more than 64 bits hold. The product comes first: up to 2^53 the pixel is exact.
    return ((t_ns - begin_ns).cast(pl.Float64) * pixels / max(end_ns - begin_ns, 1)).floor()


@dataclass(frozen=True, kw_only=True)
class DrawnPath:
    """The critical path of a window, kept so that each view of it costs what the view shows."""

    steps: pl.DataFrame
    """One row per step in the order of the path: ``begin`` and ``end`` (ns), ``source`` and ``target`` (places of
    workers), ``kind`` and ``operator``. As each step goes on where the one before it ended, both times are in order."""
    by_type: Mapping[str, int]
    """Nanoseconds of each type, the most first; they sum to the window's length."""

    @classmethod
    def of(cls, run: Run, window: Window) -> DrawnPath:
        """Find the path of a window.

        Parameters
        ----------
        run
            With aligned clocks.
        window
            One of its windows.

        Returns
        -------
        DrawnPath
            Holds every step; `columns` gives what a view of it shows.

        Raises
        ------
        UnsupportedPlanError
            If the run's clocks are not aligned.
        PagError
            If the graph has a gap, or a wait that no message ended.
        """
        steps = pl.DataFrame(critical_path(run.snapshot(window)).steps)
        places = {worker: place for place, worker in enumerate(run.workers)}
        by_type = (
            steps.group_by("type")
            .agg(pl.col("duration_ns").sum())
            .sort("duration_ns", "type", descending=[True, False])
        )
        drawn = steps.select(
            begin="start_ns",
            end=pl.col("start_ns") + pl.col("duration_ns"),
            source=pl.col("worker").cast(pl.Int64).replace_strict(places, return_dtype=pl.Int64),
            target=pl.col("to_worker").cast(pl.Int64).replace_strict(places, return_dtype=pl.Int64),
            kind="type",
            operator="operator",
        )
        return cls(steps=drawn.rechunk(), by_type=dict(by_type.iter_rows()))

    def columns(self, begin_ns: int, end_ns: int, pixels: int) -> dict[str, list[Any]]:
        """Return the steps of a view that can be told apart at some width.

        Parameters
        ----------
        begin_ns, end_ns
            What is drawn, from the run's origin.
        pixels
            How wide.

        Returns
        -------
        dict
            Columns of `steps`: of the steps that begin in one pixel the first and the last.
        """
        low = int(self.steps["end"].search_sorted(begin_ns, side="left"))
        high = int(self.steps["begin"].search_sorted(end_ns, side="right"))
        shown = self.steps[low:high]
        pixel = pixel_of(shown["begin"], begin_ns, end_ns, pixels)
        is_new_pixel = (pixel != pixel.shift(1)).fill_null(value=True)
        drawn = shown.filter(is_new_pixel | is_new_pixel.shift(-1, fill_value=True))
        return {name: drawn[name].to_list() for name in drawn.columns}
