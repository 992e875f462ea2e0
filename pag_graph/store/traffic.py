"""The table `traffic`: files hold sums slice by slice, and readers add up those of one key."""

from __future__ import annotations

import polars as pl

from pag_graph.model.tables import PAG_TRAFFIC, STORE_TABLES

TRAFFIC = "traffic"
SINCE = 2
"""Version of contract 2 that has the table."""
_KEY = PAG_TRAFFIC.names[: PAG_TRAFFIC.get_field_index("messages")]


def summed(parts: pl.LazyFrame) -> pl.LazyFrame:
    """Add up what files tell, so that nobody sees how the work was cut.

    Parameters
    ----------
    parts
        Rows of `PAG_TRAFFIC`, several for a key.

    Returns
    -------
    LazyFrame
        One row per key, sorted by it; records and bytes are null where one of the rows does not tell.
    """
    known = [
        pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name) for name in ("records", "bytes")
    ]
    return parts.group_by(_KEY).agg(pl.col("messages").sum(), *known).select(PAG_TRAFFIC.names).sort(_KEY)


def tables_of(format_version: int) -> tuple[str, ...]:
    """Return the names of the graph's tables that a store of a version of contract 2 has.

    Parameters
    ----------
    format_version
        From 1.

    Returns
    -------
    tuple of str
        In the order of `STORE_TABLES`.
    """
    return tuple(name for name in STORE_TABLES if name != TRAFFIC or format_version >= SINCE)
