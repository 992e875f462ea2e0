"""Where a worker whose log says nothing of idleness may be cut: one pass over its rows, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pag_graph.builder.reading import KINDS, read_columns, rows_after_breaks
from pag_graph.kernels.applications import applications
from pag_graph.rules.polling import pauses_of
from pag_graph.rules.rows import PolledRows, application_marks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pag_graph.builder.clocks import Clock
    from pag_graph.store.log import TraceLog

    I64 = NDArray[np.int64]

_COLUMNS = ("kind", "operator", "t_ns", "seq")


class Sought(NamedTuple):
    """Which stretches without anything to do are looked for."""

    pause_ns: int
    """As for `pag_graph.rules.polling.polled_intervals`."""
    gapless: bool
    """Whether events are missing where their numbers have gaps (`TraceMeta.gapless`): nothing reaches over those."""


def pause_begins(log: TraceLog, worker: int, start: int, clock: Clock, sought: Sought) -> I64:
    """Find the rows of a worker with which a stretch without anything to do begins for certain.

    Parameters
    ----------
    log, worker
        Whose rows.
    start
        The first of them, outside of all activations and activities.
    clock
        Of the worker.
    sought
        What to look for.

    Returns
    -------
    array
        Ascending; O(rows) in time, O(rows of a row group, or of the longest activation) in memory.
    """
    no_rows = np.empty(0, np.int64)
    begins_of_blocks, open_applications, first = [no_rows], no_rows, start
    for block, is_whole in _blocks(log, worker, start):
        gaps = rows_after_breaks(block["kind"], block["seq"], gapless=sought.gapless)
        rows = PolledRows(block["kind"], clock.common(block["t_ns"]), block["operator"], gaps)
        begins, rows_done = pauses_of(rows, sought.pause_ns)
        end = len(block["kind"]) if is_whole else rows_done
        outside, open_applications = _outside_activities(rows, open_applications, end)
        begins = begins[begins <= end]
        begins_of_blocks.append(first + begins[outside[begins]])
        first += end
        for name in _COLUMNS:
            block[name] = block[name][end:]
    return np.concatenate(begins_of_blocks)


def _blocks(log: TraceLog, worker: int, start: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """Read the rows of a worker; what is left of a block when the next one is asked for stands before that.

    Also yields whether there are no more rows.
    """
    block = read_columns(log, worker, start, start, _COLUMNS, KINDS)
    chunks = [chunk for chunk in log.chunks.get(worker, ()) if chunk.first_row + chunk.rows > start]
    rows_yielded, row = 0, start
    for chunk in chunks:
        high = chunk.first_row + chunk.rows
        read = read_columns(log, worker, row, high, _COLUMNS, KINDS)
        row = high
        block |= {name: np.concatenate((block[name], read[name])) for name in _COLUMNS}
        # A block grows while an activation stays open; it is yielded again only when it has doubled.
        if chunk is chunks[-1] or len(block["kind"]) >= 2 * rows_yielded:
            yield block, chunk is chunks[-1]
            rows_yielded = len(block["kind"])


def _outside_activities(rows: PolledRows, open_applications: I64, end: int) -> tuple[NDArray[np.bool_], I64]:
    """Say before which rows no activity of the program is open, and which ones are open before row `end`."""
    row, starts, number = application_marks(rows)
    innermost = applications(starts, number, open_applications)[0]
    outside = innermost[np.searchsorted(row, np.arange(len(rows.kind) + 1), side="left")] == -1
    marks_done = int(np.searchsorted(row, end, side="left"))
    open_marks = applications(starts[:marks_done], number[:marks_done], open_applications)[3]
    # The first one that was open before has the number -2.
    return outside, np.concatenate((number, open_applications[::-1], [-1]))[open_marks]
