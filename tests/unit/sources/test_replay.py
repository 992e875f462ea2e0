"""A trace that is written once more: the same events, each when it is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pag_graph import api, samples
from pag_graph.cli.app import app
from pag_graph.errors import InvalidParameterError, StoreExistsError
from pag_graph.sources.replay import replay, speed_of
from pag_graph.store.meta import read_meta
from pag_graph.store.tail import Tail
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """Time that passes while somebody sleeps, and `slow_ns` whenever somebody looks at it."""

    def __init__(self, slow_ns: int = 0) -> None:
        self.now_ns, self.slow_ns = 0, slow_ns

    def __call__(self) -> int:
        self.now_ns += self.slow_ns
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += max(round(seconds * 1e9), 1)


@pytest.mark.parametrize("speed", [0.5, 2.0, None])
def test_the_same_events_are_written(tmp_path: Path, speed: float | None) -> None:
    source, clock = Trace.open(samples.path("skewed")), Clock()
    report = replay(source.path, tmp_path / "out", speed=speed, flush_every_s=0.001, now=clock, sleep=clock.sleep)
    written = Trace.open(tmp_path / "out")
    assert written.events().equals(source.events())
    assert (written.meta, written.workers) == (source.meta, source.workers)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        {path.name for path in source.path.iterdir()} - {"checksums.json"}
    )
    assert (report.events, report.files) == (source.rows, len(written.files))
    assert report.files > len(source.files)
    if speed is None:
        assert (report.offered_per_s, report.late_max_ns, report.valid) == (None, None, True)
    else:
        begin, end = (choose(written.events(["t_ns"])["t_ns"].to_pylist()) for choose in (min, max))
        assert (end - begin) / 1e9 / speed <= report.duration_s <= (end - begin) / 1e9 / speed + 0.001
        assert report.late_max_ns == 0


def test_when_input_was_due_is_written_too(tmp_path: Path) -> None:
    replay(samples.path("elastic"), tmp_path / "out", speed=None)
    assert api.latency(tmp_path / "out").table.equals(api.latency(samples.path("elastic")).table)


@pytest.mark.parametrize("speed", [1e11, 1e300])
def test_a_speed_beyond_all_clocks_is_as_fast_as_possible(tmp_path: Path, speed: float) -> None:
    source = Trace.open(samples.path("skewed"))
    assert replay(source.path, tmp_path / "out", speed=speed).events == source.rows


def test_files_come_in_their_order_and_the_end_last(tmp_path: Path) -> None:
    clock, seen = Clock(), []
    tail = Tail(tmp_path / "out")

    def sleep(seconds: float) -> None:
        tail.look(now_ns=0)
        seen.append((tail.rows, tail.complete))
        clock.sleep(seconds)

    replay(samples.path("skewed"), tmp_path / "out", flush_every_s=0.002, now=clock, sleep=sleep)
    tail.look(now_ns=0)
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert not seen[-1][1]
    assert tail.complete
    assert tail.rows == Trace.open(samples.path("skewed")).rows


def test_who_does_not_keep_up_measures_nothing(tmp_path: Path) -> None:
    clock = Clock(slow_ns=30_000_000)
    report = replay(samples.path("skewed"), tmp_path / "out", flush_every_s=0.001, now=clock, sleep=clock.sleep)
    assert report.late_p50_ns is not None
    assert report.late_p99_ns is not None
    assert report.late_max_ns is not None
    assert 0 < report.late_p50_ns < report.late_p99_ns <= report.late_max_ns
    assert not report.valid


@pytest.mark.parametrize(("text", "speed"), [("2x", 2.0), ("0.25x", 0.25), ("3", 3.0), ("max", None)])
def test_speeds(text: str, speed: float | None) -> None:
    assert speed_of(text) == speed


@pytest.mark.parametrize("text", ["", "x", "fast", "0x", "-1x", "inf", "nan"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        speed_of(text)


def test_what_is_there_is_not_replaced_unless_asked_for(tmp_path: Path) -> None:
    for again in (False, True):
        if again:
            with pytest.raises(StoreExistsError):
                replay(samples.path("skewed"), tmp_path / "out", speed=None)
        replay(samples.path("skewed"), tmp_path / "out", speed=None, replace_target=again)


def test_the_command(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    found = CliRunner().invoke(app, ["replay", str(samples.path("skewed")), "--speed", "max", "--to", out])
    assert found.exit_code == 0, found.output
    assert "2,922 events" in found.output
    assert read_meta(tmp_path / "out" / "meta.json").complete
