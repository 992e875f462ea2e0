"""Delta's log of one table without the versions that nobody needs any more, so that it does not grow for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.store.delta_log import base_of, checkpoint_file, checkpoints, commit_file, read_commit, versions

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.store.delta_log import Base


def readable_versions(directory: Path) -> list[int]:
    """Return the numbers of the versions from the first one that can be read, ascending (see `forget_before`).

    Parameters
    ----------
    directory
        Of the table.

    Returns
    -------
    list of int
        Empty where there is none. Reads a file per version that cannot be read.

    Raises
    ------
    StoreError
        If the log is damaged.
    """
    all_versions = versions(directory)
    for place, version in enumerate(all_versions):
        if version == 0:
            return all_versions
        base = base_of(directory, version, read_commit(directory, version))
        if _first_of(base) >= all_versions[0]:
            return all_versions[place:]
    return []


def forget_before(directory: Path, version: int) -> None:
    """Remove from the log of a table what nobody needs to read a version and those after it.

    Parameters
    ----------
    directory
        Of the table.
    version
        The first version that must stay readable.

    Raises
    ------
    StoreError
        If the log is damaged.
    OSError
        If the file system refuses.
    """
    base = base_of(directory, version, read_commit(directory, version))
    # The oldest first, so that those that are there follow each other, wherever this is cut short.
    for number in versions(directory):
        if number < _first_of(base):
            commit_file(directory, number).unlink()
    for number in checkpoints(directory):
        if number < base.version:
            checkpoint_file(directory, number).unlink()


def _first_of(base: Base) -> int:
    """Return the first version whose commit is read."""
    return base.version + (base.checkpoint is not None)
