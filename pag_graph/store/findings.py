"""Findings: rows that say what is wrong with a trace, which event shows it, and what was done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pag_graph.model.tables import PAG_FINDINGS
from pag_graph.model.units import in_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.model.enums import Severity

    Values = NDArray[np.int64] | Sequence[int] | int | None


def findings(
    finding: str,
    severity: Severity,
    action: str,
    *,
    rows: int = 1,
    worker: Values = None,
    vertex: Values = None,
    seq: Values = None,
    file: pa.Array | Sequence[str | None] | str | None = None,
    observed: Values = None,
    limit: Values = None,
    unit: str | None = None,
) -> pa.Table:
    """Build a table of findings of one kind.

    Parameters
    ----------
    finding, severity, action, unit
        The same in every row.
    rows
        How many rows.
    worker, vertex, seq, file, observed, limit
        One value per row, one for all rows, or none.

    Returns
    -------
    pa.Table
        `rows` rows of `PAG_FINDINGS`. Bytes of a file's name that are no text become U+FFFD.
    """
    if isinstance(file, str):
        file = in_file(file)
    elif file is not None and not isinstance(file, pa.Array):
        file = [name and in_file(name) for name in file]
    values = {
        "finding": finding,
        "severity": str(severity),
        "worker": worker,
        "vertex": vertex,
        "seq": seq,
        "file": file,
        "observed": observed,
        "limit": limit,
        "unit": unit,
        "action": in_file(action),
    }
    columns = []
    for field in PAG_FINDINGS:
        value = values[field.name]
        if value is None or isinstance(value, str | int | np.integer):
            scalar = int(value) if isinstance(value, np.integer) else value
            columns.append(pa.repeat(pa.scalar(scalar, field.type), rows))
        else:
            columns.append(value.cast(field.type) if isinstance(value, pa.Array) else pa.array(value, field.type))
    return pa.table(columns, schema=PAG_FINDINGS)


def no_findings() -> pa.Table:
    """Return a table of findings without rows.

    Returns
    -------
    Table
        No rows of `PAG_FINDINGS`.
    """
    return _NONE


_NONE = PAG_FINDINGS.empty_table()
