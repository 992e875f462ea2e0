"""What columns of a trace's tables may hold, and tables that have all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pag_graph.errors import MissingColumnError, SchemaError, TraceFormatError
from pag_graph.model.columns import is_optional
from pag_graph.model.enums import ActivityType, EventKind
from pag_graph.model.ids import MAX_WORKER
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.store.trace_files import CONVERT_AGAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_COUNT = 2**53
"""Limit of epochs and of counts: up to there every reader of JSON knows integers exactly."""
LIMITS = {
    "operator": 2**62,
    "channel": 2**62,
    "scope": 2**62,
    "peer": MAX_WORKER,
    "message_seq": 2**62,
    "records": MOST_COUNT,
    "bytes": MOST_COUNT,
    "timeout_ns": 2**63 - 1,
}
"""Largest value of columns of events that go from 0."""
MOMENTS = frozenset({"arrived_ns"})
"""Columns of events that are times and may be null: where they are, kernels read `NEVER`, for -1 is a time as well."""
VOCABULARIES: dict[str, frozenset[str]] = {"kind": frozenset(EventKind), "activity": frozenset(ActivityType)}
"""Words of columns of events."""
NULLABLE = frozenset(field.name for field in TRACE_EVENTS if field.nullable)
"""Columns of events that may be null."""


def encoded_schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema of columns of events as they are read.

    Parameters
    ----------
    names
        Columns of `TRACE_EVENTS`.

    Returns
    -------
    Schema
        In their order; words are dictionary-encoded.
    """
    encoded = pa.dictionary(pa.int32(), pa.string())
    declared = [TRACE_EVENTS.field(name) for name in names]
    return pa.schema([column.with_type(encoded) if column.name in VOCABULARIES else column for column in declared])


def check_nulls(table: pa.Table, schema: pa.Schema, *, where: str) -> None:
    """Refuse a table that lacks a value in a column that must have one.

    Parameters
    ----------
    table
        May lack columns.
    schema
        What is declared.
    where
        The file, for the message.

    Raises
    ------
    TraceFormatError
        Names file, column, worker and event.
    """
    # Arrow makes a list of names anew each time that one asks, which takes longer than to look at a column.
    present = set(table.schema.names)
    for column in schema:
        if not column.nullable and column.name in present and table[column.name].null_count:
            row = pc.index(pc.is_null(table[column.name]), value=True).as_py()
            message = f"{where}: {_event_at(table, row)} has no value in the column {column.name}, which must have one."
            raise TraceFormatError(
                message,
                CONVERT_AGAIN,
                {"file": where, "column": column.name, "row": row},
            )


def check_vocabulary(table: pa.Table, *, where: str) -> None:
    """Refuse events of a kind or activity that contract 1 does not know.

    Parameters
    ----------
    table
        May lack columns.
    where
        The file, for the message.

    Raises
    ------
    TraceFormatError
        Names file, word, worker and event.
    """
    present = table.schema.names
    for name, words in VOCABULARIES.items():
        if name not in present:
            continue
        column = table[name]
        # The dictionaries are small; rows are searched only to name the event.
        encoded = pa.types.is_dictionary(column.type)
        words_used = {
            word for chunk in column.chunks for word in (chunk.dictionary if encoded else chunk.unique()).to_pylist()
        }
        for word in sorted(words_used - words - {None}):
            row = pc.index(column.cast(pa.string()), value=word).as_py()
            if row >= 0:
                message = f"{where}: {_event_at(table, row)} has the unknown {name} {word!r}."
                raise TraceFormatError(
                    message,
                    f"Known are {', '.join(sorted(words))}.",
                    {"file": where, "row": row, name: word},
                )


def check_ranges(table: pa.Table, *, where: str) -> None:
    """Refuse events with a number that no column of that name can have (`LIMITS`).

    Parameters
    ----------
    table
        May lack columns.
    where
        The file, for the message.

    Raises
    ------
    TraceFormatError
        Names file, column, worker and event.
    """
    present = table.schema.names
    for name, limit in LIMITS.items():
        if name not in present:
            continue
        bounds = pc.min_max(table[name]).as_py()
        if bounds["min"] is None or (bounds["min"] >= 0 and bounds["max"] <= limit):
            continue
        value = bounds["min"] if bounds["min"] < 0 else bounds["max"]
        row = pc.index(table[name], value=pa.scalar(value, table[name].type)).as_py()
        message = f"{where}: {_event_at(table, row)} has {value} in the column {name}; it goes from 0 to {limit}."
        raise TraceFormatError(message, CONVERT_AGAIN, {"file": where, "column": name, "row": row})


def _event_at(table: pa.Table, row: int) -> str:
    """Name an event by worker and number as far as they were read, else by its row."""
    stated = [f"{name} {table[name][row]}" for name in ("worker", "seq") if name in table.column_names]
    return " ".join([*stated, f"(row {row})"])


def check_columns(actual: pa.Schema, declared: pa.Schema, *, where: str) -> None:
    """Refuse a table that lacks a column or has one of another type.

    Parameters
    ----------
    actual
        Columns of the table; further ones do not count, and words may be dictionary-encoded.
    declared
        What must be there; columns that are optional may be absent.
    where
        The file, for the message.

    Raises
    ------
    MissingColumnError
        If a column is missing; names all that are.
    SchemaError
        If a column is of another type.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    available = dict(zip(actual.names, actual.types, strict=True))
    absent = (name for name in declared.names if name not in available)
    if missing := [name for name in absent if not is_optional(declared.field(name))]:
        raise MissingColumnError.from_missing_and_available(where=where, missing=missing, available=list(available))
    for name, declared_type in zip(declared.names, declared.types, strict=True):
        kind = available.get(name, declared_type)
        if kind == declared_type:
            continue
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        text = pa.types.is_string(declared_type) and (pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
        if kind != declared_type and not text:
            message = f"{where}: the column {name} is of type {kind}, not {declared_type}."
            raise SchemaError(message, CONVERT_AGAIN, {"file": where, "column": name})


def completed(table: pa.Table, names: Sequence[str], declared: pa.Schema) -> pa.Table:
    """Add the wanted columns that a file may lack, and does.

    Parameters
    ----------
    table
        As it was read.
    names
        Columns that are wanted.
    declared
        Schema of the table; it says which columns are optional.

    Returns
    -------
    Table
        All values of such a column are null.
    """
    present = set(table.schema.names)
    for name in names:
        if name not in present and is_optional(declared.field(name)):
            table = table.append_column(declared.field(name), pa.nulls(table.num_rows, declared.field(name).type))
    return table


def conform(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    """Bring a table that is to be written to its declared columns.

    Parameters
    ----------
    table
        Columns that may be null may be absent.
    schema
        What is declared.
    where
        What the table is, for messages.

    Returns
    -------
    Table
        All declared columns, in their order and types.

    Raises
    ------
    SchemaError
        If it has other columns, or values that do not fit.
    MissingColumnError
        If a column is missing that must have values.
    TraceFormatError
        If a value is missing that must be there.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    # Columns that may be null may be absent: most sources know only some of them.
    present, declared = table.schema.names, set(schema.names)
    if unknown := [name for name in present if name not in declared]:
        message = f"{where} has the unknown column(s) {', '.join(unknown)}."
        raise SchemaError(message, f"The columns are {', '.join(schema.names)}.", {"file": where, "unknown": unknown})
    required = [column.name for column in schema if not column.nullable]
    if missing := [name for name in required if name not in present]:
        raise MissingColumnError.from_missing_and_available(where=where, missing=missing, available=present)
    columns = [
        table[column.name] if column.name in present else pa.nulls(table.num_rows, column.type) for column in schema
    ]
    return cast(pa.table(columns, names=schema.names), schema, where=where)


def cast(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    """Give the columns of a table their declared types.

    Parameters
    ----------
    table
        Has the declared columns, in their order.
    schema
        What is declared.
    where
        The file, for messages.

    Returns
    -------
    Table
        The same rows.

    Raises
    ------
    SchemaError
        If values do not fit.
    TraceFormatError
        If a value is missing that must be there.
    """
    check_nulls(table, schema, where=where)
    try:
        return table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        message = f"{where} does not fit the declared columns: {error}."
        raise SchemaError(message, CONVERT_AGAIN, {"file": where}) from error
