"""Events and the activities between them, brought from what the database holds to what it shall hold.

First what is there is read. Missing ones are made: a transaction creates a stretch of a worker's events together with
the activities between them (`pag_graph.sinks.neo4j.creation`). What differs is put right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.model.enums import ActivityType
from pag_graph.sinks.neo4j.content import inside
from pag_graph.sinks.neo4j.creation import Creation
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.model import ACTIVITIES, EDGE_KEY, EVENT, create_relationships
from pag_graph.sinks.neo4j.writer import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.sinks.neo4j.content import Content
    from pag_graph.sinks.neo4j.writer import Writer

_READ_EVENTS = """\
MATCH (event:Event {run: $run, worker: $worker})
WHERE $low <= event.t_ns <= $high
RETURN event"""

_READ_ACTIVITIES = """\
UNWIND $id AS id
MATCH (source:Event {run: $run, id: id})-[activity]->(target:Event)
RETURN source.id AS src, target.id AS dst, toLower(type(activity)) AS type, properties(activity) AS has"""


class Gone(NamedTuple):
    """What will have been removed when something is written."""

    first_epoch: int
    """Events of this epoch and of later ones, and the activities that end at them."""
    kept_events: tuple[int, ...]
    """But not these, nor the activities between what is left."""

    def remaining(self, rows: pl.DataFrame, event: str) -> pl.DataFrame:
        """Return the rows that stay.

        Parameters
        ----------
        rows
            Events, or activities; with a column ``epoch``, of an activity that of the event in which it ends.
        event
            The column with the id of an event: ``id`` of events, ``dst`` of activities.

        Returns
        -------
        DataFrame
            Those of earlier epochs, and those whose `event` is kept; in their order.
        """
        kept = pl.Series(self.kept_events, dtype=pl.Int64)
        return rows.filter((pl.col("epoch") < self.first_epoch) | pl.col(event).is_in(kept.implode()))


class EventSync:
    """Brings the events and activities of a content into the database.

    Parameters
    ----------
    run
        The run.
    writer
        Writes it.
    content
        What shall be there.
    batch_rows
        Events, or activities, of one transaction.
    others
        Windows that other processes load at the same time with all that lies in them, which is theirs to create; None
        where no other process loads anything. What nobody has to create is merged: it lies in nobody's windows, or in
        those of which only a part is loaded, which several may show.
    gone
        What will have been removed when this is written.
    """

    def __init__(
        self,
        run: Run,
        writer: Writer,
        content: Content,
        batch_rows: int,
        others: Sequence[Window] | None = None,
        gone: Gone | None = None,
    ) -> None:
        self.run, self.writer, self.content, self.batch_rows, self.others = run, writer, content, batch_rows, others
        self.gone = gone
        self._known: pl.Series | None = None
        self._created = content.activities.select(EDGE_KEY).clear()

    def write_nodes(self, advance: Callable[[int], None]) -> None:
        """Create the events that lack, with the activities between those of one transaction."""
        events = self.content.events
        events_there = self._read_events()
        self._known = events_there["id"]
        is_mine, is_nobodys = self._owners(events, pl.col("t_ns"), pl.col("t_ns"))
        lacking = events.filter(is_mine).join(events_there, on="id", how="anti").sort("id")
        self.writer.write_side_by_side(self._parts(lacking), advance)
        changed = _differing(events, events_there, ["id"])
        self.writer.merge(
            EVENT,
            pl.concat([changed, events.filter(is_nobodys).join(events_there, on="id", how="anti")]),
            self.batch_rows,
        )
        advance(events.height - lacking.height)

    def write_rest(self, advance: Callable[[int], None]) -> None:
        """Create the other activities that lack."""
        activities = self.content.activities
        activities_there = self._read_activities()
        start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
        is_mine, is_nobodys = self._owners(activities, pl.max_horizontal(start, end), pl.min_horizontal(start, end))
        lacking = activities.join(
            pl.concat([activities_there.select(EDGE_KEY), self._created]), on=EDGE_KEY, how="anti"
        )
        create = lacking.filter(self._select(activities, lacking, is_mine))
        merge = pl.concat(
            [
                lacking.filter(self._select(activities, lacking, is_nobodys)),
                _differing(activities, activities_there, EDGE_KEY),
            ]
        )
        self.writer.write_side_by_side(self._by_type(create), advance)
        self._merge(merge)
        advance(activities.height - self._created.height - create.height)

    def mark_critical(self) -> None:
        """Mark what is critical in these windows and was created by another process, or has lost its mark."""
        if self.others is not None or self.gone is not None:
            self._merge(self.content.activities.filter(pl.col("critical")))

    def _owners(self, rows: pl.DataFrame, later: pl.Expr, earlier: pl.Expr) -> tuple[pl.Series, pl.Series]:
        """Say which rows this process creates, and which no process owns: by the window of the later end, if any."""
        if self.others is None:
            return pl.repeat(value=True, n=rows.height, eager=True), pl.repeat(value=False, n=rows.height, eager=True)
        other_windows = self.others
        own_windows = self.content.windows if self.content.detail is Detail.FULL else ()
        late_own, late_other = _inside_any(own_windows, later), _inside_any(other_windows, later)
        early_own, early_other = _inside_any(own_windows, earlier), _inside_any(other_windows, earlier)
        is_mine = late_own | (~late_other & early_own)
        theirs = ~late_own & (late_other | (~early_own & early_other))
        owners = rows.select(mine=is_mine, nobodys=~is_mine & ~theirs)
        return owners["mine"], owners["nobodys"]

    def _select(self, rows: pl.DataFrame, lacking: pl.DataFrame, chosen: pl.Series) -> pl.Series:
        """Carry a choice of rows over to a part of them."""
        if self.others is None:
            value = bool(chosen.len() and chosen[0])
            return pl.repeat(value=value, n=lacking.height, eager=True)
        marked = rows.select(EDGE_KEY).with_columns(chosen=chosen)
        return lacking.select(EDGE_KEY).join(marked, on=EDGE_KEY, how="left", maintain_order="left")["chosen"]

    def _parts(self, events: pl.DataFrame) -> Iterator[Work]:
        """Cut events, sorted by `id`, into stretches, each with the activities that begin and end in it."""
        activities = self.content.activities
        # The same for all parts: every other text would have to be planned by the server.
        by_kind = [(ACTIVITIES[kind], activities.filter(pl.col("type") == str(kind))) for kind in ActivityType]
        creation = Creation(EVENT, events, [(table, rows) for table, rows in by_kind if rows.height], self.batch_rows)
        self._created = pl.concat([self._created.clear(), *(rows.select(EDGE_KEY) for rows in creation.created)])
        return creation.work(self.writer.run_id)

    def _by_type(self, activities: pl.DataFrame) -> Iterator[Work]:
        for kind in ActivityType:
            table = ACTIVITIES[kind]
            of_kind = activities.filter(pl.col("type") == str(kind)).select(table.all_columns)
            for rows in of_kind.sort("dst", "src").iter_slices(self.batch_rows):
                values = {"run": self.writer.run_id, **rows.to_dict(as_series=False)}
                yield Work(create_relationships(table), values, rows.height)

    def _merge(self, activities: pl.DataFrame) -> None:
        tables = [(ACTIVITIES[kind], activities.filter(pl.col("type") == str(kind))) for kind in ActivityType]
        self.writer.merge_all(tables, self.batch_rows)

    def _read_events(self) -> pl.DataFrame:
        """Return what is there of the stretches of time in which events shall be."""
        records_found: list[dict[str, Any]] = []
        bounds = self.content.events.group_by("worker").agg(low=pl.col("t_ns").min(), high=pl.col("t_ns").max())
        for row in bounds.sort("worker").iter_rows(named=True):
            records = self._rows(_READ_EVENTS, row)
            records_found.extend(dict(record["event"]) for record in records)
        schema = dict(self.content.events.schema)
        events = pl.DataFrame([{name: row.get(name) for name in schema} for row in records_found], schema=schema)
        return events if self.gone is None else self.gone.remaining(events, "id")

    def _read_activities(self) -> pl.DataFrame:
        """Return the activities that were there before, between events that were."""
        known_ids = self._read_events()["id"] if self._known is None else self._known
        ids = known_ids.filter(known_ids.is_in(self.content.events["id"].implode()))
        records_found: list[dict[str, Any]] = []
        for begin in range(0, ids.len(), self.batch_rows):
            records = self._rows(_READ_ACTIVITIES, {"id": ids[begin : begin + self.batch_rows].to_list()})
            records_found.extend(
                {**record["has"], "src": record["src"], "dst": record["dst"], "type": record["type"]}
                for record in records
            )
        schema = dict(self.content.activities.schema)
        activities = pl.DataFrame([{name: row.get(name) for name in schema} for row in records_found], schema=schema)
        return activities if self.gone is None else self.gone.remaining(activities, "dst")

    def _rows(self, text: str, values: dict[str, Any]) -> list[Any]:
        return self.writer.read(text, {"run": self.writer.run_id, **values})


def _inside_any(windows: Sequence[Window], t_ns: pl.Expr) -> pl.Expr:
    """Say whether an instant lies in one of several windows, of which there may be none."""
    # No instant is null.
    return inside(windows, t_ns) if windows else t_ns.is_null()


def _differing(rows: pl.DataFrame, rows_there: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Return the wanted rows that are there with other values; being critical in another window is no difference."""
    if not rows_there.height:
        return rows.clear()
    names = [name for name in rows.columns if name not in key]
    joined = rows.join(rows_there, on=key, how="inner", suffix="_there", maintain_order="left")
    is_equal = [
        pl.col(name).is_null() | pl.col(name).eq_missing(pl.col(f"{name}_there"))
        if name == "critical"
        else pl.col(name).eq_missing(pl.col(f"{name}_there"))
        for name in names
    ]
    return joined.filter(~pl.all_horizontal(is_equal)).select(rows.columns)
