"""What the critical path is made of: by type, operator, worker and pair of workers.

Definition: CPA (Sager 2016) 7.3 (profile of the path, absolute and relative, the first n and the rest).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import polars as pl

from pag_graph.analyses.critical_path import path_steps
from pag_graph.analyses.definition import Chart, Standing, TableAnalysis
from pag_graph.analyses.expressions import IS_MESSAGE, operator_names, share_of, worker_label
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.model.tables import PROFILE

if TYPE_CHECKING:
    from pag_graph.analyses.view import View
    from pag_graph.graph.run import Run

DIVISIONS = ("type", "operator", "worker", "pair")
OTHER = "(other)"
_LOCAL, _MESSAGES, _NO_OPERATOR = "(local)", "(messages)", "(no operator)"
_NULLS = {"operator": pl.Int64(), "worker": pl.Int32(), "to_worker": pl.Int32()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileParameters:
    """Parameters of `profile` and `profile_rounds`."""

    by: Annotated[
        Literal["all", "type", "operator", "worker", "pair"],
        "What to divide the path by; all gives each of these divisions.",
    ] = "all"
    n: Annotated[int, "Number of keys to list; the rest is summed up as (other). 0 lists all."] = 10

    def __post_init__(self) -> None:
        """Check the range.

        Raises
        ------
        InvalidParameterError
            If `n` is negative.
        """
        if self.n < 0:
            message = f"n is {self.n}, and must be 0 (for all) or more."
            raise InvalidParameterError(message, "profile(n=10)")


def profile(view: View, parameters: ProfileParameters) -> pl.DataFrame:
    """Divide the critical path by type, operator, worker and pair of workers.

    Parameters
    ----------
    view
        Of a run with aligned clocks.
    parameters
        What to divide by, and how many keys to list.

    Returns
    -------
    DataFrame
        Rows of `PROFILE`, one per division and key. Each division covers the whole path: where they belong to no key,
        local time without an operator is `(no operator)`, messages are `(messages)`, local time `(local)`. So the
        times of a division add up to the window's span.

    Notes
    -----
    The definition is that of CPA, 7.3. Rows of equal time are listed by key. O(path).
    """
    ranked = _first(divided(view, parameters), parameters.n).join(view.spans, on="window", maintain_order="left")
    return ranked.with_columns(share=share_of("path_ns", pl.col("span_ns")))


def divided(view: View, parameters: ProfileParameters) -> pl.DataFrame:
    """Divide the critical paths of all windows of a view, and sum up no key.

    Parameters
    ----------
    view
        Of a run with aligned clocks.
    parameters
        What to divide by.

    Returns
    -------
    DataFrame
        One row per window, division and key, sorted by these: what `PROFILE` says of it but ranks and shares.
    """
    steps = path_steps(view)
    chosen = DIVISIONS if parameters.by == "all" else (parameters.by,)
    keyed = pl.concat([_keys(view.run, steps, division).with_columns(by=pl.lit(division)) for division in chosen])
    return keyed.sort("window", "by", "key", *_NULLS)


def _keys(run: Run, steps: pl.DataFrame, division: str) -> pl.DataFrame:
    """Return one row per key of a division."""
    steps = steps.with_columns(message=IS_MESSAGE)
    no_ids: dict[str, pl.Expr] = {name: pl.lit(None, kind) for name, kind in _NULLS.items()}
    local, message = ~pl.col("message"), pl.col("message")
    if division == "type":
        ids, key = no_ids, pl.col("type")
    elif division == "operator":
        steps = steps.join(operator_names(run), on="operator", how="left")
        name = pl.format("{} ({})", "operator_name", "address")
        number = pl.format("operator {}", "operator")
        unnamed = pl.col("operator_name").is_null() | (pl.col("operator_name") == "")
        ids = {**no_ids, "operator": pl.when(local).then("operator")}
        key = (
            pl.when(message)
            .then(pl.lit(_MESSAGES))
            .when(pl.col("operator").is_null())
            .then(pl.lit(_NO_OPERATOR))
            .otherwise(pl.when(unnamed).then(number).otherwise(name))
        )
    elif division == "worker":
        ids = {**no_ids, "worker": pl.when(local).then("worker")}
        key = pl.when(message).then(pl.lit(_MESSAGES)).otherwise(worker_label(run, "worker"))
    else:
        ids = {**no_ids, "worker": pl.when(message).then("worker"), "to_worker": pl.when(message).then("to_worker")}
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


def ranks_by(*groups: str) -> pl.Expr:
    """Return the rank of a key in its groups, from 1: most time first, ties by key.

    Parameters
    ----------
    *groups
        Columns.

    Returns
    -------
    Expr
        Int64, called ``rank``; needs ``path_ns`` and ``key``.
    """
    order = pl.struct(-pl.col("path_ns"), "key").rank("ordinal").over(*groups)
    return order.cast(pl.Int64).alias("rank")


def _first(keyed: pl.DataFrame, n: int) -> pl.DataFrame:
    """Rank the keys of each division, and sum up what comes after the first `n`."""
    ranked = keyed.with_columns(ranks_by("window", "by"), keys=pl.lit(1, pl.Int64)).sort("window", "by", "rank")
    # What goes beyond the keys that there are has no rank that 64 bits can count.
    if 0 < n < keyed.height:
        other_keys = ranked.filter(pl.col("rank") > n)
        sum_of_others = other_keys.group_by("window", "by").agg(
            pl.lit(n + 1, pl.Int64).alias("rank"),
            pl.lit(OTHER).alias("key"),
            *(pl.lit(None, kind).alias(name) for name, kind in _NULLS.items()),
            pl.col("keys", "steps", "path_ns").sum(),
        )
        ranked = pl.concat([ranked.filter(pl.col("rank") <= n), sum_of_others.select(ranked.columns)])
    return ranked.sort("window", pl.col("by").cast(pl.Enum(DIVISIONS)), "rank")


ANALYSIS = TableAnalysis(
    name="profile",
    function=profile,
    parameters=ProfileParameters,
    schema=PROFILE,
    output="PROFILE",
    across=True,
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5 --by operator",
    columns=("by", "rank", "key", "keys", "steps", "path_ns", "share"),
    chart=Chart(kind="bars", x=("key",), y=("path_ns",), panel="by"),
    standing=Standing.WINDOW,
)
