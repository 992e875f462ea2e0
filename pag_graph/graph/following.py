"""What a run that is being followed tells those who watch it: every commit, and what it made final."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pag_graph.graph.pinned import PinnedRun

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.graph.run import Run


@dataclass(frozen=True, kw_only=True)
class Committed:
    """One commit of a follower."""

    path: Path
    """Directory of the store."""
    version: int
    """Version of the table `epochs` that the commit made: names the state of all tables."""
    closed: tuple[int, ...]
    """Epochs that this commit closed, ascending. Their rows never change."""
    answered: tuple[int, ...]
    """Epochs that are answered since this commit, ascending: every message that was sent in them was read, or will be
    read so late that it counts as a revision. Each epoch is named once, by the commit that closed it or a later one."""
    revised: tuple[int, ...] = ()
    """Epochs that were answered by an earlier commit, and whose windows an edge crosses that this commit added."""
    complete: bool = False
    """Whether the source has ended: the store holds all of the run."""

    @cached_property
    def run(self) -> Run:
        """The run as this commit left it, opened when somebody asks for it first, and held from then on.

        Raises
        ------
        StoreNotFoundError
            If later commits took its place before, and its files were removed (`pag vacuum`, or what `keep` removes).
        """
        return PinnedRun(self.path, self.version).open()


class Observer(Protocol):
    """An observer of commits: standing queries, alerts, sinks."""

    def committed(self, commit: Committed) -> None:
        """Take note of a commit.

        Parameters
        ----------
        commit
            What it made final. Commits come one after the other, in order, each exactly once per process; after a
            restart they go on behind the last one that the store holds.

        Notes
        -----
        The next commit waits until this returns; meanwhile another thread reads what comes next.
        """
        ...
