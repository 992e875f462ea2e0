"""Small files of a store that become large ones, a few at a time, beside the commits of a follower.

Files belong to a class by their rows: up to 31, up to 1,023, up to 32,767, and above. As soon as a class has 32 files,
they become one of a higher class, so a row is written again four times at most, and the number of files grows with the
logarithm of what a table holds, until files are large. That is a file with a whole row group, or a MiB: readers skip by
row groups, and to open such a file takes little beside reading it. To write it again takes as long as a query.
The next commit puts the new file in the place of the old ones, as a change of files and not of data; until then nobody
sees it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pag_graph.errors import PagGraphError, StoreError
from pag_graph.model.live_tables import ALL_TABLES
from pag_graph.store.capacity import enough_memory
from pag_graph.store.parts import ROW_GROUP, WORDS, check_parts, damaged, discard, forget_checks, write_portions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile

Done = TypeVar("Done")

FILES = 32
"""So many files of a class become one."""
MOST_ROWS = 1 << 20
"""Rows of the largest file that is made."""
LARGE_ROWS, LARGE_BYTES = ROW_GROUP, 1 << 20
"""A file of so many rows or bytes stays as it is."""
TABLES = {
    "vertices": (("epoch", "ascending"), ("id", "ascending")),
    "edges": (("epoch", "ascending"), ("dst", "ascending")),
    "traffic": (("epoch", "ascending"), ("channel", "ascending")),
    "epochs": (("epoch", "ascending"),),
    "changes": (("commit", "ascending"), ("ordinal", "ascending")),
    "alerts": (("commit", "ascending"), ("ordinal", "ascending")),
}
"""Tables whose files are joined, and what orders the rows of a file: readers skip by it. Rows that tie stay in order:
edges that end in one vertex lie as analyses walk them."""
_WORDS = pa.dictionary(pa.int32(), pa.string())


class Swap(NamedTuple):
    """Files in whose place others come."""

    added: tuple[PartFile, ...]
    """Files that come."""
    removed: tuple[PartFile, ...]
    """Files that go, as they are in the table now."""
    same_rows: bool = True
    """Whether all rows of those that go are in those that come."""


def due(parts: Sequence[PartFile]) -> list[PartFile]:
    """Return the files of a table that are to become one, the oldest first.

    Parameters
    ----------
    parts
        Files of a table that stay, in the order in which they came.

    Returns
    -------
    list of PartFile
        At most `FILES`, of one class, with at most `MOST_ROWS` rows together; none while there are few of each class.
        O(parts).
    """
    classes: dict[int, list[PartFile]] = {}
    for part in parts:
        if not _is_large(part):
            classes.setdefault(_class(part.rows), []).append(part)
    for _, members in sorted(classes.items()):
        if len(members) < FILES and sum(part.rows for part in members) < MOST_ROWS:
            continue
        chosen, rows = [], 0
        for part in members[:FILES]:
            if rows + part.rows > MOST_ROWS:
                break
            chosen.append(part)
            rows += part.rows
        return chosen
    return []


def _is_large(part: PartFile) -> bool:
    return part.rows >= LARGE_ROWS or part.size_bytes >= LARGE_BYTES


def _class(rows: int) -> int:
    number = 0
    while rows >= FILES:
        rows, number = rows // FILES, number + 1
    return number


def join(store: Path, table: str, parts: Sequence[PartFile]) -> Swap:
    """Write one file with the rows of several.

    Parameters
    ----------
    store
        Directory of the store.
    table
        Out of `TABLES`.
    parts
        Its files; each is compared with what was committed.

    Returns
    -------
    Swap
        One file in the place of all of `parts`, its rows in the order of `TABLES`; nothing is committed.

    Raises
    ------
    StoreError
        If one is damaged, the file system refuses, or there is not enough memory.
    """
    with enough_memory(f"To join {len(parts)} files of {store / table}"):
        return _joined(store, table, parts)


def _joined(store: Path, table: str, parts: Sequence[PartFile]) -> Swap:
    folder = store / table
    check_parts(folder, parts)
    keys = list(TABLES[table])
    try:
        with ExitStack() as stack:
            files = [
                stack.enter_context(pq.ParquetFile(folder / part.path, read_dictionary=WORDS[table])) for part in parts
            ]
            key_rows = pa.concat_tables([file.read([name for name, _ in keys]) for file in files])
            order = pc.sort_indices(key_rows, sort_keys=keys).to_numpy().astype(np.int64)
            del key_rows
            joined = write_portions(store, table, _row_groups(table, files, order))
    except (OSError, pa.ArrowException) as error:
        raise damaged(folder / parts[0].path, f"it or one of {len(parts)} cannot be read: {error}") from error
    if joined is None:
        message = f"{len(parts)} files of {folder} have no rows."
        raise StoreError(message, None, {"path": str(folder)})
    return Swap((joined,), tuple(parts))


def _encoded(table: str) -> pa.Schema:
    """Return the schema of a table with its words as dictionaries, which they are in files."""
    schema = ALL_TABLES[table]
    for name in WORDS[table]:
        schema = schema.set(schema.get_field_index(name), schema.field(name).with_type(_WORDS))
    return schema


def _all_columns(file: pq.ParquetFile, schema: pa.Schema) -> pa.Table:
    """Read a file; those of earlier releases may lack a column that is optional."""
    rows = file.read()
    present = set(rows.schema.names)
    for field in schema:
        if field.name not in present:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def _row_groups(table: str, files: Sequence[pq.ParquetFile], order: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield the rows of files, numbered one file after the other, in another order, a row group at a time.

    Rows that come together were written together, so a file is read when its first row is due, and is let go after its
    last one: a few are in memory at a time, and not all of them twice.
    """
    schema = _encoded(table)
    rows_left = [file.metadata.num_rows for file in files]
    ends = np.cumsum(rows_left)
    begins = ends - rows_left
    tables: dict[int, pa.Table] = {}
    for begin in range(0, len(order), ROW_GROUP):
        rows = order[begin : begin + ROW_GROUP]
        owners = np.searchsorted(ends, rows, side="right")
        pieces, places, height = [], np.empty_like(rows), 0
        for number in np.unique(owners).tolist():
            if number not in tables:
                tables[number] = _all_columns(files[number], schema)
            own = owners == number
            numbered = rows[own] - begins[number]
            first, last = int(numbered.min()), int(numbered.max())
            pieces.append(tables[number].slice(first, last + 1 - first))
            places[own] = numbered - first + height
            height += last + 1 - first
            rows_left[number] -= len(numbered)
            if not rows_left[number]:
                del tables[number]
        group = pa.concat_tables(pieces).unify_dictionaries()
        yield group if (np.diff(places) == 1).all() else group.combine_chunks().take(places)


def _small(parts: Iterable[PartFile]) -> dict[str, PartFile]:
    """Return those files, by path, that may be joined one day: the others may be many, and are not looked at again."""
    return {part.path: part for part in parts if not part.provisional and not _is_large(part)}


class Compaction:
    """Joins files of a store that one process commits to, in a thread beside it.

    Parameters
    ----------
    store
        Directory of the store.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        # Per table: files that may be joined.
        self._parts: dict[str, dict[str, PartFile]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pag-compaction")
        self._work: Future[dict[str, Swap]] | None = None
        self._waits = False
        self.trouble: PagGraphError | None = None
        """Why files could not be joined the last time, if so; it is tried again."""

    def ready(self, *, wait: bool = False) -> dict[str, Swap]:
        """Take what the next commit may swap.

        Parameters
        ----------
        wait
            Whether to wait for a file that is being written.

        Returns
        -------
        dict
            Per table its swap; empty while a file is being written, or if it could not be (`trouble` says why).
        """
        if self._work is None or not (wait or self._work.done()):
            return {}
        work, self._work = self._work, None
        try:
            swaps = work.result()
        except PagGraphError as error:
            self.trouble = error
            return {}
        self.trouble = None
        return swaps

    def committed(
        self,
        info: StoreInfo,
        parts: Mapping[str, Sequence[PartFile]],
        swaps: Mapping[str, Swap],
        *,
        anew: bool,
        last: bool = False,
    ) -> None:
        """Take note of a commit, and begin to write what is due.

        Parameters
        ----------
        info
            The new state.
        parts
            Per table: files that came with it.
        swaps
            What it swapped.
        anew
            Whether nothing of the state before stayed.
        last
            Whether no other commit follows that could take what is joined.
        """
        if self._parts is None or anew:
            # Once per process: from here on what comes is known.
            self._parts = {
                table: _small(info.table(table).files.values()) for table in TABLES if table in info.versions
            }
        for table in TABLES:
            table_parts = self._parts.setdefault(table, {})
            table_parts |= _small(parts.get(table, ()))
            if (swap := swaps.get(table)) is not None:
                for part in swap.removed:
                    table_parts.pop(part.path, None)
                forget_checks(self._store / table, swap.removed)
                table_parts |= _small(swap.added)
        if self._work is None and not self._waits and not last:
            due_parts = {
                table: chosen
                for table, table_parts in self._parts.items()
                if (chosen := due(list(table_parts.values())))
            }
            if due_parts:
                self._work = self._thread.submit(self._join, due_parts)

    def _join(self, due_parts: Mapping[str, Sequence[PartFile]]) -> dict[str, Swap]:
        swaps: dict[str, Swap] = {}
        try:
            for table, parts in due_parts.items():
                swaps[table] = join(self._store, table, parts)
        except PagGraphError:
            for table, swap in swaps.items():
                discard(self._store, table, swap.added)
            raise
        return swaps

    def beside(self, work: Callable[[], Done]) -> Future[Done]:
        """Do something else in the thread, as soon as it is free."""
        return self._thread.submit(work)

    def instead(self, work: Callable[[], Done]) -> Future[Done] | None:
        """Do something in the thread that needs the files as they are; join none of them before `go_on`.

        Returns
        -------
        Future or None
            None while there is a file that no commit has taken: ask again after the next one.
        """
        self._waits = True
        return None if self._work is not None else self._thread.submit(work)

    def go_on(self) -> None:
        """Join files again, from the next commit on."""
        self._waits = False

    def give_up(self) -> None:
        """Wait for what is being written, and remove it: no commit takes it."""
        for table, swap in self.ready(wait=True).items():
            discard(self._store, table, swap.added)

    def close(self) -> None:
        """End the thread; what it wrote and no commit took is removed."""
        self.give_up()
        self._thread.shutdown()
