"""When the input of epochs was due, as people write it beside their ends: rows of the table `inputs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.sources.activities.table_columns import Source


def stated_inputs(epochs: Source, worker: int) -> pa.Table | None:
    """Return the inputs of a run: that of an epoch has its number, and is done when the epoch is complete.

    Parameters
    ----------
    epochs
        The table of epochs. One without a due time has no input.
    worker
        Whose inputs they are called: input is that of the run, and all workers have one clock.

    Returns
    -------
    pyarrow.Table or None
        Rows of `TRACE_INPUTS`, without columns that are null throughout: a schedule without an interval, and two rows
        per input. None where none was due.

    Raises
    ------
    TraceFormatError
        If an epoch ends before its input is due; names file and line.
    """
    hint = "Write when its input was to come, not when the program took it up."
    problem = "epoch {epoch} ends at {end} ns, before its input is due at {due} ns"
    epochs.refuse(epochs.frame["end"] < epochs.frame["due"], problem, hint)
    due_epochs = epochs.frame.filter(pl.col("due").is_not_null()).sort("epoch")
    if not due_epochs.height:
        return None
    schedule = pl.DataFrame({"due_ns": [due_epochs["due"].min()], "count": [due_epochs.height]})
    inputs = due_epochs.select(number="epoch", due_ns="due", epoch="epoch")
    looks = due_epochs.select(frontier=pl.col("epoch") + 1, noticed_ns="end")
    rows = pl.concat([schedule, inputs, looks], how="diagonal")
    return rows.with_columns(worker=pl.lit(worker, pl.Int32)).to_arrow()
