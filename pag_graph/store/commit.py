"""Committing to a store: every table by itself, then `epochs`, which makes them visible together (`store.delta`)."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from pag_graph.errors import InvalidParameterError, StoreConflictError, StoreError, StoreExistsError
from pag_graph.model.live_tables import ALL_TABLES, LIVE_TABLES
from pag_graph.model.tables import STORE_FORMAT_VERSION
from pag_graph.store.contents import GROWING
from pag_graph.store.delta import (
    APP,
    CHECKSUM_KEY,
    COMMIT_KEY,
    LIVE,
    STAGING,
    StoreInfo,
    checksum_of,
    committed_state,
    info_of,
    read_content,
)
from pag_graph.store.delta_log import (
    TableState,
    commit_file,
    latest,
    newest_known,
    note_newest,
    read_next,
    read_state,
)
from pag_graph.store.delta_writing import write_version
from pag_graph.store.digests import DIGEST_SIGN, digest
from pag_graph.store.durable import to_disk
from pag_graph.store.maker import maker
from pag_graph.store.parts import check_sizes, damaged
from pag_graph.store.state_files import state_to_disk
from pag_graph.store.traffic import tables_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pag_graph.store.compaction import Swap
    from pag_graph.store.contents import Live
    from pag_graph.store.parts import PartFile

Mode = Literal["error", "append", "replace"]
"""What a build does with a store that exists."""


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
    InvalidParameterError
        If there is no such mode.
    """
    if mode not in get_args(Mode):
        message = f"There is no mode {mode!r}; there are {', '.join(get_args(Mode))}."
        raise InvalidParameterError(message, None, {"mode": mode})
    info = committed_state(path)
    if info is not None and mode == "error":
        message = f"{path} already holds run {info.run['run_id']} (rules {info.run['rules']})."
        hint = "Add new epochs with `--append`, build anew with `--replace`, or choose another place."
        raise StoreExistsError(message, hint, {"path": str(path), "run_id": info.run["run_id"]})
    if info is None and path.exists():
        # Files of a killed build are invisible and may stay; any other file belongs to the user.
        foreign = [] if not path.is_dir() else [p.name for p in path.iterdir() if not _is_ours(p)]
        if foreign or not path.is_dir():
            message = f"{path} exists and is not a store" + (f": it holds {foreign[0]}." if foreign else ".")
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
        Per table: files in the place of others of `previous`, with the same rows or some of them.
    source
        Where it was read from: ``trace``, a path, and ``files``, with size and checksum by name; and what made it of
        that, for how long: ``engine`` and ``seconds``.

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
    transaction = (f"{APP}{run['run_id']}", closed_epochs)
    pinned = _Pinned(previous, {}, {}, {}, {})
    # A store of an older format lacks the rows of newer tables, so its format stays.
    version = previous.format_version if keep and previous is not None else STORE_FORMAT_VERSION
    try:
        _check_latest(path, previous)
        for name in (*(LIVE_TABLES if live is not None else ()), *tables_of(version)):
            if previous is not None and previous.digests is not None and name in unchanged:
                pinned.keep(name)
                continue
            live_of_table = live if name in LIVE_TABLES else None
            files = {
                part.path: part for part in (parts if live_of_table is None else live_of_table.parts).get(name, ())
            }
            directory = path / name
            check_sizes(directory, files.values())
            if files:
                to_disk(*(directory / file for file in files), directory)
            stays = keep and name in GROWING if live_of_table is None else live_of_table.base is not None
            step = _step(directory, files, previous, keep=stays, swap=(swaps or {}).get(name) if stays else None)
            if name == "epochs":
                state_to_disk(path, state)
                to_disk(path)
                digests = {**pinned.digests, name: step.digest}
                about = {"run": dict(run), "closed_epochs": closed_epochs, "dropped": dict(dropped), "events": events}
                about |= {"format_version": version} | ({} if live is None else {"live": dict(live.content)})
                about["made"] = {**maker(), **(source or {})}
                content = _content_of(about, commit_id, pinned.versions, digests, state)
                pinned.take(name, step, _publish(directory, step, content, transaction, previous))
            elif previous is not None and step.digest == (previous.digests or {}).get(name):
                pinned.keep(name)
            else:
                pinned.take(name, step, _commit_table(directory, step, commit_id, transaction))
    except FileExistsError as error:
        raise StoreConflictError.from_concurrent_build(path) from error
    except OSError as error:
        _check_latest(path, previous)
        message = f"The store at {path} cannot be written: {error}."
        raise StoreError(message, "Nothing was made visible; build again.", {"path": str(path)}) from error
    # By its number: another process may have committed since.
    return replace(_read_committed(path, pinned.versions["epochs"], commit_id), tips=pinned.tips, _tables=pinned.tables)


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
        if (table_before := previous.known(name)) is not None:
            self.tables[name] = table_before

    def take(self, name: str, step: _Step, now: TableState) -> None:
        """Pin the version that a table has now."""
        self.versions[name], self.digests[name] = now.version, step.digest
        provisional = {path: part for path, part in now.files.items() if part.provisional}
        self.tips[name] = replace(now, files=provisional, more=now.more or len(provisional) < len(now.files))
        table_before = None if self.previous is None else self.previous.known(name)
        if not now.more:
            self.tables[name] = now
        elif table_before is not None:
            # There may be many: those that go are taken out of a copy, which takes no look at each.
            files = dict(table_before.files)
            for path in step.before.files:
                files.pop(path, None)
            files.update(step.files)
            self.tables[name] = replace(now, files=files, more=False)


def _read_committed(path: Path, version: int, commit_id: str) -> StoreInfo:
    """Read a state that was just committed, as every reader will."""
    content = read_content(path / "epochs", version)
    if content is None or content.get("commit_id") != commit_id:
        raise damaged(commit_file(path / "epochs", version), "it does not read as it was written")
    return info_of(path, version, content)


def _check_latest(path: Path, previous: StoreInfo | None) -> None:
    if previous is not None and _is_latest(path / "epochs", previous):
        return
    now = committed_state(path)
    if (now and (now.commit_id, now.versions)) != (previous and (previous.commit_id, previous.versions)):
        raise StoreConflictError.from_concurrent_build(path)


def _is_latest(directory: Path, info: StoreInfo) -> bool:
    """Say whether nothing follows a state, without a look at what was before it; what it cannot tell it denies."""
    version = info.versions["epochs"]
    if commit_file(directory, version + 1).exists() or newest_known(directory) > version:
        return False
    return (
        commit_file(directory, version).exists()
        and (read_content(directory, version) or {}).get("commit_id") == info.commit_id
    )


def _step(
    directory: Path,
    new_files: Mapping[str, PartFile],
    previous: StoreInfo | None,
    *,
    keep: bool,
    swap: Swap | None = None,
) -> _Step:
    """Say what becomes of a table: `keep` leaves what is not provisional in it, but for what is swapped."""
    name = directory.name
    added: dict[str, PartFile] = {}
    replaced: dict[str, PartFile] = {}
    if swap is not None:
        check_sizes(directory, swap.added)
        added = {part.path: part for part in swap.added}
        new_files, replaced = {**new_files, **added}, {part.path: part for part in swap.removed}
    moved = frozenset((*added, *replaced)) if swap is not None and swap.same_rows else frozenset[str]()
    digest_before = (previous.digests or {}).get(name, "") if previous is not None else ""
    if keep and previous is not None:
        newer = commit_file(directory, previous.versions.get(name, -1) + 1).exists()
        if digest_before.startswith(DIGEST_SIGN) and not newer:
            before = previous.tip(name)
            # A tip need not name what goes.
            before = replace(before, files={**before.files, **replaced})
            removed = [part for path, part in before.files.items() if part.provisional or path in replaced]
            stay = {path: part for path, part in before.files.items() if not part.provisional and path not in replaced}
            total = digest(new_files.values(), digest_of_others=digest_before, removed=removed)
            return _Step(before, {**stay, **new_files}, total, moved)
        files_before = previous.table(name).files.items()
        new_files = {
            **{path: part for path, part in files_before if not part.provisional and path not in replaced},
            **new_files,
        }
    return _Step(_newest(directory, previous, name), new_files, digest(new_files.values()), moved)


def _newest(directory: Path, previous: StoreInfo | None, name: str) -> TableState:
    """Return what a table holds now: what killed builds put there meanwhile was never visible, and goes."""
    newest = latest(directory)
    if previous is not None and previous.versions.get(name) == newest:
        return previous.table(name)
    return read_state(directory, newest)


def _commit_table(directory: Path, step: _Step, commit_id: str, transaction: tuple[str, int]) -> TableState:
    """Let a table hold certain files and no others."""
    return _write(directory, step, {COMMIT_KEY: json.dumps({"commit_id": commit_id})}, transaction)


def _publish(
    directory: Path,
    step: _Step,
    content: str,
    transaction: tuple[str, int],
    previous: StoreInfo | None,
) -> TableState:
    """Add the version of `epochs` that pins all tables: of builds that begin with the same state, one can."""
    # A build that publishes after this check takes the number that `write_version` is about to ask for.
    _check_latest(directory.parent, previous)
    now = _write(directory, step, {COMMIT_KEY: content, CHECKSUM_KEY: checksum_of(content)}, transaction)
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
