"""Traces that grow, followed on Spark: whatever the portions and the restarts, the rows are those of a build."""

from __future__ import annotations

import shutil
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api, samples
from pag_graph.engines.following import Until
from pag_graph.engines.session import spark_session
from pag_graph.engines.spark_files import FileList
from pag_graph.engines.spark_following import Batches, until_the_end
from pag_graph.errors import (
    EngineError,
    InvalidParameterError,
    StoreConflictError,
    TraceFormatError,
    UnsupportedPlanError,
)
from pag_graph.store.delta import open_store
from pag_graph.store.live import followed
from tests.support.compare import committed, differences
from tests.support.growing import GrowingTrace, rounds

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.store.delta import StoreInfo

pytestmark = pytest.mark.spark

EPOCHS = 8


@pytest.fixture(scope="module", autouse=True)
def _session() -> None:
    # The session is shared with other modules, and ends with the process.
    spark_session(master="local[2]", quick=True)


def test_rows_are_those_of_a_build_though_it_is_stopped_and_the_checkpoint_is_lost(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(EPOCHS), tmp_path / "trace")
    growing.write_until(0)
    stop, later = Event(), iter((2, 3))
    seen: list[int] = []

    def goes_on(store: StoreInfo, batch_s: float) -> None:
        assert batch_s > 0
        seen.append(store.closed_epochs)
        if (epoch := next(later, None)) is None:
            stop.set()
        else:
            growing.write_until(epoch)

    place, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    first = api.follow_on_spark(growing.path, place, every=0, checkpoint=checkpoint, stop=stop, tell=goes_on)
    assert (first.ending, first.commits, len(first.batch_s)) == ("stopped", 3, 3)
    assert seen == sorted(set(seen))
    # What is there can be asked; epochs that go on are there as they are so far.
    assert api.open(place).epochs["epoch"].to_list() == list(range(5))
    shutil.rmtree(checkpoint)

    def ends(store: StoreInfo, batch_s: float) -> None:
        del store, batch_s
        growing.finish()

    growing.write_until(5)
    second = api.follow_on_spark(growing.path, place, every=0, checkpoint=checkpoint, tell=ends)
    assert (second.ending, second.commits) == ("complete", 2)
    api.build(growing.path, tmp_path / "once", engine="local")
    assert differences(committed(place), committed(tmp_path / "once")) == ""
    # With the checkpoint Spark has nothing to tell, without it there is nothing new.
    for kept in (checkpoint, None):
        again = api.follow_on_spark(growing.path, place, every=0, checkpoint=kept)
        assert (again.ending, again.commits) == ("complete", 0)
    assert open_store(place).versions == second.store.versions  # type: ignore[union-attr]
    # What Spark has told of before is built all the same, where the store is gone.
    shutil.rmtree(place)
    assert api.follow_on_spark(growing.path, place, every=0, checkpoint=checkpoint).commits == 1


def test_what_came_is_built_before_its_source_counts_as_idle(tmp_path: Path) -> None:
    """It ended before Spark told of any file, and where the next batch was due later than that."""
    growing, place = GrowingTrace(rounds(4), tmp_path / "trace"), tmp_path / "store"
    growing.write_until(0)
    until = "idle:0ms"
    done = api.follow_on_spark(growing.path, place, every="1h", until=until, tell=lambda _, __: growing.write_until(2))
    assert (done.ending, done.commits) == ("idle", 2)
    api.build(growing.path, tmp_path / "once", engine="local")
    assert differences(committed(place), committed(tmp_path / "once")) == ""


def test_standing_queries_are_kept_up_to_date(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(4), tmp_path / "trace")
    growing.write_until(2)
    api.follow_on_spark(
        growing.path, tmp_path / "store", every=0, queries=["metrics"], tell=lambda _, __: growing.finish()
    )
    answer = api.changes(tmp_path / "store", "metrics")
    assert set(answer["epoch"].to_pylist()) >= set(range(4))


def test_a_trace_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    done = api.follow_on_spark(tmp_path / "none", tmp_path / "store", every=0, until="idle:1s")
    assert (done.ending, done.store, done.commits) == ("idle", None, 0)


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    trace = samples.path("skewed")
    with followed(tmp_path / "taken"), pytest.raises(StoreConflictError, match="another process"):
        api.follow_on_spark(trace, tmp_path / "taken")
    with pytest.raises(UnsupportedPlanError, match="cannot be followed"):
        api.follow_on_spark(trace, tmp_path / "islands", rules="st2")
    with pytest.raises(InvalidParameterError, match="negative"):
        api.follow_on_spark(trace, tmp_path / "store", every=-1)
    damaged = tmp_path / "damaged"
    shutil.copytree(trace, damaged)
    next((damaged / "events").glob("*.parquet")).write_bytes(b"PAR1")
    with pytest.raises(TraceFormatError):
        api.follow_on_spark(damaged, tmp_path / "store")


class Stream:
    """Stands for Spark's: begins some times, and dies each time but the last."""

    def __init__(self, failures: int) -> None:
        self.left, self.begun, self.isActive = failures, 0, True

    def start(self) -> Stream:
        self.begun += 1
        self.left, self.isActive = self.left - 1, self.left <= 0
        return self

    def exception(self) -> str:
        return "Python worker failed to connect back."

    def stop(self) -> None:
        self.isActive = False


@pytest.mark.parametrize(("failures", "begun"), [(0, 1), (3, 4)])
def test_a_stream_that_dies_goes_on(tmp_path: Path, failures: int, begun: int) -> None:
    stream: Any = Stream(failures)
    batches = Batches(tmp_path, None, None, lambda **_: pytest.fail("there is nothing"), None, kept=None, replace=False)
    assert until_the_end(stream, batches, Until(idle_s=0.5), Event()) == "idle"
    assert stream.begun == begun
    assert batches.over


def test_a_stream_that_always_dies_is_an_error(tmp_path: Path) -> None:
    stream: Any = Stream(99)
    batches = Batches(tmp_path, None, None, lambda **_: pytest.fail("there is nothing"), None, kept=None, replace=False)
    with pytest.raises(EngineError, match="connect back"):
        until_the_end(stream, batches, Until(), Event())
    assert stream.begun == 4


def test_an_offset_tells_what_has_come_and_what_has_grown(tmp_path: Path) -> None:
    growing = GrowingTrace(rounds(3), tmp_path / "trace")
    files = FileList(tmp_path / "trace")
    assert files.now() == {}
    growing.write_until(0)
    (tmp_path / "trace" / "events" / ".hidden-0.parquet").touch()
    first = files.now()
    told = dict(files.between({}, first))
    assert told
    assert [*files.between(first, first)] == []
    name, size = max(told.items())
    (tmp_path / "trace" / name).write_bytes(b"x" * (size + 1))
    second = files.now()
    assert [*files.between(first, second)] == [(name, size + 1)]
    growing.finish()
    assert files.now()["complete"] is True
