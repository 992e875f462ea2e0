"""Tables as text that other programs read."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from pag_graph.model.units import in_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    r"""Return rows as CSV with a header; texts as `in_cell` has them, numbers as they are.

    Parameters
    ----------
    rows
        May have more columns.
    columns
        Those to write, in order.

    Returns
    -------
    str
        One line per row, after the header.

    Examples
    --------
    >>> csv_text([{"name": "=1+1", "ns": 5, "more": 0}], ["name", "ns"])
    "name,ns\n'=1+1,5\n"
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    # Lists and mappings are written as Python has them, in which a name can stand as well.
    return in_cell(str(value))
