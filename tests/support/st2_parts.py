"""The graph of a table of events by the rules of SnailTrail 2, without a trace or a store around it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pag_graph.kernels import layout
from pag_graph.model.enums import ActivityType
from pag_graph.model.graph import GraphPart
from pag_graph.model.tables import PAG_EDGES, PAG_VERTICES
from pag_graph.rules.rows import CODE_OF_LABEL, EDGE_CODES, LABELS, WorkerRows
from pag_graph.rules.st2 import build_columns, message_findings
from pag_graph.store.log import column

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGES = [EDGE_CODES[kind] for kind in (ActivityType.DATA_MESSAGE, ActivityType.PROGRESS_MESSAGE)]


def build_part(
    events: pa.Table, *, position_offset: Mapping[int, int], prepared: bool, operators: pa.Table
) -> GraphPart:
    """Build the graph of whole epochs of all workers, as SnailTrail 2 does.

    Parameters
    ----------
    events
        Rows of `TRACE_EVENTS`, a worker's rows together in the order of its log (as `Trace.events` returns them):
        all events of some epochs.
    position_offset
        Per worker: how many rows of its log precede the slice. Names every worker of the trace, because a progress
        message goes to all of them.
    prepared
        Whether rows were removed and moved already.
    operators
        Rows of `TRACE_OPERATORS`; addresses tell which operators are scopes.

    Returns
    -------
    GraphPart
        Vertices in the order of worker and position: `pos` is twice the number of the row in its worker's log, rows
        counted that are dropped; a receive and the row that it overtakes change numbers too. `t_ns` is the worker's own
        clock, except for receives that moved. Segments begin with a worker's first vertex of an epoch and with the
        ends of `waiting` edges.
        Edges: local ones in the order of their ends, then data, then progress messages. `records` is known for what
        ends with a stop and for data messages, `activation` for what leads from a start to its stop, `operator` for
        what begins with a start and does not end with one.
        Findings: see `message_findings`; partners are searched in the slice only.

    Notes
    -----
    Linear in the events, plus hash joins of the messages.
    """
    part, ends = build_slice(events, position_offset=position_offset, prepared=prepared, operators=operators)
    return GraphPart(vertices=part.vertices, edges=part.edges, findings=message_findings(ends), dropped=part.dropped)


def build_slice(
    events: pa.Table, *, position_offset: Mapping[int, int], prepared: bool, operators: pa.Table
) -> tuple[GraphPart, pa.Table]:
    """Build the graph of a slice and leave the judgement of unmatched messages for later.

    Whether a message crosses epochs or lost its other end cannot be told from a slice alone. The ends of all slices,
    concatenated and given to `message_findings`, make the same findings for every way of slicing.

    Parameters
    ----------
    events, position_offset, prepared, operators
        As for `build_part`.

    Returns
    -------
    part
        As `build_part` returns it, without findings.
    ends
        Rows of `MESSAGE_ENDS`.
    """
    words = np.array([LABELS.get(kind, 0) for kind in events["kind"].to_pylist()], np.int8)
    names = ("seq", "epoch", "operator", "channel", "peer", "message_seq", "records", "bytes")
    columns: dict[str, Any] = {name: column(events, name) for name in names}
    columns |= {"t": column(events, "t_ns"), "timeout": columns["seq"], "label": words, "kind": CODE_OF_LABEL[words]}
    worker = column(events, "worker")
    bounds = [0, *(int(row) + 1 for row in np.flatnonzero(np.diff(worker))), len(worker)]
    rows = [
        WorkerRows(
            worker=int(worker[low]),
            first_order=position_offset.get(int(worker[low]), 0) + 1,
            starts_run=False,
            ends_log=False,
            ends_run=False,
            activity=np.empty(0, np.int8),
            inferred=np.empty(0, np.int8),
            **{name: values[low:high] for name, values in columns.items()},
        )
        for low, high in pairwise(bounds)
        if low < high
    ]
    workers = len(set(position_offset) | {worker_rows.worker for worker_rows in rows})
    graph, ends = build_columns(rows, workers=workers, prepared=prepared, operators=operators)
    vertices, edges = (table.table(0, table.rows) for table in (graph.vertices, graph.edges))
    message = np.isin(graph.edges.kind, _MESSAGES)
    group = np.where(message, graph.edges.kind, -1)
    order = np.lexsort((graph.edges.numbers[layout.DST], group))
    part = GraphPart(
        vertices=vertices.cast(PAG_VERTICES).sort_by("id"),
        edges=edges.cast(PAG_EDGES).take(pa.array(order)),
        findings=graph.findings,
        dropped=graph.dropped,
    )
    return part, ends
