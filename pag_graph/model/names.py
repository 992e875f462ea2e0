"""Workers by the names that people know them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def with_worker_names(rows: Sequence[dict[str, Any]], names: Mapping[int, str]) -> Sequence[dict[str, Any]]:
    """Return rows for people: numbers of workers that have a name are shown with it, as in ``window-0 (3)``.

    Parameters
    ----------
    rows
        Of any analysis.
    names
        Of a run's workers, as they can be printed (`Run.worker_names`).
    """
    if not names:
        return rows
    return [
        {
            column: f"{names[value]} ({value})" if column.endswith("worker") and value in names else value
            for column, value in row.items()
        }
        for row in rows
    ]
