"""The table `inputs` of a trace: when input was due, given and done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph.errors import TraceFormatError
from pag_graph.model.input_tables import TRACE_INPUTS
from pag_graph.store.trace_columns import check_columns
from pag_graph.store.trace_files import DAMAGE, INPUTS, unreadable

if TYPE_CHECKING:
    from pathlib import Path


def read_inputs(trace: Path) -> pa.Table:
    """Read all rows of the table.

    Parameters
    ----------
    trace
        Directory of a trace.

    Returns
    -------
    pyarrow.Table
        Rows of `TRACE_INPUTS`, of each worker in the order in which they were logged.

    Raises
    ------
    TraceFormatError
        If there are none, or a file cannot be read.
    MissingColumnError, SchemaError
        If a file has not the columns of the table.
    """  # noqa: DOC501  (what makes an error is taken for one)
    files = sorted((trace / INPUTS).glob("*.parquet"))
    if not files:
        message = f"The trace at {trace} does not say when input was due."
        hint = "Let the program say it: `tracer.inputs(schedule)`, `given(n)`, `done_before(due)` (docs/latency.md)."
        raise TraceFormatError(message, hint, {"file": str(trace / INPUTS)})
    tables = []
    for file in files:
        try:
            table = pq.read_table(file, partitioning=None)
        except DAMAGE as error:
            raise unreadable(file, error) from error
        check_columns(table.schema, TRACE_INPUTS, where=str(file))
        tables.append(table.select(TRACE_INPUTS.names).cast(TRACE_INPUTS))
    return pa.concat_tables(tables)
