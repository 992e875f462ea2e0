"""What several windows of a run show, in memory: the rows of all of them, each with the place of its window.

A window costs some milliseconds of calls however little it shows, and there may be hundreds of rounds a second. So what
windows show is worked out for many of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.analyses.critical_path import paths_of
from pag_graph.analyses.expressions import WAITING
from pag_graph.analyses.view import View
from pag_graph.graph.snapshot import enders_of, read_together
from pag_graph.sinks.neo4j.model import EDGE_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What some windows show; ``window`` is the place of a row's window among them."""

    run: Run
    windows: Sequence[Window]
    edges: pl.DataFrame
    """Edges that touch a window, once for each that they touch: `PAG_EDGES` and ``window``."""
    local: pl.DataFrame
    """Those that stay on a worker, with ``inside_ns``: how long they last inside the window."""
    enders: pl.DataFrame
    """Messages that ended a wait of a window, also those read after it: `PAG_EDGES` and ``window``."""
    steps: pl.DataFrame | None
    """Steps of the critical paths: `CRITICAL_PATH` and ``window``, in order; None for rules that have no paths."""
    all_waiting: Sequence[bool]
    """Per window: `CriticalPath.all_waiting`; empty without paths."""

    def path_edges(self) -> pl.DataFrame:
        """Return the store's edges that the critical paths are made of.

        Returns
        -------
        DataFrame
            One row per step: ``window``, ``src``, ``dst`` and ``type``.
        """
        if self.steps is None:
            return self.edges.select("window", *EDGE_KEY).clear()
        return self.steps.select("window", src="edge_src", dst="edge_dst", type="type")

    @cached_property
    def highest_epochs(self) -> list[int]:
        """The highest epoch of an event that each window shows, enders included; its own where it shows nothing."""
        labels = pl.concat(
            [frame.select("window", pl.max_horizontal("epoch", "src_epoch")) for frame in (self.edges, self.enders)]
        )
        highest = dict(labels.group_by("window").agg(pl.col("epoch").max()).iter_rows())
        return [highest.get(place, window.epoch or 0) for place, window in enumerate(self.windows)]


def read_shown(run: Run, windows: Sequence[Window]) -> Shown:
    """Read what some windows show.

    Parameters
    ----------
    run
        A committed run.
    windows
        At least one, in time order unless epochs are islands.

    Returns
    -------
    Shown
        Reads only files and row groups that can hold edges of the windows.
    """
    parts = list(run.stretches(windows))
    shown_parts = [_read_part(run, part) for part in parts]
    begins = [sum(map(len, parts[:number])) for number in range(len(parts))]

    def joined(name: str) -> pl.DataFrame:
        frames: list[pl.DataFrame] = [getattr(part, name) for part in shown_parts]
        return pl.concat([frame.with_columns(pl.col("window") + at) for frame, at in zip(frames, begins, strict=True)])

    return Shown(
        run=run,
        windows=windows,
        edges=joined("edges"),
        local=joined("local"),
        enders=joined("enders"),
        steps=joined("steps") if run.aligned else None,
        all_waiting=[is_waiting for part in shown_parts for is_waiting in part.all_waiting],
    )


def _read_part(run: Run, windows: Sequence[Window]) -> Shown:
    """Read what neighbours show, which memory holds together."""
    together = read_together(run, windows)
    view = View(run=run, windows=windows, snapshot=together)
    edges, local = view.collect(view.edges), view.collect(view.local)
    waits = local.filter(pl.col("type") == WAITING).with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    lowest_epoch = min(window.lowest_epoch for window in windows)
    messages = enders_of(together, waits.unique("dst"), lowest_epoch)
    names = ["window", *together.edges.columns]
    steps, all_waiting = paths_of(view) if run.aligned else (None, ())
    return Shown(
        run=run,
        windows=windows,
        edges=edges.select(names),
        local=local.select(*names, "inside_ns"),
        enders=messages.join(waits.select("window", "dst"), on="dst").select(names),
        steps=steps,
        all_waiting=[bool(is_waiting) for is_waiting in all_waiting],
    )
