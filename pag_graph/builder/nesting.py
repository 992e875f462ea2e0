"""How activities nest that a removal leaves without their begins, where the source states what workers do."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.kernels.applications import applications
from pag_graph.model.enums import EventKind
from pag_graph.model.ids import POSITION_BITS
from pag_graph.store.remembered import Nesting

if TYPE_CHECKING:
    from pag_graph.store.delta import StoreInfo

_KINDS = [str(EventKind.START), str(EventKind.STOP)]


def nesting(info: StoreInfo, first: int, opens_ns: int) -> Nesting:
    """Find what lies around the activities that stay when epochs are removed.

    Parameters
    ----------
    info
        A state of the store of a run whose source states its activities.
    first
        The first epoch that stays.
    opens_ns
        When its window opens.

    Returns
    -------
    Nesting
        O(starts and stops that go).

    Raises
    ------
    StoreError
        If a file is damaged.
    """
    near = (pl.col("min_epoch") < first) & (pl.col("min_t_ns") <= opens_ns)
    is_older = (pl.col("epoch") < first) & (pl.col("t_ns") <= opens_ns)
    marks = (
        info.scan("vertices", near)
        .filter(pl.col("kind").is_in(_KINDS), is_older)
        .select("id", "epoch", pl.col("operator").fill_null(-1), start=pl.col("kind") == _KINDS[0])
        .sort("id")
        .collect()
    )
    ids, number, starts = (marks[name].to_numpy() for name in ("id", "operator", "start"))
    stays, is_outermost = np.zeros((2, len(ids)), np.bool_)
    for begin, end in pairwise(np.flatnonzero(np.diff(ids >> POSITION_BITS, prepend=-1, append=-1)).tolist()):
        own = slice(begin, end)
        last, none = slice(begin, end - 1), np.empty(0, np.int64)
        _, depth, _, still_open = applications(starts[last].copy(), number[last].copy(), none)
        is_outermost[own] = starts[own] & (depth == 0)
        # The last mark, and what was open before it, leave the worker as all of them do.
        stays[begin + still_open] = stays[end - 1] = True
    outermost = marks.filter(pl.Series(is_outermost)).select("operator", worker=pl.col("id") // (1 << POSITION_BITS))
    return Nesting(marks.filter(pl.Series(stays)).select("id", "epoch"), outermost.unique())
