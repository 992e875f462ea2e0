"""The engine for jobs: tasks run on Spark's executors, and leftovers are joined by Spark."""

from __future__ import annotations

import re
import socket
import threading
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw

from pag_graph.builder.leftovers import left_files
from pag_graph.builder.match import stitch
from pag_graph.engines.frames import parquet
from pag_graph.engines.local import stitch_here
from pag_graph.engines.session import spark_session
from pag_graph.errors import EngineError, PagGraphError
from pag_graph.runtime import memory, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from pag_graph.builder.engine import Item, Result

_POLL_S = 0.2
_QUOTED_PATH = re.compile(r"'(/[^']*)'")
_FEW = 32 << 20
"""Bytes of leftovers that the driver joins itself: Spark takes longer to plan such a join than Polars to do it."""


class SparkEngine:
    """Runs one Spark task per item; tasks read and write the files themselves, so no rows cross the JVM.

    Parameters
    ----------
    spark
        Session to use; the active one, or a new one, where absent.
    """

    name = "spark"
    in_process = False

    def __init__(self, spark: SparkSession | None = None) -> None:
        self.spark = spark or spark_session()

    @property
    def tasks(self) -> int:
        """How many tasks run at the same time, as far as Spark says."""
        return int(self.spark.sparkContext.defaultParallelism)

    def map(
        self,
        task: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        label: str,
        progress: Callable[[str, int, int], None],
    ) -> list[Result]:
        """Run `task` on every item, one Spark task each (see `pag_graph.builder.engine.Engine.map`).

        Parameters
        ----------
        task, items, label, progress
            See `pag_graph.builder.engine.Engine.map`.

        Returns
        -------
        list
            One result per item.

        Raises
        ------
        PagGraphError
            The error that a task raised, as if it had been raised here.
        EngineError
            If Spark fails for a reason of its own.
        """
        from pyspark.errors import PySparkException

        if not items:
            return []
        context = self.spark.sparkContext
        group = uuid.uuid4().hex
        # Spark gives each task a core of its own; where there are fewer tasks than cores they share what is left over.
        guarded = partial(_guarded, task, max(1, self.tasks // len(items)))
        jobs = context.parallelize(list(items), len(items)).map(guarded)
        outcome: dict[str, Any] = {}

        def collect() -> None:
            context.setJobGroup(group, label)
            try:
                outcome["results"] = jobs.collect()
            except (PySparkException, OSError) as error:
                outcome["error"] = error
            except Exception as error:  # noqa: BLE001  (py4j's errors have no common base; none may be lost here)
                outcome["error"] = error

        progress(label, 0, len(items))
        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
            progress(label, self._tasks_done(group), len(items))
        if "error" in outcome:
            message = f"Spark failed in the step {label!r}: {str(outcome['error']).splitlines()[0]}"
            raise EngineError(message, "The executors' logs have the details.") from outcome["error"]
        results: list[Any] = outcome["results"]
        for result in results:
            if isinstance(result, _Failure):
                raise result.seen_from_here()
        progress(label, len(items), len(items))
        return results

    def _tasks_done(self, group: str) -> int:
        tracker = self.spark.sparkContext.statusTracker()
        tasks_done = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else []:
                stage_info = tracker.getStageInfo(stage)
                tasks_done += stage_info.numCompletedTasks if stage_info else 0
        return tasks_done

    def stitch(self, staging: Path, horizon_ns: int) -> None:
        """Join the leftovers of all slices; the driver does so where they are small.

        Parameters
        ----------
        staging, horizon_ns
            As for `pag_graph.builder.engine.Engine.stitch`.
        """
        leftovers = [left_files(staging, name) for name in ("sends", "receives", "readers")]
        if not (leftovers[0] and leftovers[1]):
            return
        if sum(file.stat().st_size for files in leftovers for file in files) <= _FEW:
            stitch_here(staging, horizon_ns)
            return
        sends, receives, *readers = (
            nw.from_native(parquet(self.spark.read, [str(file) for file in files])) for files in leftovers if files
        )
        joined = stitch(sends, receives, readers[0] if readers else None, horizon_ns)
        joined.to_native().write.mode("overwrite").parquet(str(staging / "stitched"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """An error that a task raised, and what its machine does not have of the path that it is about."""

    error: PagGraphError | OSError
    host: str
    path: str = ""
    unseen: str = ""
    """The path, or the highest folder above it that the executor's machine does not have; empty where it has all."""

    def seen_from_here(self) -> Exception:
        """Return what to raise on the driver: that machines see different files, where they do."""
        if not self.unseen or not _is_here(self.unseen):
            return self.error
        message = f"The executor on {self.host} does not see {self.path}: {self.unseen} is not there, but it is here."
        hint = "Put trace, store and results on storage that driver and executors share, under the same path."
        return EngineError(message, hint, {"host": self.host, "path": self.path})


def _is_here(path: str) -> bool:
    return Path(path).exists()


def _failure(error: PagGraphError | OSError) -> _Failure:
    """Look, on the machine of the task, for the path that an error is about."""
    context = error.context if isinstance(error, PagGraphError) else {}
    quoted = _QUOTED_PATH.search(str(error))
    named_path = (
        context.get("file") or context.get("path") or getattr(error, "filename", None) or (quoted and quoted[1])
    )
    path = Path(str(named_path or ""))
    unseen = ""
    if path.is_absolute():
        unseen = next((str(part) for part in (*reversed(path.parents), path) if not part.exists()), "")
    return _Failure(error=error, host=socket.gethostname(), path=str(path), unseen=unseen)


def _guarded(task: Callable[[Item], Result], cores: int, item: Item) -> Result | _Failure:
    """Carry our own errors back as values: Spark would turn them into text, and the user would read a JVM trace."""
    # The process does tasks only, and its next one needs as much.
    memory.keep()
    threads.allow(cores)
    try:
        return task(item)
    except (PagGraphError, OSError) as error:
        failure = _failure(error)
        if isinstance(error, PagGraphError) or failure.unseen:
            return failure
        raise
