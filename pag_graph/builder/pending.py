"""A commit of a follower between two steps: it is prepared in one thread, and may be published in another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pag_graph.builder.commit import Prepared
    from pag_graph.builder.finish import Finished
    from pag_graph.store.contents import Live
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile

    Published = tuple[StoreInfo, Mapping[str, Sequence[PartFile]]]


class ClosedEpoch(NamedTuple):
    """An epoch that a commit closed."""

    epoch: int
    """Its number."""
    end_ns: int
    """When its window ends, from the run's origin."""
    last_ns: int
    """The same, or the last of its events, whichever is later."""
    rows: int
    """Events that carry its label."""

    @classmethod
    def of(cls, built: Finished) -> list[ClosedEpoch]:
        """Return the epochs that a commit closes.

        Parameters
        ----------
        built
            What there is to commit.

        Returns
        -------
        list of ClosedEpoch
            One per epoch that is closed since the commit before, ascending.
        """
        rows = pa.concat_tables([built.epochs, built.open_epochs]).sort_by("epoch").to_pylist()
        return [
            cls(row["epoch"], row["end_ns"], max(row["end_ns"], row["exit_ns"] or 0), row["events"])
            for row in rows
            if row["epoch"] <= built.last_closed
        ]


@dataclass(frozen=True, kw_only=True)
class PendingCommit:
    """A commit of a follower that is prepared."""

    prepared: Prepared
    """What is written."""
    derive: Callable[[StoreInfo], Live | None]
    """Makes what is committed beside the graph."""
    closed: Sequence[ClosedEpoch]
    """Epochs that it closes, ascending."""
    answered: tuple[int, ...]
    """Epochs that are answered by it, ascending."""
    anew: bool
    """Whether nothing of the state before stays."""
    fresh: Sequence[str]
    """Files of which rows are kept in memory for `derive`, those of commits before included."""

    def publish(self) -> Published:
        """Commit (`Prepared.publish`); may run in a thread of its own, beside steps of the follower.

        Returns
        -------
        tuple
            The new state of the store, and per table the files that are new in it.
        """
        return self.prepared.publish(self.derive)
