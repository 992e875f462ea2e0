"""Finds event logs: files, rolling directories, and directories that hold several logs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.errors import TraceFormatError
from pag_graph.sources.spark.codecs import Stopped, decode

if TYPE_CHECKING:
    import os

__all__ = ["PART", "LogFiles", "Skipped", "find_logs", "looks_like_log", "scan_logs"]

_DATED = re.compile(r"^eventlog-(\d{4}-\d\d-\d\d--\d\d-\d\d)(?:\.\w{1,10})?$", re.ASCII)
"""Parts of a log of Databricks that were rolled; what follows the last of them is ``eventlog``."""

_BESIDE = re.compile(r"^(?:appstatus_.*|stdout.*|stderr.*|log4j.*|.*\.crc|_SUCCESS)$", re.ASCII)
"""Files that lie beside event logs and are none."""

PART = re.compile(r"^events_(\d{1,15})_.*$", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The files of one log, in order."""

    name: str
    """Name of the file or directory, as people know the log."""
    files: tuple[Path, ...]
    """Parts in the order in which they were written."""
    missing: int = 0
    """Parts that are not there."""
    in_progress: bool = False
    """Whether the name says that the application still ran."""


class Skipped(NamedTuple):
    """A file or directory that is left out of those in a directory."""

    name: str
    reason: str


def scan_logs(path: str | os.PathLike[str]) -> tuple[list[LogFiles], list[Skipped]]:
    """Return the logs at a place, and what is there and no log.

    Parameters
    ----------
    path
        File, rolling directory, or directory of both.

    Returns
    -------
    logs
        In the order of their names, at least one.
    skipped
        Entries of a directory that are left out, but for those that Spark is known to put beside its logs.

    Raises
    ------
    TraceFormatError
        If there is nothing that could be a log.
    """
    skipped: list[Skipped] = []
    return _find(Path(path), skipped), skipped


def find_logs(path: str | os.PathLike[str]) -> list[LogFiles]:
    """Return the logs at a place: a file, a rolling directory, or a directory of both.

    Parameters
    ----------
    path
        File or directory.

    Returns
    -------
    list of LogFiles
        In the order of their names, at least one.

    Raises
    ------
    TraceFormatError
        If there is nothing that could be a log.
    """
    return scan_logs(path)[0]


def _find(root: Path, skipped: list[Skipped]) -> list[LogFiles]:
    if root.is_file():
        return [LogFiles(name=_log_name(root), files=(root,), in_progress=root.name.endswith(".inprogress"))]
    hint = "Give the file or directory below spark.eventLog.dir."
    if not root.is_dir():
        reason = f"{root} is neither a file nor a directory" if root.exists() else f"There is no event log at {root}"
        message = f"{reason}."
        raise TraceFormatError(message, hint, {"file": str(root)})
    try:
        logs = _logs_in(root, skipped)
    except OSError as error:
        message = f"{root} cannot be read: {error.strerror or error}."
        raise TraceFormatError(message, "Look at the directory and who may read it.", {"file": str(root)}) from error
    if not logs:
        message = f"{root} holds no event log."
        raise TraceFormatError(message, hint, {"file": str(root)})
    return logs


def _logs_in(root: Path, skipped: list[Skipped]) -> list[LogFiles]:
    if rolled := _rolled(root):
        return [rolled]
    entries = [entry for entry in sorted(root.iterdir()) if not entry.name.startswith(".")]
    logs: list[LogFiles] = []
    if dated := _dated(root, entries):
        logs.append(dated)
        entries = [entry for entry in entries if entry not in dated.files]
    for entry in entries:
        if entry.is_dir():
            if rolled := _rolled(entry) or _dated(entry, sorted(entry.iterdir())):
                logs.append(rolled)
            else:
                skipped.append(Skipped(_log_name(entry), "a directory without parts of a log"))
        elif looks_like_log(entry):
            logs.append(LogFiles(name=_log_name(entry), files=(entry,), in_progress=entry.name.endswith(".inprogress")))
        elif not _BESIDE.match(entry.name):
            skipped.append(Skipped(_log_name(entry), _why_none(entry)))
    return sorted(logs, key=lambda log: log.name)


def _dated(folder: Path, entries: list[Path]) -> LogFiles | None:
    """Return the parts that Databricks wrote of one log, by their dates, if there are any."""
    dated = sorted((match[1], entry) for entry in entries if (match := _DATED.match(entry.name)) and entry.is_file())
    if not dated:
        return None
    last_part = [entry for entry in entries if entry.name == "eventlog" and entry.is_file()]
    return LogFiles(name=_log_name(folder), files=(*(entry for _, entry in dated), *last_part), in_progress=False)


def _why_none(entry: Path) -> str:
    """Say why a file is no event log."""
    try:
        if not entry.is_file():
            return "no file"
        if not entry.stat().st_size:
            return "empty"
        stops: list[Stopped] = []
        head = next(decode(entry, stopped=stops.append), b"")
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if stops and not head:
        return f"{stops[0].reason} at byte {stops[0].offset}"
    return "no event of Spark at its begin"


def _log_name(path: Path) -> str:
    """Return the name of a file or directory as text; bytes that are none are replaced."""
    return path.name.encode(errors="surrogateescape").decode(errors="replace")


def looks_like_log(path: Path) -> bool:
    """Return whether a file or directory is one event log, by its names and first bytes."""
    try:
        if path.is_dir():
            return _rolled(path) is not None
        # Nothing else is opened: a pipe would wait for somebody to write.
        return path.is_file() and _looks_like_log(path)
    except OSError:
        return False


def _looks_like_log(file: Path) -> bool:
    head = next(decode(file, stopped=lambda _: None), b"")
    return head.lstrip()[:1] == b"{" and b'"Event"' in head[:4096]


def _rolled(folder: Path) -> LogFiles | None:
    parts: dict[int, Path] = {}
    compact = -1
    for entry in folder.iterdir():
        match = PART.match(entry.name)
        if match is None or not entry.is_file():
            continue
        number = int(match[1])
        if entry.name.endswith(".compact"):
            compact = max(compact, number)
            parts[number] = entry
        else:
            parts.setdefault(number, entry)
    if not parts:
        return None
    # A compacted file stands for its own number and all before it.
    numbers = sorted(number for number in parts if number >= compact)
    first_number = numbers[0] if compact >= 0 else 1
    missing = numbers[-1] - first_number + 1 - len(numbers)
    running = any(entry.name.endswith(".inprogress") for entry in folder.glob("appstatus_*"))
    return LogFiles(
        name=_log_name(folder),
        files=tuple(parts[number] for number in numbers),
        missing=max(missing, 0),
        in_progress=running,
    )
