"""Which units of a log are under way as it is read: jobs, SQL executions, batches of streams.

An instant at which none is under way is *quiet*. A log is cut there in portions that are mapped one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.sources.spark.batch_times import BatchTimes, Ended
from pag_graph.sources.spark.event_values import SQL, id_of, integer
from pag_graph.sources.spark.stream_progress import progress_row
from pag_graph.sources.spark.task_rows import LARGEST
from pag_graph.sources.spark.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["STREAMING", "UNITS", "OpenUnits", "Under"]

UNITS = ("batch", "query", "job")
"""What an epoch can be, the largest first."""

STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"


class Under(NamedTuple):
    """A unit that is under way."""

    name: str
    """What people call it, as its epoch will be called."""
    since_ms: int
    """When it began, in milliseconds since 1970."""
    query: str | None = None
    """The stream, if it is a batch of one."""


class OpenUnits:
    """Follows the events that begin and end units.

    Parameters
    ----------
    unit
        One of `UNITS`. A batch is under way from its first job until the stream reports its progress, a query as long
        as its execution; jobs are under way in any case, and executions unless units are jobs.
    """

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.opened = 0
        """Jobs that began so far."""
        self.ended = 0
        """Jobs that ended since the last cut."""
        self.silent = False
        """Whether a stream went on without saying what became of a batch: then its executions alone count."""
        self._jobs: dict[int, int] = {}
        self._executions: dict[int, int] = {}
        self.times = BatchTimes()
        """How long batches took."""
        self._batches: dict[tuple[str, int], int] = {}
        self._left: dict[int, int] = {}

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], None]]:
        """Return what to call with which event, when its values were read."""
        return {
            "SparkListenerJobStart": self._job_start,
            "SparkListenerJobEnd": self._job_end,
            f"{SQL}SQLExecutionStart": self._execution_start,
            f"{SQL}SQLExecutionEnd": self._execution_end,
            f"{STREAMING}QueryProgressEvent": self._progress,
            f"{STREAMING}QueryTerminatedEvent": self._terminated,
        }

    def quiet(self, running: Collection[int]) -> bool:
        """Say whether nothing is under way, and a job ended since the last cut.

        Parameters
        ----------
        running
            Tasks that were not seen to end. Those that a job left behind are waited for until another one began: Spark
            may have dropped their ends.
        """
        if not self.ended or self._jobs or self._executions or self._batches:
            return False
        return all(self._left.setdefault(task, self.opened) < self.opened for task in running)

    def cut(self) -> None:
        """Begin another portion."""
        self.ended = 0
        self._left.clear()

    def give_up(self) -> None:
        """Forget what is under way: its ends are in a part of the log that is not there."""
        for open_units in (self._jobs, self._executions, self._batches):
            open_units.clear()

    def under(self) -> Iterator[Under]:
        """Yield what is under way, the oldest first."""
        batches = self._batches.items()
        units = [Under(f"batch {batch} of query {query[:8]}", since_ms, query) for (query, batch), since_ms in batches]
        units += [Under(f"query {number}", since_ms) for number, since_ms in self._executions.items()]
        units += [Under(f"job {number}", since_ms) for number, since_ms in self._jobs.items()]
        yield from sorted(units, key=lambda unit: unit.since_ms)

    def _job_start(self, event: dict[str, Any]) -> None:
        number, submitted_ms = id_of(event["Job ID"]), integer(event.get("Submission Time")) or 0
        self._jobs[number] = submitted_ms
        self.opened += 1
        properties = event.get("Properties") or {}
        batch, query = integer(properties.get("streaming.sql.batchId")), str(properties.get("sql.streaming.queryId"))
        if self.unit == "batch" and batch is not None and not self.silent:
            if any(open_query == query and number < batch for open_query, number in self._batches):
                self.silent = True
                self._batches.clear()
            else:
                self._batches.setdefault((query, batch), submitted_ms)

    def _job_end(self, event: dict[str, Any]) -> None:
        self._jobs.pop(id_of(event["Job ID"]), None)
        self.ended += 1

    def _execution_start(self, event: dict[str, Any]) -> None:
        if self.unit != "job":
            self._executions[id_of(event["executionId"], LARGEST)] = integer(event["time"]) or 0

    def _execution_end(self, event: dict[str, Any]) -> None:
        self._executions.pop(id_of(event["executionId"], LARGEST), None)

    def _progress(self, event: dict[str, Any]) -> None:
        progress = event["progress"]
        batch = integer(progress["batchId"])
        progress_facts = progress_row(event, Texts())
        # A stream without anything new reports as well.
        if batch is not None and progress_facts["input_rows"]:
            self.times.add(
                str(progress["id"]), Ended(batch, progress_facts["trigger_ms"] or 0, progress_facts["state_rows"])
            )
        self._end_batches(str(progress["id"]), LARGEST if batch is None else batch)

    def _terminated(self, event: dict[str, Any]) -> None:
        self._end_batches(str(event.get("id")), LARGEST)

    def _end_batches(self, query: str, last_batch: int) -> None:
        for key in [key for key in self._batches if key[0] == query and key[1] <= last_batch]:
            del self._batches[key]
