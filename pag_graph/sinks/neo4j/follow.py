"""Keep a database current while a store is followed: epochs are loaded as they are answered.

Where that takes too long, new epochs get less detail, and old ones lose it where only the latest are to keep it. What
there is to do follows from the store and the database alone, so a follower can be killed and started again at any time.
It holds the lease of the run all the while. Epochs that more of the log has changed since are exchanged, as by an
export.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from pag_graph.builder import saved
from pag_graph.builder.engine import silent
from pag_graph.cypher import load_query
from pag_graph.engines.following import Until
from pag_graph.graph.run import Run
from pag_graph.neo4j_server import lease as leases
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.load_steps import describe, prepare_schema
from pag_graph.sinks.neo4j.query import plain_errors
from pag_graph.sinks.neo4j.retention import KeepDetail, trim
from pag_graph.sinks.neo4j.told import Told
from pag_graph.sinks.neo4j.writer import Writer, patiently
from pag_graph.store.needed import EpochsNeeded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from threading import Event

    import neo4j

    from pag_graph.builder.build import Progress
    from pag_graph.neo4j_server.lease import Lease
    from pag_graph.sinks.neo4j.connection import Connection

LOOK_EVERY_S = 0.25
"""How often to ask the store for a new commit."""
MAX_LAG_S = 30.0
"""For how long answered epochs may wait before new ones are loaded with less detail."""
LOGS_EVERY_S = 60.0
"""How often workers learn which files hold their events, lists that grow with the trace and that few ask for, and who
runs the same, which all edges of a run say where the source states what workers do."""
_NONE = 2**62
"""No epoch is after this one."""
_CAUGHT_UP = 1 / 3
"""Below this part of the greatest lag, new epochs are loaded with more detail again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """How to follow a store."""

    load: loader.LoadOptions = field(default_factory=lambda: replace(loader.LoadOptions(), detail=Detail.WAITS))
    """How to load; its detail is the most that new epochs get."""
    until: Until = field(default_factory=Until)
    max_lag_s: float = MAX_LAG_S
    keep: KeepDetail = field(default_factory=KeepDetail)
    """How much detail the latest epochs keep; earlier ones have less."""
    look_every_s: float = LOOK_EVERY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFollowReport:
    """What a follower has loaded."""

    run: str
    store: str
    ending: Literal["complete", "idle", "stopped"]
    version: int
    """Version of the store's table `epochs` that is in the database now."""
    epochs: int
    """Epochs that were loaded; one that was exchanged counts again."""
    by_detail: Mapping[str, int]
    """Of them, how many with which detail."""
    max_lag_s: float
    """The longest time that answered epochs waited."""
    trimmed: int = 0
    """How often an epoch lost detail, or all of it."""
    missed: int = 0
    """Epochs that had been removed from the store before they were loaded. Where the database is to keep only so many,
    those that were missing already when following began do not count: it may have had them."""


def follow_store(
    path: Path,
    connection: Connection,
    *,
    options: FollowOptions | None = None,
    stop: Event | None = None,
    progress: Progress | None = None,
) -> GraphFollowReport:
    """Load epochs of a store as they are answered, until it is complete or somebody asks to stop.

    Parameters
    ----------
    path
        A store that is followed, appended to, or complete.
    connection
        The database.
    options
        How.
    stop
        Ends it at the next look.
    progress
        Called with (label, done, all).

    Returns
    -------
    GraphFollowReport
        What was done. A step costs the epochs that are new, those that they have changed, and a look at the numbers of
        all epochs.

    Raises
    ------
    StoreNotFoundError
        If there is no store.
    Neo4jError
        If the server cannot be reached, refuses the login or refuses to write; or if another load of the run took over.
    """
    options = options or FollowOptions()
    run = Run(path)
    run_id = str(run.info.run["run_id"])
    with connection.open() as driver, plain_errors(f"follow run {run_id}"):
        driver.verify_connectivity()
        prepare_schema(driver)
        lanes = options.load.sessions or loader.default_sessions()
        with (
            EpochsNeeded(path) as needed,
            leases.held(driver, run_id, lanes=lanes, lease_s=options.load.lease_s) as lease,
        ):
            following = _Following(run, driver, lease, options, progress or silent, needed)
            # As long as anybody refers to a state of the store, nothing of it and after it is cleaned away.
            del run
            ending = following.go(stop)
    return GraphFollowReport(
        run=run_id,
        store=str(path.absolute()),
        ending=ending,
        version=following.run.info.versions["epochs"],
        epochs=sum(following.by_detail.values()),
        by_detail={str(detail): count for detail, count in following.by_detail.items()},
        max_lag_s=following.max_lag_s,
        trimmed=following.trimmed,
        missed=following.missed,
    )


class Pace:
    """Chooses the detail of new epochs: less by a step where they wait too long, more when they no longer do.

    Parameters
    ----------
    most
        The most detail that an epoch gets.
    max_lag_s
        For how long epochs may wait.
    """

    def __init__(self, most: Detail, max_lag_s: float) -> None:
        self._steps = [detail for detail in Detail if most.covers(detail)]
        self._place = len(self._steps) - 1
        self._max_lag_s = max_lag_s

    @property
    def detail(self) -> Detail:
        """What new epochs are loaded with."""
        return self._steps[self._place]

    def heed(self, lag_s: float) -> None:
        """Take into account for how long epochs have waited."""
        if lag_s > self._max_lag_s:
            self._place = max(self._place - 1, 0)
        elif lag_s < self._max_lag_s * _CAUGHT_UP:
            self._place = min(self._place + 1, len(self._steps) - 1)


class _Following:
    """A store that is followed."""

    def __init__(
        self,
        run: Run,
        driver: neo4j.Driver,
        lease: Lease,
        options: FollowOptions,
        progress: Progress,
        needed: EpochsNeeded,
    ) -> None:
        self.driver, self.lease, self.options, self.progress, self._needed = driver, lease, options, progress, needed
        self._told = Told()
        self._waiting: deque[tuple[int, float | None]] = deque()
        """For states that were looked at: their last answered epoch, and since when it may have been so; None: it was
        when following began."""
        self._looked: float | None = None
        self._look_at(run)
        self.by_detail: dict[Detail, int] = {}
        self.max_lag_s = 0.0
        self.trimmed = 0
        self._there: set[int] | None = None
        """Epochs that the database shows, which nobody else changes meanwhile; None: not looked at yet."""
        self._passed = 0
        """Epochs that were there, and that the store no longer has; others of these are still in `_there`."""
        self._missing_before = 0
        """Removed epochs that do not count as missed."""
        self._untrimmed: int | None = None
        """Epochs that were loaded since detail was last taken from some; None: not looked at yet."""
        self._logs_told: tuple[str, float] | None = None
        """For which commit all was told that is known of the run, and when; None: not yet."""
        self._pace = Pace(options.load.detail, options.max_lag_s)
        self._writer = Writer(driver, lease)

    def go(self, stop: Event | None) -> Literal["complete", "idle", "stopped"]:
        """Load what there is, again and again."""
        news = time.monotonic()
        self._trim(exactly=False)
        while stop is None or not stop.is_set():
            left = self._step()
            if left:
                self._trim(exactly=False)
                self._tell(at_once=False)
                news = time.monotonic()
                if news - self._asked > self.options.max_lag_s * _CAUGHT_UP:
                    self._newer(with_all=True)
                continue
            until = self.options.until
            ending: Literal["complete", "idle"] | None = None
            if until.complete and self._complete:
                ending = "complete"
            elif until.idle_s is not None and time.monotonic() - news > until.idle_s:
                ending = "idle"
            self._tell(at_once=ending is not None)
            if ending is not None:
                self._trim(exactly=True)
                return ending
            if self._newer():
                news = time.monotonic()
            else:
                # The right to write lasts as long as it is used.
                patiently(lambda: self._writer.write_all([]), self.options.load.patience_s, self._writer)
                time.sleep(self.options.look_every_s)
        return "stopped"

    @property
    def missed(self) -> int:
        """Epochs that the store no longer has, and that were not loaded."""
        removed = self.run.info.removed
        if removed is None or self._there is None:
            return 0
        loaded = self._passed + sum(epoch <= removed.last_epoch for epoch in self._there)
        return removed.epochs - loaded - self._missing_before

    def _tell(self, *, at_once: bool) -> None:
        """Bring up to date what is known of the run and came without an epoch, such as alerts; logs now and then."""
        commit = self.run.info.commit_id
        told_commit, told_at = self._logs_told or (None, 0.0)
        logs = told_commit != commit and (at_once or told_commit is None or time.monotonic() - told_at > LOGS_EVERY_S)
        # Of a run that shows nothing there is nothing to be told but alerts.
        is_worthwhile = self._there or self.run.info.versions.get("alerts") is not None
        if not is_worthwhile or (not logs and self._told.has(self.run)):
            return

        def tell() -> None:
            describe(self._writer, self._reader, self.options.load.batch_rows, logs=logs)
            self._told.arrived(self.run)

        patiently(tell, self.options.load.patience_s, self._writer)
        if logs:
            self._logs_told = commit, time.monotonic()

    def _trim(self, *, exactly: bool) -> None:
        """Take detail from epochs that have more than they shall; not looked for where they must be too few."""
        keep = self.options.keep
        if keep.steps and (exactly or self._untrimmed is None or keep.many(self._untrimmed)):
            count = len(trim(self.run, self._writer, keep, self.options.load, exactly=exactly))
            self.trimmed += count
            if count or self._untrimmed is None:
                self._untrimmed = 0

    def _look_at(self, run: Run) -> None:
        """Take a state of the store, and say whether the log has ended, all of which is built."""
        kept = saved.load(run.info)
        self.run, self._complete = run, kept is None or kept.complete
        self._reader = Reader(run, self.options.load.labels, self._told)
        self._fresh_epochs: pl.DataFrame | None = None
        """Answered epochs of this state that are to be there and are not; None: not looked at yet."""
        self._last_answered = max(self._answered()["epoch"].tail(1), default=-1)
        self._waiting.append((self._last_answered, self._looked))
        self._looked = self._asked = time.monotonic()

    def _newer(self, *, with_all: bool = False) -> bool:
        """Look for a later state of the store, and go on from it; `with_all`: if it has all that is to be loaded."""
        latest = Run(self.run.info.path)
        self._asked = time.monotonic()
        newer = latest.info.versions["epochs"] > self.run.info.versions["epochs"]
        if not newer:
            self._looked = self._asked
        elif with_all and self._has_lost(latest):
            return False
        else:
            self._look_at(latest)
        return newer

    def _has_lost(self, latest: Run) -> bool:
        """Say whether epochs that are to be loaded are no longer in a later state."""
        removed, fresh = latest.info.removed, self._fresh_epochs
        return removed is not None and fresh is not None and bool((fresh["epoch"] <= removed.last_epoch).any())

    def _step(self) -> bool:
        """Load some of the epochs that are answered and not there; say whether there were any."""
        awaited = None if self._there is None else self._fresh(self._there)
        # Of a known database, nothing but what lies behind the first epoch to load.
        since = () if awaited is None else (awaited[0] if awaited else _NONE,)
        known = loader.state(self.driver, self.run, *since)
        columns = list(loader.listed(known, "epochs", "details", "published", "highest"))
        highest = {epoch: most for epoch, detail, published, most in columns if detail and published}
        if self._there is None:
            self._there = set(highest)
            # Hidden because more of the log has changed them, and gone before they were loaded again.
            hidden = {epoch for epoch, detail, published, _ in columns if detail and not published}
            self._passed = len(hidden.difference(self.run.epochs["epoch"]))
            if self.options.keep.most(_NONE) is None:
                self._missing_before = self.missed
        built = self.run.info.run["last_closed_epoch"], self.run.info.events
        changed: set[int] = set()
        if known and (known[0]["last_closed_epoch"], known[0]["events"]) != built:
            first_open = min(known[0]["last_closed_epoch"], built[0]) + 1
            # What the store no longer has stays as it is.
            changed = {epoch for epoch, most in highest.items() if most >= first_open} & {*self.run.epochs["epoch"]}
        fresh = self._fresh(self._there) if awaited is None else awaited
        self._needed.since(fresh[0] if fresh else self._last_answered + 1)
        if not (fresh or changed):
            return False
        self._load(sorted({*fresh, *changed}), self._lag_s(fresh), known)
        self._there.update(fresh)
        if self._fresh_epochs is not None:
            self._fresh_epochs = self._fresh_epochs.slice(len(fresh))
        if len(self._there) > 2 * self.run.epochs.height:
            # The store keeps the latest epochs alone; older ones cannot come again.
            count = len(self._there)
            self._there.intersection_update(self.run.epochs["epoch"])
            self._passed += count - len(self._there)
        return True

    def _fresh(self, there: set[int]) -> list[int]:
        """Return the first answered epochs that are to be there and are not: as many as are loaded together."""
        if self._fresh_epochs is None:
            rows = self._answered()
            if (most_epochs := self.options.keep.epochs) is not None:
                rows = rows.tail(most_epochs)
            lacking = {*rows["epoch"]} - there
            self._fresh_epochs = rows.filter(pl.col("epoch").is_in(sorted(lacking)))
        # No more than one group (`grouped`), or half of the transactions would be for one epoch; the first in any case.
        room = pl.max_horizontal(pl.col("edges").first(), self.options.load.group_edges)
        return self._fresh_epochs.filter(pl.col("edges").cum_sum() <= room)["epoch"].to_list()

    def _lag_s(self, fresh: list[int]) -> float:
        """Return for how long the first of some epochs may have waited: since the look before the one that found it."""
        while self._waiting and (not fresh or self._waiting[0][0] < fresh[0]):
            self._waiting.popleft()
        if not self._waiting:
            return 0.0
        now = time.monotonic()
        last, since = self._waiting[0]
        if since is None:
            self._waiting[0] = last, now
        return now - (now if since is None else since)

    def _answered(self) -> pl.DataFrame:
        """Return the epochs that are answered, ascending: ``epoch`` and ``edges``."""
        rows = self.run.epochs.select("epoch", "edges").sort("epoch")
        if self._complete:
            return rows
        return rows.filter(pl.col("epoch") <= self.run.info.run["last_answered_epoch"])

    def _most(self, epoch: int) -> Detail:
        """Return the most detail that an epoch keeps, as things are."""
        later = self._answered().filter(pl.col("epoch") > epoch).height
        return self.options.keep.most(later) or Detail.SUMMARY

    def _load(self, epochs: list[int], lag_s: float, known: Sequence[Mapping[str, Any]]) -> None:
        self.max_lag_s = max(self.max_lag_s, lag_s)
        self._pace.heed(lag_s)
        # What is loaded to be removed again at once costs time alone.
        detail = min(self._pace.detail, self._most(epochs[-1]), key=list(Detail).index)
        mark = {
            "run": self.lease.run,
            "store": str(self.run.info.path.absolute()),
            "detail": str(detail),
            "to_version": self.run.info.versions["epochs"],
            "to_commit": self.run.info.commit_id,
            "product_version": version("pag-graph"),
            "last_epoch": epochs[-1],
            "lag_s": lag_s,
        }
        done = loader.load_run(
            self.run,
            self.driver,
            epochs=epochs,
            options=replace(self.options.load, detail=detail),
            progress=self.progress,
            held=loader.Held(self.lease, self._reader, ((load_query("load/followed").text, mark),), known),
        )
        self.by_detail[detail] = self.by_detail.get(detail, 0) + len(done.epochs)
        if self._untrimmed is not None:
            self._untrimmed += len(done.epochs)
