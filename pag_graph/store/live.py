"""The folder ``_live`` of a store that is followed: who follows it, and what a follower keeps beside the tables."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from pag_graph.errors import StoreConflictError, StoreError, StoreNotFoundError
from pag_graph.model.live import TIMINGS
from pag_graph.runtime.locks import Lock, lock
from pag_graph.store.delta import LIVE
from pag_graph.store.in_place import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_LOCK = "lock"
_TIMINGS = "timings.jsonl"
_STATUS = "status.json"
_UNITS = "units.json"
_LONGEST_LINE = 1_000
"""More characters than a row of timings has."""


@contextmanager
def followed(store: Path) -> Iterator[Path]:
    """Be the one who follows a trace into a store, as long as the block runs.

    Parameters
    ----------
    store
        Directory of the store; made.

    Yields
    ------
    Path
        The folder ``_live`` in it.

    Raises
    ------
    StoreConflictError
        If somebody else does.
    StoreError
        If the file system refuses.
    """
    folder = store / LIVE
    with refusals(store, "The store", StoreError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    with ExitStack() as cleanup:
        cleanup.callback(os.close, descriptor)
        if lock(descriptor) is Lock.OTHERS:
            message = f"{store} is followed by another process."
            raise StoreConflictError(message, "Wait until it ends, or choose another place.", {"path": str(store)})
        cleanup.callback(_remove_if_empty, store, folder)
        yield folder


def _remove_if_empty(store: Path, folder: Path) -> None:
    """Leave nothing of a store to which nothing was committed; called while its lock is held."""
    if not (store / "epochs").exists():
        with suppress(OSError):
            for name in (_TIMINGS, _STATUS, _UNITS, _LOCK):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
            store.rmdir()


def add_timings(folder: Path, rows: Sequence[Mapping[str, int]]) -> None:
    """Add rows of `TIMINGS` to what a follower knows of its epochs.

    Parameters
    ----------
    folder
        The folder ``_live``.
    rows
        Of the epochs that the last commit closed.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    with refusals(folder / _TIMINGS, "", StoreError), (folder / _TIMINGS).open("ab") as file:
        # A killed process may have left half a line, so a new line begins.
        file.write(b"\n" + b"".join(orjson.dumps(dict(row)) + b"\n" for row in rows))


def read_timings(store: Path) -> pa.Table:
    """Return what is known of the epochs that were followed.

    Parameters
    ----------
    store
        Directory of the store.

    Returns
    -------
    pa.Table
        Rows of `TIMINGS`, one per epoch, in the order in which they were closed. Those that a follower closed which was
        killed before it could note them are absent.

    Raises
    ------
    StoreError
        If the file cannot be read.
    """
    file = store / LIVE / _TIMINGS
    if not file.exists():
        return TIMINGS.empty_table()
    rows: dict[int, dict[str, int]] = {}
    with refusals(file, "", StoreError):
        lines = file.read_bytes().split(b"\n")
    for line in lines:
        # A killed process may leave half a line.
        with suppress(ValueError, KeyError, TypeError):
            row = orjson.loads(line)
            rows.setdefault(row["epoch"], {name: int(row[name]) for name in TIMINGS.names})
    return pa.Table.from_pylist(list(rows.values()), TIMINGS)


def last_timing(store: Path) -> dict[str, int] | None:
    """Return the row of the epoch that was closed last, as in `read_timings`; None where there is none.

    Parameters
    ----------
    store
        Directory of the store.

    Returns
    -------
    dict or None
        Per column of `TIMINGS`; None where there is none. Reads the end of the file.

    Raises
    ------
    StoreError
        If the file cannot be read.
    """
    file = store / LIVE / _TIMINGS
    if not file.exists():
        return None
    with refusals(file, "", StoreError), file.open("rb") as lines:
        lines.seek(max(file.stat().st_size - _LONGEST_LINE * 2, 0))
        for line in reversed(lines.read().split(b"\n")):
            with suppress(ValueError, KeyError, TypeError):
                row = orjson.loads(line)
                return {name: int(row[name]) for name in TIMINGS.names}
    return None


def begin(folder: Path, *, anew: bool) -> None:
    """Make room for what is known of a run.

    Parameters
    ----------
    folder
        The folder ``_live``.
    anew
        Whether to forget what was known of the run that this one replaces.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    with refusals(folder, "", StoreError):
        (folder / _TIMINGS).open("wb" if anew else "ab").close()
        if anew:
            (folder / _STATUS).unlink(missing_ok=True)
            (folder / _UNITS).unlink(missing_ok=True)


def write_status(folder: Path, status: Mapping[str, Any]) -> None:
    """Write down what a run is doing, in the place of what was said before.

    Parameters
    ----------
    folder
        The folder ``_live``.
    status
        Plain values.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    hidden = folder / f"{_STATUS}.tmp"
    with refusals(folder / _STATUS, "", StoreError):
        try:
            hidden.write_bytes(orjson.dumps(dict(status)))
            hidden.replace(folder / _STATUS)
        finally:
            # What could not take its place.
            hidden.unlink(missing_ok=True)


def read_status(store: Path) -> dict[str, Any]:
    """Return what a run was doing when its follower looked last.

    Parameters
    ----------
    store
        Directory of the store.

    Returns
    -------
    dict
        As from `write_status`.

    Raises
    ------
    StoreNotFoundError
        If nobody follows a trace into it, or nothing of it was read yet.
    """
    file = store / LIVE / _STATUS
    try:
        status = orjson.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        message = f"Nothing is known of a run that goes on into {store}."
        hint = "Follow its trace: `pag follow TRACE STORE`."
        raise StoreNotFoundError(message, hint, {"path": str(store)}) from error
    return dict(status)


def write_units(folder: Path, units: Sequence[Mapping[str, Any]]) -> None:
    """Write down which units of an event log are under way, in the place of what was said before.

    Parameters
    ----------
    folder
        The folder ``_live``.
    units
        Plain values, an entry per unit.

    Raises
    ------
    StoreError
        If the file system refuses.
    """
    hidden = folder / f"{_UNITS}.tmp"
    with refusals(folder / _UNITS, "", StoreError):
        hidden.write_bytes(orjson.dumps([dict(unit) for unit in units]))
        hidden.replace(folder / _UNITS)


def read_units(store: Path) -> list[dict[str, Any]]:
    """Return which units of an event log were under way when its follower looked last.

    Parameters
    ----------
    store
        Directory of the store.

    Returns
    -------
    list of dict
        As from `write_units`; empty where no event log is followed, or the file cannot be read.
    """
    with suppress(OSError, ValueError):
        return [dict(unit) for unit in orjson.loads((store / LIVE / _UNITS).read_bytes())]
    return []
