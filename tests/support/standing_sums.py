"""What changes of standing queries must add up to, at every commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.analyses.definition import Standing
from pag_graph.analyses.standing import Query, encoded, summed
from pag_graph.graph.run import Run
from pag_graph.store.delta import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def check_sums(store: Path, queries: Iterable[str]) -> None:
    """Compare what the changes of all queries add up to with their answers, made anew (law L5)."""
    run, info = Run(store), open_store(store)
    assert info.live is not None
    for query in map(Query.parse, queries):
        rows = info.scan("changes").filter(pl.col("query") == query.id).sort("commit", "ordinal").collect()
        assert rows.filter(pl.col("diff") == 0).height == 0
        # Sums over all epochs are of none.
        of_none = query.standing is Standing.LINEAR
        if of_none:
            rows = rows.with_columns(epoch=pl.lit(0, pl.Int64))
        total = summed(rows.select("epoch", "row", "diff"))
        answer = encoded(query.over(run, info.live["answered"]), 0 if of_none else None)
        answer_rows = answer.with_columns(diff=pl.lit(1, pl.Int64))
        expected = answer_rows.group_by("epoch", "row").agg(pl.col("diff").sum())
        assert sorted(total.rows()) == sorted(expected.select("epoch", "row", "diff").rows()), query.id
