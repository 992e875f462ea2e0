"""Following a trace on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.api.building import rule_set
from pag_graph.model.units import nanoseconds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from threading import Event

    from pyspark.sql import SparkSession

    from pag_graph.engines.spark_following import SparkFollowReport
    from pag_graph.model.enums import RuleSet
    from pag_graph.motif.alerts import Rule
    from pag_graph.rules.rows import RuleParameters
    from pag_graph.store.delta import StoreInfo


def follow_on_spark(
    trace: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    rules: RuleSet | str | None = None,
    parameters: RuleParameters | None = None,
    slice_events: int | None = None,
    until: str = "complete",
    every: str | float = "1s",
    replace: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    stop: Event | None = None,
    queries: Sequence[str] = (),
    alerts: str | os.PathLike[str] | Sequence[Rule] = (),
    tell: Callable[[StoreInfo, float], None] | None = None,
) -> SparkFollowReport:
    """Build the graph of a trace on Spark while the trace is written.

    Each micro-batch of a stream of file names appends what is new, as `build` does with ``mode="append"``: after each
    commit the store holds what the trace so far says, epochs that are not closed included.

    Parameters
    ----------
    trace, store
        Directories that driver and executors share; the store is made, or gone on with.
    spark
        Session to use; the active one, or a new one, where absent.
    rules, parameters, slice_events
        As for `build`.
    until
        When to stop: ``complete``, ``forever``, or ``idle:30s`` (nothing new for so long).
    every
        The least time from one micro-batch to the next: seconds, or a text such as ``500ms``.
    replace
        Take the place of a store that exists.
    checkpoint
        Where Spark notes which files it has told of; a temporary folder where absent. The store knows what it holds,
        so a checkpoint that is lost costs a batch that finds nothing new.
    stop
        Set it to stop after the batch that runs.
    queries, alerts
        Standing queries and rules of alerts to add, as for `build`.
    tell
        Called with the new state of the store after each commit, and how long its batch took in seconds.

    Returns
    -------
    SparkFollowReport
        Why it ended, and what was committed. Once the source is complete the store holds what `build` makes of it.
    """
    from pag_graph.api.standing import standings
    from pag_graph.engines import spark_following
    from pag_graph.engines.following import Until
    from pag_graph.store.meta import refuse_store

    refuse_store(Path(trace))
    return spark_following.follow_on_spark(
        # Executors have working directories of their own.
        Path(trace).absolute(),
        Path(store).absolute(),
        spark=spark,
        rules=rule_set(rules),
        parameters=parameters,
        slice_events=slice_events,
        until=Until.of(until),
        every_s=nanoseconds(every) / 1e9 if isinstance(every, str) else every,
        replace=replace,
        checkpoint=None if checkpoint is None else Path(checkpoint).absolute(),
        stop=stop,
        derive=standings(queries, alerts),
        tell=tell,
    )
