"""`pag follow EVENTLOG STORE`: a log that grows, a follower that is killed, and the store of the whole log."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pag_graph import api
from pag_graph.errors import InvalidParameterError
from pag_graph.sources import convert
from tests.support.compare import committed, differences
from tests.support.growing_logs import content_of, grow, log_in, steps
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA = Path(__file__).parents[1] / "data" / "spark"
PROVE = os.environ.get("PAG_PROVE") == "1"
PATIENCE_S = 240.0
LOGS = ("streaming", "sql", "lost-executor", "concurrent-jobs") if PROVE else ("streaming",)


def follow(*arguments: str) -> subprocess.Popen[bytes]:
    """Start `pag follow`."""
    code = "from pag_graph.cli.app import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "follow", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def until(there: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Wait for something; whoever should make it must not have ended."""
    end = time.monotonic() + PATIENCE_S
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("form", ["rolled-zstd", "plain"] if PROVE else ["rolled-zstd"])
@pytest.mark.parametrize("name", LOGS)
def test_a_follower_that_is_killed_ends_with_the_store_of_the_whole_log(name: str, form: str, tmp_path: Path) -> None:
    lines, draw = content_of(DATA / f"{name}.zstd"), random.Random(7)
    store, place = tmp_path / "live.pag", log_in(tmp_path, form)
    all_steps = list(steps(lines, form, draw))
    sizes = np.cumsum([len(step.content or b"") for step in all_steps])
    half = int(np.searchsorted(sizes, 0.7 * sizes[-1]))
    # The log is not there yet: that it will be one is said.
    first = follow(str(place), str(store), "--epochs", "query")
    try:
        for step in all_steps[:half]:
            grow(tmp_path, step)
        if name == "streaming":
            until((store / "epochs").is_dir, first)
    finally:
        first.kill()
        first.communicate()
    second = follow(str(place), str(store), "--epochs", "query", "--format", "json")
    for step in all_steps[half:]:
        grow(tmp_path, step)
    said, errors = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, errors
    assert json.loads(said)["complete"] is True
    ended = tmp_path / (place.name.removesuffix(".inprogress"))
    convert(ended, tmp_path / "whole.trace", epochs="query")
    api.build(tmp_path / "whole.trace", tmp_path / "whole.pag", engine="local")
    assert differences(committed(store), committed(tmp_path / "whole.pag")) == ""


def by_executors(log: EventLog, jobs: Sequence[str], first: int = 0) -> EventLog:
    """Add a job a second, each with a task on an executor."""
    for job, executor in enumerate(jobs, first):
        at = 1_000 * job + 500
        log.job(job, at, [job]).stage(job, at, tasks=1).task(job, 0, executor, at + 10, at + 300, run=200)
        log.stage_done(job, at + 310).job_done(job, at + 320)
    return log


@pytest.mark.parametrize("restarted", [False, True])
def test_executors_may_come_while_their_application_is_followed(tmp_path: Path, *, restarted: bool) -> None:
    """Whoever had committed a portion knew no clock of a worker of a later one, or took the log for another run's."""
    log = by_executors(EventLog(cores=[1]), ["0", "0"])
    place, store = tmp_path / "app.inprogress", tmp_path / "app.pag"
    place.write_bytes(log.content)
    by_executors(log.executor("1", 2_300), ["1", "0"], 2).end(9_000)
    if restarted:
        assert not api.follow(place, store, epochs="job", until="idle:0ms").complete
        log.write(place)
        place.rename(tmp_path / "app")
        assert api.follow(tmp_path / "app", store, epochs="job").complete
    else:
        for commit in api.live(place, store, epochs="job", commit_every_s=0.0):
            if place.exists():
                assert commit.run.info.run["workers"] == 2
                log.write(place)
                place.rename(tmp_path / "app")
        assert commit.complete
    convert(tmp_path / "app", tmp_path / "whole.trace", epochs="job")
    api.build(tmp_path / "whole.trace", tmp_path / "whole.pag", engine="local")
    assert api.open(store).run.info.run["workers"] == 3
    assert differences(committed(store), committed(tmp_path / "whole.pag")) == ""


def test_logs_that_do_not_grow_are_refused(tmp_path: Path) -> None:
    """A file of any other format was waited for as for an event log, without end; so was a folder, as for a trace."""
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "activities.csv").write_text("worker,activity,start_ns,end_ns\n0,processing,0,10\n")
    ranks = Path(__file__).parents[1] / "data" / "kineto"
    places = (tmp_path / "log", tmp_path / "log" / "activities.csv", ranks, ranks / "rank-0.json.gz")
    for place, form in zip(places, ("activities", "activities", "kineto", "kineto"), strict=True):
        with pytest.raises(InvalidParameterError, match=f"in the format {form}, which cannot be followed") as refused:
            api.follow(place, tmp_path / "run.pag", until="idle:0ms")
        assert "pag convert" in str(refused.value.hint)
    (tmp_path / "eventlogs").mkdir()
    shutil.copy(DATA / "two-jobs.zstd", tmp_path / "eventlogs")
    with pytest.raises(InvalidParameterError, match="holds event logs, and is none itself"):
        api.follow(tmp_path / "eventlogs", tmp_path / "run.pag", until="idle:0ms")
    # Nothing is left of the attempts.
    assert {file.name for file in tmp_path.iterdir()} == {"log", "eventlogs"}


def test_what_is_no_event_log_has_no_use_for_its_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="is not an event log"):
        api.follow(tmp_path / "run.trace", tmp_path / "run.pag", trace=tmp_path / "other")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "activities.csv").write_text("worker,activity,start_ns,end_ns\n0,processing,0,10\n")
    with pytest.raises(InvalidParameterError, match="states itself where its epochs end") as refused:
        convert(tmp_path / "logs", tmp_path / "t", epochs="job")
    assert refused.value.hint == "Leave out --epochs."
