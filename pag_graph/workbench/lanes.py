"""What is drawn of a stretch of a run: as much as a screen can show, whatever the stretch holds.

Activities and messages of a stretch that is wider than what is looked at are kept as columns, so that moving and
zooming read nothing. Only row groups that can hold edges of a stretch are read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.errors import InvalidParameterError
from pag_graph.graph.snapshot import read_snapshot
from pag_graph.kernels import lanes as kernel
from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.workbench.paths import pixel_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.graph.run import Run

    I64 = NDArray[np.int64]

KINDS = [str(kind) for kind in ActivityType]
"""Types of edges; a box has a place in this list."""
STRETCH_EDGES = 2_000_000
"""About how many edges a stretch that is kept may have."""
KEPT = 4
"""Stretches that are kept."""
WIDEST = 4_000
"""Pixels."""
_LOCAL = [str(kind) for kind in LOCAL_TYPES]
_OF_WORKER = 1 << POSITION_BITS
"""Vertices of a worker have ids in its own range; what remains of one is its position, which a page can count with."""
_BINS = 4_096
"""Pixels of the picture of a whole run that is too large to be kept."""
_AS_KINDS = pl.Enum(KINDS)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Columns of a part of a run."""

    begin_ns: int
    end_ns: int
    activities: kernel.Activities
    ids: I64
    """Per activity: the vertex that it ends with."""
    messages: pl.DataFrame
    """One row per message that touches the stretch, by the time of its read: ``begin``, ``end``, ``source`` and
    ``target`` (places of workers), ``kind``, ``sent`` and ``position`` (of its ends among the vertices of their
    workers), ``records``, and ``wait``, how long the wait was that it ended (0 where it ended none)."""
    enders: pl.DataFrame
    """Those that ended a wait."""

    def shows(self, begin_ns: int, end_ns: int) -> bool:
        """Say whether the stretch holds all of a part of the run.

        Parameters
        ----------
        begin_ns, end_ns
            From the run's origin.

        Returns
        -------
        bool
            True also where the two are the same part.
        """
        return self.begin_ns <= begin_ns and end_ns <= self.end_ns


class Lanes:
    """Pictures of a run, stretch by stretch.

    Parameters
    ----------
    run
        With aligned clocks.

    Raises
    ------
    UnsupportedPlanError
        If the workers' clocks are not aligned.
    """

    def __init__(self, run: Run) -> None:
        run.require_aligned("Lanes of several workers have one axis of time")
        self.run = run
        self._places = {worker: place for place, worker in enumerate(run.workers)}
        self._kept: OrderedDict[tuple[int, int], Stretch] = OrderedDict()
        self._whole: I64 | None = None
        self._lock = Lock()
        epochs = run.epochs.sort("end_ns")
        self._ends = np.concatenate([[0], epochs["end_ns"].to_numpy()])
        self._edges = np.concatenate([[0], np.cumsum(epochs["edges"].to_numpy())])

    def draw(self, begin_ns: int, end_ns: int, pixels: int, *, widest: int = WIDEST) -> dict[str, Any]:
        """Return what to draw of a part of the run.

        Parameters
        ----------
        begin_ns, end_ns
            From the run's origin.
        pixels
            How wide it is drawn.
        widest
            How wide it may be drawn.

        Returns
        -------
        dict
            ``boxes``: per column a list, one entry per box of an activity, or of several that are too narrow to be
            seen; ``messages``: likewise, those that ended a wait, per pixel and reader the one that ended the longest.
            ``exact`` is whether the boxes come from the edges themselves; of more than some millions of edges a
            summary of the run is drawn, and no messages.

        Raises
        ------
        InvalidParameterError
            If this is no part of the run.
        """
        self._check(begin_ns, end_ns, pixels, widest)
        if self.edges_between(begin_ns, end_ns) > STRETCH_EDGES:
            boxes = self._summary(begin_ns, end_ns)
            return {"exact": False, "boxes": _as_lists(boxes), "messages": {}}
        stretch = self.stretch(begin_ns, end_ns)
        boxes = np.zeros((len(self._places) * (pixels + 1) * 3, 7), np.int64)
        view = kernel.View(begin_ns, end_ns, pixels)
        count = kernel.draw_lanes(stretch.activities, view, boxes)
        boxes = boxes[:count]
        single = boxes[:, kernel.ROW] >= 0
        boxes[single, kernel.ROW] = stretch.ids[boxes[single, kernel.ROW]] % _OF_WORKER
        return {
            "exact": True,
            "boxes": _as_lists(boxes),
            "messages": self._enders(stretch, begin_ns, end_ns, pixels),
        }

    def near(self, worker: int, t_ns: int, width_ns: int, most: int = 60) -> list[dict[str, Any]]:
        """Return messages that a worker sent or read around an instant, the nearest first.

        Parameters
        ----------
        worker
            Its number.
        t_ns, width_ns
            Instant, and how far from it a message may begin or end.
        most
            How many.

        Returns
        -------
        list of dict
            Columns of `Stretch.messages`.
        """
        low, high = max(t_ns - width_ns, 0), min(t_ns + width_ns, self.run.end_ns)
        place = self._place(worker)
        if low >= high or self.edges_between(low, high) > STRETCH_EDGES:
            return []
        messages = self.stretch(low, high).messages
        sent = (pl.col("source") == place) & pl.col("begin").is_between(low, high)
        read = (pl.col("target") == place) & pl.col("end").is_between(low, high)
        distance = pl.min_horizontal((pl.col("begin") - t_ns).abs(), (pl.col("end") - t_ns).abs())
        return messages.filter(sent | read).sort(distance, "target", "position").head(most).to_dicts()

    def edges_between(self, begin_ns: int, end_ns: int) -> float:
        """Estimate how many edges a part of the run has.

        Parameters
        ----------
        begin_ns, end_ns
            From the run's origin; what lies outside of the run has none.

        Returns
        -------
        float
            As if the edges of an epoch ended evenly between the end of the epoch before and its own. Reads nothing.
        """
        edges = np.interp([begin_ns, end_ns], self._ends, self._edges)
        return float(edges[1] - edges[0])

    def stretch(self, begin_ns: int, end_ns: int) -> Stretch:
        """Return a stretch that holds a part of the run.

        Parameters
        ----------
        begin_ns, end_ns
            From the run's origin; not checked.

        Returns
        -------
        Stretch
            One that is kept, if one holds all of it. Else one is read: the part and as much again on either side, less
            where that would be more than `STRETCH_EDGES` edges. Of more than `KEPT` the one that was asked for the
            longest ago is forgotten.

        Raises
        ------
        StoreError
            If a file of the store is missing or damaged.

        Notes
        -----
        One thread at a time: those that ask meanwhile wait, and then find what was read.
        """
        with self._lock:
            for key, stretch in self._kept.items():
                if stretch.shows(begin_ns, end_ns):
                    self._kept.move_to_end(key)
                    return stretch
            stretch = self._read(*self._widened(begin_ns, end_ns))
            self._kept[stretch.begin_ns, stretch.end_ns] = stretch
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return stretch

    def _widened(self, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """Return a wider part, so that a move to either side reads nothing."""
        low, high = begin_ns, end_ns
        for factor in (1.0, 0.5, 0.25):
            margin = int((end_ns - begin_ns) * factor) + 1_000
            low, high = max(begin_ns - margin, 0), min(end_ns + margin, self.run.end_ns)
            if self.edges_between(low, high) <= STRETCH_EDGES:
                return low, high
        return begin_ns, end_ns

    def _read(self, begin_ns: int, end_ns: int) -> Stretch:
        window = self.run.stretch(begin_ns, end_ns)
        edges = self._placed(read_snapshot(self.run, window).edges)
        # Edges that have no length show nothing.
        local = edges.filter(pl.col("type").is_in(_LOCAL) & (pl.col("end") > pl.col("begin"))).sort("target", "begin")
        waits = edges.filter(pl.col("type") == str(ActivityType.WAITING))
        messages = (
            edges.filter(~pl.col("type").is_in(_LOCAL))
            .join(waits.select("dst", wait=pl.col("duration_ns")), on="dst", how="left")
            .with_columns(pl.col("wait").fill_null(0), kind=pl.col("type").cast(_AS_KINDS).to_physical())
            .with_columns(sent=pl.col("src") % _OF_WORKER, position=pl.col("dst") % _OF_WORKER)
            .select("begin", "end", "source", "target", "kind", "sent", "position", "records", "wait")
            .sort("end", "target", "position")
        )
        return Stretch(
            begin_ns=begin_ns,
            end_ns=end_ns,
            activities=self._activities(local),
            ids=local["dst"].to_numpy(),
            messages=messages,
            enders=messages.filter(pl.col("wait") > 0),
        )

    def _placed(self, edges: pl.DataFrame) -> pl.DataFrame:
        """Give edges the places of their workers, and the instants at which they begin and end."""
        place = {
            name: (pl.col(side) // _OF_WORKER).replace_strict(self._places, return_dtype=pl.Int64)
            for name, side in (("source", "src"), ("target", "dst"))
        }
        return edges.with_columns(begin=pl.col("start_ns"), end=pl.col("start_ns") + pl.col("duration_ns"), **place)

    def _activities(self, local: pl.DataFrame) -> kernel.Activities:
        first = np.searchsorted(local["target"].to_numpy(), np.arange(len(self._places) + 1))
        return kernel.Activities(
            first.astype(np.int64),
            np.array(local["begin"], np.int64),
            np.array(local["end"], np.int64),
            np.array(local["type"].cast(_AS_KINDS).to_physical(), np.uint8),
            np.array(local["operator"].fill_null(-1), np.int32),
        )

    def _enders(self, stretch: Stretch, begin_ns: int, end_ns: int, pixels: int) -> dict[str, list[int]]:
        """Return the messages that ended waits, of those that end in a pixel the one of the longest wait."""
        first = int(stretch.enders["end"].search_sorted(begin_ns, side="right"))
        shown = stretch.enders[first:].filter(pl.col("begin") < end_ns)
        pixel = pixel_of(pl.col("end"), begin_ns, end_ns, pixels)
        shown = (
            shown.with_columns(pixel=pixel)
            .sort("wait", descending=True, maintain_order=True)
            .unique(["pixel", "target"], keep="first", maintain_order=True)
            .sort("end", "target", "position")
        )
        names = ("begin", "end", "source", "target", "kind", "sent", "position", "wait")
        return {name: shown[name].to_list() for name in names}

    def _summary(self, begin_ns: int, end_ns: int) -> I64:
        """Return boxes of the picture of the whole run."""
        with self._lock:
            if self._whole is None:
                self._whole = self._draw_whole()
            boxes = self._whole
        return boxes[(boxes[:, kernel.END] > begin_ns) & (boxes[:, kernel.BEGIN] < end_ns)]

    def _draw_whole(self) -> I64:
        """Draw the run, stretch by stretch, each as many pixels wide as its share of the run."""
        parts = []
        for windows in self.run.stretches(self.run.windows(), STRETCH_EDGES):
            low, high = windows[0].start_ns, max(window.end_ns for window in windows)
            if low >= high:
                continue
            pixels = max(1, round(_BINS * (high - low) / self.run.end_ns))
            stretch = self._read(low, high)
            boxes = np.zeros((len(self._places) * (pixels + 1) * 3, 7), np.int64)
            count = kernel.draw_lanes(stretch.activities, kernel.View(low, high, pixels), boxes)
            parts.append(boxes[:count])
        drawn = np.concatenate(parts)
        drawn[:, kernel.ROW] = -1
        return drawn

    def _place(self, worker: int) -> int:
        if worker not in self._places:
            message = f"There is no worker {worker}; there are {', '.join(map(str, list(self._places)[:30]))}."
            raise InvalidParameterError(message, None, {"worker": worker})
        return self._places[worker]

    def _check(self, begin_ns: int, end_ns: int, pixels: int, widest: int) -> None:
        if not 0 <= begin_ns < end_ns <= self.run.end_ns:
            message = f"{begin_ns}..{end_ns} ns does not lie in the run, which goes from 0 to {self.run.end_ns}."
            raise InvalidParameterError(message)
        if not 1 <= pixels <= widest:
            message = f"{pixels} pixels: there must be 1 to {widest}."
            raise InvalidParameterError(message)


def _as_lists(boxes: I64) -> dict[str, list[int]]:
    names: Sequence[str] = ("worker", "begin", "end", "kind", "operator", "count", "position")
    return {name: boxes[:, place].tolist() for place, name in enumerate(names)}
