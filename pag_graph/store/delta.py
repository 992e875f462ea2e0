"""Contract 2 on disk: Delta tables that tasks write as Parquet and one driver commits, `epochs` last.

A Delta transaction covers one table, so the commit of `epochs` pins the versions of all others: readers open exactly
those, and what a killed build left behind is invisible.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from pag_graph.errors import (
    FormatVersionError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from pag_graph.model.tables import STORE_FORMAT_VERSION, STORE_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Mode = Literal["error", "append", "replace"]
"""What a build does with a store that exists."""

_COMMIT_KEY = "pag_graph"
_PROVISIONAL = "open-"
_FINAL = "part-"
_ROW_GROUP = 64 * 1024
"""Rows of a row group: few enough that one epoch is read without much of its neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A Parquet file that a task wrote and nobody sees until it is committed."""

    path: str
    """Relative to the directory of its table."""
    size_bytes: int
    rows: int
    statistics: str
    """JSON as Delta keeps it: `numRecords`, `minValues`, `maxValues`, `nullCount`."""


def write_part(store: Path, table: str, content: pa.Table, *, provisional: bool = False) -> PartFile | None:
    """Write rows of a table as one new Parquet file of its directory, without committing it.

    Parameters
    ----------
    store
        Directory of the store.
    table
        Name out of `STORE_TABLES`.
    content
        Its rows, in the order to be kept.
    provisional
        Whether these rows belong to epochs that are still open: the next append takes their place.

    Returns
    -------
    PartFile or None
        None where there are no rows.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    if not content.num_rows:
        return None
    schema = STORE_TABLES[table]
    # Words may come dictionary-encoded: in the file they are anyway.
    fields = [
        pa.field(f.name, content.schema.field(f.name).type, f.nullable)
        if pa.types.is_dictionary(content.schema.field(f.name).type)
        else f
        for f in schema
    ]
    content = content.select(schema.names).cast(pa.schema(fields))
    directory = store / table
    path = f"{_PROVISIONAL if provisional else _FINAL}{uuid.uuid4().hex}.parquet"
    integers = [f.name for f in schema if pa.types.is_integer(f.type)]
    written: list[pq.FileMetaData] = []
    # In memory first: on a full disk Parquet asks for the footer that it could not write, and complains of that.
    file = pa.BufferOutputStream()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            content,
            file,
            compression="lz4",
            row_group_size=_ROW_GROUP,
            # Statistics of words are made anew for every batch, and take longer than the words; nobody skips by them.
            write_batch_size=_ROW_GROUP,
            write_statistics=integers,
            metadata_collector=written,
            use_dictionary=[f.name for f in schema if pa.types.is_string(f.type)],
            # Neighbouring ids and times differ by little: all their bytes but the last ones are the same. Differences
            # with zstd took half as long again to write, and a tenth more room.
            column_encoding=dict.fromkeys(integers, "BYTE_STREAM_SPLIT"),
            store_schema=False,
        )
        (directory / path).write_bytes(file.getvalue())
    except OSError as error:
        message = f"{directory / path} cannot be written: {error}."
        raise StoreError(message, "Choose a place with enough room that can be written.") from error
    return PartFile(
        path=path,
        size_bytes=(directory / path).stat().st_size,
        rows=content.num_rows,
        statistics=_statistics(content, integers, written[0]),
    )


def as_provisional(store: Path, table: str, part: PartFile) -> PartFile:
    """Turn a file that `write_part` wrote for good into one with rows of epochs that are still open."""
    path = f"{_PROVISIONAL}{part.path.removeprefix(_FINAL)}"
    (store / table / part.path).rename(store / table / path)
    return replace(part, path=path)


def discard(store: Path, table: str, parts: Iterable[PartFile]) -> None:
    """Delete files that were written and shall not be committed."""
    for part in parts:
        (store / table / part.path).unlink(missing_ok=True)


def _statistics(content: pa.Table, integers: Sequence[str], written: pq.FileMetaData) -> str:
    """Return what Delta keeps of a file; its footer knows the bounds of integers already."""
    low, high = {}, {}
    for place, name in enumerate(content.column_names):
        if name in integers:
            found = [written.row_group(group).column(place).statistics for group in range(written.num_row_groups)]
            if bounds := [(one.min, one.max) for one in found if one.has_min_max]:
                low[name], high[name] = min(least for least, _ in bounds), max(most for _, most in bounds)
    nulls = {name: content[name].null_count for name in content.column_names}
    return json.dumps({"numRecords": content.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


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

    def files(self, table: str) -> list[str]:
        """Return the absolute paths of the Parquet files of a table, for readers that are not Delta's."""
        return [str(uri).removeprefix("file://") for uri in self.delta(table).file_uris()]

    def delta(self, table: str) -> DeltaTable:
        """Open a table at the version that belongs to this state."""
        return DeltaTable(self.path / table, version=self.versions[table])


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
    if not (path / "epochs" / "_delta_log").is_dir():
        return None
    try:
        table = DeltaTable(path / "epochs")
    except TableNotFoundError:
        return None
    except DeltaError as error:
        message = f"The store at {path} cannot be read: {error}."
        raise StoreError(message, "Build it again with `--replace`.", {"path": str(path)}) from error
    for entry in table.history():
        if _COMMIT_KEY in entry:
            content = json.loads(entry[_COMMIT_KEY])
            break
    else:
        message = f"{path} holds a Delta table named epochs that this package did not write."
        raise StoreError(message, "Choose another place for the store.", {"path": str(path)})
    if content.get("format_version") != STORE_FORMAT_VERSION:
        raise FormatVersionError.from_found_and_known(
            where=str(path), found=content.get("format_version"), known=STORE_FORMAT_VERSION
        )
    return StoreInfo(
        path=path,
        run=content["run"],
        versions={**content["versions"], "epochs": int(entry["version"])},
        closed_epochs=content["closed_epochs"],
        dropped=content["dropped"],
        events=content["events"],
    )


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


def commits(info: StoreInfo) -> list[Commit]:
    """Return the commits of a store up to a state of it, oldest first, as far as Delta's log still knows them."""
    found = []
    for entry in info.delta("epochs").history():
        if _COMMIT_KEY in entry and int(entry["version"]) <= info.versions["epochs"]:
            content = json.loads(entry[_COMMIT_KEY])
            found.append(
                Commit(
                    id=content["commit_id"],
                    version=int(entry["version"]),
                    run=content["run"],
                    versions={**content["versions"], "epochs": int(entry["version"])},
                    closed_epochs=content["closed_epochs"],
                    events=content["events"],
                    committed=content["committed"],
                )
            )
    return sorted(found, key=lambda commit: commit.version)


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
    return path.name in STORE_TABLES or path.name.startswith("_staging-")


def commit(
    path: Path,
    parts: Mapping[str, Sequence[PartFile]],
    *,
    run: Mapping[str, Any],
    closed_epochs: int,
    dropped: Mapping[str, int],
    events: int,
    previous: StoreInfo | None,
    append: bool = False,
) -> StoreInfo:
    """Commit the files of a build: every table, then `epochs`, which makes them visible together.

    Parameters
    ----------
    path
        Directory of the store.
    parts
        Per table: its files. They replace what the tables held, but for `append`.
    run, closed_epochs, dropped, events
        As in `StoreInfo`.
    previous
        The state that the build started from; the commit fails if it is no longer the latest.
    append
        Whether vertices and edges of closed epochs stay as `previous` has them.

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
    versions: dict[str, int] = {}
    commit_id = uuid.uuid4().hex
    try:
        _check_latest(path, previous)
        for name in STORE_TABLES:
            if name == "epochs":
                _check_latest(path, previous)
            content = {
                "format_version": STORE_FORMAT_VERSION,
                "commit_id": commit_id,
                "run": dict(run),
                "versions": versions,
                "closed_epochs": closed_epochs,
                "dropped": dict(dropped),
                "events": events,
                "committed": datetime.now(UTC).isoformat(timespec="milliseconds"),
            }
            properties = CommitProperties(
                custom_metadata={_COMMIT_KEY: json.dumps(content)},
                app_transactions=[Transaction(f"pag-graph/{run['run_id']}", closed_epochs)],
                # A conflict means that another build was faster; trying again would mix the two.
                max_commit_retries=0,
            )
            keep = append and previous is not None and name in ("vertices", "edges")
            files = parts.get(name, ())
            if name == "epochs":
                versions[name] = _publish(path / name, files, properties, previous)
            else:
                versions[name] = _commit_table(path / name, name, files, properties, previous if keep else None)
    except CommitFailedError as error:
        raise StoreConflictError.from_concurrent_build(path) from error
    except (DeltaError, OSError) as error:
        _check_latest(path, previous)
        message = f"The store at {path} cannot be written: {error}."
        raise StoreError(message, "Nothing was made visible; build again.", {"path": str(path)}) from error
    return open_store(path)


def _check_latest(path: Path, previous: StoreInfo | None) -> None:
    latest = _committed(path)
    if (latest and latest.versions) != (previous and previous.versions):
        raise StoreConflictError.from_concurrent_build(path)


def _commit_table(
    directory: Path,
    name: str,
    files: Sequence[PartFile],
    properties: CommitProperties,
    kept: StoreInfo | None,
) -> int:
    """Give a table new content and return its new version; with `kept`, its closed epochs stay as they are there."""
    now, adds, schema = _actions(name, files)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        table = DeltaTable(directory)
    except TableNotFoundError:
        create_table_with_add_actions(
            str(directory), schema, adds, mode="error", partition_by=[], commit_properties=properties
        )
        return 0
    removes: list[RemoveAction] = []
    if kept is not None:
        if table.version() != kept.versions[name]:
            # A killed build got as far as this table; its rows were never visible and must not become so now.
            table.restore(kept.versions[name])
        present = table.get_add_actions(flatten=True)
        old = zip(present["path"].to_pylist(), present["size_bytes"].to_pylist(), strict=True)
        removes = [
            RemoveAction(path, data_change=True, deletion_timestamp=now, size=size)
            for path, size in old
            if path.startswith(_PROVISIONAL)
        ]
    table.create_write_transaction(
        [*adds, *removes],
        mode="overwrite" if kept is None else "append",
        schema=schema,
        partition_by=[],
        commit_properties=properties,
    )
    # Another build may have committed right after: ours is the entry with our own metadata.
    own = (properties.custom_metadata or {})[_COMMIT_KEY]
    return next(int(entry["version"]) for entry in DeltaTable(directory).history() if entry.get(_COMMIT_KEY) == own)


def _actions(name: str, files: Sequence[PartFile]) -> tuple[int, list[AddAction], Schema]:
    now = int(datetime.now(UTC).timestamp() * 1000)
    adds = [
        AddAction(f.path, f.size_bytes, {}, now, True, f.statistics)  # noqa: FBT003
        for f in files
    ]
    return now, adds, Schema.from_arrow(pa.schema([pa.field(f.name, f.type, f.nullable) for f in STORE_TABLES[name]]))


def _publish(
    directory: Path, files: Sequence[PartFile], properties: CommitProperties, previous: StoreInfo | None
) -> int:
    """Commit `epochs` as the version right after the one that the build began with: Delta refuses it to all but one."""
    _, adds, schema = _actions("epochs", files)
    directory.mkdir(parents=True, exist_ok=True)
    if previous is None:
        create_table_with_add_actions(
            str(directory), schema, adds, mode="error", partition_by=[], commit_properties=properties
        )
        return 0
    table = DeltaTable(directory, version=previous.versions["epochs"])
    table.create_write_transaction(
        [*adds], mode="overwrite", schema=schema, partition_by=[], commit_properties=properties
    )
    return previous.versions["epochs"] + 1


def is_committed(
    previous: StoreInfo | None, run_id: str, *, closed_epochs: int, last_closed_epoch: int, events: int
) -> bool:
    """Tell whether a build of this run, as far as it was read, is committed already, so that a retry may stop here."""
    if previous is None or previous.run["run_id"] != run_id:
        return False
    # The same epochs may be closed, and more be known of the open ones.
    same = previous.run["last_closed_epoch"] == last_closed_epoch and previous.events == events
    return closed_epochs < previous.closed_epochs or (closed_epochs == previous.closed_epochs and same)


def describe(info: StoreInfo) -> dict[str, Any]:
    """Return a store's state as plain values, for programs."""
    return {**asdict(info), "path": str(info.path)}
