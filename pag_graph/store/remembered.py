"""What stays known of removed epochs: facts of the whole run that answers about the other epochs need.

Which channels exchange data, and which workers run the same operators, is said by all of a run. A removal adds what
goes to what was known before: a few numbers in the commit of a dataflow, and a file where the source states what
workers do, as it may name a new operator in every epoch. Another file says what went of segments of which a part stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from pag_graph.model.enums import LOCAL_TYPES, RESTING_TYPES, ActivityType, RuleSet
from pag_graph.model.ids import POSITION_BITS
from pag_graph.store.cut_segments import CUT_SEGMENTS
from pag_graph.store.state_files import read_sends, write_sends
from pag_graph.store.traffic import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.store.delta import StoreInfo

REMEMBERED = "remembered"
"""Entry of a run that says what is known of its removed epochs."""
_NOT_RUN = {*RESTING_TYPES, ActivityType.WAITING, ActivityType.SPINNING, ActivityType.SCHEDULING}
"""A worker that waits for an operator, checks whether it has work or schedules it on others does not run it."""
_RUN = [str(kind) for kind in LOCAL_TYPES if kind not in _NOT_RUN]


RAN = pl.Schema({"worker": pl.Int64, "operator": pl.Int64, "ns": pl.Int64, "outermost": pl.Boolean})
"""One row per worker and operator that it ran or started: how long it ran it, other than waiting, resting, spinning or
scheduling; and whether it ever started it with nothing around. The operator is -1 where there is none."""


class Nesting(NamedTuple):
    """How activities nest of which some go."""

    stay: pl.DataFrame
    """Vertices that say what workers are inside of when the first window opens that stays: ``id`` and ``epoch``."""
    outermost: pl.DataFrame
    """``worker`` and ``operator`` of activities that began in what goes with nothing around."""


class Remembered(NamedTuple):
    """What is known of removed epochs."""

    exchanged: Sequence[int] = ()
    """Channels of a dataflow on which a worker sent data to another one, ascending."""
    ran: str | None = None
    """Where the source states what workers do: the file that says how long each ran each operator (`RAN`)."""
    segments: str | None = None
    """The file that says what went of segments of which a part stays (`CUT_SEGMENTS`); None where there are none."""

    @classmethod
    def of(cls, info: StoreInfo) -> Remembered:
        """Return what is known of the epochs that were removed from a store.

        Parameters
        ----------
        info
            A state of the store.

        Returns
        -------
        Remembered
            Nothing where all epochs are there, or a release removed them that did not remember.
        """
        return cls(**info.run.get(REMEMBERED, {}))

    @property
    def files(self) -> list[str]:
        """Names of files beside those of the state from which a build goes on."""
        return [name for name in (self.ran, self.segments) if name is not None]

    def and_segments(self, info: StoreInfo, cut: pl.DataFrame) -> Remembered:
        """Write what goes of segments, and return this with it.

        Parameters
        ----------
        info
            A state of the store.
        cut
            Rows of `CUT_SEGMENTS`.

        Raises
        ------
        StoreError
            If the file system refuses.
        """
        return self._replace(segments=write_sends(info.path, cut.to_arrow()) if cut.height else None)


def remember(info: StoreInfo, first: int, gone: pl.Expr, nesting: Nesting | None = None) -> Remembered:
    """Add what is about to be removed to what is known.

    Parameters
    ----------
    info
        A state of a store.
    first
        The first epoch that stays.
    gone
        Which rows of `PAG_EDGES` go.
    nesting
        How activities nest that go, where the source states them.

    Returns
    -------
    Remembered
        O(what goes), of which a few columns are read: of a dataflow those of `traffic`, else those of `edges`.

    Raises
    ------
    StoreError
        If a file is damaged, or the file system refuses.
    """
    before, older = Remembered.of(info), pl.col("min_epoch") < first
    if info.run["rules"] == str(RuleSet.STATED):
        rows = [time_run(info.scan("edges", older).filter(gone)).collect(), ran_before(info)]
        rows += [] if nesting is None else [nesting.outermost.with_columns(outermost=pl.lit(value=True))]
        known = pl.concat([pl.DataFrame(schema=RAN), *rows], how="diagonal").group_by("worker", "operator")
        ran = known.agg(pl.col("ns").sum(), pl.col("outermost").any()).sort("worker", "operator")
        return Remembered(ran=write_sends(info.path, ran.to_arrow()))
    if TRAFFIC not in info.versions:
        return before
    data = pl.col("type") == str(ActivityType.DATA_MESSAGE)
    sent = info.scan(TRAFFIC, older).filter(data, pl.col("epoch") < first, pl.col("from_worker") != pl.col("to_worker"))
    channels = sent.select("channel").drop_nulls().unique().collect()["channel"]
    return Remembered(exchanged=sorted({*before.exchanged, *channels}))


def time_run(edges: pl.LazyFrame) -> pl.LazyFrame:
    """Sum how long workers ran operators.

    Parameters
    ----------
    edges
        Rows of `PAG_EDGES`.

    Returns
    -------
    LazyFrame
        One row per ``worker`` and ``operator`` that it ran, with ``ns`` other than waiting, resting, spinning or
        scheduling. O(edges), of which four columns are read.
    """
    ran = edges.filter(pl.col("type").is_in(_RUN), pl.col("duration_ns") > 0, pl.col("operator").is_not_null())
    worker = pl.col("dst") // (1 << POSITION_BITS)
    return (
        ran.group_by("operator", worker=worker).agg(ns=pl.col("duration_ns").sum()).select("worker", "operator", "ns")
    )


def ran_before(info: StoreInfo) -> pl.DataFrame:
    """Return what workers ran in what was removed, where the source states that.

    Parameters
    ----------
    info
        A state of a store.

    Returns
    -------
    DataFrame
        Rows of `RAN`; none where nobody knows.

    Raises
    ------
    StoreError
        If the file is missing or damaged.
    """
    return _rows(info, Remembered.of(info).ran, RAN)


def segments_before(info: StoreInfo) -> pl.DataFrame:
    """Return what was removed of segments of which a part is there.

    Parameters
    ----------
    info
        A state of a store.

    Returns
    -------
    DataFrame
        Rows of `CUT_SEGMENTS`; none where nobody knows.

    Raises
    ------
    StoreError
        If the file is missing or damaged.
    """
    return _rows(info, Remembered.of(info).segments, CUT_SEGMENTS)


def _rows(info: StoreInfo, name: str | None, schema: pl.Schema) -> pl.DataFrame:
    """Read a file of what is remembered; no rows where there is none."""
    return pl.DataFrame(schema=schema) if name is None else pl.DataFrame(pl.from_arrow(read_sends(info.path, name)))
