"""A second pass over a log for what single tasks added to the accumulators of plan nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from pag_graph.sources.spark.codecs import Stopped, decode
from pag_graph.sources.spark.log_lines import Lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pag_graph.sources.spark.logfiles import LogFiles

__all__ = ["read_task_updates"]

_TASK_END = b"SparkListenerTaskEnd"
_NEAR = 80
"""Bytes at a line's begin in which the name of its event is."""
_TASK = re.compile(rb'"Task ID"\s*:\s*(\d{1,18})\b')


def read_task_updates(log: LogFiles, tasks: Collection[int], wanted: Collection[int]) -> dict[int, dict[int, int]]:
    """Return what some tasks added to some accumulators.

    Parameters
    ----------
    log
        Its files, which `read_log` has read.
    tasks
        Numbers of tasks.
    wanted
        Numbers of accumulators.

    Returns
    -------
    dict
        Task to accumulator to what it added; of a task whose end comes twice, the first. What cannot be read is left
        out: the first pass has told of it.

    Notes
    -----
    Only the lines of these tasks' ends are parsed: the pass costs little more than decoding the files.
    """
    chosen, accumulators = frozenset(tasks), frozenset(wanted)
    updates: dict[int, dict[int, int]] = {}
    if not chosen or not accumulators:
        return updates
    for line in _ends(log):
        number = _TASK.search(line)
        if number is None or (task := int(number[1])) not in chosen or task in updates:
            continue
        try:
            accumulables = orjson.loads(line)["Task Info"].get("Accumulables") or ()
            task_updates = {
                accumulable["ID"]: int(accumulable["Update"])
                for accumulable in accumulables
                if accumulable.get("Update") and accumulable["ID"] in accumulators
            }
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            continue
        updates[task] = task_updates
    return updates


def _ends(log: LogFiles) -> Iterator[bytes]:
    def ignore(stop: Stopped) -> None:
        """Leave it: the first pass found where a file stops."""

    for file in log.files:
        for line in Lines().of(decode(file, stopped=ignore)):
            if _TASK_END in line[:_NEAR]:
                yield line
