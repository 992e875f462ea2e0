"""The rules of SnailTrail 2, kept exact so that both programs' graphs can be compared.

Epochs are islands: nothing leads from one epoch to another, clocks are not aligned, and everything an operator does not
do itself is `busy` or `waiting`. Use it for comparison; the rule set `timely` explains waits.

**Preparation**, unless the trace is marked as prepared, for the rows of one worker and epoch in the order of the log:

1. Starts and stops of scopes go away: those of operators whose address is another operator's address without its last
   part. Kinds that SnailTrail 2 does not know go away too, and so do messages of a worker to itself.
   A stop that says nothing about records gets the sum of what its activation received, local messages included.
2. Data receives move ahead. Going through the rows that are left, a row and the data receive right after it change
   places, and the receive takes the time of the row that it overtakes; both are done with, and the pass goes on behind
   them. A receive is logged inside the activation that reads it, so this puts the (first) message before the start.
   The row that is overtaken can be anything, a receive as well: in a run of receives after a start, the first moves
   ahead of the start, the third ahead of the second, the fifth ahead of the fourth. So not only the first receive after
   a start moves; in two programs of four that were compared, 20 of 117 that moved overtook another receive.

The pass of step 2 starts afresh in every epoch of every worker, because SnailTrail 2 handles each as one batch: the
first row of an epoch cannot be overtaken by a receive of another epoch, nor does it overtake one.

**Local edges** connect each row that is left to the next one of its worker and epoch, down to the last: SnailTrail 2
holds back an edge until it knows the row behind it, but closes the last one when the batch ends, so no edge is missing
at the end of an epoch, and an epoch of one row has none. The first line that fits gives the type:

============  ================  ==========================================================
from          to                type
============  ================  ==========================================================
start         stop              `processing` if the stop states records, else `spinning`
start, stop   start, stop       `busy`
anything      progress receive  `waiting`
anything      progress send     `busy`
progress      anything          `busy`
data message  anything          `processing`
anything      data message      `processing`
============  ================  ==========================================================

SnailTrail 2 refuses start to start and stop to stop, which only logs with nested activations have that step 1 cannot
recognise; here they are `busy`.

**Remote edges** connect a send to its receive in the same epoch: data by channel, sender, receiver and number, progress
by channel, sender and number, from one send to every other worker. Ends that find no partner become findings.

References
----------
.. [1] SnailTrail 2, https://github.com/li1/snailtrail: `st2-timely/src/lib.rs` (preparation), `st2/src/pag.rs` (edges).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from pag_graph.kernels import ABSENT
from pag_graph.kernels.activations import STOP
from pag_graph.model.enums import Severity
from pag_graph.model.tables import PAG_FINDINGS
from pag_graph.rules.st2_chains import REASONS, Part, chained, scopes_of
from pag_graph.rules.st2_messages import Ends, ends_of, match
from pag_graph.rules.worker_graphs import Messages, WorkerGraph, lay_out
from pag_graph.runtime.threads import each

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.rules.graph_columns import GraphColumns
    from pag_graph.rules.rows import WorkerRows

columns: Final[tuple[str, ...]] = ()
aligned: Final = False
epochs_are_islands: Final = True
states_activities: Final = False
reads_prepared: Final = True
reads_idleness: Final = False
no_place_to_cut: Final = "they are of one epoch"

_KEY = ("channel", "sender", "receiver", "message_seq")


def build_columns(
    rows: Sequence[WorkerRows], *, workers: int, prepared: bool, operators: pa.Table
) -> tuple[GraphColumns, pa.Table]:
    """Build the graph of whole epochs of all workers, as SnailTrail 2 does.

    Parameters
    ----------
    rows
        Per worker, ascending: all events of some epochs, times on its own clock.
    workers
        How many workers the trace has.
    prepared
        Whether rows were removed and moved already.
    operators
        Rows of `TRACE_OPERATORS`; addresses tell which operators are scopes.

    Returns
    -------
    columns
        Vertices and edges in the order of the store. `pos` is twice the number of the row in its worker's log, rows
        counted that are dropped; a receive and the row that it overtakes change numbers too. `t_ns` is the worker's own
        clock, except for receives that moved. Segments begin with a worker's first vertex of an epoch and with the
        ends of `waiting` edges. `records` is known for what ends with a stop and for data messages, `activation` for
        what leads from a start to its stop, `operator` for what begins with a start and does not end with one.
    ends
        Rows of `MESSAGE_ENDS`: whether a message crosses epochs or lost its other end cannot be told from a slice.
        Those of all slices, concatenated and given to `message_findings`, make the same findings for every slicing.

    Notes
    -----
    Linear in the events, plus hash joins of the messages.
    """
    # A prepared log has no scopes.
    scopes = scopes_of(operators.slice(0, 0) if prepared else operators)

    def part_of(log: WorkerRows) -> tuple[Part, Ends, NDArray[np.int64]]:
        part, counts = chained(log, scopes, prepared=prepared)
        return part, ends_of(part, workers), counts

    parts = each(part_of, rows)
    messages, unmatched = match(parts)

    def graph(item: tuple[Part, Messages]) -> WorkerGraph:
        part, read = item
        return WorkerGraph(
            rows=part.rows,
            operator=np.where(part.rows.kind <= STOP, part.rows.operator, ABSENT),
            row=part.order.source.astype(np.int32),
            pos=part.chain.pos,
            t=part.order.t_ns,
            segment=part.chain.segment,
            epoch=part.chain.epoch,
            local=part.chain.edges(),
            messages=read,
        )

    graphs = each(graph, [(part, read) for (part, _, _), read in zip(parts, messages, strict=True)])
    total = sum((counts for _, _, counts in parts), np.zeros(len(REASONS), np.int64))
    dropped = {reason: int(count) for reason, count in zip(REASONS, total, strict=True) if count}
    return lay_out(graphs, findings=PAG_FINDINGS.empty_table(), dropped=dropped), unmatched


def message_findings(ends: pa.Table) -> pa.Table:
    """Tell messages that cross epochs from messages that lack an end, one row per vertex.

    Parameters
    ----------
    ends
        Rows of `MESSAGE_ENDS`, of all slices whose findings are wanted.

    Returns
    -------
    pa.Table
        Rows of `PAG_FINDINGS`, in the order of `vertex`. `message_across_epochs`: all partners exist; `observed` is the
        lowest epoch among those in other epochs, `limit` the event's own. `send_without_receive` and
        `receive_without_send`: `observed` is the number of partners in any epoch, `limit` how many there must be.

    Notes
    -----
    Hash joins; a message whose channel, other side or number is unknown has no partner.
    """
    frame = pl.DataFrame(ends)

    def partners(*, sent: bool) -> pl.DataFrame:
        return (
            frame.filter(pl.col("sent") == sent).group_by(_KEY).agg(elsewhere=pl.len(), partner=pl.col("epoch").min())
        )

    sides = [
        frame.filter(pl.col("sent") == sent).join(partners(sent=not sent), on=_KEY, how="left")
        for sent in (True, False)
    ]
    partners_seen = pl.col("found") + pl.col("elsewhere").fill_null(0)
    across = partners_seen >= pl.col("expected")

    def choose(if_across: str, if_sent: str, if_received: str) -> pl.Expr:
        one_side = pl.when("sent").then(pl.lit(if_sent)).otherwise(pl.lit(if_received))
        return pl.when(across).then(pl.lit(if_across)).otherwise(one_side)

    rows = (
        pl.concat(sides)
        .sort("vertex")
        .select(
            finding=choose("message_across_epochs", "send_without_receive", "receive_without_send"),
            severity=choose(Severity.INFO.value, Severity.WARNING.value, Severity.WARNING.value),
            worker=pl.col("worker"),
            vertex=pl.col("vertex"),
            seq=pl.col("seq"),
            file=pl.lit(None, pl.String),
            observed=pl.when(across).then(pl.col("partner")).otherwise(partners_seen),
            limit=pl.when(across).then(pl.col("epoch")).otherwise(pl.col("expected")),
            unit=choose("epoch", "receives", "sends"),
            action=pl.lit("no edge"),
        )
    )
    return rows.to_arrow().cast(PAG_FINDINGS)
