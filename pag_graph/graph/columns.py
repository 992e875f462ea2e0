"""Columns of frames as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


def integers(column: pl.Series, absent: int = -1) -> NDArray[np.int64]:
    """Return a column of integers as an array.

    Parameters
    ----------
    column
        Integers of any width; some may be null.
    absent
        What stands for null.

    Returns
    -------
    array of int64
        Per row. Arrow fills in what is absent: to ask Polars takes longer than to look at the rows of a commit.

    Examples
    --------
    >>> import polars as pl
    >>> integers(pl.Series([3, None], dtype=pl.Int32))
    array([ 3, -1])
    """
    if not column.null_count():
        return np.asarray(column.to_numpy(), dtype=np.int64)
    rows = column.to_arrow().cast(pa.int64()).fill_null(absent)
    return np.asarray(rows.to_numpy(zero_copy_only=False), dtype=np.int64)
