"""How Spark divides files among tasks: by their sizes, by its settings, and by the cores that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pag_graph.diagnosis.spark.changes import size_of
from pag_graph.diagnosis.spark.cores import cores_at, registered_cores

if TYPE_CHECKING:
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["FILES", "FILE_BYTES", "FileSplits", "splits_of"]

FILES, FILE_BYTES = "number of files read", "size of files read"
"""What scans tell of their files."""

_LARGEST, _OPEN = "spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"
_USUAL = {_LARGEST: 128 << 20, _OPEN: 4 << 20}
_TASKS = ("spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism", "spark.default.parallelism")
"""For how many tasks there should be something to read: the first that is set counts, else the cores."""
_MOST_TASKS = "spark.sql.files.maxPartitionNum"


class FileSplits(NamedTuple):
    """What decides how much of a query's files one task reads."""

    largest: int
    """Most bytes of one task (``maxPartitionBytes``)."""
    open_bytes: int
    """What opening a file counts for, in bytes."""
    tasks: int
    """For so many tasks there should be something to read."""
    most_tasks: int | None
    """Of more tasks Spark makes larger ones; None where that is not set."""

    def bytes_of_task(self, files: int, size: int) -> int:
        """Return how many bytes one task reads at most of some files that can be split.

        Parameters
        ----------
        files, size
            How many they are, and their bytes together.

        Examples
        --------
        >>> FileSplits(largest=128 << 20, open_bytes=4 << 20, tasks=2, most_tasks=None).bytes_of_task(1, 8 << 20) >> 20
        6
        """
        with_opening = size + files * self.open_bytes
        split = min(self.largest, max(1, self.open_bytes, with_opening // self.tasks))
        return split if self.most_tasks is None else max(split, -(-with_opening // self.most_tasks))

    def task_count(self, files: int, size: int) -> int:
        """Return how many tasks read some files, if all are of one size and can be split.

        Parameters
        ----------
        files, size
            How many they are, at least one, and their bytes together.

        Examples
        --------
        >>> FileSplits(largest=128 << 20, open_bytes=4 << 20, tasks=2, most_tasks=None).task_count(1_600, 16 << 20)
        50
        """
        split = self.bytes_of_task(files, size)
        pieces = max(1, -(-size // (files * split)))
        piece = size // (files * pieces)
        together = max(0, split - piece) // max(1, piece + self.open_bytes) + 1
        return -(-files * pieces // together)


def splits_of(schedule: Schedule, query: int | None, at: int) -> FileSplits:
    """Return how files are divided for a query.

    Parameters
    ----------
    schedule
        Of one log.
    query
        Whose settings count before the application's; None for what is no query.
    at
        When its job began, in nanoseconds from the origin: the cores that had registered until then count, two at
        least, as Spark has it.
    """
    log = schedule.log
    numbers = {name: size_of(log, name, query) for name in (*_USUAL, *_TASKS, _MOST_TASKS)}
    open_bytes = numbers[_OPEN]
    tasks = next((numbers[name] for name in _TASKS if numbers[name]), None)
    return FileSplits(
        largest=numbers[_LARGEST] or _USUAL[_LARGEST],
        open_bytes=_USUAL[_OPEN] if open_bytes is None else open_bytes,
        tasks=tasks or max(2, cores_at(registered_cores(schedule), at)),
        most_tasks=numbers[_MOST_TASKS] or None,
    )
