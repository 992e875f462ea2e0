"""The files of a trace: their names, and whether they are as they were written."""

from __future__ import annotations

import json
import os
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import Severity
from pag_graph.store.findings import findings
from pag_graph.store.safe_files import parse_json

if TYPE_CHECKING:
    from pathlib import Path

META = "meta.json"
EVENTS = "events"
"""Folder of the files of events."""
INPUTS = "inputs"
"""Folder of the files that say when input was due; most traces have none."""
NUMBERED = re.compile(r"(.*?)(\d+)\.parquet")
"""Name of a file of events that has its place in a series: the series, and its number."""
FINDINGS = "findings.parquet"
CHECKSUMS = "checksums.json"
DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError)
"""What reading a damaged Parquet file may raise: its own errors, and those of names and bounds that are none."""
CONVERT_AGAIN = "Convert the source again with `pag convert`."
"""What to do about a file that is not what it should be."""


def unreadable(file: Path, error: Exception) -> TraceFormatError:
    """Return what to raise where a Parquet file cannot be read.

    Parameters
    ----------
    file
        The file.
    error
        Out of `DAMAGE`, or a MemoryError.

    Returns
    -------
    TraceFormatError
        It tells apart a file that is not there, one that is too large, and one that is damaged.
    """
    if not file.exists():
        return TraceFormatError(
            f"{file} is not there.",
            "It was moved or removed while it was read, or this machine does not have it.",
            {"file": str(file)},
        )
    if isinstance(error, MemoryError):
        return TraceFormatError(
            f"{file} takes more memory to read than there is: {error}.",
            "Give the process more memory, or write the file with smaller row groups.",
            {"file": str(file)},
        )
    return TraceFormatError(
        f"{file} cannot be read as Parquet: {error}.",
        "The file is truncated or damaged. " + CONVERT_AGAIN,
        {"file": str(file)},
    )


def seal_trace(root: Path) -> None:
    """Write down size and CRC-32 of every file of a trace, so that later damage shows.

    Parameters
    ----------
    root
        Directory of a trace that is whole. All its files are read.
    """
    sums = {name: _checksum(root / name) for name in _file_names(root)}
    (root / CHECKSUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def written_sums(root: Path) -> dict[str, Any]:
    """Return what `seal_trace` wrote down.

    Parameters
    ----------
    root
        Directory of the trace.

    Returns
    -------
    dict
        Per name of a file: ``bytes`` and ``crc32``; empty where nobody wrote it down.

    Raises
    ------
    TraceFormatError
        If the file that says so cannot be read.
    """
    file = root / CHECKSUMS
    if not os.path.lexists(file):
        return {}
    try:
        sums = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read as JSON: {error}."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": str(file)}) from error
    if not isinstance(sums, dict):
        message = f"{file} holds {type(sums).__name__}, not an object."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": str(file)})
    return sums


def changed_files(root: Path) -> list[pa.Table]:
    """Find the files of a trace that are not as they were written.

    Parameters
    ----------
    root
        Directory of the trace. All its files are read, by several threads.

    Returns
    -------
    list of Table
        Empty, also of a trace without checksums, or one table of `PAG_FINDINGS` with a row per file.

    Raises
    ------
    TraceFormatError
        If the checksums cannot be read.
    """
    if not os.path.lexists(root / CHECKSUMS):
        return []
    sums = written_sums(root)
    names = sorted({*sums, *_file_names(root)})
    file_names = _file_names(root)
    with ThreadPoolExecutor() as pool:
        present = dict(zip(file_names, pool.map(lambda name: _checksum(root / name), file_names), strict=True))
    changed = [name for name in names if sums.get(name) != present.get(name)]
    action = "read as it is; it was damaged or edited after it was written, and answers may be wrong"
    return [findings("file_changed", Severity.ERROR, action, rows=len(changed), file=changed)] if changed else []


def _file_names(root: Path) -> list[str]:
    """Return the files of a trace that readers look at, but for the checksums."""
    many = (f"{folder}/{file.name}" for folder in (EVENTS, INPUTS) for file in (root / folder).glob("*.parquet"))
    small = (META, "operators.parquet", "channels.parquet", "workers.parquet", FINDINGS)
    return sorted([*many, *(name for name in small if (root / name).is_file())])


def _checksum(file: Path) -> dict[str, int]:
    size = value = 0
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            size, value = size + len(block), zlib.crc32(block, value)
    return {"bytes": size, "crc32": value}
