"""What a run is in Neo4j: nodes and relationships as tables, derived from the tables of the store.

A load is a set of tables, one for each label and each type of relationship; the driver writes them, or a bulk import.
The text of every loading query is made here, from names that stand in this package; values are parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.rescaling_tables import RESCALE_OPERATIONS, RESCALE_PHASES, RESCALE_STEPS
from pag_graph.model.tables import (
    ADVICE,
    ADVICE_TRIALS,
    CRITICAL_PATH,
    PAG_EDGES,
    PAG_EPOCHS,
    PAG_FINDINGS,
    PAG_VERTICES,
    TRACE_CHANNELS,
    TRACE_OPERATORS,
    TRACE_WORKERS,
)

EDGE_KEY = ["src", "dst", "type"]
"""What tells edges of the store apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """Nodes of one label."""

    label: str
    key: tuple[str, ...]
    """What tells its nodes apart, beside the run."""
    columns: tuple[str, ...]
    """All properties but the run, the key among them."""
    has_lane: bool = False
    """Whether its column ``lane`` is a second label too, which says what colour it is drawn in; one of `LANES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationshipTable:
    """Relationships of one type."""

    type: str
    source: NodeTable
    target: NodeTable
    source_columns: tuple[str, ...]
    """Columns with the key of the node that it begins at."""
    target_columns: tuple[str, ...]
    """Columns with the key of the node that it ends at."""
    columns: tuple[str, ...] = ()
    """Properties."""
    key: tuple[str, ...] = field(default=())
    """Properties that tell several between the same two nodes apart."""
    carries_run: bool = False
    """Whether the run is a property too, so that an index finds those of some epochs."""

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Columns of the table: both ends and the properties."""
        return tuple(dict.fromkeys((*self.source_columns, *self.target_columns, *self.columns)))


def _names_without(names: list[str], *left_out: str) -> tuple[str, ...]:
    return tuple(name for name in names if name not in left_out)


TIME_BY_TYPE = tuple(f"{kind}_ns" for kind in LOCAL_TYPES if kind is not ActivityType.WAITING)
"""Properties of a `Segment`: its time by type."""

LOG = ("log_file", "log_from_row", "log_rows", "log_from_seq", "log_to_seq")
"""Properties of a `Worker`, lists of the same length: which rows of the trace's files hold which of its events."""
MADE = ("command", "user", "host", "engine", "began", "seconds")
"""Properties of a `Job`: who made a commit, how, and for how long; null where nobody wrote it down."""
LANES = tuple(f"Lane{number}" for number in range(8))
"""Labels for the colours of workers: Neo4j Browser chooses colours by labels alone."""
WORKER = NodeTable(label="Worker", key=("worker",), columns=(*TRACE_WORKERS.names, "peers", *LOG))
"""Workers; ``peers`` is the same for all that can be compared with each other (`Run.peers`)."""
OPERATOR = NodeTable(label="Operator", key=("operator",), columns=tuple(TRACE_OPERATORS.names))
NAMELESS = NodeTable(label="Operator", key=("operator",), columns=("operator",))
"""Operators that did something; what is known of them beside is left as it is, and may be nothing."""
FEEDS = RelationshipTable(
    type="FEEDS",
    source=OPERATOR,
    target=OPERATOR,
    source_columns=("source_operator",),
    target_columns=("target_operator",),
    columns=_names_without(TRACE_CHANNELS.names, "source_operator", "target_operator"),
    key=("channel",),
    carries_run=True,
)
FINDING = NodeTable(
    label="Finding",
    key=("id",),
    columns=(
        *("id", *PAG_FINDINGS.names),
        *("rule", "query", "subject", "first_epoch", "resolved_epoch", "learned", "coverage", "src", "dst", "row"),
    ),
)
"""Findings of a build, and alerts, which have the columns behind `PAG_FINDINGS`."""
EVENT = NodeTable(label="Event", key=("id",), columns=(*PAG_VERTICES.names, "operator_name"))
FOUND_BY_EPOCH = (ActivityType.DATA_MESSAGE, ActivityType.WAITING, ActivityType.INPUT_WAIT, ActivityType.IDLE)
"""Activities that questions about whole runs begin with; they are few."""
ACTIVITIES = {
    kind: RelationshipTable(
        type=kind.upper(),
        source=EVENT,
        target=EVENT,
        source_columns=("src",),
        target_columns=("dst",),
        columns=(
            *_names_without(PAG_EDGES.names, "src", "dst", "type"),
            *("title", "critical"),
            *(("ended_by",) if kind is ActivityType.WAITING else ()),
        ),
        carries_run=kind in FOUND_BY_EPOCH,
    )
    for kind in ActivityType
}
"""Per type of edge: the relationships between events; ``title`` is what Neo4j Browser writes on one. A wait was
``ended_by`` the message that this event sent."""
SEGMENT = NodeTable(
    label="Segment",
    key=("id",),
    columns=(
        *("id", "worker", "epoch", "round", "start_ns", "end_ns", "last_epoch", "events"),
        *TIME_BY_TYPE,
        *("operators", "operators_ns", "operator_names", "title", "lane"),
    ),
    has_lane=True,
)
THEN = RelationshipTable(
    type="THEN",
    source=SEGMENT,
    target=SEGMENT,
    source_columns=("source",),
    target_columns=("target",),
    columns=("start_ns", "waited_ns", "epoch", "src_epoch", "title"),
)
RELEASED = RelationshipTable(
    type="RELEASED",
    source=SEGMENT,
    target=SEGMENT,
    source_columns=("source",),
    target_columns=("target",),
    columns=(
        *_names_without(
            PAG_EDGES.names, "start_ns", "duration_ns", "activation", "send_buffer_ns", "receive_buffer_ns"
        ),
        *("sent_ns", "arrived_ns", "delivered_ns", "waited_ns", "critical", "sender_operator", "title"),
    ),
    key=("src",),
)
CRITICAL = RelationshipTable(
    type="CRITICAL",
    source=SEGMENT,
    target=SEGMENT,
    source_columns=("source",),
    target_columns=("target",),
    columns=("type", "waited_ns", "title"),
)
"""Beside each `RELEASED` that is critical: Neo4j Browser chooses colours by types alone."""
SNAPSHOT = NodeTable(
    label="Snapshot",
    key=("id",),
    columns=(
        *("id", "epoch", "role", "start_ns", "end_ns", "span_ns", "waiting_ns", "unknown_ns", "coverage", "commit"),
        *("path_steps", "path_messages", "path_segments"),
        *("path_types", "path_operators", "path_workers", "path_to_workers", "path_counts", "path_times_ns"),
    ),
)
STEP = NodeTable(label="CriticalStep", key=("epoch", "step"), columns=("epoch", *CRITICAL_PATH.names))
CONTAINS_STEP = RelationshipTable(
    type="CONTAINS",
    source=SNAPSHOT,
    target=STEP,
    source_columns=("snapshot",),
    target_columns=("epoch", "step"),
)
SPENT = RelationshipTable(
    type="SPENT",
    source=SNAPSHOT,
    target=OPERATOR,
    source_columns=("snapshot",),
    target_columns=("operator",),
    columns=("type", "ns", "path_ns"),
    key=("type",),
)
CONTAINS_FINDING = RelationshipTable(
    type="CONTAINS", source=SNAPSHOT, target=FINDING, source_columns=("snapshot",), target_columns=("finding",)
)

EPOCH = NodeTable(
    label="Epoch", key=("epoch",), columns=(*PAG_EPOCHS.names, "after_ns", "end_segment", "highest_epoch")
)

ADVISED = NodeTable(
    label="Advice",
    key=("id",),
    columns=("id", "start_ns", "end_ns", *_names_without(ADVICE.names, "operator", "operator_name")),
)
AT = RelationshipTable(type="AT", source=ADVISED, target=OPERATOR, source_columns=("id",), target_columns=("operator",))
MOVES = RelationshipTable(
    type="MOVES",
    source=ADVISED,
    target=OPERATOR,
    source_columns=("id",),
    target_columns=("operator",),
    columns=("mu",),
)
TRIAL = NodeTable(label="Trial", key=("id",), columns=("id", *ADVICE_TRIALS.names))
TRIED = RelationshipTable(type="TRIED", source=TRIAL, target=ADVISED, source_columns=("trial",), target_columns=("id",))
RESCALING = NodeTable(label="Rescaling", key=("operation",), columns=tuple(RESCALE_OPERATIONS.names))
PHASE = NodeTable(label="Phase", key=("operation", "phase"), columns=tuple(RESCALE_PHASES.names))
BOOTSTRAP_STEP = NodeTable(label="BootstrapStep", key=("operation", "number"), columns=("number", *RESCALE_STEPS.names))
TOOK_PART = tuple(
    RelationshipTable(
        type=kind, source=RESCALING, target=WORKER, source_columns=("operation",), target_columns=("worker",)
    )
    for kind in ("ADDED", "REMOVED", "SERVED_BY")
)
HAS_PHASE = RelationshipTable(
    type="HAS_PHASE",
    source=RESCALING,
    target=PHASE,
    source_columns=("operation",),
    target_columns=("operation", "phase"),
)
PHASE_EPOCHS = tuple(
    RelationshipTable(
        type=kind, source=PHASE, target=EPOCH, source_columns=("operation", "phase"), target_columns=("epoch",)
    )
    for kind in ("FIRST_EPOCH", "LAST_EPOCH")
)
HAS_STEP = RelationshipTable(
    type="HAS_STEP",
    source=RESCALING,
    target=BOOTSTRAP_STEP,
    source_columns=("operation",),
    target_columns=("operation", "number"),
)

NODES = (
    *(WORKER, OPERATOR, FINDING, EVENT, SEGMENT, SNAPSHOT, STEP),
    *(ADVISED, TRIAL, RESCALING, PHASE, BOOTSTRAP_STEP),
)
"""Tables of nodes that a load fills, and those of answers that are put beside it."""

RELATIONSHIPS = (
    *(*ACTIVITIES.values(), FEEDS, THEN, RELEASED, CRITICAL, CONTAINS_STEP, CONTAINS_FINDING, SPENT),
    *(AT, MOVES, TRIED, *TOOK_PART, HAS_PHASE, *PHASE_EPOCHS, HAS_STEP),
)
"""Tables of relationships that a load fills, and those of answers."""

MODEL = 6
"""Version of all this, a property of each epoch: what an earlier one has left is loaded again. Without it, it is 1."""

TYPES = (
    *dict.fromkeys(table.type for table in RELATIONSHIPS),
    *("HAS_EPOCH", "NEXT", "HAS_SNAPSHOT", "HAS_FINDING", "FIRST", "LAST", "HAS_RESCALING", "BEFORE", "AFTER"),
    *("WAS_GENERATED_BY", "WAS_REVISION_OF", "WAS_INFORMED_BY", "WAS_ASSOCIATED_WITH", "WAS_DERIVED_FROM"),
    *("USED", "EXPORTED"),
)
"""All types of relationships that queries name."""

PROPERTIES = tuple(
    dict.fromkeys(
        (
            *(column for nodes in (EPOCH, *NODES) for column in nodes.columns),
            *(column for relationships in RELATIONSHIPS for column in relationships.columns),
            *("run", "published", "detail", "model", "current"),
            *("name", "tags", "program", "hosts", "started"),
            *MADE,
            *("file_names", "file_bytes", "file_crc32", "last_epoch", "names", "values"),
        )
    )
)
"""All properties that queries name and that a load may not have made."""


def _pattern(table: NodeTable, name: str, values: tuple[str, ...]) -> str:
    """Write a node with its key; `values` are names of parameters, in the order of the key."""
    key = ", ".join(f"{column}: ${value}[i]" for column, value in zip(table.key, values, strict=True))
    return f"({name}:{table.label} {{run: $run, {key}}})"


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{name}: ${name}[i]" for name in columns)


def _lane(table: NodeTable) -> tuple[str, ...]:
    """Set the label of a node's colour, where it has one."""
    return ("SET node:$($lane[i])",) if table.has_lane else ()


def _run_of(table: RelationshipTable) -> str:
    return ", run: $run" if table.carries_run else ""


def _set(name: str, columns: tuple[str, ...], *, carries_run: bool = False) -> str:
    """Write a SET of listed properties: faster than of whole maps, and null removes what was there."""
    if not columns:
        return ""
    # An activity that is critical in one window stays critical when an overlapping window is loaded.
    values = {
        column: f"coalesce(${column}[i], {name}.{column})" if column == "critical" else f"${column}[i]"
        for column in columns
    }
    settings = [f"{name}.{column} = {value}" for column, value in values.items()]
    return "SET " + ",\n    ".join([*settings, f"{name}.run = $run"] if carries_run else settings)


@cache
def merge_nodes(table: NodeTable) -> str:
    """Return the query that adds nodes or brings them up to date; parameters are `run` and one list per column."""
    properties = tuple(name for name in table.columns if name not in table.key)
    return "\n".join(
        (
            f"UNWIND range(0, size(${table.key[0]}) - 1) AS i",
            f"MERGE {_pattern(table, 'node', table.key)}",
            _set("node", properties),
            *_lane(table),
        )
    )


@cache
def remove_some(label: str, key: tuple[str, ...]) -> tuple[str, str]:
    """Return the queries that remove some nodes of a run, to be done in one transaction until none is looked at.

    Parameters are ``run`` and ``batch_rows``: so many nodes are looked at, and the second query removes those of them
    that have no relationship; ``relationships`` of theirs are removed by the first one. An operator may have more of
    them than a transaction has memory for.
    """
    # An index on several properties is used only if all of them are asked for.
    has_key = " AND ".join(f"node.{name} IS NOT NULL" for name in key)
    some = f"MATCH (node:{label} {{run: $run}})\nWHERE {has_key}\nWITH node LIMIT $batch_rows\n"
    unbind = "MATCH (node)-[relationship]-()\nWITH DISTINCT relationship LIMIT $relationships\nDELETE relationship"
    remove = (
        "WITH node, EXISTS { (node)--() } AS stays\n"
        "FOREACH (gone IN CASE WHEN stays THEN [] ELSE [node] END | DELETE gone)\n"
        "RETURN count(*) AS looked_at, count(CASE WHEN stays THEN null ELSE 1 END) AS removed"
    )
    return some + unbind, some + remove


@cache
def delete_nodes(table: NodeTable) -> str:
    """Return the query that removes some nodes and what leads to them; parameters are `run` and lists of the key."""
    return "\n".join(
        (
            f"UNWIND range(0, size(${table.key[0]}) - 1) AS i",
            f"MATCH {_pattern(table, 'node', table.key)}",
            "DETACH DELETE node",
        )
    )


@cache
def delete_relationships(table: RelationshipTable) -> str:
    """Return the query that removes some relationships; parameters are `run` and lists of both ends and the key."""
    return f"{_match_relationship(table)}\nDELETE relationship"


@cache
def unmark(table: RelationshipTable) -> str:
    """Return the query that takes the mark `critical` from relationships; parameters as for `delete_relationships`."""
    return f"{_match_relationship(table)}\nREMOVE relationship.critical"


def _match_relationship(table: RelationshipTable) -> str:
    key = f" {{{_listed(table.key)}}}" if table.key else ""
    return "\n".join(
        (
            f"UNWIND range(0, size(${table.source_columns[0]}) - 1) AS i",
            f"MATCH {_pattern(table.source, 'source', table.source_columns)}",
            f"MATCH {_pattern(table.target, 'target', table.target_columns)}",
            f"MATCH (source)-[relationship:{table.type}{key}]->(target)",
        )
    )


@cache
def merge_relationships(table: RelationshipTable) -> str:
    """Return the query that adds relationships or brings them up to date; parameters as for `merge_nodes`."""
    key = f" {{{_listed(table.key)}}}" if table.key else ""
    properties = tuple(name for name in table.columns if name not in table.key)
    return "\n".join(
        (
            f"UNWIND range(0, size(${table.source_columns[0]}) - 1) AS i",
            f"MATCH {_pattern(table.source, 'source', table.source_columns)}",
            f"MATCH {_pattern(table.target, 'target', table.target_columns)}",
            f"MERGE (source)-[relationship:{table.type}{key}]->(target)",
            _set("relationship", properties, carries_run=table.carries_run),
        )
    )


@cache
def create_relationships(table: RelationshipTable) -> str:
    """Return the query that adds relationships which are known not to be there; parameters as for `merge_nodes`."""
    return "\n".join(
        (
            f"UNWIND range(0, size(${table.source_columns[0]}) - 1) AS i",
            f"MATCH {_pattern(table.source, 'source', table.source_columns)}",
            f"MATCH {_pattern(table.target, 'target', table.target_columns)}",
            f"CREATE (source)-[:{table.type} {{{_listed(table.columns)}{_run_of(table)}}}]->(target)",
        )
    )


@cache
def keys_there(table: NodeTable) -> str:
    """Return the query that says which nodes are there; parameters are `run` and one list per column of the key.

    One row per node that is there: ``i``, its place in the lists.
    """
    return "\n".join(
        (
            f"UNWIND range(0, size(${table.key[0]}) - 1) AS i",
            f"MATCH {_pattern(table, 'node', table.key)}",
            "RETURN i",
        )
    )


@cache
def create_together(
    nodes: NodeTable, between: tuple[RelationshipTable, ...] = (), beyond: tuple[RelationshipTable, ...] = ()
) -> str:
    """Return the query that adds nodes with their relationships, all known not to be there.

    Parameters
    ----------
    nodes
        What is added; parameters are `run` and one list per column.
    between
        Types of relationships between these nodes. Parameters are one list per column, named ``TYPE_column``, and for
        both ends ``TYPE_from`` and ``TYPE_to``: places in the lists of nodes. No node has to be looked up.
    beyond
        Types of relationships from these nodes to others that are there, or back. Parameters are one list per column,
        sorted by the other node; ``TYPE_from`` (or ``TYPE_to``, where they lead back): places in the lists of nodes;
        one list per column of the key of the other nodes, named ``TYPE_other_column``; and ``TYPE_first`` and
        ``TYPE_last``: the first and the last row of each. Each of the others is looked up once.
    """
    parts = [
        f"UNWIND range(0, size(${nodes.key[0]}) - 1) AS i",
        f"CREATE (node:{nodes.label} {{run: $run, {_listed(nodes.columns)}}})",
        *_lane(nodes),
    ]
    if between or beyond:
        parts.append("WITH collect(node) AS nodes")
    for table in between:
        kind = table.type
        parts.append(
            f"CALL (nodes) {{\n  UNWIND range(0, size(${kind}_from) - 1) AS i\n"
            f"  WITH nodes[${kind}_from[i]] AS source, nodes[${kind}_to[i]] AS target, i\n"
            f"  CREATE (source)-[:{kind} {{{_prefixed(table)}}}]->(target)\n}}"
        )
    for table in beyond:
        kind = table.type
        forward = table.source.label == nodes.label
        other_node = table.target if forward else table.source
        arrow = f"-[:{kind} {{{_prefixed(table)}}}]-"
        created = f"(node){arrow}>(other)" if forward else f"(other){arrow}>(node)"
        keys = tuple(f"{kind}_other_{name}" for name in other_node.key)
        parts.append(
            f"CALL (nodes) {{\n  UNWIND range(0, size(${keys[0]}) - 1) AS i\n"
            f"  MATCH {_pattern(other_node, 'other', keys)}\n"
            f"  UNWIND range(${kind}_first[i], ${kind}_last[i]) AS row\n"
            f"  WITH nodes[${kind}_{'from' if forward else 'to'}[row]] AS node, other, row AS i\n"
            f"  CREATE {created}\n}}"
        )
    return "\n".join(parts)


def _prefixed(table: RelationshipTable) -> str:
    """List the properties of a relationship of `create_together`."""
    properties = [f"{name}: ${table.type}_{name}[i]" for name in table.columns]
    return ", ".join([*properties, "run: $run"] if table.carries_run else properties)
