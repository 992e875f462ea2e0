"""What the critical paths of all rounds are made of, with percentiles over the rounds.

Definition: CPA (Sager 2016) 7.3 (profile of the path, absolute and relative, the first n and the rest).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.analyses.definition import Chart, RunAnalysis
from pag_graph.analyses.expressions import rounds
from pag_graph.analyses.profile import DIVISIONS, OTHER, ProfileParameters, divided, ranks_by
from pag_graph.graph.needs import Needs
from pag_graph.model.ranks import rank_of
from pag_graph.model.tables import PROFILE_ROUNDS

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.run import Run


def profile_rounds(run: Run, parameters: ProfileParameters, *, parts: pa.Table) -> pa.Table:
    """Divide the critical paths of all rounds, with percentiles over the rounds.

    Parameters
    ----------
    run
        The run.
    parameters
        What to divide by, and how many keys to list.
    parts
        Rows of `divided` of every round, with its `epoch`.

    Returns
    -------
    pa.Table
        Rows of `PROFILE_ROUNDS`, one per division and key, over all rounds. A round without a key counts as 0 in means
        and percentiles.

    Notes
    -----
    A percentile is the smallest time of a round that this share of all rounds does not exceed (nearest rank). So every
    percentile is a time that was observed. O(rows log rows).
    """
    rows = pl.DataFrame(pl.from_arrow(parts))
    if not rows.height:
        return PROFILE_ROUNDS.empty_table()
    totals = rows.group_by("by", "key").agg(pl.col("path_ns").sum()).with_columns(ranks_by("by"))
    ranked_rows = rows.join(totals.select("by", "key", "rank"), on=["by", "key"])
    if 0 < parameters.n < ranked_rows.height:
        is_other = pl.col("rank") > parameters.n
        ranked_rows = ranked_rows.with_columns(
            key=pl.when(is_other).then(pl.lit(OTHER)).otherwise("key"),
            rank=pl.when(is_other).then(parameters.n + 1).otherwise("rank"),
        )
    per_round = ranked_rows.group_by("by", "rank", "key", "epoch").agg(pl.col("steps", "path_ns").sum())
    spans = rounds(run)
    count, span = spans.height, int((spans["end_ns"] - spans["start_ns"]).sum()) or 1
    missing = count - pl.len()

    def percentile(share: int) -> pl.Expr:
        # Rounds without the key are zeros before all others.
        place = rank_of(share / 100, count) - 1 - missing.cast(pl.Int64)
        nth = pl.col("path_ns").sort().gather(place.clip(lower_bound=0)).first()
        return pl.when(place < 0).then(0).otherwise(nth)

    longest = pl.col("path_ns") == pl.col("path_ns").max()
    result = (
        per_round.group_by("by", "rank", "key")
        .agg(
            rounds=pl.len(),
            steps=pl.col("steps").sum(),
            total=pl.col("path_ns").sum(),
            p50_ns=percentile(50),
            p90_ns=percentile(90),
            p99_ns=percentile(99),
            max_ns=pl.col("path_ns").max(),
            max_epoch=pl.col("epoch").filter(longest).min(),
        )
        .rename({"total": "path_ns"})
        .with_columns(share=pl.col("path_ns") / span, mean_ns=pl.col("path_ns") / count)
        .sort(pl.col("by").cast(pl.Enum(DIVISIONS)), "rank")
    )
    return result.select(PROFILE_ROUNDS.names).to_arrow().cast(PROFILE_ROUNDS)


ANALYSIS = RunAnalysis(
    name="profile-rounds",
    function=profile_rounds,
    part=divided,
    parameters=ProfileParameters,
    schema=PROFILE_ROUNDS,
    output="PROFILE_ROUNDS",
    across=True,
    needs=Needs.ALIGNED_CLOCKS,
    example="--by operator -n 5",
    chart=Chart(kind="bars", x=("key",), y=("p50_ns", "p99_ns"), panel="by"),
)
