"""What sinks hand out: changes and alerts of a store, commit by commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pag_graph.store.delta import StoreInfo

Kind = Literal["change", "alert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A change or an alert."""

    kind: Kind
    key: str
    """Names it for good: of a change ``RUN/c/COMMIT/ORDINAL``, of an alert ``ID/EVENT``."""
    content: dict[str, Any]
    """Its row; ``row`` and ``subject`` are objects."""

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return orjson.dumps({"kind": self.kind, "key": self.key, **self.content}) + b"\n"


def commits(
    info: StoreInfo, since: int, kinds: Sequence[Kind] = ("change", "alert")
) -> Iterator[tuple[int, list[Record]]]:
    """Yield what came with each commit, oldest first.

    Parameters
    ----------
    info
        A state of a store.
    since
        Only later commits.
    kinds
        What to hand out.

    Yields
    ------
    int
        The commit; none that has nothing.
    list of Record
        Its changes, and then its alerts, in their order.
    """
    tables = {"change": "changes", "alert": "alerts"}
    frames = {kind: _rows(info, tables[kind], since) for kind in kinds}
    numbers = sorted({number for frame in frames.values() for number in frame["commit"].unique().to_list()})
    for number in numbers:
        records = []
        for kind, frame in frames.items():
            rows = frame.filter(pl.col("commit") == number).iter_rows(named=True)
            records += [_record(kind, row, str(info.run["run_id"])) for row in rows]
        yield number, records


def _rows(info: StoreInfo, table: str, since: int) -> pl.DataFrame:
    rows = info.scan(table, pl.col("max_commit") > since).filter(pl.col("commit") > since)
    return rows.sort("commit", "ordinal").collect()


def _record(kind: Kind, row: dict[str, Any], run: str) -> Record:
    content = {name: value for name, value in row.items() if name != "ordinal"}
    for name in ("row", "subject"):
        if content.get(name) is not None:
            content[name] = orjson.loads(content[name])
    key = f"{run}/c/{row['commit']}/{row['ordinal']}" if kind == "change" else f"{row['id']}/{row['event']}"
    return Record(kind=kind, key=key, content={"run": run, **content})
