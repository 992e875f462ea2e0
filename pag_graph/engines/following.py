"""The loop around a follower: when to look, when to commit, when to end."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pag_graph.builder.clocks import Clock
from pag_graph.builder.commit import commit_derived, nothing_more
from pag_graph.builder.follow import Follower
from pag_graph.builder.frontier import SETTLE_NS
from pag_graph.builder.plan import DEFAULT_SLICE_EVENTS
from pag_graph.errors import InvalidParameterError, StoreError, TraceFormatError
from pag_graph.graph.following import Committed
from pag_graph.model.units import nanoseconds
from pag_graph.motif.alerts import FRONTIER
from pag_graph.runtime import memory
from pag_graph.store.commit import check_target
from pag_graph.store.delta import LIVE
from pag_graph.store.delta_log import note_newest
from pag_graph.store.leftovers import staging, vacuum
from pag_graph.store.live import add_timings, begin, followed, write_status
from pag_graph.store.retention import Keep
from pag_graph.store.tail import MEMORY_BYTES, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from pag_graph.builder.commit import Derive
    from pag_graph.builder.ongoing import Ongoing
    from pag_graph.builder.pending import ClosedEpoch, PendingCommit, Published
    from pag_graph.graph.following import Observer
    from pag_graph.model.enums import RuleSet
    from pag_graph.rules.rows import RuleParameters
    from pag_graph.store.delta import StoreInfo

LOOK_EVERY_S = 0.05
"""How often to ask for new files."""
COMMIT_AFTER_S = 10.0
"""When to commit although no epoch was closed."""

EVENT_BYTES = 1280
"""About how many bytes an event takes while it is worked on: three slices are in memory at a time."""
FEWEST_EVENTS = 20_000
"""Events of a slice however little memory there is: smaller ones cost more by themselves than by their events."""

PORTION_SLICES = 4
"""Slices of events that are read before a step, at most. Files of such a portion are so long that they are joined with
no others, which costs a fifth of the time."""

HELD_EVERY_S = 1.0
"""How often rules about the frontier look at it, while no epoch is closed."""

Ending = Literal["complete", "idle", "stopped"]
"""Why following ended: the source is complete; nothing came for as long as was given; somebody asked for it."""


class Until(NamedTuple):
    """When to stop following."""

    idle_s: float | None = None
    """After how long without anything new; None: never."""
    complete: bool = True
    """Whether to stop when the source is complete."""

    @classmethod
    def of(cls, text: str) -> Until:
        """Read what `pag follow --until` takes.

        Parameters
        ----------
        text
            ``complete``, ``forever``, or ``idle:`` and a time such as ``30s`` or ``500ms``.

        Returns
        -------
        Until
            What it says.

        Raises
        ------
        InvalidParameterError
            If it says nothing of that.
        """
        word, _, length = text.partition(":")
        if text == "complete":
            return cls()
        if text == "forever":
            return cls(complete=False)
        if word == "idle" and length:
            return cls(idle_s=nanoseconds(length) / 1e9)
        message = f"{text!r} does not say when to stop."
        raise InvalidParameterError(message, "Give complete, forever, or a time without anything new: idle:30s.")


class Progress(NamedTuple):
    """How far a follower is."""

    events: int
    """Events that were read."""
    decided: int
    """Those of them that no more of the log can change."""
    epochs: int
    """Epochs that are closed and committed."""
    commits: int
    """How many commits this process made."""
    ongoing: Ongoing | None
    """What the run is doing; None before anything is known of it."""
    unjoined: str | None = None
    """As of `FollowReport`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowReport:
    """What became of following a trace."""

    ending: Ending
    """Why it ended."""
    store: StoreInfo | None
    """The last state that was committed; None where nothing was."""
    events: int
    """Events of the trace so far."""
    commits: int
    """How many commits this process made."""
    closed: int
    """Epochs that are closed."""
    scanned: int
    """Rows that were read by this process, those that were looked at again included."""
    complete: bool
    """Whether the source had ended, so that the store holds all of it."""
    removed: int = 0
    """Epochs that the store no longer holds."""
    untimed: int = 0
    """Epochs of which `pag timings` does not know, because its file could not be written."""
    trouble: str | None = None
    """What could not be written beside the store, if anything."""
    unjoined: str | None = None
    """Why small files of the store could not become large ones the last time, if so: it only has more of them."""


class _Pending(NamedTuple):
    """A commit that another thread makes."""

    commit: PendingCommit
    told: Future[tuple[Published, Committed]]
    """What became of it, and what observers were told, once they were."""


class Following:
    """Follows a trace into a store.

    Parameters
    ----------
    source, store
        Directories.
    rules, parameters, slice_events
        As for a build.
    until
        When to stop.
    commit_every_s
        The least time between two commits.
    replace
        Whether to take the place of a store that exists.
    observers
        To be told of each commit.
    stop
        When set, what is decided is committed, and following ends.
    tell
        Called with how far it is, after each look at something new.
    look_every_s
        How often to look.
    derive
        Makes what is committed beside the graph.
    settle_s
        Time of the trace after which an epoch is answered though messages of it are still unread.
    keep
        What stays in the store of epochs that are answered; the rest is removed, and so are files and entries of
        Delta's logs that only earlier states need.
    feed
        Called before each look: adds to the trace what its own source has, and says whether there was any.
    memory_bytes
        Rows that are not decided stay in memory up to so many bytes; what is beyond them is read again. About as many
        are worked on at a time, where `slice_events` does not say how many.
    """

    def __init__(
        self,
        source: Path,
        store: Path,
        *,
        rules: RuleSet | None = None,
        parameters: RuleParameters | None = None,
        slice_events: int | None = None,
        until: Until | None = None,
        commit_every_s: float = 0.25,
        replace: bool = False,
        observers: Sequence[Observer] = (),
        stop: Event | None = None,
        tell: Callable[[Progress], None] | None = None,
        look_every_s: float = LOOK_EVERY_S,
        derive: Derive = nothing_more,
        settle_s: float = SETTLE_NS / 1e9,
        keep: Keep | None = None,
        feed: Callable[[], bool] = bool,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        for name, seconds in (("commit_every", commit_every_s), ("settle", settle_s)):
            if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
                message = f"{name} is {seconds} s, and must be a time that is not negative."
                raise InvalidParameterError(message)
        self._settle_ns = round(settle_s * 1e9)
        self._source, self._store, self._replace = source, store.absolute(), replace
        self._rules, self._parameters = rules, parameters
        at_work = min(DEFAULT_SLICE_EVENTS, max(memory_bytes // EVENT_BYTES, FEWEST_EVENTS))
        self._slice_events, self._portion = slice_events or at_work, PORTION_SLICES * at_work
        self._until, self._every_s, self._look_s = until or Until(), commit_every_s, look_every_s
        self._observers, self._stop, self._tell = observers, stop or Event(), tell
        self._derive, self._keep, self._memory = derive, keep or Keep(), memory_bytes
        self._feed = feed
        self._commits, self._closed_ns, self._told = 0, 0, -1
        self._pending: _Pending | None = None
        self._unanswered: list[dict[str, int]] = []
        self._untimed: list[dict[str, int]] = []
        self._unnoted: Callable[[], object] | None = None
        self._trouble: str | None = None
        self._tidied: Future[bool] | None = None
        self._report: FollowReport | None = None

    @property
    def report(self) -> FollowReport:
        """What became of it, once it has ended."""
        if self._report is None:
            message = "It goes on."
            raise RuntimeError(message)
        return self._report

    @memory.kept()
    def run(self) -> FollowReport:
        """Follow to the end.

        Returns
        -------
        FollowReport
            What became of it.
        """
        for _ in self.commits():
            pass
        return self.report

    def commits(self) -> Iterator[Committed]:
        """Follow, commit by commit.

        Yields
        ------
        Committed
            After each commit, when all observers know of it.

        Raises
        ------
        StoreExistsError
            If the place of the store is taken by something else.
        StoreConflictError
            If somebody else follows into the store, or it holds another run, or one that was not followed.
        TraceFormatError
            If the trace contradicts itself, or is complete and empty; what was committed stays.
        """
        with ExitStack() as held:
            folder = held.enter_context(followed(self._store))
            found = previous = check_target(self._store, "replace" if self._replace else "append")
            held.enter_context(staging(self._store))
            kept = None if self._replace else previous
            begin(folder, anew=kept is None)
            if kept is not None:
                # Its maker may have been killed before that.
                note_newest(self._store / "epochs", kept.versions["epochs"])
                # What is asked for from now on is answered at once, also where nothing new comes.
                kept = previous = commit_derived(kept, self._derive) or kept
            follower = Follower(
                self._store,
                kept,
                replaced=previous,
                rules=self._rules,
                parameters=self._parameters,
                slice_events=self._slice_events,
                derive=self._derive,
                settle_ns=self._settle_ns,
            )
            held.callback(follower.close)
            # Queries of one commit are answered while the next rows are read; it is waited for before all else ends.
            self._publisher = held.enter_context(ThreadPoolExecutor(1, thread_name_prefix="pag-commit"))
            if kept is not None and kept is not found:
                yield self._tell_of(kept, complete=follower.complete)
            tail = Tail(self._source, follower.done, memory=self._memory, portion=self._portion)
            yield from self._follow(follower, tail)

    def _follow(self, follower: Follower, tail: Tail) -> Iterator[Committed]:
        heard = committed = time.monotonic()
        stepped, new = heard - self._every_s, False
        moved = looked = heard
        while True:
            # What came before somebody asked to stop is read.
            stopped, now = self._stop.is_set(), time.monotonic()
            heard = now if self._feed() else heard
            if tail.look(time.time_ns()):
                heard, new = now, True
                self._say(follower, tail)
            ending = "stopped" if stopped else self._ending(tail, now - heard)
            if ending is not None:
                yield from self._taken(follower, tail)
                yield from self._last(follower, tail, ending)
                return
            if self._pending is not None and self._pending.told.done():
                yield from self._taken(follower, tail)
            due = now - stepped >= self._every_s
            if new and (due or tail.full) and (log := tail.log()) is not None:
                closed = follower.advance(tail.trace(), log)
                self._closed_ns = time.time_ns()
                self._note(follower, tail)
                tail.forget(follower.done)
                # What is not committed yet is new until it is time.
                stepped, new = now if due else stepped, not due
                moved = now if closed else moved
                late = follower.closed > 0 and now - committed >= COMMIT_AFTER_S
                if due and (closed or follower.answers or tail.complete or (late and follower.pending)):
                    yield from self._taken(follower, tail)
                    self._commit(follower, tail)
                    committed = time.monotonic()
            if now - max(moved, looked) >= HELD_EVERY_S:
                looked = now
                yield from self._taken(follower, tail)
                if (held := self._held(follower, now - moved)) is not None:
                    yield held
            self._stop.wait(self._look_s)

    def _held(self, follower: Follower, held_s: float) -> Committed | None:
        """Let rules look at what holds the frontier; what they say is a commit of its own."""
        ongoing, store = follower.ongoing, follower.store
        # Before the first commit nobody knows whether a rule asks; who derives does.
        asked = store is None or (store.live is not None and any(r["query"] == FRONTIER for r in store.live["rules"]))
        if not asked or ongoing is None or ongoing.epoch is None or ongoing.holder is None:
            return None
        row = {"epoch": ongoing.epoch, "held_ns": round(held_s * 1e9), **ongoing.holder._asdict()}
        info = follower.hold(row)
        return None if info is None else self._tell_of(info)

    def _tell_of(
        self, info: StoreInfo, *, closed: tuple[int, ...] = (), answered: tuple[int, ...] = (), complete: bool = False
    ) -> Committed:
        self._commits, self._told = self._commits + 1, info.versions["epochs"]
        commit = Committed(path=self._store, version=self._told, closed=closed, answered=answered, complete=complete)
        for observer in self._observers:
            observer.committed(commit)
        return commit

    def _ending(self, tail: Tail, idle_s: float) -> Ending | None:
        if tail.complete and self._until.complete:
            return "complete"
        # There are files behind a missing one; they are read once it is no longer waited for.
        if self._until.idle_s is not None and idle_s >= self._until.idle_s and not (tail.awaited or tail.waiting):
            return "idle"
        return None

    def _last(self, follower: Follower, tail: Tail, ending: Ending) -> Iterator[Committed]:
        """Commit what there is, and report."""
        log = tail.log()
        if log is None and ending != "stopped":
            message = f"The trace at {self._source} has no events."
            hint = "Was logging switched on before the dataflow was built, and was the log flushed at the end?"
            if ending == "idle":
                hint = "Does the program run, and say what it does? Jobs of Spark are read when they end."
            raise TraceFormatError(message, hint, {"file": str(self._source)})
        if log is not None and not follower.holds(tail.trace()):
            # A stopped follower leaves only what is final: the program runs on, and the next follower resumes.
            show = ending != "stopped" or tail.complete
            closed = follower.advance(tail.trace(), log, show=show)
            self._closed_ns = time.time_ns()
            self._note(follower, tail)
            if show or closed or follower.answers or (follower.closed and follower.pending):
                self._commit(follower, tail)
                yield from self._taken(follower, tail)
        self._remove(follower, exactly=True)
        store = follower.store
        if store is not None and self._commits and store.versions["epochs"] != self._told:
            # What was removed since the last commit took its files: who opens the last one finds what stayed.
            yield self._tell_of(store, complete=follower.complete)
        if self._unnoted is not None:
            # Nobody would write it later: the next follower may find nothing to do.
            self._beside(self._unnoted)
        self._say(follower, tail)
        removed = store and store.removed
        self._report = FollowReport(
            ending=ending,
            store=store,
            events=tail.rows,
            commits=self._commits,
            closed=0 if store is None else store.closed_epochs,
            scanned=follower.scanned,
            complete=tail.complete,
            removed=removed.epochs if removed else 0,
            untimed=len(self._untimed),
            trouble=self._trouble,
            unjoined=follower.unjoined,
        )

    def _commit(self, follower: Follower, tail: Tail) -> None:
        """Begin to commit what the last steps decided, and to tell observers of it."""
        pending = follower.prepare()
        run = pending.prepared.about["run"]
        timings = [self._timing(row, tail, run["clocks"], run["origin_unix_ns"]) for row in pending.closed]

        def publish() -> tuple[Published, Committed]:
            published = pending.publish()
            info, _ = published
            at_commit = {"committed_ns": time.time_ns(), "commit": info.versions["epochs"]}
            closed = tuple(row.epoch for row in pending.closed)
            commit = self._tell_of(info, complete=follower.complete, closed=closed, answered=pending.answered)
            self._unanswered += [row | at_commit for row in timings]
            now, told = {"answered_ns": time.time_ns()}, set(commit.answered)
            self._untimed += [row | now for row in self._unanswered if row["epoch"] in told]
            self._unanswered = [row for row in self._unanswered if row["epoch"] not in told]
            if self._beside(partial(add_timings, self._store / LIVE, self._untimed)):
                self._untimed = []
            return published, commit

        self._pending = _Pending(pending, self._publisher.submit(publish))

    def _taken(self, follower: Follower, tail: Tail) -> Iterator[Committed]:
        """Wait for the commit that was begun, if one was, and go on from it."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        published, commit = pending.told.result()
        follower.take(pending.commit, published)
        yield commit
        self._remove(follower)
        self._say(follower, tail)

    def _remove(self, follower: Follower, *, exactly: bool = False) -> None:
        """Remove what is too old, and what nobody who reads the store needs after that."""
        if self._keep == Keep():
            return
        done = follower.remove(self._keep, exactly=exactly) is not None
        # The process that removed them may have been killed before their files were deleted.
        if done or (exactly and follower.store is not None and follower.store.removed is not None):
            if self._tidied is not None:
                self._tidied.result()
            self._tidied = follower.beside(partial(self._beside, partial(vacuum, self._store, forget=True)))
        if exactly and self._tidied is not None:
            self._tidied.result()

    def _beside(self, write: Callable[[], object]) -> bool:
        """Write what the store itself does without; where that fails the follower goes on, and its report says so."""
        try:
            write()
        except StoreError as error:
            self._trouble = str(error)
            return False
        return True

    def _timing(self, row: ClosedEpoch, tail: Tail, clocks: Mapping[str, Any], origin: int) -> dict[str, int]:
        """Say when an epoch ended, was written, was read, and was found to be closed."""
        arrivals = []
        for worker, offset in clocks["offset_ns"].items():
            clock = Clock(offset_ns=offset, drift=clocks["drift"][worker])
            arrivals.append(tail.arrival(int(worker), clock.own(row.last_ns + origin)))
        return {
            "epoch": row.epoch,
            "ended_ns": row.end_ns + origin,
            "published_ns": max(arrival.published_ns for arrival in arrivals if arrival),
            "read_ns": max(arrival.read_ns for arrival in arrivals if arrival),
            "closed_ns": self._closed_ns,
            "rows": row.rows,
        }

    def _note(self, follower: Follower, tail: Tail) -> None:
        """Write down what the run is doing, for those who ask."""
        if (known := follower.ongoing) is None:
            return
        status = known._asdict() | {
            "holder": known.holder and known.holder._asdict(),
            "workers": [worker._asdict() for worker in known.workers],
            "events": tail.rows,
            "complete": tail.complete,
            "looked_ns": self._closed_ns,
        }
        write = partial(write_status, self._store / LIVE, status)
        self._unnoted = None if self._beside(write) else write

    def _say(self, follower: Follower, tail: Tail) -> None:
        if self._tell is not None:
            known = follower.ongoing, follower.unjoined
            self._tell(Progress(tail.rows, follower.decided, follower.closed, self._commits, *known))
