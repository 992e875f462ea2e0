"""Event logs of Spark applications that the workbench shows, what `pag spark` says of each, and its graph."""

from __future__ import annotations

import shutil
import weakref
from collections import OrderedDict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.lines import nothing_lines, saving_text
from pag_graph.diagnosis.spark.timeline import timeline
from pag_graph.errors import StoreNotFoundError, TraceFormatError
from pag_graph.model.units import printable, printable_lines, short
from pag_graph.sources.spark.keep import STORE, temporary_results
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.workbench.facts import shortened
from pag_graph.workbench.library import name_of

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.sources.spark.logfiles import LogFiles
    from pag_graph.workbench.library import Library

KEPT = 4
"""Answers that are kept, each with the graph that it was worked out of."""
LETTERS = 2_000
"""Of a text of a log in an answer."""
MOST = 1_000
"""Logs that are listed."""


@dataclass(frozen=True, slots=True)
class _KeptAnswer:
    state: Any
    """Sizes and times of the files that were read."""
    told: dict[str, Any]
    folder: Path


class Applications:
    """Event logs at the places of a library: files that were given, and those that lie in given folders.

    Parameters
    ----------
    library
        Knows the places, and the stores in them; it finds the graph of a log by asking here.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: OrderedDict[str, _KeptAnswer] = OrderedDict()
        self._lock = Lock()
        self._results: Path | None = None
        self._end = ExitStack()
        # Stores that were built for the pages are removed with this object, at the latest when the process ends.
        weakref.finalize(self, self._end.close)
        library.graph_of_log = self.graph

    def logs(self) -> dict[str, LogFiles]:
        """Return the logs by their names in addresses, which say nothing of where they are."""
        logs: list[LogFiles] = []
        for place in self._library.places:
            # A place without event logs holds stores.
            with suppress(TraceFormatError):
                logs += find_logs(place)
        return {name_of(log.files[0]): log for log in logs[:MOST]}

    def rows(self) -> list[dict[str, Any]]:
        """Return what the list of runs shows, a row per log."""
        return [
            {
                "log": name,
                "title": shortened(log.name),
                "place": printable(str(log.files[0].parent)),
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
            ``store``, the name of the run that is its graph: of a store that was built of the log, where there is one,
            or the log's own. Kept until the log changes.

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
        answer_ = self._answered(name, log).told
        return {**answer_, "store": self._library.store_of_trace(answer_["trace"]) or name}

    def graph(self, name: str) -> tuple[str, Path] | None:
        """Return an application's graph, made of its log as `pag spark LOG --out DIR` makes it.

        Parameters
        ----------
        name
            As in `logs`.

        Returns
        -------
        tuple or None
            Name of the log, and its store, which is removed when others were asked for or the server ends; None where
            there is no such log.
        """
        log = self.logs().get(name)
        return None if log is None else (log.name, self._answered(name, log).folder / STORE)

    def _answered(self, name: str, log: LogFiles) -> _KeptAnswer:
        state = tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in log.files)
        with self._lock:
            entry = self._kept.get(name)
            if entry is None or entry.state != state:
                if self._results is None:
                    self._results = self._end.enter_context(temporary_results())
                folder = self._results / name
                self._library.close(name)
                entry = self._kept[name] = _KeptAnswer(
                    state, _answer_facts(answer(log, folder=folder, replace=True)), folder
                )
            self._kept.move_to_end(name)
            while len(self._kept) > KEPT:
                oldest, dropped = self._kept.popitem(last=False)
                self._library.close(oldest)
                shutil.rmtree(dropped.folder)
            return entry


def _bounded(value: Any) -> Any:
    """Return an answer with no text in it that is longer than anybody reads, or that turns the page around it."""
    if isinstance(value, str):
        return printable_lines(short(value, LETTERS))
    if isinstance(value, dict):
        return {_bounded(name): _bounded(part) for name, part in value.items()}
    return [_bounded(part) for part in value] if isinstance(value, list | tuple) else value


def _answer_facts(answered: SparkAnswer) -> dict[str, Any]:
    diagnosis = answered.diagnosis
    verdict = [f"Most of the time: {answered.bound.text}."] if diagnosis.causes else nothing_lines(answered)
    svg, _, legend = timeline(answered).partition("</svg>")
    return {
        "facts": _bounded(answered.facts()),
        "trace": answered.mapped.meta.trace_id,
        "verdict": _bounded(verdict),
        "savings": [saving_text(cause, diagnosis.active_ns) for cause in diagnosis.causes],
        "svg": f"{svg}</svg>",
        "legend": legend.replace("<p>", "").replace("</p>", ""),
    }
