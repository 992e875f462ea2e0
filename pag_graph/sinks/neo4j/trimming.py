"""What an epoch shows beyond a lower detail, and nobody else does: found in the store, and removed from a database.

Of two epochs that share an event, a segment or an activity, all between them share it too, for what leads over borders
is one interval of time. So the neighbours of the epochs that lose detail are looked at one after the other, on either
side, until one shares nothing with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.model.enums import ActivityType
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.model import (
    ACTIVITIES,
    CRITICAL,
    EVENT,
    RELEASED,
    SEGMENT,
    STEP,
    THEN,
    delete_nodes,
    delete_relationships,
    unmark,
)
from pag_graph.sinks.neo4j.writer import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pag_graph.sinks.neo4j.content import Content, Reader
    from pag_graph.sinks.neo4j.model import NodeTable, RelationshipTable

_ALL = {"events": ["id"], "segments": ["id"], "activities": ["src", "dst", "type"]}
_KEYS = {**_ALL, "then": ["source", "target"], "released": ["source", "target", "src"]}
"""Per table of a content that epochs share: what tells its rows apart."""


@dataclass(frozen=True, kw_only=True)
class Trimmed:
    """What is to be removed so that some epochs have less detail: keys of rows, by table of `Content`."""

    gone: Mapping[str, pl.DataFrame]
    unmarked: Mapping[str, pl.DataFrame]
    """Activities and `RELEASED` that stay and are critical no more."""
    drawn: pl.DataFrame
    """`CRITICAL` relationships that go: ``source`` and ``target``."""
    steps: pl.DataFrame
    """Steps of critical paths: ``epoch`` and ``step``."""

    def work(self, run: str, batch_rows: int) -> Iterator[Work]:
        """Give the queries that remove it.

        Parameters
        ----------
        run
            Id of the run.
        batch_rows
            Most rows of a query.

        Yields
        ------
        Work
            Marks first, then relationships, then nodes, whose own relationships go with them; to be done in this order.
            Each can be done again: what is gone already is no error.
        """
        events, segments = self.gone["events"]["id"], self.gone["segments"]["id"]
        relationships: list[tuple[RelationshipTable, pl.DataFrame]] = [
            *_by_type(_between_kept_nodes(self.gone["activities"], ("src", "dst"), events)),
            (THEN, _between_kept_nodes(self.gone["then"], ("source", "target"), segments)),
            (RELEASED, _between_kept_nodes(self.gone["released"], ("source", "target"), segments)),
            (CRITICAL, _between_kept_nodes(self.drawn, ("source", "target"), segments)),
        ]
        nodes: list[tuple[NodeTable, pl.DataFrame]] = [
            (EVENT, self.gone["events"]),
            (SEGMENT, self.gone["segments"]),
            (STEP, self.steps),
        ]
        marks = [*_by_type(self.unmarked["activities"]), (RELEASED, self.unmarked["released"])]
        parts: list[tuple[str, pl.DataFrame]] = [
            *((unmark(table), rows) for table, rows in marks),
            *((delete_relationships(table), rows) for table, rows in relationships),
            *((delete_nodes(table), rows) for table, rows in nodes),
        ]
        for text, rows in parts:
            for part in rows.iter_slices(batch_rows):
                yield Work(text, {"run": run, **part.to_dict(as_series=False)}, part.height)


def trimmed(
    reader: Reader, epochs: Mapping[int, tuple[Detail, Detail | None]], other_details: Mapping[int, Detail]
) -> Trimmed:
    """Find what goes where some epochs get less detail.

    Parameters
    ----------
    reader
        Of the run; its store has all these epochs.
    epochs
        Those that lose detail: what they have, and what they shall have; None where they go altogether.
    other_details
        The other epochs of the database, and what they have.

    Returns
    -------
    Trimmed
        O(what these epochs and their nearest neighbours show).
    """
    store_epochs = reader.run.epochs["epoch"].sort().to_list()
    before = _contents(reader, {epoch: detail for epoch, (detail, _) in epochs.items()})
    all_of = _ids(_contents(reader, dict.fromkeys(epochs, Detail.FULL)))
    after = _contents(reader, {epoch: detail for epoch, (_, detail) in epochs.items() if detail is not None})
    first, last = store_epochs.index(min(epochs)), store_epochs.index(max(epochs))
    between = {
        epoch: other_details[epoch]
        for epoch in store_epochs[first : last + 1]
        if epoch in other_details and epoch not in epochs
    }
    kept_contents = [*after, *_contents(reader, between)]
    for side in (reversed(store_epochs[:first]), store_epochs[last + 1 :]):
        for epoch in side:
            if epoch in other_details:
                kept_contents += _contents(reader, {epoch: other_details[epoch]})
            if _share_nothing(all_of, _ids(_contents(reader, {epoch: Detail.FULL}))):
                break
    removed = {
        name: _rows(before, name).select(key).unique().join(_rows(kept_contents, name), on=key, how="anti").sort(key)
        for name, key in _KEYS.items()
    }
    marks = {name: _marked(before, kept_contents, name) for name in ("activities", "released")}
    ends = ["source", "target"]
    drawn = _critical(before, "released").select(ends).unique()
    steps = _rows(before, "steps").select("epoch", "step")
    return Trimmed(
        gone=removed,
        unmarked={name: rows.join(removed[name], on=_KEYS[name], how="anti") for name, rows in marks.items()},
        drawn=drawn.join(_critical(kept_contents, "released"), on=ends, how="anti").sort(ends),
        steps=steps.join(_rows(after, "steps"), on=["epoch", "step"], how="anti"),
    )


def _contents(reader: Reader, details: Mapping[int, Detail]) -> list[Content]:
    """Read what epochs show: those together that follow each other and have the same detail."""
    order = {epoch: place for place, epoch in enumerate(reader.run.epochs["epoch"].sort())}
    groups: list[list[int]] = []
    for epoch in sorted(details):
        last = groups[-1][-1] if groups else None
        follows = last is not None and order[epoch] == order[last] + 1 and details[epoch] is details[last]
        if follows and not reader.run.epochs_are_islands:
            groups[-1].append(epoch)
        else:
            groups.append([epoch])
    windows = ([reader.run.window(epoch=epoch) for epoch in group] for group in groups)
    return [reader.read(part, details[group[0]]) for part, group in zip(windows, groups, strict=True)]


_TYPES: dict[str, Any] = {"type": pl.String, "critical": pl.Boolean}


def _rows(contents: Sequence[Content], name: str) -> pl.DataFrame:
    """Return what tells rows of a table apart, and whether they are critical, where they can be."""
    names = [*_KEYS.get(name, ["epoch", "step"]), *(["critical"] if name in {"activities", "released"} else [])]
    schema = {column: _TYPES.get(column, pl.Int64) for column in names}
    frames: list[pl.DataFrame] = [getattr(content, name).select(names).cast(schema) for content in contents]
    return pl.concat([pl.DataFrame(schema=schema), *frames])


def _critical(contents: Sequence[Content], name: str) -> pl.DataFrame:
    return _rows(contents, name).filter(pl.col("critical").fill_null(value=False))


def _marked(before: Sequence[Content], kept_contents: Sequence[Content], name: str) -> pl.DataFrame:
    """Return the keys of what was critical and is no more."""
    key = _KEYS[name]
    return (
        _critical(before, name).select(key).unique().join(_critical(kept_contents, name), on=key, how="anti").sort(key)
    )


def _ids(contents: Sequence[Content]) -> dict[str, pl.DataFrame]:
    return {name: _rows(contents, name).select(key).unique() for name, key in _ALL.items()}


def _share_nothing(first: Mapping[str, pl.DataFrame], second: Mapping[str, pl.DataFrame]) -> bool:
    """Say whether two contents have nothing in common."""
    return all(first[name].join(second[name], on=key, how="semi").is_empty() for name, key in _ALL.items())


def _between_kept_nodes(rows: pl.DataFrame, ends: tuple[str, str], removed_ids: pl.Series) -> pl.DataFrame:
    """Return the relationships between nodes that stay; the others go with them."""
    leads_away = [pl.col(end).is_in(removed_ids.implode()) for end in ends]
    return rows.filter(~pl.any_horizontal(leads_away))


def _by_type(activities: pl.DataFrame) -> list[tuple[RelationshipTable, pl.DataFrame]]:
    return [(ACTIVITIES[kind], activities.filter(pl.col("type") == str(kind)).drop("type")) for kind in ActivityType]
