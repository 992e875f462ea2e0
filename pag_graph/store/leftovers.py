"""What nobody uses of a store: files of builds that were killed or failed, and of versions that were replaced.

What never was visible is removed by the next build; what was, only where somebody asks for it (`vacuum`). A build holds
a folder ``_staging-ID`` from before its first file until after its commit (`store.held`), so that the files of one that
lives are never taken for garbage. A reader holds the version that it opened (`store.readers`).
"""

from __future__ import annotations

import os
import re
import time
import uuid
from bisect import bisect_left
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.errors import InvalidParameterError, PagGraphError, StoreError, StoreNotFoundError
from pag_graph.model.live_tables import ALL_TABLES
from pag_graph.store.delta import STAGING, open_store
from pag_graph.store.delta_log import FOLDER, changes, read_state
from pag_graph.store.held import Use, claimed, held_folder, remove, remove_claimed
from pag_graph.store.history import commits
from pag_graph.store.in_place import clean_beside, refusals, size_of
from pag_graph.store.readers import is_read
from pag_graph.store.shorter_log import forget_before, readable_versions
from pag_graph.store.state_files import SENDS_NAME, STATE_NAME, files_of_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pag_graph.store.history import Commit

# Files of rows as builds name them, and what Delta writes before it gives a commit its name.
_ROWS = re.compile(r"(?:part|open)-[0-9a-f]{32}[-0-9a-f]*\.parquet")
_UNFINISHED_COMMIT = re.compile(r"_commit_[-0-9a-f]+\.json\.tmp|.+#\d+")
_NEVER = 2**62
_Lives = dict[str, dict[str, list[tuple[int, int]]]]
"""Per table and file: from which version on it was there, and from which on no more; where it came again, several."""


@dataclass(slots=True, kw_only=True)
class Garbage:
    """What nobody uses of a store. Sizes are bytes."""

    replaced: dict[Path, int] = field(default_factory=dict)
    """Files of versions that were replaced, and their bytes."""
    unfinished: dict[Path, int] = field(default_factory=dict)
    """Files and folders of what was killed or failed, and their bytes."""
    kept: dict[int, str] = field(default_factory=dict)
    """Replaced versions that stay, by their number, and why."""
    building: bool = False
    """Whether somebody builds, so that nobody can tell what of the files that are not committed will be."""
    unknown: list[Path] = field(default_factory=list)
    """Staging folders of builds on other machines, of which nobody here can tell whether they live."""

    @property
    def bytes(self) -> int:
        """Size of all of it."""
        return sum(self.replaced.values()) + sum(self.unfinished.values())


class _Builds(NamedTuple):
    """The staging folders of a store."""

    living: list[Path]
    dead: list[Path]
    unknown: list[Path]


# --- Builds -----------------------------------------------------------------------------------------------------------


@contextmanager
def staging(store: Path, *, alone: bool = True) -> Iterator[Path]:
    """Hold a store for a build; remove what killed builds left in it before, and what this one leaves if it fails.

    Parameters
    ----------
    store
        Directory of the store; made.
    alone
        Whether nobody but this process writes for the build. Tasks elsewhere may still write when it has failed: an
        empty folder then says to the next build to look.

    Yields
    ------
    Path
        A folder to be made, for what the steps of the build leave to each other.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    if store.is_symlink() and not store.exists():
        message = f"{store} is a link to {store.readlink()}, and nothing is there."
        raise StoreError(message, "Remove the link, or make the folder that it names.", {"path": str(store)})
    is_new = not store.exists()
    try:
        with refusals(store, "The store", StoreError), held_folder(store, STAGING) as folder_held:
            _remove_unfinished(store, own_folder=folder_held)
            try:
                yield folder_held / "slices"
            except BaseException:
                # The first error is the one to report: if this fails too, the next build removes the files.
                with suppress(PagGraphError, OSError):
                    _remove_unfinished(store, own_folder=folder_held, failed=True)
                    if not alone:
                        (store / f"{STAGING}{uuid.uuid4().hex}").mkdir()
                raise
    except BaseException:
        if is_new:
            for folder in (*(store / table for table in ALL_TABLES), store):
                # Another build may have come, and has something there.
                with suppress(OSError):
                    folder.rmdir()
        raise


def _remove_unfinished(store: Path, *, own_folder: Path, failed: bool = False) -> None:
    """Remove what was never visible and never will be; leaves all where another build may still commit it."""
    if not failed and not _builds(store, own_folder).dead:
        # To list all files of a store takes as long as it is old.
        return
    files, builds = _files(store), _builds(store, own_folder)
    if builds.living or builds.unknown:
        if failed:
            # Files of this build cannot be told from those of others: an empty folder makes the next build look.
            (store / f"{STAGING}{uuid.uuid4().hex}").mkdir()
        return
    if builds.dead or failed:
        pinned = _pinned(store)
        _remove(_never_visible(store, _lives(store), files, pinned), builds.dead)


def _remove(files: Mapping[Path, int], folders: Sequence[Path]) -> None:
    for file in files:
        remove(file)
    # Folders are removed last: as long as one exists, the next build looks for leftovers.
    for folder in folders:
        with claimed(folder) as use:
            if use is not Use.LIVING:
                remove_claimed(folder)


def _builds(store: Path, own_folder: Path | None = None) -> _Builds:
    builds = _Builds([], [], [])
    folders_by_use = {Use.LIVING: builds.living, Use.DEAD: builds.dead, Use.UNKNOWN: builds.unknown}
    for folder in sorted(store.glob(f"{STAGING}*")):
        if folder != own_folder and folder.is_dir() and not folder.is_symlink():
            with claimed(folder) as use:
                folders_by_use[use].append(folder)
    return builds


# --- Versions ---------------------------------------------------------------------------------------------------------


def _files(store: Path) -> dict[Path, int]:
    """Return the files of rows, and of commits that were not finished, with their bytes.

    Call this first, then look for builds, then for commits: then each file listed here belongs to a build that is seen
    to live, or to one that has ended and whose commit is seen.
    """
    sizes = {}
    for table in ALL_TABLES:
        names = (_ROWS, STATE_NAME, SENDS_NAME)
        patterns = (*((store / table, name) for name in names), (store / table / FOLDER, _UNFINISHED_COMMIT))
        for folder, pattern in patterns:
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        sizes[Path(entry)] = size_of(Path(entry))
    return sizes


def _pinned(store: Path) -> list[Commit]:
    """Return the states of a store, oldest first; none where nothing is committed."""
    try:
        return commits(open_store(store))
    except StoreNotFoundError:
        return []


def _never_visible(store: Path, lives: _Lives, files: Mapping[Path, int], pinned: Sequence[Commit]) -> dict[Path, int]:
    visible = _needed(store, lives, pinned, oldest=True)
    return {file: size for file, size in files.items() if file not in visible}


def _needed(store: Path, lives: _Lives, states: Sequence[Commit], *, oldest: bool) -> set[Path]:
    """Return the files of some states; with `oldest`, also those that are older than what Delta's log still knows."""
    needed = {store / "epochs" / name for state in states for name in state.state}
    for table, files in lives.items():
        versions = sorted(state.versions[table] for state in states if table in state.versions)
        for name, spans in files.items():
            if any(
                (oldest and first < 0) or bisect_left(versions, first) < bisect_left(versions, after)
                for first, after in spans
            ):
                needed.add(store / table / name)
    return needed


def _lives(store: Path) -> _Lives:
    """Return, per table and file, from which version on it was there and from which on no more.

    Raises
    ------
    StoreError
        If a log is damaged.
    """
    return {table: _lives_of_table(store / table) for table in ALL_TABLES}


def _lives_of_table(directory: Path) -> dict[str, list[tuple[int, int]]]:
    versions = readable_versions(directory)
    began: dict[str, int] = {}
    lives: dict[str, list[tuple[int, int]]] = {}
    if versions and versions[0] > 0:
        # Earlier versions are gone from the log.
        began = dict.fromkeys(read_state(directory, versions[0]).files, -1)
    for version in versions:
        added, removed = changes(directory, version)
        for name in removed:
            if name in began:
                lives.setdefault(name, []).append((began.pop(name), version))
        for name in added:
            began.setdefault(name, version)
    for name, first in began.items():
        lives.setdefault(name, []).append((first, _NEVER))
    return lives


def vacuum(
    path: Path,
    *,
    keep_versions: int = 1,
    older_than_s: float | None = None,
    dry_run: bool = False,
    forget: bool = False,
) -> Garbage:
    """Remove what nobody uses of a store, and what killed writers left beside a store or a trace.

    Parameters
    ----------
    path
        Directory of a store or a trace, or where one was to be.
    keep_versions
        How many committed states to keep, the latest ones; at least 1.
    older_than_s
        Keep also the files of states that were replaced less than so many seconds ago, for readers on other machines.
        Where it is given, what builds on other machines left is removed when it has not changed for so long; otherwise
        it stays.
    dry_run
        Change nothing.
    forget
        Remove from Delta's logs, too, what was before the states that stay.

    Returns
    -------
    Garbage
        What was removed, or would be. A state that a process on this machine has open stays, however old.

    Raises
    ------
    InvalidParameterError
        If a number is out of range.
    StoreNotFoundError
        If there is neither a store nor anything left of one.
    StoreError
        If the store is damaged; nothing is removed then.
    """
    if keep_versions < 1:
        message = f"keep_versions is {keep_versions}, and must be at least 1: what is visible stays."
        raise InvalidParameterError(message)
    if older_than_s is not None and older_than_s < 0:
        message = f"older_than is {older_than_s}, and must not be negative."
        raise InvalidParameterError(message)
    store = Path(os.path.abspath(path))  # noqa: PTH100  (links stay links, and `..` has no name)
    beside_store = clean_beside(store, dry_run=dry_run)
    files, builds = _files(store), _builds(store)
    pinned = _pinned(store)
    if not pinned and not any(builds):
        if beside_store or (store / "meta.json").is_file():
            return Garbage(unfinished=beside_store)
        message = f"There is no store at {path}, and nothing is left of one."
        raise StoreNotFoundError(message, "Name a store that `pag build` made, or a trace.", {"path": str(path)})
    now = time.time()
    outdated = [
        folder for folder in builds.unknown if older_than_s is not None and _changed_s(folder) <= now - older_than_s
    ]
    unknown = [folder for folder in builds.unknown if folder not in outdated]
    kept_versions = _why_kept(store, pinned[:-keep_versions], pinned[1:], now - (older_than_s or 0))
    states = [state for state in pinned if state.version in kept_versions] + pinned[-keep_versions:]
    lives = _lives(store)
    needed = _needed(store, lives, states, oldest=False)
    if pinned:
        info = open_store(store)
        needed |= {store / table / Path(file).name for table in info.versions for file in info.files(table)}
        needed |= {store / "epochs" / name for name in files_of_state(info.state)}
    never_visible = _never_visible(store, lives, files, pinned)
    garbage = Garbage(
        replaced={file: size for file, size in files.items() if file not in needed and file not in never_visible},
        unfinished=beside_store,
        kept=kept_versions,
        building=bool(builds.living),
        unknown=unknown,
    )
    folders: list[Path] = []
    if not builds.living and not unknown:
        folders = [*builds.dead, *outdated]
        garbage.unfinished |= {file: size for file, size in never_visible.items() if file not in needed}
    garbage.unfinished |= {folder: size_of(folder) for folder in folders}
    if not dry_run:
        files_only = {file: size for file, size in garbage.unfinished.items() if file in files}
        _remove({**garbage.replaced, **files_only}, folders)
        if forget and states:
            with refusals(store, "The store", StoreError):
                for table, version in states[0].versions.items():
                    forget_before(store / table, version)
    return garbage


def _why_kept(store: Path, replaced: Sequence[Commit], successors: Sequence[Commit], since_s: float) -> dict[int, str]:
    """Say of replaced states why they stay, if they do."""
    reasons = {}
    for state, successor in zip(replaced, successors, strict=False):
        if is_read(store, state.version):
            reasons[state.version] = "open in a process on this machine"
        elif datetime.fromisoformat(successor.committed).timestamp() > since_s:
            reasons[state.version] = f"replaced at {successor.committed}"
    return reasons


def _changed_s(folder: Path) -> float:
    """Return when something last changed in a folder, in seconds since 1970."""
    return max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
