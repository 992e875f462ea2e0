"""Numbers of events that are missing: events that a source wrote and that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.model.enums import Severity
from pag_graph.store.event_files import read_numbers
from pag_graph.store.findings import findings

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.store.event_files import EventFile


class Gaps:
    """Gaps in the numbers of events; only some sources promise to leave none.

    Footers tell them, in files that have one worker's events alone. Where a footer does not, the numbers are read.

    Parameters
    ----------
    root
        Directory of the trace.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last: dict[int, int] = {}
        self._missing: dict[int, tuple[int, str]] = {}

    def look(self, file: EventFile, group: int = 0) -> None:
        """Take the next file.

        Parameters
        ----------
        file
            Files of a worker come in the order of its log.
        group
            The first of its row groups to look at: those before it were taken already.

        Raises
        ------
        TraceFormatError
            If numbers must be read and the file is damaged.
        """
        if len(file.workers) != 1:
            return
        worker = file.workers[0]
        for place, known in enumerate(file.numbers[group:], group):
            numbers = read_numbers(self._root, file, place) if known is None else known
            if not numbers.rows:
                continue
            last = self._last.get(worker, 0)
            gap = numbers.high - last - numbers.rows
            if gap > 0:
                count, first = self._missing.get(worker, (0, file.name))
                self._missing[worker] = (count + gap, first)
            self._last[worker] = max(numbers.high, last)

    def findings(self) -> list[pa.Table]:
        """Return what was found; a row per worker that lacks events.

        Returns
        -------
        list of Table
            Empty, or one table of `PAG_FINDINGS` with a row per worker that lacks events.
        """
        if not self._missing:
            return []
        finding = findings(
            "events_missing",
            Severity.ERROR,
            "built from what is there; what the missing events would have told is not known",
            rows=len(self._missing),
            worker=list(self._missing),
            file=[first for _, first in self._missing.values()],
            observed=[count for count, _ in self._missing.values()],
            limit=0,
            unit="events",
        )
        return [finding]
