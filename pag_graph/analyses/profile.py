"""What the critical path is made of: by type, operator, worker and pair of workers; of a round, and over all rounds.

Definition: CPA (Sager 2016) 7.3 (profile of the path, absolute and relative, the first n and the rest).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import polars as pl

from pag_graph.analyses.critical_path import critical_path, critical_paths_of_windows
from pag_graph.analyses.expressions import IS_MESSAGE, operator_names, rounds, worker_label
from pag_graph.errors import InvalidParameterError
from pag_graph.model.tables import PROFILE, PROFILE_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pag_graph.analyses.frames import Frames
    from pag_graph.graph.snapshot import Run, Snapshot, Window

_DIVISIONS = ("type", "operator", "worker", "pair")
_OTHER = "(other)"
_LOCAL, _MESSAGES, _NO_OPERATOR = "(local)", "(messages)", "(no operator)"
_NULLS = {"operator": pl.Int64(), "worker": pl.Int32(), "to_worker": pl.Int32()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileParameters:
    """Parameters of `profile` and `profile_rounds`."""

    by: Annotated[
        Literal["all", "type", "operator", "worker", "pair"], "What to divide the path by; all gives every division."
    ] = "all"
    n: Annotated[int, "Keys to list; what is left is summed up as (other). 0 lists all."] = 10


def profile(snapshot: Snapshot | Frames, parameters: ProfileParameters | None = None) -> pa.Table:
    """Divide the critical path by type, operator, worker and pair of workers.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        What to divide by, and how many keys to list.

    Returns
    -------
    pa.Table
        Rows of `PROFILE`, one per division and key. Each division covers the whole path: where they belong to no key,
        local time without an operator is `(no operator)`, messages are `(messages)`, local time `(local)`. So the
        times of a division add up to the window's span.

    Raises
    ------
    InvalidParameterError
        If `n` is negative.

    Notes
    -----
    CPA 7.3. O(path). Ties are listed by key.
    """
    parameters = _checked(parameters)
    span = snapshot.window.span_ns or 1
    steps = pl.DataFrame(pl.from_arrow(critical_path(snapshot).steps)).with_columns(window=pl.lit(0, pl.Int64))
    ranked = _first(_divided(snapshot.run, steps, parameters), parameters.n)
    result = ranked.with_columns(share=pl.col("path_ns") / span)
    return result.select(PROFILE.names).to_arrow().cast(PROFILE)


def _divided(run: Run, steps: pl.DataFrame, parameters: ProfileParameters) -> pl.DataFrame:
    """Return one row per window, division and key."""
    keyed = [_keys(run, steps, division).with_columns(by=pl.lit(division)) for division in _chosen(parameters)]
    return pl.concat(keyed)


def round_profile(snapshot: Snapshot | Frames, parameters: ProfileParameters | None = None) -> pa.Table:
    """Return the whole profile of one round, for `profile_rounds`: rows of `PROFILE` with nothing summed up."""
    return profile(snapshot, ProfileParameters(by=_checked(parameters).by, n=0))


def profiles_of_rounds(run: Run, windows: Sequence[Window], parameters: ProfileParameters | None = None) -> pa.Table:
    """Return the whole profiles of many rounds, read once.

    Parameters
    ----------
    run
        A run with aligned clocks.
    windows
        Of rounds, in time order.
    parameters
        What to divide by.

    Returns
    -------
    pa.Table
        What rows of `round_profile` say of every round but ranks and shares, with the place of its ``window``.
    """
    steps = pl.DataFrame(pl.from_arrow(critical_paths_of_windows(run, windows)))
    return _divided(run, steps, _checked(parameters)).to_arrow()


def profile_rounds(run: Run, parameters: ProfileParameters | None = None, *, parts: pa.Table) -> pa.Table:
    """Divide the critical paths of all rounds, with percentiles over the rounds.

    Parameters
    ----------
    run
        The run.
    parameters
        What to divide by, and how many keys to list.
    parts
        Rows of `round_profile` of every round, with its `epoch`.

    Returns
    -------
    pa.Table
        Rows of `PROFILE_ROUNDS`, one per division and key, over all rounds. A round without a key counts as 0 in means
        and percentiles.

    Notes
    -----
    A percentile is the smallest time of a round that this share of all rounds does not exceed (nearest rank), so it
    was observed. O(rows log rows).
    """
    parameters = _checked(parameters)
    rows = pl.DataFrame(pl.from_arrow(parts))
    if not rows.height:
        return PROFILE_ROUNDS.empty_table()
    totals = rows.group_by("by", "key").agg(pl.col("path_ns").sum()).with_columns(_ranks("by"))
    named = rows.drop("rank", strict=False).join(totals.select("by", "key", "rank"), on=["by", "key"])
    if parameters.n:
        rest = pl.col("rank") > parameters.n
        named = named.with_columns(
            key=pl.when(rest).then(pl.lit(_OTHER)).otherwise("key"),
            rank=pl.when(rest).then(parameters.n + 1).otherwise("rank"),
        )
    per_round = named.group_by("by", "rank", "key", "epoch").agg(pl.col("steps", "path_ns").sum())
    spans = rounds(run)
    count, span = spans.height, int((spans["end_ns"] - spans["start_ns"]).sum()) or 1
    missing = count - pl.len()

    def percentile(share: int) -> pl.Expr:
        # Rounds without the key are zeros before all others.
        rank = (share * count + 99) // 100 - 1
        at = rank - missing.cast(pl.Int64)
        return pl.when(at < 0).then(0).otherwise(pl.col("path_ns").sort().gather(at.clip(lower_bound=0)).first())

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
        .sort(pl.col("by").cast(pl.Enum(_DIVISIONS)), "rank")
    )
    return result.select(PROFILE_ROUNDS.names).to_arrow().cast(PROFILE_ROUNDS)


def _checked(parameters: ProfileParameters | None) -> ProfileParameters:
    parameters = parameters or ProfileParameters()
    if parameters.n < 0:
        message = f"n is {parameters.n}, and must be 0 (for all) or more."
        raise InvalidParameterError(message, "profile(n=10)")
    return parameters


def _chosen(parameters: ProfileParameters) -> tuple[str, ...]:
    return _DIVISIONS if parameters.by == "all" else (parameters.by,)


def _keys(run: Run, steps: pl.DataFrame, division: str) -> pl.DataFrame:
    """Return one row per key of a division."""
    steps = steps.with_columns(message=IS_MESSAGE)
    none: dict[str, pl.Expr] = {name: pl.lit(None, kind) for name, kind in _NULLS.items()}
    local, message = ~pl.col("message"), pl.col("message")
    if division == "type":
        ids, key = none, pl.col("type")
    elif division == "operator":
        steps = steps.join(operator_names(run), on="operator", how="left")
        name = pl.format("{} ({})", "operator_name", "address")
        number = pl.format("operator {}", "operator")
        unnamed = pl.col("operator_name").is_null() | (pl.col("operator_name") == "")
        ids = {**none, "operator": pl.when(local).then("operator")}
        key = (
            pl.when(message)
            .then(pl.lit(_MESSAGES))
            .when(pl.col("operator").is_null())
            .then(pl.lit(_NO_OPERATOR))
            .otherwise(pl.when(unnamed).then(number).otherwise(name))
        )
    elif division == "worker":
        ids = {**none, "worker": pl.when(local).then("worker")}
        key = pl.when(message).then(pl.lit(_MESSAGES)).otherwise(worker_label(run, "worker"))
    else:
        ids = {**none, "worker": pl.when(message).then("worker"), "to_worker": pl.when(message).then("to_worker")}
        key = pl.when(message).then(_pair(run)).otherwise(pl.lit(_LOCAL))
    columns = {**ids, "key": key}
    return (
        steps.select("window", "duration_ns", **columns)
        .group_by("window", *columns)
        .agg(steps=pl.len().cast(pl.Int64), path_ns=pl.col("duration_ns").sum())
    )


def _pair(run: Run) -> pl.Expr:
    """Return the sender and the receiver of a message: their names, or numbers where nobody has one."""
    if not run.worker_names:
        return pl.format("{} -> {}", "worker", "to_worker")
    return pl.format("{} -> {}", worker_label(run, "worker"), worker_label(run, "to_worker"))


def _ranks(*groups: str) -> pl.Expr:
    order = pl.struct(-pl.col("path_ns"), "key").rank("ordinal").over(*groups)
    return order.cast(pl.Int64).alias("rank")


def _first(keyed: pl.DataFrame, n: int) -> pl.DataFrame:
    """Rank the keys of each division, and sum up what comes after the first `n`."""
    ranked = keyed.with_columns(_ranks("window", "by"), keys=pl.lit(1, pl.Int64)).sort("window", "by", "rank")
    if n:
        rest = ranked.filter(pl.col("rank") > n)
        others = rest.group_by("window", "by").agg(
            pl.lit(n + 1, pl.Int64).alias("rank"),
            pl.lit(_OTHER).alias("key"),
            *(pl.lit(None, kind).alias(name) for name, kind in _NULLS.items()),
            pl.col("keys", "steps", "path_ns").sum(),
        )
        ranked = pl.concat([ranked.filter(pl.col("rank") <= n), others.select(ranked.columns)])
    return ranked.sort("window", pl.col("by").cast(pl.Enum(_DIVISIONS)), "rank")
