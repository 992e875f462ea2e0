"""k-hops: what happened shortly before the waits ended, hop by hop, on all workers.

Definition: ST2 (Sandstede 2019) 3.6.1 and 5.1.4, joined on vertices instead of times; `docs/model.md`, section
"k-hops". The first hop never is local: the messages that ended waits, and the data messages read right after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import polars as pl

from pag_graph.analyses.definition import Flags
from pag_graph.errors import AnalysisError, InvalidParameterError
from pag_graph.kernels.hops import count_walks
from pag_graph.model.enums import ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import K_HOPS

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.pag.snapshot import Snapshot

_WAITING, _DATA = str(ActivityType.WAITING), str(ActivityType.DATA_MESSAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KHopsParameters:
    """Parameters of `k_hops`."""

    k: Annotated[int, "Number of hops, in edges.", Flags(("-k", "--hops"))] = 10
    through_waits: Annotated[
        bool, "Follow waits as well; without them hops are causes only.", Flags(("--through-waits/--causes-only",))
    ] = True
    weight: Annotated[
        Literal["delivered", "transfer"], "A message weighs the time from send to read, or from send to arrival."
    ] = "delivered"


def k_hops(snapshot: Snapshot, parameters: KHopsParameters | None = None) -> pa.Table:
    """Summarise the activities within k hops before the ends of the window's waits.

    Parameters
    ----------
    snapshot
        Of any run.
    parameters
        Number of hops, and what to follow and to weigh.

    Returns
    -------
    pa.Table
        Rows of `K_HOPS`. Hops stop at the window's start; an edge that crosses it counts with its part inside.

    Raises
    ------
    InvalidParameterError
        If `k` is not positive.
    AnalysisError
        If so many walks exist that 64 bits cannot count them.

    Notes
    -----
    O(k x edges): walks are counted per vertex, never listed.
    """
    parameters = parameters or KHopsParameters()
    if parameters.k < 1:
        message = f"k is {parameters.k}, and must be at least 1."
        raise InvalidParameterError(message, "k_hops(k=10)")
    window = snapshot.window
    edges = pl.concat([snapshot.local, snapshot.messages]).filter(
        pl.col("end_ns") > window.start_ns if window.start_ns else pl.col("end_ns") >= 0,
        pl.col("end_ns") <= window.end_ns,
    )
    if snapshot.run.rules == "st2":
        # Times of different workers cannot be compared; the epoch is the whole window.
        edges = pl.concat([snapshot.local, snapshot.messages])
    edges = edges.sort("dst", "src").with_columns(weight=_weight(parameters, window.start_ns, snapshot))
    seeds = _seeds(edges)
    if not parameters.through_waits:
        keep = (edges["type"] != _WAITING).to_numpy()
        seeds = (np.cumsum(keep) - 1)[seeds]
        edges = edges.filter(keep)
    ids, ends = np.unique(np.concatenate([edges["src"].to_numpy(), edges["dst"].to_numpy()]), return_inverse=True)
    grouped = edges.with_columns(worker=pl.col("src") // (1 << POSITION_BITS)).with_columns(
        group=pl.struct("type", "worker", "operator").rank("dense").cast(pl.Int64) - 1
    )
    names = grouped.unique("group").sort("group").select("type", "worker", "operator")
    walks, counts, walk_ns, edge_ns, exact = count_walks(
        ends[: edges.height],
        ends[edges.height :],
        edges["weight"].to_numpy(),
        grouped["group"].to_numpy(),
        seeds,
        len(ids),
        names.height,
        parameters.k,
    )
    if not exact:
        message = f"More walks of up to {parameters.k} hops end in {window.name} than 64 bits can count."
        raise AnalysisError(message, "Ask for fewer hops, or a shorter window.", {"k": parameters.k})
    hop, group = np.nonzero(counts)
    result = names[group].with_columns(
        hop=pl.Series(hop + 1, dtype=pl.Int64),
        walks=pl.Series(walks[hop, group]),
        edges=pl.Series(counts[hop, group]),
        walk_ns=pl.Series(walk_ns[hop, group]),
        edge_ns=pl.Series(edge_ns[hop, group]),
    )
    return result.sort("hop", "type", "worker", "operator").select(K_HOPS.names).to_arrow().cast(K_HOPS)


def _weight(parameters: KHopsParameters, start_ns: int, snapshot: Snapshot) -> pl.Expr:
    """Duration inside the window; for a message that ended a wait plus, if `delivered`, the time until it was read."""
    inside = (
        pl.col("duration_ns")
        if snapshot.run.rules == "st2"
        else pl.col("end_ns") - pl.max_horizontal("start_ns", pl.lit(start_ns))
    )
    if parameters.weight == "transfer":
        # Without a log of arrivals the transfer of a message that ended no wait is unknown; in one process it is 0.
        at_once = pl.col("receive_buffer_ns").is_not_null() & (pl.col("read") == pl.col("dst"))
        return pl.when(at_once).then(inside - pl.min_horizontal(inside, "receive_buffer_ns")).otherwise(inside)
    until_read = pl.when(pl.col("read") != pl.col("dst")).then(pl.col("receive_buffer_ns").fill_null(0)).otherwise(0)
    return inside + until_read.fill_null(0)


def _seeds(edges: pl.DataFrame) -> NDArray[np.int64]:
    """Return the indices of the first hop's edges; `edges` are sorted by `dst`."""
    kind, dst = edges["type"], edges["dst"].to_numpy()
    waits = dst[(kind == _WAITING).to_numpy()]
    into_end = np.isin(dst, waits) & (kind != _WAITING).to_numpy()
    # The segment that a wait's end opens lasts until the worker's next wait ends.
    at = np.searchsorted(waits, dst, side="right") - 1
    after = at >= 0
    after[after] = waits[at[after]] >> POSITION_BITS == dst[after] >> POSITION_BITS
    return np.flatnonzero(into_end | (after & (kind == _DATA).to_numpy()))
