"""Analyses: each one definition, used by Python, the CLI, Spark jobs and the documentation."""

from __future__ import annotations

import re
import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pag_graph.analyses.definition import (
    Analysis,
    Chart,
    PairAnalysis,
    ReportAnalysis,
    RunAnalysis,
    Scope,
    TableAnalysis,
    WindowAnalysis,
)
from pag_graph.analyses.entries import Entry, LoadedEntry
from pag_graph.analyses.index import INDEX
from pag_graph.analyses.parameters import Flags, Parameter
from pag_graph.analyses.reports import Report
from pag_graph.analyses.result_tables import table_of
from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    ANALYSES: tuple[Analysis[Any], ...]

__all__ = [
    "ANALYSES",
    "Analysis",
    "Chart",
    "Entry",
    "Flags",
    "PairAnalysis",
    "Parameter",
    "Report",
    "ReportAnalysis",
    "RunAnalysis",
    "Scope",
    "TableAnalysis",
    "WindowAnalysis",
    "all_analyses",
    "all_entries",
    "find_analysis",
    "table_of",
]

_ENTRIES = tuple(
    Entry(name=name, help=text, module=f"{__name__}.{name.replace('-', '_')}") for name, text in INDEX.items()
)
ENTRY_POINTS = "pag_graph.analyses"
"""Group of entry points by which other distributions add analyses: each names an `Analysis`."""


@cache
def all_entries() -> tuple[Entry, ...]:
    """List the analyses of this package, and those that installed distributions add; nothing of ours is imported.

    Returns
    -------
    tuple of Entry
        Those of others by name. What cannot be loaded, or takes a name that is taken, is left out with a warning.
    """
    entries = list(_ENTRIES)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            analysis = point.load()
        except Exception as error:  # noqa: BLE001  (a broken plug-in must not stop everything else)
            problem = f"cannot be loaded: {type(error).__name__}: {error}"
        else:
            problem = _problem(analysis, {entry.method for entry in entries})
        if problem:
            distribution = point.dist.name if point.dist is not None else "an unknown distribution"
            warnings.warn(f"The analysis {point.name!r} of {distribution} {problem}.", stacklevel=2)
        else:
            module = point.value.partition(":")[0]
            entries.append(LoadedEntry(name=analysis.name, help=analysis.help, module=module, analysis=analysis))
    return tuple(entries)


def all_analyses() -> tuple[Analysis[Any], ...]:
    """Return the analyses of this package, and those that installed distributions add.

    Returns
    -------
    tuple of Analysis
        Those of this package first. Their modules are imported.
    """
    return tuple(entry.load() for entry in all_entries())


def __getattr__(name: str) -> Any:
    # Names are listed at once; importing all definitions takes a second, so it is done when they are asked for.
    if name == "ANALYSES":
        return tuple(entry.load() for entry in _ENTRIES)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def _problem(analysis: object, taken_names: set[str]) -> str:
    if not isinstance(analysis, Analysis):
        return f"is no Analysis but of type {type(analysis).__name__}"
    if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", analysis.name):
        return f"is called {analysis.name!r}; names are lower-case words with hyphens"
    return f"is called {analysis.name!r} like another one" if analysis.method in taken_names else ""


def find_analysis(name: str) -> Analysis[Any]:
    """Return the analysis of a name.

    Parameters
    ----------
    name
        As on the command line, or as the method of `Pag`.

    Returns
    -------
    Analysis
        Its module is imported.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists all.
    """
    for entry in all_entries():
        if name in (entry.name, entry.method):
            return entry.load()
    message = f"There is no analysis {name!r}; there are {', '.join(entry.name for entry in all_entries())}."
    raise InvalidParameterError(message)
