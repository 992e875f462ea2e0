"""Tables that a store may have beside those of its graph: what standing queries said commit after commit, and alerts.

A store without them is whole, and releases that do not know them read the graph as it is.
"""

from __future__ import annotations

import pyarrow as pa

from pag_graph.model.columns import column as _column
from pag_graph.model.tables import STORE_TABLES

_I64, _STR = pa.int64(), pa.string()

CHANGES = pa.schema(
    [
        _column("query", _STR, "the standing query, as `Query.id` names it"),
        _column("commit", _I64, "the commit that made it visible: the version of the table `epochs`"),
        _column("ordinal", _I64, "place in the commit, from 0"),
        _column("epoch", _I64, "epoch whose answer changed; of an answer over all epochs the last one answered"),
        _column("diff", _I64, "so many such rows more; fewer where negative"),
        _column("row", _STR, "the row as JSON, with the columns of the query's answer"),
    ]
)
"""One row per row of an answer that came or went with a commit; summed up they are the answer."""

ALERTS = pa.schema(
    [
        _column("id", _STR, "SHA-256 of run, rule, subject and first epoch"),
        _column("event", _STR, "AlertEvent"),
        _column("rule", _STR, "name of the rule"),
        _column("query", _STR, "the standing query that it watches"),
        _column("severity", _STR, "Severity"),
        _column("subject", _STR, "what it is about: columns of the row, as JSON"),
        _column("first_epoch", _I64, "epoch of the first row that matched"),
        _column("epoch", _I64, "epoch at which it opened or was resolved"),
        _column("commit", _I64, "the commit that made it visible: the version of the table `epochs`"),
        _column("ordinal", _I64, "place in the commit, from 0"),
        _column("src", _I64, "edge concerned: where it starts", null=True),
        _column("dst", _I64, "edge concerned: where it ends", null=True),
        _column("observed", pa.float64(), "what was seen", null=True),
        _column("limit", pa.float64(), "what was allowed", null=True),
        _column("learned", pa.bool_(), "whether the limit was learned", null=True),
        _column("coverage", pa.float64(), "share of the epoch's time that is known", null=True),
        _column("row", _STR, "the row that matched, as JSON; null of what is resolved", null=True),
    ]
)
"""Two rows per alert, when it opens and when it is resolved, each exactly once."""

HELD = pa.schema(
    [
        _column("epoch", _I64, "the first epoch that is not closed"),
        _column("worker", _I64, "whom it waits for"),
        _column("why", _STR, "why it waits, as `pag ongoing` says"),
        _column("since_ns", _I64, "since when in the run's own time: the last that is known of the worker"),
        _column("held_ns", _I64, "how long no epoch was closed, by the follower's clock"),
    ]
)
"""The row that rules about the frontier look at, while a run is followed; no table of a store."""

STANDING = pa.schema(
    [
        _column("owner", _STR, "the query or rule that needs it"),
        _column("part", _STR, "what of its state it is"),
        _column("epoch", _I64, "epoch that it is from"),
        _column("key", _STR, "what it is about, as JSON"),
        _column("value", _STR, "what is remembered, as JSON"),
    ]
)
"""One row per value from which standing queries and rules go on; every commit replaces them."""

FROM = "from"
"""Part of a query's state: its row has the first epoch as of which the query can go on."""

LIVE_TABLES: dict[str, pa.Schema] = {"changes": CHANGES, "alerts": ALERTS, "standing": STANDING}
"""In the order in which they are committed, before `epochs`."""

ALL_TABLES: dict[str, pa.Schema] = {**LIVE_TABLES, **STORE_TABLES}
"""All tables that a store can have; `epochs` comes last and pins the others."""
