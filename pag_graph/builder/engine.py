"""What a build asks of an engine: run one function on many items, and one join over what slices leave over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Engine", "silent"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def silent(label: str, done: int, total: int) -> None:
    """Report progress to nobody.

    Parameters
    ----------
    label, done, total
        Ignored.
    """
    del label, done, total


class Engine(Protocol):
    """Where the tasks of a build or of an analysis run.

    Tasks read and write files themselves; only small values pass through `map`.
    """

    name: str
    """What the commit remembers of it, such as ``local``."""

    @property
    def in_process(self) -> bool:
        """Whether tasks run one after the other in this process: what one leaves in memory is there for the next."""
        ...

    @property
    def tasks(self) -> int:
        """How many tasks run at the same time: analyses are cut in so many, builds by the size of slices alone."""
        ...

    def map(
        self,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        label: str,
        progress: Callable[[str, int, int], None],
    ) -> list[Result]:
        """Run `task` on every item, and return the results in the order of the items.

        Parameters
        ----------
        task, items
            Picklable.
        label, progress
            What to call with (label, done, all) as tasks end.

        Returns
        -------
        list
            One result per item.
        """
        ...

    def stitch(self, staging: Path, horizon_ns: int) -> None:
        """Join the leftovers of all slices.

        Parameters
        ----------
        staging
            Folder with ``sends/*.parquet``, ``receives/*.parquet`` and ``readers/*.parquet``; the result, rows of
            `pag_graph.builder.match.stitch`, is written to ``stitched/*.parquet``.
        horizon_ns
            As for `pag_graph.builder.match.stitch`.
        """
        ...
