"""Event logs of Spark applications that the workbench shows, and what `pag spark` says of each."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.lines import nothing_lines, saving_text
from pag_graph.diagnosis.spark.timeline import timeline
from pag_graph.errors import StoreNotFoundError, TraceFormatError
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.workbench.facts import shortened
from pag_graph.workbench.library import name_of

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.sources.spark.logfiles import LogFiles
    from pag_graph.workbench.library import Library

KEPT = 4
"""Answers that are kept."""
MOST = 1_000
"""Logs that are listed."""


class Applications:
    """Event logs at the places of a library: files that were given, and those that lie in given folders.

    Parameters
    ----------
    library
        Knows the places, and the stores in them.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: OrderedDict[Any, dict[str, Any]] = OrderedDict()
        self._lock = Lock()

    def logs(self) -> dict[str, LogFiles]:
        """Return the logs by their names in addresses, which say nothing of where they are."""
        logs: list[LogFiles] = []
        for place in self._library.places:
            # Where there is none, there are stores.
            with suppress(TraceFormatError):
                logs += find_logs(place)
        return {name_of(log.files[0]): log for log in logs[:MOST]}

    def rows(self) -> list[dict[str, Any]]:
        """Return what the list of runs shows, a row per log."""
        return [
            {
                "log": name,
                "title": shortened(log.name),
                "place": str(log.files[0].parent),
                "bytes": sum(file.stat().st_size for file in log.files),
                "in_progress": log.in_progress,
            }
            for name, log in self.logs().items()
        ]

    def told(self, name: str) -> dict[str, Any]:
        """Return what `pag spark LOG --format json` prints, its timeline and verdict, and a store that shows its graph.

        Parameters
        ----------
        name
            As in `logs`.

        Returns
        -------
        dict
            ``facts``; ``verdict``, lines; ``savings``, one text per cause; ``svg`` and ``legend`` of the timeline;
            ``store``, the name of a run that was built of the log, or None. Kept until the log changes.

        Raises
        ------
        StoreNotFoundError
            If there is no such log.
        TraceFormatError
            If it cannot be read.
        """
        log = self.logs().get(name)
        if log is None:
            message = f"There is no application {name!r} here."
            raise StoreNotFoundError(message, "Go back to the list of runs.", {"log": name})
        key = name, tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in log.files)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = _told(answer(log))
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            told = self._kept[key]
        return {**told, "store": self._library.store_of_trace(told["trace"])}


def _told(answered: SparkAnswer) -> dict[str, Any]:
    diagnosis = answered.diagnosis
    verdict = [f"Most of the time: {answered.bound.text}."] if diagnosis.causes else nothing_lines(answered)
    svg, _, legend = timeline(answered).partition("</svg>")
    return {
        "facts": answered.facts(),
        "trace": answered.mapped.meta.trace_id,
        "verdict": verdict,
        "savings": [saving_text(cause, diagnosis.active_ns) for cause in diagnosis.causes],
        "svg": f"{svg}</svg>",
        "legend": legend.replace("<p>", "").replace("</p>", ""),
    }
