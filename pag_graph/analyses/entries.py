"""Analyses in a list: what is known of them without importing their modules."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pag_graph.analyses.definition import Analysis


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An analysis in a list: what is known of it without importing its module."""

    name: str
    """As on the command line."""
    help: str
    """First line of its documentation."""
    module: str
    """Module that has it as `ANALYSIS`."""

    @property
    def method(self) -> str:
        """Name in Python."""
        return self.name.replace("-", "_")

    def load(self) -> Analysis[Any]:
        """Return the analysis; its module is imported.

        Returns
        -------
        Analysis
            Its module is imported.
        """
        analysis: Analysis[Any] = import_module(self.module).ANALYSIS
        return analysis


@dataclass(frozen=True, kw_only=True)
class LoadedEntry(Entry):
    """An analysis of another distribution, which is loaded to be listed."""

    analysis: Analysis[Any]
    """The analysis."""

    def load(self) -> Analysis[Any]:
        """Return the analysis.

        Returns
        -------
        Analysis
            The one that is here.
        """
        return self.analysis
