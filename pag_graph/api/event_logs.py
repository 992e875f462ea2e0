"""Following an event log of Spark: what is added to a trace before it is looked at."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.store.delta import LIVE
from pag_graph.store.live import write_units
from pag_graph.store.meta import refuse_store
from pag_graph.store.trace_files import META

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from pag_graph.api.following import FollowOptions
    from pag_graph.sources.spark.follow import EventLogFeed

__all__ = ["fed", "trace_beside"]

_TELL_EVERY_S = 1.0


def trace_beside(store: Path) -> Path:
    """Return where the trace of an event log is kept that is followed into a store.

    Examples
    --------
    >>> trace_beside(Path("runs/app.pag")).as_posix()
    'runs/app.pag.trace'
    """
    return store.with_name(f"{store.name}.trace")


@contextmanager
def fed(
    source: str | os.PathLike[str], store: str | os.PathLike[str], options: FollowOptions
) -> Iterator[tuple[Path, Callable[[], bool]]]:
    """Make a trace of an event log, as long as the block runs; a trace stays what it is.

    Parameters
    ----------
    source, store, options
        As for `follow`.

    Yields
    ------
    trace
        What is to be followed.
    feed
        To be called before each look at it.

    Raises
    ------
    InvalidParameterError
        If there are options for event logs, and it is a trace; or it is a log that does not grow.
    """
    path, place = Path(source).absolute(), Path(store).absolute()
    epochs, trace = options.get("epochs"), options.get("trace")
    if epochs is None:
        _refuse_others(path)
    if epochs is None and not _is_log(path):
        if trace is not None:
            message = f"{path} is not an event log, so its trace is not written to another place."
            raise InvalidParameterError(message, "Leave out trace, or give epochs where the log is not there yet.")
        yield path, bool
        return
    from pag_graph.sources.spark.follow import EventLogFeed

    trace_place = trace_beside(place) if trace is None else Path(trace).absolute()
    feed = EventLogFeed(path, trace_place, unit=epochs or "batch", replace=options.get("replace", False))
    try:
        yield trace_place, _Teller(feed, place, options.get("units")).look
    finally:
        feed.close()


def _is_log(path: Path) -> bool:
    """Say whether it is an event log, and no trace; of a trace that is not there yet nobody knows more."""
    from pag_graph.sources.spark.logfiles import looks_like_log

    return path.is_file() or (path.is_dir() and looks_like_log(path))


def _refuse_others(path: Path) -> None:
    """Refuse what is there and will be neither a trace nor an event log: nothing that is waited for would come."""
    from pag_graph.sources import detect_format
    from pag_graph.sources.spark.logfiles import looks_like_log

    if not path.exists() or (path / META).exists() or looks_like_log(path):
        return
    refuse_store(path)
    message, hint = f"{path} holds event logs, and is none itself.", "Name the log to follow."
    try:
        if not (path.is_dir() and any(map(looks_like_log, path.iterdir()))):
            form = detect_format(path)
            message = f"{path} is in the format {form}, which cannot be followed: it is written when all has ended."
            hint = "Convert it (`pag convert`), and build its trace (`pag build`)."
    except (OSError, TraceFormatError):
        # Nobody knows yet what it will be.
        return
    raise InvalidParameterError(message, hint, {"path": str(path)})


class _Teller:
    """Looks at the log, and says now and then what is under way."""

    def __init__(self, feed: EventLogFeed, store: Path, units: Callable[[list[dict[str, Any]]], None] | None) -> None:
        self._feed, self._folder, self._units = feed, store / LIVE, units
        self._told = 0.0

    def look(self) -> bool:
        new = self._feed.look()
        if new or time.monotonic() - self._told >= _TELL_EVERY_S:
            self._told = time.monotonic()
            units = self._feed.ongoing(time.time_ns() // 1_000_000)
            if self._folder.is_dir():
                write_units(self._folder, units)
            if self._units is not None:
                self._units(units)
        return new
