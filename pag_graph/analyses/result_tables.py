"""Rows of answers as tables of exactly the columns and types that their schemas say."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from pag_graph.analyses.reports import Report


def table_of(result: pa.Table | Report) -> pa.Table:
    """Return the rows of what an analysis returned.

    Parameters
    ----------
    result
        A table, or a report.

    Returns
    -------
    Table
        Rows of the analysis' schema.
    """
    import pyarrow as pa

    return result if isinstance(result, pa.Table) else result.table


def plain_parameters(parameters: Any) -> dict[str, Any]:
    """Return parameters as JSON has them.

    Parameters
    ----------
    parameters
        A dataclass, or None.

    Returns
    -------
    dict
        Values by name, tuples as lists; empty for None.
    """
    if parameters is None:
        return {}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(parameters).items()}


def typed_table(rows: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema, and their types.

    Parameters
    ----------
    rows
        Has the columns of the schema, and maybe more.
    schema
        Columns of the answer.

    Returns
    -------
    Table
        Exactly these columns, in these types.
    """
    return rows.select(schema.names).to_arrow().cast(schema)


def placed_table(rows: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema, their types, and the place of their ``window``.

    Parameters
    ----------
    rows
        Has the columns of the schema, and ``window``.
    schema
        Columns of the answer.

    Returns
    -------
    Table
        These columns, and ``window`` after them.
    """
    import pyarrow as pa

    return typed_table(rows, schema).append_column("window", rows["window"].to_arrow().cast(pa.int64()))


def answered_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of an answer over epochs.

    Parameters
    ----------
    schema
        Columns of the analysis.

    Returns
    -------
    Schema
        The same, and ``epoch`` after them if it is not among them.
    """
    import pyarrow as pa

    if "epoch" in schema.names:
        return schema
    return schema.append(pa.field("epoch", pa.int64(), nullable=False))
