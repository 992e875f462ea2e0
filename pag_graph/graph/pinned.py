"""Which state of a store a task is to read: the one that its caller has open, whatever was committed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pag_graph.graph.run import Run
from pag_graph.store.readers import open_held_version

if TYPE_CHECKING:
    from pathlib import Path


class PinnedRun(NamedTuple):
    """Names a committed state of a store; small enough to be given to a task."""

    path: Path
    """Directory of the store."""
    version: int
    """Of the table `epochs`."""

    @classmethod
    def of(cls, run: Run) -> PinnedRun:
        """Return the state that a run is of.

        Parameters
        ----------
        run
            A committed run.

        Returns
        -------
        PinnedRun
            Whoever has the run open keeps its files from being removed.
        """
        return cls(run.info.path, run.info.versions["epochs"])

    def open(self) -> Run:
        """Return the run in that state.

        Returns
        -------
        Run
            With all of its epochs.

        Raises
        ------
        StoreNotFoundError
            If the state was replaced, and its files were removed.
        """
        return Run.of(*open_held_version(self.path, self.version))
