"""Segments of a run, and what released them: read from the store for what some windows show."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.expressions import LOCAL, WAITING, delivered_ns
from pag_graph.analyses.waits import last_sent
from pag_graph.model.enums import ActivityType
from pag_graph.model.units import duration, printable
from pag_graph.sinks.neo4j.model import LANES, RELEASED, SEGMENT, THEN, TIME_BY_TYPE
from pag_graph.store.remembered import segments_before

if TYPE_CHECKING:
    from pag_graph.graph.run import Run


class SegmentReader:
    """Reads segments of a run.

    Parameters
    ----------
    run
        A committed run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def then(self, waits: pl.DataFrame, segment_of: pl.DataFrame) -> pl.DataFrame:
        """Return the waits between two segments of a worker: rows of `THEN`.

        Parameters
        ----------
        waits
            Edges that are waits.
        segment_of
            The segment of each vertex: ``id`` and ``segment``.
        """
        return (
            waits.join(segment_of.rename({"id": "src", "segment": "source"}), on="src")
            .with_columns(target="dst", waited_ns="duration_ns", title=_titled(pl.lit("waited"), "duration_ns"))
            .select(THEN.all_columns)
            .sort("source", "target")
        )

    def released(self, edges: pl.DataFrame, waits: pl.DataFrame, segment_of: pl.DataFrame) -> pl.DataFrame:
        """Return the messages whose arrival begins a segment, after a wait or a worker's birth: rows of `RELEASED`.

        Parameters
        ----------
        edges
            What the windows show, and what ended their waits.
        waits, segment_of
            As for `then`.
        """
        waited = waits.select("dst", waited_ns="duration_ns")
        begins = segment_of.filter(pl.col("id") == pl.col("segment")).select(dst="id")
        ended_wait = pl.col("waited_ns").is_not_null()
        messages = (
            edges.filter(~pl.col("type").is_in(LOCAL))
            .join(begins, on="dst", how="semi")
            .join(waited, on="dst", how="left")
            .filter(ended_wait ^ (pl.col("type") == str(ActivityType.SPAWN)))
        )
        released_by: pl.DataFrame = last_sent(nw.from_native(messages), "dst", aligned=self.run.aligned).to_native()
        return (
            released_by.join(self._sending_operators(released_by), on="src", how="left")
            .join(segment_of.rename({"id": "src", "segment": "source"}), on="src")
            .with_columns(
                target="dst",
                sent_ns="start_ns",
                arrived_ns=pl.col("start_ns") + pl.col("duration_ns"),
                delivered_ns=delivered_ns(self.run),
                waited_ns=pl.col("waited_ns").fill_null(0),
            )
            .with_columns(title=_titled(pl.col("type").str.replace("_message", ""), "waited_ns"))
            .select(RELEASED.all_columns)
            .sort("source", "target", "src")
        )

    def _sending_operators(self, messages: pl.DataFrame) -> pl.DataFrame:
        """Return the operator that ran last before each message was sent, by ``src``; it may lie before the windows."""
        sent = pl.col("src").is_in(messages["src"].unique().implode())
        there = (
            self.run.between("edges", *bounds_of(messages["src_epoch"]))
            .filter(pl.col("type").is_in(LOCAL))
            .select(src="dst", sender_operator="operator")
            .filter(sent)
            .collect()
        )
        went = self._went.select("id", "ended").explode("id", "ended").drop_nulls("id")
        return pl.concat([there, went.select(src="id", sender_operator="ended").filter(sent)]).unique("src")

    def segments(self, segment_ids: pl.Series, low: int, high: int) -> pl.DataFrame:
        """Read whole segments, which may begin before and end after what the windows show: rows of `SEGMENT`.

        Parameters
        ----------
        segment_ids
            Their ids.
        low, high
            Lowest and highest epoch of the vertices that the windows show, as `bounds_of` gives them.
        """
        rows = self._rows_of_segments(segment_ids, low, high)
        went = self._went.filter(pl.col("segment").is_in(segment_ids.implode()))
        facts, spent = self._facts(rows, went), self._spent(rows, went)
        times = spent.group_by("segment").agg(
            pl.col("duration_ns").filter(pl.col("type") == name.removesuffix("_ns")).sum().alias(name)
            for name in TIME_BY_TYPE
        )
        operators = (
            spent.drop_nulls("operator")
            .group_by("segment", "operator")
            .agg(pl.col("duration_ns").sum())
            .sort("segment", "duration_ns", "operator", descending=[False, True, False])
            .group_by("segment", maintain_order=True)
            .agg(operators="operator", operators_ns="duration_ns", operator_names=self.name_of("operator"))
        )
        return (
            facts.join(times, on="segment", how="left")
            .join(operators, on="segment", how="left")
            .with_columns(
                pl.col(TIME_BY_TYPE).fill_null(0),
                pl.col("operators", "operators_ns", "operator_names").fill_null([]),
                id="segment",
            )
            .with_columns(
                title=pl.format(
                    "w{} {}",
                    "worker",
                    _titled(
                        pl.col("operator_names").list.first().fill_null("no operator"),
                        pl.col("end_ns") - pl.col("start_ns"),
                    ),
                ),
                lane=(pl.col("worker") % len(LANES)).replace_strict(dict(enumerate(LANES)), return_dtype=pl.String),
            )
            .select(SEGMENT.columns)
            .sort("id")
        )

    def _facts(self, rows: pl.DataFrame, went: pl.DataFrame) -> pl.DataFrame:
        """Return where segments begin and end, from their vertices, of which some went."""
        vertices = rows.with_columns(events=pl.lit(1, pl.Int64))
        whole = pl.concat([vertices, _standing_for(went).select(vertices.columns)]).sort("id")
        facts = whole.group_by("segment", maintain_order=True).agg(
            pl.col("worker").first(),
            pl.col("epoch").first(),
            start_ns=pl.col("t_ns").first(),
            end_ns=pl.col("t_ns").last(),
            last_epoch=pl.col("epoch").last(),
            events=pl.col("events").sum(),
        )
        known = facts.join(went.select("segment", "round"), on="segment", how="left", maintain_order="left")
        return known.with_columns(pl.coalesce("round", self._round(facts).alias("_round")))

    def _spent(self, rows: pl.DataFrame, went: pl.DataFrame) -> pl.DataFrame:
        """Return what workers did in segments: ``segment``, ``type``, ``operator`` and ``duration_ns``."""
        columns = ["segment", "type", "operator", "duration_ns"]
        spent = (
            self.run.between("edges", *bounds_of(rows["epoch"]))
            .filter(pl.col("type").is_in(LOCAL), pl.col("type") != WAITING)
            .select("src", "type", "operator", "duration_ns")
            .collect()
            .join(rows.select(src="id", segment="segment"), on="src")
        )
        gone = went.select(columns).explode("type", "operator", "duration_ns").drop_nulls("type")
        return pl.concat([spent.select(columns), gone])

    def _rows_of_segments(self, segment_ids: pl.Series, low: int, high: int) -> pl.DataFrame:
        """Read the vertices of whole segments, in the order of their ids: of more epochs until all is there."""
        lowest, highest = self._labels
        more_epochs = 1
        while True:
            vertices = (
                self.run.between("vertices", low, high).select("id", "worker", "epoch", "t_ns", "segment").collect()
            )
            has_begins = vertices["id"].is_in(segment_ids.implode()).sum() == segment_ids.len()
            # Ids of a worker rise: a segment has ended where a later one has begun.
            latest = vertices.group_by("worker").agg(latest=pl.col("segment").max())
            ended = (
                vertices.filter(pl.col("segment").is_in(segment_ids.implode()))
                .group_by("worker")
                .agg(pl.col("segment").max())
            )
            going_on = ended.join(latest, on="worker").filter(pl.col("segment") == pl.col("latest")).height
            if (has_begins or low <= lowest) and (not going_on or high >= highest):
                break
            low = low if has_begins else max(low - more_epochs, lowest)
            high = min(high + more_epochs, highest) if going_on else high
            more_epochs *= 2
        return vertices.filter(pl.col("segment").is_in(segment_ids.implode())).sort("id")

    @cached_property
    def _went(self) -> pl.DataFrame:
        """What a follower has removed of segments of which a part is there: rows of `CUT_SEGMENTS`."""
        return segments_before(self.run.info)

    def _round(self, segments: pl.DataFrame) -> pl.Series:
        """Return the number of the epoch in whose window each segment starts."""
        if self.run.epochs_are_islands:
            return segments["epoch"]
        epochs = self.run.epochs
        rows = epochs["end_ns"].search_sorted(segments["start_ns"], side="left").clip(0, epochs.height - 1)
        return epochs["epoch"].gather(rows)

    @cached_property
    def _labels(self) -> tuple[int, int]:
        """The lowest and the highest epoch of any event."""
        bounds = self.run.info.bounds("vertices", ("min_epoch", "max_epoch"))
        if bounds.null_count().sum_horizontal().item():
            bounds = self.run.scan("vertices").select(min_epoch="epoch", max_epoch="epoch").collect()
        return bounds_of(bounds["min_epoch"])[0], bounds_of(bounds["max_epoch"])[1]

    @cached_property
    def _names(self) -> dict[int, str]:
        name_rows = self.run.operators.select("operator", "name").iter_rows()
        return {operator: printable(name) for operator, name in name_rows if name}

    def name_of(self, operator: str) -> pl.Expr:
        """Return names of the operators in a column, as they can be shown; numbers of those that nobody names.

        Null where the column is.
        """
        listed_name = pl.col(operator).replace_strict(self._names, default=None, return_dtype=pl.String)
        return pl.coalesce(listed_name, pl.format("operator {}", pl.col(operator)))


def _standing_for(went: pl.DataFrame) -> pl.DataFrame:
    """Return vertices that stand for those of segments which went: the first and the last, and how many they are."""
    some = went.filter(pl.col("events") > 0)
    is_last = pl.col("first") != pl.col("last")
    return pl.concat(
        [
            some.select(
                "worker",
                "segment",
                "epoch",
                id="first",
                t_ns="start_ns",
                events=pl.col("events") - is_last.cast(pl.Int64),
            ),
            some.filter(is_last).select(
                "worker", "segment", epoch="last_epoch", id="last", t_ns="end_ns", events=pl.lit(1, pl.Int64)
            ),
        ],
        how="diagonal",
    )


def bounds_of(numbers: pl.Series) -> tuple[int, int]:
    """Return the least and the greatest of some integers.

    Parameters
    ----------
    numbers
        Not null.

    Returns
    -------
    low, high
        A stretch that holds nothing where there are none.
    """
    if not numbers.len():
        return 0, -1
    values = numbers.to_numpy()
    return int(values.min()), int(values.max())


def _titled(subject: pl.Expr, ns: str | pl.Expr) -> pl.Expr:
    """Write what is drawn, with its duration."""
    return pl.format("{} {}", subject, as_read(pl.col(ns) if isinstance(ns, str) else ns))


def as_read(ns: pl.Expr) -> pl.Expr:
    """Write durations as people read them."""
    return ns.map_batches(_as_read, return_dtype=pl.String)


def _as_read(ns: pl.Series) -> pl.Series:
    # Each of them once: those of many activities are the same.
    different = ns.drop_nulls().unique()
    return ns.replace_strict(different, [duration(value) for value in different], default=None, return_dtype=pl.String)
