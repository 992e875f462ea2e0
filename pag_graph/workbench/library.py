"""The stores that the workbench shows, each opened once for every state that was committed."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from pag_graph.analyses.slack import SlackParameters, slack
from pag_graph.analyses.view import view_of
from pag_graph.api import Pag, alerts
from pag_graph.errors import PagGraphError, StoreNotFoundError
from pag_graph.model.units import printable
from pag_graph.store.delta_log import commit_file
from pag_graph.store.live import read_status
from pag_graph.workbench.lanes import Lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import polars as pl

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.workbench.paths import DrawnPath

OPEN = 8
"""Runs that are open at a time."""
DEEPEST = 4
"""Levels of folders below a given one in which stores are looked for."""
MOST = 1_000
"""Stores that are listed."""
_ID = 12
_MOMENT_NS = 10_000_000_000


@dataclass
class AskedWindow:
    """A window, and what was worked out of it."""

    snapshot: Snapshot
    lock: Lock = field(default_factory=Lock)
    _slack: pl.DataFrame | None = None

    @property
    def slack(self) -> pl.DataFrame:
        """Rows of the slack of its activities; worked out once."""
        with self.lock:
            if self._slack is None:
                self._slack = slack(view_of(self.snapshot), SlackParameters())
            return self._slack


@dataclass
class Opened:
    """A run as of one commit, and what is kept of it for the next question."""

    pag: Pag
    log: str | None = None
    """Name of the event log that its graph was made of by the workbench itself; None for a store that was there."""
    lock: Lock = field(default_factory=Lock)
    paths: OrderedDict[Any, DrawnPath] = field(default_factory=OrderedDict)
    window_lock: Lock = field(default_factory=Lock)
    asked: AskedWindow | None = None
    """The window in which something was clicked or replayed last."""

    @property
    def title(self) -> str:
        """What a page calls it."""
        return self.log or self.pag.run.info.path.name

    @property
    def version(self) -> int:
        """Version of the commit."""
        return int(self.pag.run.info.versions["epochs"])

    @cached_property
    def lanes(self) -> Lanes:
        """Pictures of the run."""
        return Lanes(self.pag.run)

    def ask(self, chosen: Mapping[str, Any]) -> AskedWindow:
        """Return a window to be looked at in detail; it is kept until another one is asked for."""
        window = self.pag.run.choose(**chosen)
        with self.window_lock:
            if self.asked is None or self.asked.snapshot.window != window:
                self.asked = AskedWindow(self.pag.run.snapshot(window))
            return self.asked

    @property
    def commit(self) -> str:
        """Name of the commit; a store that was removed and built again has the same versions, and other commits."""
        return self.pag.run.info.commit_id

    def newer(self) -> bool:
        """Say whether there is a later commit, or another store in the place of this one, or none."""
        return self._committed != self._state() or commit_file(self._epochs, self.version + 1).exists()

    def __post_init__(self) -> None:
        """Remember which file the commit is."""
        self._epochs = self.pag.run.info.path / "epochs"
        self._committed = self._state()

    def _state(self) -> tuple[int, int, int] | None:
        """Return what tells the file of the commit from another one at its place; None where there is none."""
        try:
            found = commit_file(self._epochs, self.version).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


class Library:
    """Stores below some folders.

    Parameters
    ----------
    places
        Stores, event logs of Spark, or folders of them.

    Raises
    ------
    StoreNotFoundError
        If there is no such place.
    """

    def __init__(self, places: Iterable[Path]) -> None:
        self.places = [place.absolute() for place in places]
        for place in self.places:
            if not place.exists():
                message = f"There is nothing at {place}."
                hint = "Give stores, event logs of Spark, or folders of them."
                raise StoreNotFoundError(message, hint, {"path": str(place)})
        self.graph_of_log: Callable[[str], tuple[str, Path] | None] = lambda _: None
        """Returns, for the name of an event log in addresses, its own name and the store of its graph."""
        self._open: OrderedDict[str, Opened] = OrderedDict()
        self._lock = Lock()

    def stores(self) -> dict[str, Path]:
        """Return the stores by their names in addresses, which say nothing of where they are; in order of paths."""
        paths: list[Path] = []
        for place in self.places:
            paths += _stores_below(place) if place.is_dir() else []
        return {name_of(path): path for path in sorted(set(paths))[:MOST]}

    def open(self, name: str) -> Opened:
        """Return a store as of its last commit.

        Parameters
        ----------
        name
            As in `stores`, or that of an event log, whose graph it is then.

        Returns
        -------
        Opened
            The same until there is a later commit.

        Raises
        ------
        StoreNotFoundError
            If there is no such store.
        StoreError
            If it cannot be read.
        """
        opened = self._known(name)
        if opened is not None:
            return opened
        # Only requests for a graph that is being built wait for it.
        log, path = None, self.stores().get(name)
        if path is None and (graph := self.graph_of_log(name)) is not None:
            log, path = graph
        if path is None:
            message = f"There is no run {name!r} here."
            raise StoreNotFoundError(message, "Go back to the list of runs.", {"run": name})
        with self._lock:
            opened = self._open.get(name)
            if opened is None or opened.newer():
                opened = self._open[name] = Opened(Pag(path), log)
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
            return opened

    def _known(self, name: str) -> Opened | None:
        """Return a run that is open as of its last commit."""
        with self._lock:
            opened = self._open.get(name)
            if opened is None or opened.newer():
                return None
            self._open.move_to_end(name)
            return opened

    def close(self, name: str) -> None:
        """Forget a run whose store is replaced or removed."""
        with self._lock:
            self._open.pop(name, None)

    def store_of_trace(self, trace_id: str) -> str | None:
        """Return the name of a run that was built of a trace; None where there is none."""
        for name in self.stores():
            with suppress(PagGraphError, OSError):
                if self.open(name).pag.run.info.run["trace_id"] == trace_id:
                    return name
        return None

    def rows(self) -> list[dict[str, Any]]:
        """Return what the list of runs shows, a row per store; of one that cannot be read, why."""
        return [self._row(name, path) for name, path in self.stores().items()]

    def _row(self, name: str, path: Path) -> dict[str, Any]:
        row: dict[str, Any] = {"store": name, "title": printable(path.name), "place": printable(str(path.parent))}
        try:
            opened = self.open(name)
            run = opened.pag.run
            slowest = run.slowest()
        except (PagGraphError, OSError) as error:
            return {**row, "error": printable(error.message if isinstance(error, PagGraphError) else str(error))}
        severities = run.scan("findings").collect()["severity"]
        return {
            **row,
            "run": run.info.run["run_id"],
            "rules": str(run.rules),
            "workers": len(run.workers),
            "events": run.info.events,
            "span_ns": run.end_ns,
            "epochs": run.epochs.height,
            "slowest": slowest.epoch,
            "slowest_ns": slowest.span_ns,
            "findings": {level: int((severities == level).sum()) for level in ("error", "warning", "info")},
            "alerts": _open_alerts(run),
            "live": is_live(path),
            "system": run.info.run["source"]["system"],
            "aligned": run.aligned,
            "version": opened.version,
        }


def is_live(store: Path) -> bool:
    """Say whether somebody follows a trace into a store, and looked a moment ago."""
    try:
        status = read_status(store)
    except StoreNotFoundError:
        return False
    return not status["complete"] and time.time_ns() - status["looked_ns"] < _MOMENT_NS


def _open_alerts(run: Run) -> int:
    """Return how many alerts of a run are not resolved."""
    events: dict[str, str] = {}
    for row in alerts(run.info.path).to_pylist():
        events[row["id"]] = row["event"]
    return sum(event != "resolved" for event in events.values())


def _stores_below(place: Path) -> list[Path]:
    stores: list[Path] = []
    level = [place]
    for _ in range(DEEPEST + 1):
        next_level: list[Path] = []
        for folder in level:
            try:
                if (folder / "epochs" / "_delta_log").is_dir():
                    stores.append(folder)
                else:
                    next_level += [entry for entry in folder.iterdir() if _is_folder(entry)]
            except OSError:
                # A folder that may not be read shows nothing.
                continue
        level = next_level
        if len(stores) >= MOST:
            break
    return stores


def _is_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink() and not entry.name.startswith((".", "_"))


def name_of(path: Path) -> str:
    """Return a name for addresses, which says nothing of where something is."""
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:_ID]
