"""Events as columns of plain integers, each value checked on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pag_graph.kernels import ABSENT, NEVER
from pag_graph.kernels.activations import OTHER
from pag_graph.kernels.decoding import decode, fill_absent, in_order, widen
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.rules.rows import EXIT, KIND_CODES
from pag_graph.store.order import ORDER_COLUMNS, ORDER_LIMITS, check_events
from pag_graph.store.trace_columns import LIMITS, MOMENTS, NULLABLE, VOCABULARIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.store.log import TraceLog
    from pag_graph.store.trace import Trace

    I8 = NDArray[np.int8]
    I64 = NDArray[np.int64]
    U8 = NDArray[np.uint8]

KINDS = {"kind": (KIND_CODES, OTHER)}
"""What `read_columns` makes of kinds for those who ask for nothing but their kernel codes."""
_NO_BITS = np.empty(0, np.uint8)
_NUMBERS = frozenset(field.name for field in TRACE_EVENTS if pa.types.is_integer(field.type))


def read_columns(
    log: TraceLog,
    worker: int,
    low: int,
    high: int,
    names: Sequence[str],
    words: Mapping[str, tuple[Mapping[str, int], int]],
) -> dict[str, Any]:
    """Read rows `low` to `high` (exclusive) of a worker.

    Parameters
    ----------
    log, worker, low, high
        Whose rows, and which of them, counted from 0 in the order of its log.
    names
        Columns of `TRACE_EVENTS`.
    words
        Per column of words that is among them: the code of each word, and that of null and of all other words.

    Returns
    -------
    dict
        Per column: int8 for words and truth values, else int64 with `ABSENT`, or `NEVER` for times, in place of null.

    Raises
    ------
    TraceFormatError
        As `TraceLog.read`, which is asked to name the event wherever something is wrong.
    """
    rows = high - low
    columns: dict[str, Any] = {}
    absent = {name: words[name][1] if name in words else ABSENT if name in _NUMBERS else 0 for name in names}
    absent |= {name: NEVER for name in names if name in MOMENTS}
    sound = True
    rows_done = 0
    for table in log.tables(worker, low, high, names):
        end = rows_done + table.num_rows
        present = table.schema.names
        for name in present:
            if name not in columns:
                columns[name] = np.empty(rows, np.int64 if name in _NUMBERS else np.int8)
                columns[name][:rows_done] = absent[name]
            position = rows_done
            for chunk in table[name].chunks:
                target = columns[name][position : position + len(chunk)]
                position += len(chunk)
                if name in _NUMBERS:
                    sound &= _integers(name, chunk, target)
                elif name in words:
                    sound &= _words(name, chunk, *words[name], target)
                else:
                    target[:] = chunk.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        for name in names:
            if name not in present:
                sound &= name in NULLABLE
                if name in columns:
                    columns[name][rows_done:end] = absent[name]
        rows_done = end
    for name in names:
        if name not in columns:
            is_number = name in _NUMBERS
            columns[name] = nothing(rows, absent[name]) if is_number else np.full(rows, absent[name], np.int8)
    if not sound:
        log.read(worker, low, high, names)
    return columns


def nothing(rows: int, absent: int = ABSENT) -> I64:
    """Return a column without any value.

    Parameters
    ----------
    rows
        How long it is.
    absent
        What stands in place of null: `ABSENT`, or `NEVER` of times.

    Returns
    -------
    array of int64
        `absent`, so often. All callers share it, so nobody may write into it.
    """
    absent_numbers = _NOTHING[absent]
    if len(absent_numbers) < rows:
        absent_numbers = _NOTHING[absent] = np.full(rows, absent, np.int64)
    return absent_numbers[:rows]


_NOTHING = {ABSENT: np.empty(0, np.int64), NEVER: np.empty(0, np.int64)}


def _integers(name: str, chunk: pa.Array, target: I64) -> bool:
    """Copy a chunk of integers; say whether all values are such as the column may have."""
    if name in MOMENTS:
        chunk = pc.fill_null(chunk, NEVER)
    nulls = chunk.null_count
    if nulls == len(chunk):
        target[:] = ABSENT
        return not nulls or name in NULLABLE
    if not pa.types.is_integer(chunk.type):
        chunk = chunk.cast(TRACE_EVENTS.field(name).type)
    valid, content = chunk.buffers()
    values = np.frombuffer(content, chunk.type.to_pandas_dtype())[chunk.offset : chunk.offset + len(chunk)]
    if nulls:
        low, high = fill_absent(values, np.frombuffer(valid, np.uint8), chunk.offset, target)
    else:
        low, high = widen(values, target)
    in_limits = name not in LIMITS or (low >= 0 and high <= LIMITS[name])
    return in_limits and (not nulls or name in NULLABLE)


def _words(name: str, chunk: pa.Array, meaning: Mapping[str, int], default: int, target: I8) -> bool:
    """Replace a chunk of words by their codes; say whether all are such as the column may have."""
    if not isinstance(chunk, pa.DictionaryArray):
        chunk = chunk.dictionary_encode()
    chunk_words = chunk.dictionary.to_pylist()
    codes = np.array([*(meaning.get(word, default) for word in chunk_words), default], np.int8)
    indices = chunk.indices
    valid, content = indices.buffers()
    values = np.frombuffer(content, indices.type.to_pandas_dtype())[indices.offset : indices.offset + len(indices)]
    bits = np.frombuffer(valid, np.uint8) if indices.null_count else _NO_BITS
    decode(values, bits, indices.offset, codes, target)
    vocabulary = VOCABULARIES[name]
    lacks = indices.null_count > 0 and name not in NULLABLE
    return not lacks and all(word is None or word in vocabulary for word in chunk_words)


def check_order(trace: Trace, log: TraceLog, worker: int, low: int, high: int, columns: Mapping[str, I64]) -> None:
    """Refuse rows whose numbers, clocks or epochs contradict the order of the log.

    Parameters
    ----------
    trace, log, worker, low, high
        Which rows.
    columns
        `seq`, `epoch` and `t_ns` of them, and of the row before, if there is one.

    Raises
    ------
    TraceFormatError
        As `check_events`.
    """
    if in_order(columns["seq"], columns["epoch"], columns["t_ns"]) and all(
        # A column in order has its least and greatest value at its ends.
        lowest <= values[0] and values[-1] <= highest
        for values, (lowest, highest) in ((columns[name], ORDER_LIMITS[name]) for name in ("seq", "epoch", "t_ns"))
        if len(values)
    ):
        return
    table = log.read(worker, low, high, ORDER_COLUMNS)
    before = log.read(worker, low - 1, low, ORDER_COLUMNS) if low else None
    check_events(trace, table, previous=before)


def rows_after_breaks(kind: I8, seq: I64, *, gapless: bool) -> I64:
    """Return the rows of a worker that begin anew: what was open before them has ended.

    Parameters
    ----------
    kind
        Kernel codes of consecutive rows.
    seq
        Their numbers, ascending.
    gapless
        Whether rows are missing where numbers are (`TraceMeta.gapless`).

    Returns
    -------
    array of int
        Places of the rows that follow missing ones, or the worker's exit, ascending. O(rows).
    """
    is_break = kind[:-1] == EXIT
    if gapless and len(seq) and seq[-1] - seq[0] != len(seq) - 1:
        is_break |= np.diff(seq) != 1
    return np.flatnonzero(is_break) + 1
