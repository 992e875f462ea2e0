"""Contract 2 on disk: Delta tables that tasks write as Parquet and one driver commits, `epochs` last.

A Delta transaction covers one table, so the commit of `epochs` pins all others: per table its version, and a digest of
the files that it holds there. Readers open exactly those, and what a killed build left behind is invisible. The digest
says which files; the name of a file says which bytes (`pag_graph.store.parts`).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import polars as pl

from pag_graph.errors import (
    FormatVersionError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    UnsupportedPlanError,
)
from pag_graph.model.live_tables import ALL_TABLES, LIVE_TABLES
from pag_graph.model.tables import STORE_FORMAT_VERSION, STORE_TABLES
from pag_graph.store.contents import GROWING
from pag_graph.store.delta_log import (
    TableState,
    commit_file,
    commit_info,
    latest,
    newest_known,
    note_newest,
    read_commit,
    read_next,
    read_state,
    read_tip,
    write_version,
)
from pag_graph.store.maker import maker
from pag_graph.store.parts import BOUNDS, bounds, check_parts, check_rows, check_sizes, damaged
from pag_graph.store.state_files import files_of_state, read_sends, read_state_file
from pag_graph.store.traffic import SINCE, TRAFFIC, summed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pag_graph.store.compaction import Swap
    from pag_graph.store.contents import Live
    from pag_graph.store.parts import PartFile

Mode = Literal["error", "append", "replace"]
"""What a build does with a store that exists."""

LIVE = "_live"
"""Folder of what a follower keeps beside the tables."""
STAGING = "_staging-"
"""How names of folders begin that builds hold."""
_COMMIT_KEY = "pag_graph"
_CHECKSUM_KEY = "pag_graph_checksum"
_APP = "pag-graph/"
_SUM = "+"
_SUMS = 2**128


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """A committed state of a store: what was built, from what, and which versions of the tables belong together."""

    path: Path
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

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the graph's tables that it has, in the order of `STORE_TABLES`."""
        return _tables_of(self.format_version)

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
                and not _is_digest(self.digests.get(name), state.files.values())
            ):
                raise damaged(
                    commit_file(self.path / name, self.versions[name]),
                    "the log up to it names other files than those that were committed",
                )
            self._tables[name] = state
        return self._tables[name]

    def known(self, name: str) -> TableState | None:
        """Return what `table` does if that needs no look at the log."""
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
        return [parts[at] for at in self.bounds(name).filter(near.fill_null(value=True))["_at"]]

    def bounds(self, name: str) -> pl.DataFrame:
        """Return the least and the largest value of each column of integers: per file ``min_X`` and ``max_X``."""
        rows = [bounds(name, part.statistics) for part in self.table(name).files.values()]
        return pl.DataFrame(rows, schema=BOUNDS[name], orient="row").with_row_index("_at")

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
        schema = _POLARS[name]
        files = self.files(name, near)
        if not files:
            return pl.LazyFrame(schema=schema)
        # Files of earlier releases may lack a column that is optional.
        rows = pl.scan_parquet(files, schema=schema, glob=False, hive_partitioning=False, missing_columns="insert")
        return summed(rows) if name == TRAFFIC else rows


_POLARS = {name: dict(pl.DataFrame(pl.from_arrow(schema.empty_table())).schema) for name, schema in ALL_TABLES.items()}


def _tables_of(format_version: int) -> tuple[str, ...]:
    return tuple(name for name in STORE_TABLES if name != TRAFFIC or format_version >= SINCE)


def digest(files: Iterable[PartFile], *, beside: str = f"{_SUM}0", without: Iterable[PartFile] = ()) -> str:
    """Return a checksum over the names, sizes and statistics of files, in whatever order.

    Parameters
    ----------
    files
        The files.
    beside
        The checksum of other files that are there as well: sums of numbers of 128 bits add up.
    without
        Files among those others that are not there.

    Returns
    -------
    str
        A sign that it is a sum, and its hexadecimal digits.
    """
    total = int(beside.removeprefix(_SUM), 16) + sum(map(_number, files)) - sum(map(_number, without))
    return f"{_SUM}{total % _SUMS:032x}"


def _number(part: PartFile) -> int:
    return int.from_bytes(hashlib.blake2b(_line(part).encode(), digest_size=16).digest(), "big")


def _line(part: PartFile) -> str:
    return f"{part.path}\t{part.size_bytes}\t{part.statistics}\n"


def _is_digest(said: str | None, files: Iterable[PartFile]) -> bool:
    if said is not None and not said.startswith(_SUM):
        # As builds wrote it that could not add to it.
        return said == hashlib.blake2b("".join(sorted(map(_line, files))).encode(), digest_size=16).hexdigest()
    return said == digest(files)


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
    info = _committed(path)
    if info is None:
        message = f"There is no program activity graph at {path}."
        hint = "Build one: `pag build TRACE STORE`."
        if (path / "meta.json").is_file():
            hint = f"This is a trace. Build its graph first: `pag build {path} STORE`."
        raise StoreNotFoundError(message, hint, {"path": str(path)})
    return info


def _committed(path: Path) -> StoreInfo | None:
    directory = path / "epochs"
    # In this order: what is noted before is there.
    noted = newest_known(directory)
    newest = latest(directory, since=noted)
    if noted > newest:
        raise damaged(commit_file(directory, noted), "it is missing")
    for version in range(newest, -1, -1):
        content = _content(directory, version)
        if content is not None:
            return _info(path, version, content)
        if not commit_file(directory, version - 1).exists():
            break
    if newest < 0:
        return None
    message = f"{path} holds a Delta table named epochs that this package did not write."
    raise StoreError(message, "Choose another place for the store.", {"path": str(path)})


def _content(directory: Path, version: int) -> dict[str, Any] | None:
    """Return what this package said when it added a version of `epochs`; None where another program added it.

    Raises
    ------
    StoreError
        If it is damaged.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    actions = read_commit(directory, version)
    info, file = commit_info(actions), commit_file(directory, version)
    said, checksum = info.get(_COMMIT_KEY), info.get(_CHECKSUM_KEY)
    if said is None:
        ours = checksum is not None or any(_APP in str(action.get("txn")) for action in actions)
        if ours or not info:
            raise damaged(file, "it does not say what was committed")
        return None
    try:
        content = json.loads(said)
        # Releases that kept no digests kept no checksum either: damage in one place cannot take away both.
        if ("digests" in content) != (checksum is not None) or (checksum is not None and _sum(said) != checksum):
            raise damaged(file, "what it says of the commit is not what was committed")
    except (TypeError, ValueError) as error:
        raise damaged(file, f"what it says of the commit cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise damaged(file, "it does not say what was committed")
    return content


def _sum(said: str) -> str:
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def _info(path: Path, version: int, content: Mapping[str, Any]) -> StoreInfo:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """What reading all of a store shows."""

    files: int
    size_bytes: int
    unchecked: int
    """Files of releases that kept no checksums; only their sizes and numbers of rows can be compared."""
    damaged: Sequence[StoreError]
    """One per file or log that is not as it was committed; names it."""


def keeps_checksums(info: StoreInfo) -> bool:
    """Tell whether all of a store can be checked: releases before this one kept no checksums."""
    return info.digests is not None and all(
        part.checksum is not None for name in ALL_TABLES for part in info.table(name).files.values()
    )


def check_store(info: StoreInfo) -> StoreCheck:
    """Read every file of a committed state, and compare it with what was committed.

    Parameters
    ----------
    info
        From `open_store`.

    Returns
    -------
    StoreCheck
        Takes as long as reading the store once.
    """
    parts = 0
    size = unchecked = 0
    found: list[StoreError] = []
    if info.state is not None:
        try:
            read_state_file(info.path, info.state)
            for name in info.state.get("sends", ()):
                read_sends(info.path, name)
        except StoreError as error:
            found.append(error)
    for name in ALL_TABLES:
        try:
            files = info.parts(name)
        except StoreError as error:
            found.append(error)
            continue
        for part in files:
            parts, size, unchecked = parts + 1, size + part.size_bytes, unchecked + (part.checksum is None)
            try:
                check_parts(info.path / name, [part], again=True)
                check_rows(info.path / name, part)
            except StoreError as error:
                found.append(error)
    return StoreCheck(files=parts, size_bytes=size, unchecked=unchecked, damaged=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A build in the history of a store."""

    id: str
    version: int
    """Of the table `epochs`."""
    run: Mapping[str, Any]
    """As in `StoreInfo`."""
    versions: Mapping[str, int]
    """As in `StoreInfo`."""
    closed_epochs: int
    events: int
    committed: str
    """When, as ISO 8601."""
    state: Sequence[str] = ()
    """Names of the files from which an append goes on."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """As `pag_graph.store.maker.maker` says, with the ``trace`` and its ``files``; empty of earlier releases."""


def commits(info: StoreInfo) -> list[Commit]:
    """Return the commits of a store up to a state of it, oldest first, as far as Delta's log still knows them."""
    directory, found = info.path / "epochs", []
    for version in range(info.versions["epochs"], -1, -1):
        if not commit_file(directory, version).exists():
            break
        content = _content(directory, version)
        if content is not None:
            found.append(
                Commit(
                    id=content["commit_id"],
                    version=version,
                    run=content["run"],
                    versions={**content["versions"], "epochs": version},
                    closed_epochs=content["closed_epochs"],
                    events=content["events"],
                    committed=content["committed"],
                    state=files_of_state(content.get("state")),
                    made=content.get("made") or {},
                )
            )
    return found[::-1]


def check_target(path: Path, mode: Mode) -> StoreInfo | None:
    """Refuse to build where a build must not write.

    Parameters
    ----------
    path
        Where the store shall be.
    mode
        What to do with one that exists.

    Returns
    -------
    StoreInfo or None
        The state that exists.

    Raises
    ------
    StoreExistsError
        If there is a store and `mode` is ``error``, or something that is no store.
    """
    info = _committed(path)
    if info is not None and mode == "error":
        message = f"{path} already holds run {info.run['run_id']} (rules {info.run['rules']})."
        hint = "Add new epochs with `--append`, build anew with `--replace`, or choose another place."
        raise StoreExistsError(message, hint, {"path": str(path), "run_id": info.run["run_id"]})
    if info is None and path.exists():
        # What a killed build left is invisible and may stay; anything else is somebody's.
        foreign = [] if not path.is_dir() else [p.name for p in path.iterdir() if not _is_ours(p)]
        if foreign or not path.is_dir():
            message = f"{path} exists and is no store" + (f": it holds {foreign[0]}." if foreign else ".")
            raise StoreExistsError(message, "Choose a new or empty place.", {"path": str(path)})
    return info


def _is_ours(path: Path) -> bool:
    return path.name in ALL_TABLES or path.name.startswith(STAGING) or path.name == LIVE


def commit(
    path: Path,
    parts: Mapping[str, Sequence[PartFile]],
    *,
    run: Mapping[str, Any],
    closed_epochs: int,
    dropped: Mapping[str, int],
    events: int,
    previous: StoreInfo | None,
    keep: bool = False,
    unchanged: Collection[str] = (),
    state: Mapping[str, Any] | None = None,
    live: Live | None = None,
    swaps: Mapping[str, Swap] | None = None,
    source: Mapping[str, Any] | None = None,
) -> StoreInfo:
    """Commit the files of a build: every table, then `epochs`, which makes them visible together.

    Parameters
    ----------
    path
        Directory of the store.
    parts
        Per table: its files. They replace what the tables held, but for `keep`.
    run, closed_epochs, dropped, events
        As in `StoreInfo`.
    previous
        The state that the build started from; the commit fails if it is no longer the latest.
    keep
        Whether files of `previous` stay that are not provisional, in the tables that grow.
    unchanged
        Tables that stay as `previous` has them.
    state
        The file from which an append goes on, as `pag_graph.store.state_files.write_state` returns it.
    live
        What standing queries made of it.
    swaps
        Per table: a file in the place of others of `previous` with the same rows.
    source
        Where it was read from: ``trace``, a path, and ``files``, with size and checksum by name.

    Returns
    -------
    StoreInfo
        The new state.

    Raises
    ------
    StoreConflictError
        If another build committed in between.
    StoreError
        If the file system refuses.
    """  # noqa: DOC501  (the named constructor is taken for an exception)
    commit_id = uuid.uuid4().hex
    transaction = (f"{_APP}{run['run_id']}", closed_epochs)
    pinned = _Pinned(previous, {}, {}, {}, {})
    # What was written before there was a table lacks its rows for good.
    version = previous.format_version if keep and previous is not None else STORE_FORMAT_VERSION
    try:
        _check_latest(path, previous)
        for name in (*(LIVE_TABLES if live is not None else ()), *_tables_of(version)):
            if previous is not None and previous.digests is not None and name in unchanged:
                pinned.keep(name)
                continue
            beside = live if name in LIVE_TABLES else None
            files = {part.path: part for part in (parts if beside is None else beside.parts).get(name, ())}
            check_sizes(path / name, files.values())
            stays = keep and name in GROWING if beside is None else beside.kept is not None
            step = _step(path / name, files, previous, keep=stays, swap=(swaps or {}).get(name) if stays else None)
            if name == "epochs":
                digests = {**pinned.digests, name: step.digest}
                about = {"run": dict(run), "closed_epochs": closed_epochs, "dropped": dict(dropped), "events": events}
                about |= {"format_version": version} | ({} if live is None else {"live": dict(live.content)})
                about["made"] = {**maker(), **(source or {})}
                content = _content_of(about, commit_id, pinned.versions, digests, state)
                pinned.take(name, step, _publish(path / name, step, content, transaction, previous))
            elif previous is not None and step.digest == (previous.digests or {}).get(name):
                pinned.keep(name)
            else:
                pinned.take(name, step, _commit_table(path / name, step, commit_id, transaction))
    except FileExistsError as error:
        raise StoreConflictError.from_concurrent_build(path) from error
    except OSError as error:
        _check_latest(path, previous)
        message = f"The store at {path} cannot be written: {error}."
        raise StoreError(message, "Nothing was made visible; build again.", {"path": str(path)}) from error
    # By its number: somebody else may have committed since.
    return replace(_own(path, pinned.versions["epochs"], commit_id), tips=pinned.tips, _tables=pinned.tables)


class _Step(NamedTuple):
    """What becomes of a table."""

    before: TableState
    """What it holds, or its tip."""
    files: Mapping[str, PartFile]
    """What it shall hold, beside those that the tip does not name."""
    digest: str
    """Of all that it shall hold."""
    moved: frozenset[str] = frozenset()
    """Paths of files that come or go without any row coming or going."""


class _Pinned(NamedTuple):
    """What a commit says of the tables, so far."""

    previous: StoreInfo | None
    versions: dict[str, int]
    digests: dict[str, str]
    tips: dict[str, TableState]
    """For the next commit of this process."""
    tables: dict[str, TableState]
    """Lists of all files, where this process knows that of the state before: nobody reads the log for them again."""

    def keep(self, name: str) -> None:
        """Leave a table as it is."""
        if (previous := self.previous) is None:
            return
        self.versions[name] = previous.versions[name]
        self.digests[name] = (previous.digests or {})[name]
        if name in previous.tips:
            self.tips[name] = previous.tips[name]
        if (known := previous.known(name)) is not None:
            self.tables[name] = known

    def take(self, name: str, step: _Step, now: TableState) -> None:
        """Pin the version that a table has now."""
        self.versions[name], self.digests[name] = now.version, step.digest
        provisional = {path: part for path, part in now.files.items() if part.provisional}
        self.tips[name] = replace(now, files=provisional, more=now.more or len(provisional) < len(now.files))
        known = None if self.previous is None else self.previous.known(name)
        if not now.more:
            self.tables[name] = now
        elif known is not None:
            stay = {path: part for path, part in known.files.items() if path not in step.before.files}
            self.tables[name] = replace(now, files={**stay, **step.files}, more=False)


def _own(path: Path, version: int, commit_id: str) -> StoreInfo:
    """Read a state that was just committed, as every reader will."""
    content = _content(path / "epochs", version)
    if content is None or content.get("commit_id") != commit_id:
        raise damaged(commit_file(path / "epochs", version), "it does not read as it was written")
    return _info(path, version, content)


def _check_latest(path: Path, previous: StoreInfo | None) -> None:
    if previous is not None and _is_latest(path / "epochs", previous):
        return
    now = _committed(path)
    if (now and (now.commit_id, now.versions)) != (previous and (previous.commit_id, previous.versions)):
        raise StoreConflictError.from_concurrent_build(path)


def _is_latest(directory: Path, info: StoreInfo) -> bool:
    """Say whether nothing follows a state, without a look at what was before it; what it cannot tell it denies."""
    version = info.versions["epochs"]
    if commit_file(directory, version + 1).exists() or newest_known(directory) > version:
        return False
    return (
        commit_file(directory, version).exists()
        and (_content(directory, version) or {}).get("commit_id") == info.commit_id
    )


def _step(
    directory: Path, new: Mapping[str, PartFile], previous: StoreInfo | None, *, keep: bool, swap: Swap | None = None
) -> _Step:
    """Say what becomes of a table: `keep` leaves what is not provisional in it, but for what is swapped."""
    name = directory.name
    out: dict[str, PartFile] = {}
    if swap is not None:
        check_sizes(directory, [swap.come])
        new, out = {**new, swap.come.path: swap.come}, {part.path: part for part in swap.gone}
    moved = frozenset(out) | ({swap.come.path} if swap is not None else frozenset())
    digest_before = (previous.digests or {}).get(name, "") if previous is not None else ""
    if keep and previous is not None:
        newer = commit_file(directory, previous.versions.get(name, -1) + 1).exists()
        if digest_before.startswith(_SUM) and not newer:
            before = previous.tip(name)
            # A tip need not name what goes.
            before = replace(before, files={**before.files, **out})
            gone = [part for path, part in before.files.items() if part.provisional or path in out]
            stay = {path: part for path, part in before.files.items() if not part.provisional and path not in out}
            total = digest(new.values(), beside=digest_before, without=gone)
            return _Step(before, {**stay, **new}, total, moved)
        there = previous.table(name).files.items()
        new = {**{path: part for path, part in there if not part.provisional and path not in out}, **new}
    return _Step(_newest(directory, previous, name), new, digest(new.values()), moved)


def _newest(directory: Path, previous: StoreInfo | None, name: str) -> TableState:
    """Return what a table holds now: what killed builds put there meanwhile was never visible, and goes."""
    newest = latest(directory)
    if previous is not None and previous.versions.get(name) == newest:
        return previous.table(name)
    return read_state(directory, newest)


def _commit_table(directory: Path, step: _Step, commit_id: str, transaction: tuple[str, int]) -> TableState:
    """Let a table hold certain files and no others."""
    return _write(directory, step, {_COMMIT_KEY: json.dumps({"commit_id": commit_id})}, transaction)


def _publish(
    directory: Path,
    step: _Step,
    content: str,
    transaction: tuple[str, int],
    previous: StoreInfo | None,
) -> TableState:
    """Add the version of `epochs` that pins all tables: of builds that begin with the same state, one can."""
    # Whoever publishes after this look takes the number that `write_version` is about to ask for.
    _check_latest(directory.parent, previous)
    now = _write(directory, step, {_COMMIT_KEY: content, _CHECKSUM_KEY: _sum(content)}, transaction)
    note_newest(directory, now.version)
    return now


def _write(directory: Path, step: _Step, info: Mapping[str, str], transaction: tuple[str, int]) -> TableState:
    """Add the next version of a table, and read it back."""
    schema = ALL_TABLES[directory.name]
    version = write_version(
        directory, schema, step.before, step.files, info=info, transaction=transaction, moved=step.moved
    )
    now = read_next(directory, step.before)
    if now.files != step.files:
        raise damaged(commit_file(directory, version), "it does not read as it was written")
    return now


def _content_of(
    about: Mapping[str, Any],
    commit_id: str,
    versions: Mapping[str, int],
    digests: Mapping[str, str],
    state: Mapping[str, Any] | None,
) -> str:
    """Return what a commit says, as JSON."""
    return json.dumps(
        {
            "commit_id": commit_id,
            "run": about["run"],
            "versions": versions,
            "digests": digests,
            **{name: value for name, value in about.items() if name != "run"},
            "state": state and dict(state),
            "committed": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
    )


def describe(info: StoreInfo) -> dict[str, Any]:
    """Return a store's state as plain values, for programs."""
    return {
        "path": str(info.path),
        "run": dict(info.run),
        "versions": dict(info.versions),
        "closed_epochs": info.closed_epochs,
        "dropped": dict(info.dropped),
        "events": info.events,
        "commit_id": info.commit_id,
    }
