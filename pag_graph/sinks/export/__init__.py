"""A graph for other programs: timelines for Perfetto and Chrome, GraphML, CSV, pictures; networkx from Python.

Writers read a store piece by piece, so that memory does not grow with the run. `docs/export.md` says what each format
holds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError, SinkError, UnsupportedPlanError
from pag_graph.sinks.export import chrome, csv, graphml
from pag_graph.sinks.export.pieces import PIECE_EDGES, Content
from pag_graph.sinks.timeline import timeline
from pag_graph.store.in_place import clean_beside, refusals, whole_folder, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

__all__ = ["ExportFormat", "Exported", "export"]


class ExportFormat(StrEnum):
    """What to export to."""

    PERFETTO = "perfetto"
    """JSON of the Trace Event Format, for ui.perfetto.dev."""
    CHROME = "chrome"
    """The same, for chrome://tracing and other programs that read the format."""
    GRAPHML = "graphml"
    """A graph for Gephi, yEd, networkx and igraph."""
    CSV = "csv"
    """A folder with one file per table."""
    SVG = "svg"
    """A picture of one window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    path: Path
    bytes: int
    rows: dict[str, int]
    """Per kind of thing (vertices, edges, critical_path, ...): how many."""


def _no_progress(label: str, done: int, total: int) -> None:
    """Say nothing."""


def export(
    run: Run,
    target: str | os.PathLike[str],
    to: ExportFormat | str | None = None,
    *,
    window: Window | None = None,
    path_only: bool = False,
    replace: bool = False,
    piece_edges: int = PIECE_EDGES,
    progress: Callable[[str, int, int], None] = _no_progress,
) -> Exported:
    """Write a run, or a window of it, in the format of another program.

    Parameters
    ----------
    run
        A committed run.
    target
        File to make, for CSV a folder. A timeline or GraphML whose name ends in ``.gz`` is compressed.
    to
        Format; what the name of `target` says where absent (see `format_of`).
    window
        What to export; the whole run where absent, and for a picture its slowest round.
    path_only
        Only the critical path, with the vertices and edges on it.
    replace
        Whether to write over what is there.
    piece_edges
        About how many edges are in memory at a time, where the whole run is exported.
    progress
        Called with (label, done, all).

    Returns
    -------
    Exported
        Where it is, and how much of what it holds.

    Raises
    ------
    InvalidParameterError
        If there is no such format, the name of `target` says another one, or a picture of the path only is asked for.
    UnsupportedPlanError
        If a critical path is asked for and the rule set has none.
    SinkError
        If there is something at `target`, or the file system refuses.
    """
    place = Path(os.path.abspath(target))  # noqa: PTH100  (links stay links, and `..` has no name)
    chosen = format_of(place, to)
    if path_only and not run.aligned:
        message = f"Runs of the rule set {run.rules} have no critical path: their clocks are not aligned."
        raise UnsupportedPlanError(message, "Build the trace with other rules, or export without --path-only.")
    if path_only and chosen is ExportFormat.SVG:
        message = "The picture always shows all workers, with the critical path on top."
        raise InvalidParameterError(message, "Export to perfetto for the path only.")
    _refuse_existing(place, folder=chosen is ExportFormat.CSV, replace=replace)
    content = Content(run=run, window=window, path_only=path_only, piece_edges=piece_edges, progress=progress)
    match chosen:
        case ExportFormat.GRAPHML:
            rows = graphml.write(content, place)
        case ExportFormat.CSV:
            with refusals(place, "", SinkError), whole_folder(place, parts=csv.FILES) as folder:
                rows = csv.write(content, folder)
        case ExportFormat.SVG:
            snapshot = run.snapshot(window or run.slowest())
            write_whole(place, timeline(snapshot))
            rows = {"edges": snapshot.edges.height}
        case _:
            rows = chrome.write(content, place)
    files = list(place.iterdir()) if place.is_dir() else [place]
    return Exported(path=Path(target), bytes=sum(file.stat().st_size for file in files), rows=rows)


_ENDINGS = {
    ".json": (ExportFormat.PERFETTO, ExportFormat.CHROME),
    ".graphml": (ExportFormat.GRAPHML,),
    ".svg": (ExportFormat.SVG,),
    "": (ExportFormat.CSV,),
}


def format_of(target: Path, asked: ExportFormat | str | None = None) -> ExportFormat:
    """Return the format that is asked for, else the one that a file's name says.

    Parameters
    ----------
    target
        The file: ``.json`` (for Perfetto), ``.graphml`` or ``.svg``, the first two also with ``.gz``; without an ending
        a folder of CSV.
    asked
        Format.

    Returns
    -------
    ExportFormat
        What to write.

    Raises
    ------
    InvalidParameterError
        If there is no such format, or the name says another one.
    """
    packed = target.suffix == ".gz"
    suffix = target.with_suffix("").suffix if packed else target.suffix
    by_name = _ENDINGS.get(suffix, ())
    if asked is None:
        asked = by_name[0] if by_name else suffix.removeprefix(".")
    if asked not in set(ExportFormat):
        message = f"There is no export to {asked}; there are {', '.join(ExportFormat)}."
        raise InvalidParameterError(message, "For networkx call `Pag.to_networkx()` in Python.")
    chosen = ExportFormat(asked)
    if suffix and by_name and chosen not in by_name:
        message = f"{target.name} is a name for {by_name[0]}, and {chosen} was asked for."
        raise InvalidParameterError(message, "Choose another name, or leave out the format.", {"path": str(target)})
    if packed and chosen in {ExportFormat.SVG, ExportFormat.CSV}:
        message = f"{target.name} is a name for something that is compressed, and {chosen} is not."
        raise InvalidParameterError(message, "Leave out `.gz`.", {"path": str(target)})
    return chosen


def _refuse_existing(place: Path, *, folder: bool, replace: bool) -> None:
    if place.is_dir():
        clean_beside(place)
    if not place.exists() or (folder and place.is_dir() and not any(place.iterdir())):
        return
    if not replace:
        message = f"{place} exists already."
        raise SinkError(message, "Choose another place, or replace it with `--replace`.", {"path": str(place)})
    # A mistyped name must not remove a folder of other files.
    foreign = folder != place.is_dir() or (folder and any(file.name not in csv.FILES for file in place.iterdir()))
    if foreign:
        message = f"{place} is nothing that an export wrote, so it is not replaced."
        raise SinkError(message, "Choose another place, or remove it yourself.", {"path": str(place)})
