"""A trace that grows, built by Spark's executors: each micro-batch of a stream appends what is new.

The stream carries names of files alone; a batch is an append (`pag_graph.builder.build`), whose tasks read the files
themselves. The store is the truth: a batch that comes again finds nothing new, and a checkpoint that is lost costs one
batch that finds nothing new.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock
from typing import TYPE_CHECKING

from pag_graph.builder.build import build
from pag_graph.builder.commit import nothing_more
from pag_graph.builder.follow import clocks_are_unknown, followable_rules
from pag_graph.engines.following import Until
from pag_graph.engines.spark import SparkEngine
from pag_graph.engines.spark_files import NAME, register
from pag_graph.errors import EngineError, InvalidParameterError
from pag_graph.store.commit import check_target
from pag_graph.store.live import followed
from pag_graph.store.log import TraceLog
from pag_graph.store.meta import read_meta
from pag_graph.store.trace import Trace
from pag_graph.store.trace_files import META

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pag_graph.builder.commit import Derive
    from pag_graph.builder.report import BuildReport
    from pag_graph.engines.following import Ending
    from pag_graph.model.enums import RuleSet
    from pag_graph.rules.rows import RuleParameters
    from pag_graph.store.delta import StoreInfo

_POLL_S = 0.1
_TRIES = 3
"""How often a stream that fails is begun again without a batch between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFollowReport:
    """What became of following a trace on Spark."""

    ending: Ending
    """Why it ended."""
    store: StoreInfo | None
    """The last state that was committed; None where nothing was."""
    batches: int
    """Micro-batches of this process."""
    commits: int
    """How often something new was committed: by a batch, or by the looks before the first and after the last one."""
    batch_s: tuple[float, ...]
    """How long each of these took, in their order."""

    def summary(self) -> dict[str, object]:
        """Return what became of it as plain values.

        Returns
        -------
        dict
            `ending`, `run_id`, `versions`, `batches` and `commits`.
        """
        return {
            "ending": self.ending,
            "run_id": None if self.store is None else self.store.run["run_id"],
            "versions": {} if self.store is None else dict(self.store.versions),
            "batches": self.batches,
            "commits": self.commits,
        }


def follow_on_spark(
    source: Path,
    store: Path,
    *,
    spark: SparkSession | None = None,
    rules: RuleSet | None = None,
    parameters: RuleParameters | None = None,
    slice_events: int | None = None,
    until: Until | None = None,
    every_s: float = 1.0,
    replace: bool = False,
    checkpoint: Path | None = None,
    stop: Event | None = None,
    derive: Derive = nothing_more,
    tell: Callable[[StoreInfo, float], None] | None = None,
) -> SparkFollowReport:
    """Follow a trace into a store on Spark.

    Parameters
    ----------
    source, store
        Directories that driver and executors share.
    spark
        Session to use; the active one, or a new one, where absent.
    rules, parameters, slice_events
        As for a build.
    until
        When to stop; when the source is complete, unless given.
    every_s
        The least time from one micro-batch to the next.
    replace
        Whether to take the place of a store that exists.
    checkpoint
        Where Spark notes which files it has told of; a temporary folder where absent, which costs nothing.
    stop
        When set, following ends after the batch that runs.
    derive
        Makes what is committed beside the graph.
    tell
        Called with the new state after each commit, and how long its batch took in seconds.

    Returns
    -------
    SparkFollowReport
        What became of it.

    Raises
    ------
    InvalidParameterError
        If `every_s` is negative.
    StoreConflictError
        If the store has a follower, or holds another run.
    TraceFormatError
        If the trace contradicts itself; what was committed stays.
    UnsupportedPlanError
        If the rule set cannot be followed.
    EngineError
        If Spark fails for a reason of its own.
    """
    if every_s < 0:
        message = f"every is {every_s} s, and must not be negative."
        raise InvalidParameterError(message)
    engine = SparkEngine(spark)
    register(engine.spark)
    build_all = partial(
        build,
        source,
        store.absolute(),
        engine=engine,
        parameters=parameters,
        slice_events=slice_events,
        derive=derive,
    )
    with followed(store.absolute()), ExitStack() as held:
        previous = check_target(store, "replace" if replace else "append")
        batches = Batches(
            source, rules, parameters, build_all, tell, kept=None if replace else previous, replace=replace
        )
        folder = checkpoint or Path(held.enter_context(TemporaryDirectory(prefix="pag-follow-")))
        files = engine.spark.readStream.format(NAME).option("path", str(source)).load()
        writer = files.writeStream.foreachBatch(batches.append).option("checkpointLocation", str(folder))
        writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        ending = until_the_end(writer, batches, until or Until(), stop or Event())
    return SparkFollowReport(
        ending=ending,
        store=batches.store,
        batches=batches.number,
        commits=len(batches.batch_s),
        batch_s=tuple(batches.batch_s),
    )


def until_the_end(writer: DataStreamWriter, batches: Batches, until: Until, stop: Event) -> Ending:
    """Run a stream until there is a reason to end it; a stream that fails by itself goes on where it was.

    Parameters
    ----------
    writer
        Begins the stream.
    batches
        Does its work.
    until, stop
        As for `follow_on_spark`.

    Returns
    -------
    Ending
        Why it ended.

    Raises
    ------
    EngineError
        If the stream fails a fourth time without a batch between.
    """
    failures = 0
    try:
        # A checkpoint may know of files that the store lacks, and Spark takes a while until it tells of the first ones.
        batches.look()
        while True:
            query, before = writer.start(), batches.number
            try:
                if (ending := batches.wait(query, until, stop)) is not None:
                    return ending
                # On a busy machine Spark gives up Python processes that take ten seconds to begin.
                failures = failures + 1 if batches.number == before else 1
                if failures > _TRIES:
                    reason = str(query.exception() or "nobody knows why").splitlines()[0]
                    message = f"Spark's stream has ended: {reason}"
                    raise EngineError(message, "The driver's log has the details.")
            finally:
                # A batch that runs ends first: its commit is whole or not there, but its tasks would go on in vain.
                with batches.running:
                    query.stop()
    finally:
        batches.over = True


class Batches:
    """What the micro-batches do, and what became of them; they come one after the other, from a thread of Spark's.

    Parameters
    ----------
    source
        Directory of the trace.
    rules, parameters
        As for a build.
    build_all
        Appends what is new, given ``rules`` and ``mode``.
    tell
        Called with the new state after each commit, and how long its batch took in seconds.
    kept
        The state of the store to go on from; None to begin.
    replace
        Whether the first commit takes the place of what is there.
    """

    def __init__(
        self,
        source: Path,
        rules: RuleSet | None,
        parameters: RuleParameters | None,
        build_all: Callable[..., BuildReport],
        tell: Callable[[StoreInfo, float], None] | None,
        *,
        kept: StoreInfo | None,
        replace: bool,
    ) -> None:
        self._source, self._rules, self._parameters = source, rules, parameters
        self._build, self._tell, self._replace = build_all, tell, replace
        self._ready = False
        """Whether the trace can be built from now on."""
        self._error: BaseException | None = None
        self._complete = False
        self._news = time.monotonic()
        self.running = Lock()
        self.over = False
        self.store = None if replace else kept
        self.number = 0
        self.batch_s: list[float] = []

    def append(self, files: DataFrame, number: int) -> None:
        """Append what is new.

        Parameters
        ----------
        files
            Says that there is something; what there is the store and the trace say.
        number
            Spark's number of the batch.

        Raises
        ------
        PagGraphError
            As of `pag_graph.builder.build.build`; the stream ends with it, and `wait` raises it again.
        """
        del files, number
        self.number += 1
        try:
            self.look()
        except BaseException as error:
            self._error = error
            raise

    def look(self) -> None:
        """Append what is new, unless following is over.

        Raises
        ------
        PagGraphError
            As of `pag_graph.builder.build.build`.
        """
        with self.running:
            if not self.over:
                self._append()

    def _append(self) -> None:
        began = time.monotonic()
        if not (self._source / META).exists():
            return
        # In this order: what is complete is all there.
        complete = read_meta(self._source / META).complete
        self._ready = self._ready or self._becomes_ready()
        if not self._ready:
            return
        mode = "replace" if self._replace and self.store is None else "append"
        report = self._build(rules=self._rules, mode=mode)
        self.store, self._complete = report.store, complete
        if report.committed:
            self._news = time.monotonic()
            self.batch_s.append(self._news - began)
            if self._tell is not None:
                self._tell(report.store, self.batch_s[-1])

    def _becomes_ready(self) -> bool:
        """Choose the rules; say whether the run's origin and clocks are known, as `pag_graph.builder.follow` has it."""
        trace = Trace.open(self._source)
        rules = followable_rules(trace, self._rules)
        if self.store is not None or trace.meta.complete:
            return True
        log = TraceLog.index(trace)
        if set(log.chunks) < set(trace.workers["worker"].to_pylist()):
            return False
        return not clocks_are_unknown(trace, rules, self._parameters, log)

    def _seems_idle(self, until: Until) -> bool:
        return until.idle_s is not None and time.monotonic() - self._news > until.idle_s

    def wait(self, query: StreamingQuery, until: Until, stop: Event) -> Ending | None:
        """Wait for the end of a stream.

        Parameters
        ----------
        query
            The stream.
        until, stop
            As for `follow_on_spark`.

        Returns
        -------
        str or None
            Why it ended; None where the stream has died by itself.

        Raises
        ------
        PagGraphError
            What a batch failed with.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._complete and until.complete:
                return "complete"
            if stop.is_set():
                return "stopped"
            if self._seems_idle(until):
                # A batch may have taken longer than that, and files that came wait until the next one is due.
                self.look()
                if self._seems_idle(until):
                    return "complete" if self._complete and until.complete else "idle"
                continue
            if not query.isActive:
                return None
            stop.wait(_POLL_S)
