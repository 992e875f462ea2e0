"""Contract 2 on disk: Delta tables that tasks write as Parquet and one driver commits, `epochs` last.

A Delta transaction covers one table, so the commit of `epochs` pins all others: per table its version, and a digest of
the files that it holds there. Readers open exactly those, and what a killed build left behind is invisible. The digest
says which files; the name of a file says which bytes (`pag_graph.store.parts`).
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.errors import (
    FormatVersionError,
    StoreError,
    StoreNotFoundError,
    UnsupportedPlanError,
)
from pag_graph.model.tables import STORE_FORMAT_VERSION
from pag_graph.store.delta_log import (
    TableState,
    commit_file,
    commit_info,
    latest,
    newest_known,
    read_commit,
    read_state,
    read_tip,
)
from pag_graph.store.digests import is_digest
from pag_graph.store.file_bounds import file_bounds
from pag_graph.store.fresh import rows_of_files
from pag_graph.store.parts import check_parts, damaged
from pag_graph.store.safe_files import check_utf8
from pag_graph.store.traffic import SINCE, TRAFFIC, summed, tables_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import polars as pl

    from pag_graph.store.fresh import Fresh
    from pag_graph.store.parts import PartFile


LIVE = "_live"
"""Folder of what a follower keeps beside the tables."""
COMPLETE = "complete"
"""Entry of a run that says whether its log had ended; earlier releases did not say."""
REMOVED = "removed"
"""Entry of a run that says what is gone of it."""
STAGING = "_staging-"
"""How names of folders begin that builds hold."""
COMMIT_KEY, CHECKSUM_KEY = "pag_graph", "pag_graph_checksum"
"""Where a Delta commit keeps what it says, and the checksum of that."""
APP = "pag-graph/"
"""How this package signs the transactions of Delta's log."""


class Removed(NamedTuple):
    """What a follower has removed of a run (`pag_graph.store.retention`)."""

    epochs: int
    """How many, from the first one on."""
    last_epoch: int
    """The last of them."""
    end_ns: int
    """When its window ended, from the run's origin: what is left begins there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """A committed state of a store: what was built, from what, and which versions of the tables belong together."""

    path: Path
    """Directory of the store."""
    run: Mapping[str, Any]
    """Identity and provenance of the run, as `RunPlan.metadata` gives it."""
    versions: Mapping[str, int]
    """Per table: the Delta version that belongs to this state."""
    closed_epochs: int
    """Number of epochs that every worker has left."""
    dropped: Mapping[str, int]
    """Events that became no vertex, by reason."""
    events: int
    """Rows of the trace."""
    commit_id: str
    """Name of the commit that made it."""
    digests: Mapping[str, str] | None
    """Per table: `digest` of its files; None where the release that wrote it kept none, and nothing can be checked."""
    state: Mapping[str, Any] | None = None
    """The file from which an append goes on (`pag_graph.store.state_files`); None where the build kept none."""
    live: Mapping[str, Any] | None = None
    """Standing queries and alert rules, and how far they have got; None where there are none."""
    format_version: int = STORE_FORMAT_VERSION
    """Of contract 2, in which it was written; an append keeps it."""
    _tables: dict[str, TableState] = field(default_factory=dict, compare=False, repr=False)
    tips: dict[str, TableState] = field(default_factory=dict, compare=False, repr=False)
    """What `tip` has read, or the commit of this process knows."""
    fresh: Fresh | None = field(default=None, compare=False, repr=False)
    """What this process has just written of it."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the graph's tables that it has, in the order of `STORE_TABLES`."""
        return tables_of(self.format_version)

    @property
    def removed(self) -> Removed | None:
        """What was removed of it; None where it has all epochs."""
        entry = self.run.get(REMOVED)
        return None if entry is None else Removed(**entry)

    def table(self, name: str) -> TableState:
        """Return what a table holds in this state, once its list of files is found to be the one that was committed.

        Parameters
        ----------
        name
            Out of `ALL_TABLES`.

        Returns
        -------
        TableState
            Reads the table's log, once.

        Raises
        ------
        StoreError
            If the log is damaged.
        """  # noqa: DOC501  (the constructor of an error is taken for one)
        if name not in self._tables:
            state = read_state(self.path / name, self.versions.get(name, -1))
            if (
                name in self.versions
                and self.digests is not None
                and not is_digest(self.digests.get(name), state.files.values())
            ):
                raise damaged(
                    commit_file(self.path / name, self.versions[name]),
                    "the log up to it names other files than those that were committed",
                )
            self._tables[name] = state
        return self._tables[name]

    def known(self, name: str) -> TableState | None:
        """Return what a table holds, if that needs no look at the log.

        Parameters
        ----------
        name
            Out of `ALL_TABLES`.

        Returns
        -------
        TableState or None
            None where `table` would have to read.
        """
        return self._tables.get(name)

    def tip(self, name: str) -> TableState:
        """Return what the version of a table says itself, without those before it: an append reads nothing older.

        Parameters
        ----------
        name
            Out of `GROWING`.

        Returns
        -------
        TableState
            At least all provisional files: each append replaces those that it finds. Reads one file of the log; none,
            if this process made the commit.

        Raises
        ------
        StoreError
            If the log is damaged.
        """
        if name not in self.tips:
            self.tips[name] = read_tip(self.path / name, self.versions[name])
        return self.tips[name]

    def provisional(self, name: str) -> list[PartFile]:
        """Return the files of a table that the next append replaces; asks `tip`, as there may be thousands of others.

        Parameters
        ----------
        name
            Out of `ALL_TABLES`; a table that the store lacks has none.

        Returns
        -------
        list of PartFile
            Their rows belong to epochs that are still open.

        Raises
        ------
        StoreError
            If the log is damaged.
        """
        if name not in self.versions:
            return []
        return [part for part in self.tip(name).files.values() if part.provisional]

    def parts(self, name: str, near: pl.Expr | None = None) -> list[PartFile]:
        """Return the files of a table; with `near`, those that can hold certain rows.

        Parameters
        ----------
        name
            Out of `ALL_TABLES`.
        near
            A condition on ``min_`` and ``max_`` of columns of integers; a file of which it cannot be told is taken.

        Returns
        -------
        list of PartFile
            Reads none of them.
        """
        parts = list(self.table(name).files.values())
        if near is None or not parts:
            return parts
        asked = self.bounds(name, near.meta.root_names())
        return [parts[index] for index in asked.filter(near.fill_null(value=True))["_at"]]

    def bounds(self, name: str, columns: Collection[str] | None = None) -> pl.DataFrame:
        """Return the least and the largest value of each column of integers, per file.

        Parameters
        ----------
        name
            Out of `ALL_TABLES`.
        columns
            Those of them to return, as ``min_X`` and ``max_X``; all where absent. A follower asks several times per
            commit, and there may be thousands of files: a few columns take a fifth of the time of all.

        Returns
        -------
        DataFrame
            One row per file, in the order of `parts`: ``_at``, its place there, and ``min_X`` and ``max_X`` for each
            column X of integers; null where the statistics do not tell.

        Raises
        ------
        StoreError
            If the log is damaged.
        """
        return file_bounds(name, self.table(name).files.values(), columns)

    def files(self, name: str, near: pl.Expr | None = None) -> list[str]:
        """Return the absolute paths of the Parquet files of a table, each found to be as it was committed.

        Parameters
        ----------
        name, near
            As for `parts`.

        Returns
        -------
        list of str
            Plain paths: readers must not take them for addresses or patterns. Each file is read once per process, to
            compare its checksum.

        Raises
        ------
        StoreError
            If a file is missing or damaged.
        """
        parts = self.parts(name, near)
        check_parts(self.path / name, parts)
        return [str(self.path.absolute() / name / part.path) for part in parts]

    def scan(self, name: str, near: pl.Expr | None = None) -> pl.LazyFrame:
        """Return a lazy frame over a table, or over those of its files that can hold certain rows.

        Parameters
        ----------
        name, near
            As for `files`; `near` only leaves files out, rows are to be filtered.

        Returns
        -------
        LazyFrame
            Rows of the table of `ALL_TABLES`; those of `traffic` that have one key are added up.

        Raises
        ------
        StoreError
            If a file is missing or damaged.
        UnsupportedPlanError
            If the store is of a version that lacks the table.
        """
        if name == TRAFFIC and self.format_version < SINCE:
            message = f"{self.path} was built before stores had the table traffic."
            raise UnsupportedPlanError(message, "Build it again: `pag build TRACE STORE --replace`.")
        rows = rows_of_files(self.path.absolute() / name, self.parts(name, near), self.fresh)
        return summed(rows) if name == TRAFFIC else rows


def open_store(path: Path) -> StoreInfo:
    """Read the latest committed state of a store.

    Parameters
    ----------
    path
        Directory of the store.

    Returns
    -------
    StoreInfo
        Reads the log of one small table.

    Raises
    ------
    StoreNotFoundError
        If nothing is committed there.
    FormatVersionError
        If it was written in another version of contract 2.
    """
    info = committed_state(path)
    if info is None:
        message = f"There is no program activity graph at {path}."
        hint = "Build one: `pag build TRACE STORE`."
        if (path / "meta.json").is_file():
            hint = f"This is a trace. Build its graph first: `pag build {shlex.quote(str(path))} STORE`."
        raise StoreNotFoundError(message, hint, {"path": str(path)})
    return info


def committed_state(path: Path) -> StoreInfo | None:
    """Read the latest committed state of a store, if there is one.

    Parameters
    ----------
    path
        Directory of the store.

    Returns
    -------
    StoreInfo or None
        As of `open_store`; None where nothing is committed. Reads the log of one small table.

    Raises
    ------
    StoreError
        If the log is damaged, another program wrote a table of that name there, or the place's name is not UTF-8.
    FormatVersionError
        If it was written in another version of contract 2.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    check_utf8(path, StoreError)
    directory = path / "epochs"
    # In this order: a version that is noted exists when it is looked for.
    noted = newest_known(directory)
    newest = latest(directory, since=noted)
    if noted > newest:
        raise damaged(commit_file(directory, noted), "it is missing")
    for version in range(newest, -1, -1):
        content = read_content(directory, version)
        if content is not None:
            return info_of(path, version, content)
        if not commit_file(directory, version - 1).exists():
            break
    if newest < 0:
        return None
    message = f"{path} holds a Delta table named epochs that this package did not write."
    raise StoreError(message, "Choose another place for the store.", {"path": str(path)})


def read_content(directory: Path, version: int) -> dict[str, Any] | None:
    """Return what this package wrote in the commit of a version of `epochs`.

    Parameters
    ----------
    directory
        Of the table `epochs`.
    version
        Number of the version.

    Returns
    -------
    dict or None
        Entries such as `run`, `versions` and `digests`; None where another program added the version.

    Raises
    ------
    StoreError
        If it is damaged.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    actions = read_commit(directory, version)
    info, file = commit_info(actions), commit_file(directory, version)
    statement, checksum = info.get(COMMIT_KEY), info.get(CHECKSUM_KEY)
    if statement is None:
        is_own = checksum is not None or any(APP in str(action.get("txn")) for action in actions)
        if is_own or not info:
            raise damaged(file, "it does not say what was committed")
        return None
    try:
        content = json.loads(statement)
        # Releases that kept no digests kept no checksum either: damage in one place cannot take away both.
        if ("digests" in content) != (checksum is not None) or (
            checksum is not None and checksum_of(statement) != checksum
        ):
            raise damaged(file, "what it says of the commit is not what was committed")
    except (TypeError, ValueError) as error:
        raise damaged(file, f"what it says of the commit cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise damaged(file, "it does not say what was committed")
    return content


def checksum_of(statement: str) -> str:
    """Return the checksum of what a commit says.

    Parameters
    ----------
    statement
        As it stands in the log.

    Returns
    -------
    str
        128 bits (BLAKE2b), in hexadecimal.
    """
    return hashlib.blake2b(statement.encode(), digest_size=16).hexdigest()


def info_of(path: Path, version: int, content: Mapping[str, Any]) -> StoreInfo:
    """Return the state that a version of `epochs` pins.

    Parameters
    ----------
    path
        Directory of the store.
    version
        Number of the version.
    content
        What it says, from `read_content`.

    Returns
    -------
    StoreInfo
        Reads nothing.

    Raises
    ------
    FormatVersionError
        If it is of another version of contract 2.
    StoreError
        If an entry is missing or has no number where one must stand.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    if content.get("format_version") not in range(1, STORE_FORMAT_VERSION + 1):
        raise FormatVersionError.from_found_and_known(
            where=str(path), found=content.get("format_version"), known=STORE_FORMAT_VERSION
        )
    try:
        return StoreInfo(
            path=path,
            run=content["run"],
            versions={**{name: int(number) for name, number in content["versions"].items()}, "epochs": version},
            closed_epochs=content["closed_epochs"],
            dropped=content["dropped"],
            events=content["events"],
            commit_id=content["commit_id"],
            digests=content.get("digests"),
            state=content.get("state"),
            live=content.get("live"),
            format_version=content["format_version"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(commit_file(path / "epochs", version), f"it lacks {error}") from error


def describe(info: StoreInfo) -> dict[str, Any]:
    """Return a store's state as plain values, for programs.

    Parameters
    ----------
    info
        A committed state.

    Returns
    -------
    dict
        Plain values: `path`, `run`, `versions`, `closed_epochs`, `dropped`, `events` and `commit_id`.
    """
    return {
        "path": str(info.path),
        "run": dict(info.run),
        "versions": dict(info.versions),
        "closed_epochs": info.closed_epochs,
        "dropped": dict(info.dropped),
        "events": info.events,
        "commit_id": info.commit_id,
    }
