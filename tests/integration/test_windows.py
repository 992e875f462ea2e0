"""Windows of recorded runs, anywhere: critical paths are as long as they are, and every worker's time is explained."""

from __future__ import annotations

import os
import random
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.cli.analyses import nanoseconds
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.snapshot import Snapshot, _touches
from pag_graph.sources import convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.api import Pag, Window

PROVE = os.environ.get("PAG_PROVE") == "1"
WINDOWS = 1_000 if PROVE else 15
ORACLES = Path(os.environ.get("PAG_ORACLES", Path(__file__).parents[2].parent / "shared" / "oracles")) / "timely"
BUNDLED = ["bfs", "ground_truth", "skewed", "triangles"]
RECORDED = ["skewed-w4", "bfs-small", "bfs-medium", "2proc-n2w1"]
needs_oracles = [
    pytest.mark.oracle,
    pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}"),
]


@pytest.fixture(scope="module")
def stores() -> dict[str, Pag]:
    """Runs that are built already, by name."""
    return {}


@pytest.fixture
def pag(request: pytest.FixtureRequest, stores: dict[str, Pag], tmp_path_factory: pytest.TempPathFactory) -> Pag:
    name = str(getattr(request, "param", "skewed"))
    if name not in stores:
        place = tmp_path_factory.mktemp(name)
        trace = SAMPLES / name if name in BUNDLED else place / "trace"
        if name not in BUNDLED:
            convert(ORACLES / name, trace)
        api.build(trace, place / "store", engine="local")
        stores[name] = api.open(place / "store")
    return stores[name]


def random_windows(pag: Pag, count: int) -> list[Window]:
    """Short ones and long ones; every third border lies where an event is."""
    chance = random.Random(pag.run.info.events)
    end = pag.run.end_ns
    instants = pag.vertices().select("t_ns").collect()["t_ns"].unique().sort().to_list()
    windows = []
    while len(windows) < count:
        length = round(end ** chance.uniform(0.1, 1))
        low = chance.choice(instants) if chance.random() < 1 / 3 else chance.randrange(end)
        high = min(low + length, end)
        if chance.random() < 1 / 3:
            high = instants[bisect_left(instants, high)]
        if low < high:
            windows.append(pag.run.window(between=(low, high)))
    return windows


def check_tiles(snapshot: Snapshot) -> None:
    """The parts of a worker's edges inside the window are as long as the window, for each worker."""
    window = snapshot.window
    inside = snapshot.local.lazy().select(
        worker=pl.col("dst") // 2**40,
        part=pl.min_horizontal("end_ns", pl.lit(window.end_ns))
        - pl.max_horizontal("start_ns", pl.lit(window.start_ns)),
    )
    summed = inside.group_by("worker").agg(pl.col("part").sum(), least=pl.col("part").min()).collect()
    assert sorted(summed["worker"]) == snapshot.run.workers
    assert set(summed["part"]) == {window.span_ns}
    assert (summed["least"] >= 0).all()


def check_path(snapshot: Snapshot) -> None:
    path = critical_path(snapshot)
    window, steps = path.window, path.steps.to_pylist()
    assert path.length_ns == window.span_ns
    assert steps[0]["start_ns"] == window.start_ns
    for before, after in pairwise(steps):
        assert before["edge_dst"] == after["edge_src"]
        assert before["start_ns"] + before["duration_ns"] == after["start_ns"]
    assert "waiting" not in path.by_type


@pytest.mark.parametrize(
    "pag", [*BUNDLED, *(pytest.param(name, marks=needs_oracles) for name in RECORDED)], indirect=True
)
def test_paths_and_tiles_of_random_windows(pag: Pag) -> None:
    whole = pag.run.snapshot(pag.run.window(between=(0, pag.run.end_ns)))
    for window in random_windows(pag, WINDOWS):
        snapshot = Snapshot(run=pag.run, window=window, edges=whole.edges.filter(_touches(window)), within=whole)
        check_path(snapshot)
        check_tiles(snapshot)


@pytest.mark.parametrize(
    "pag", [*BUNDLED, *(pytest.param(name, marks=needs_oracles) for name in RECORDED)], indirect=True
)
def test_edges_chain_and_no_event_is_lost(pag: Pag) -> None:
    info = pag.run.info
    vertices = pag.vertices().collect()
    assert vertices["seq"].count() + sum(info.dropped.values()) == info.events
    assert all(reason for reason in info.dropped)
    local = pag.run.snapshot(pag.run.window(between=(0, pag.run.end_ns))).local
    after = pl.col("src").shift(-1).over(pl.col("dst") // 2**40)
    chained = local.with_columns(next=after, next_ns=pl.col("start_ns").shift(-1).over(pl.col("dst") // 2**40))
    broken = chained.filter(pl.col("next").is_not_null() & (pl.col("next") != pl.col("dst")))
    late = chained.filter(pl.col("next").is_not_null() & (pl.col("next_ns") != pl.col("end_ns")))
    assert broken.height == late.height == 0
    assert chained["next"].null_count() == info.run["workers"]


def test_one_read_of_many_windows_gives_the_same_snapshots(pag: Pag) -> None:
    end = pag.run.end_ns
    windows = [*pag.run.series(end // 9, step_ns=end // 20), *random_windows(pag, 6)]
    for snapshot in pag.run.snapshots(windows):
        alone = pag.run.snapshot(snapshot.window)
        assert snapshot.edges.sort("src", "dst", "read").equals(alone.edges.sort("src", "dst", "read"))
        assert snapshot.enders.equals(alone.enders)
    assert list(pag.run.snapshots([])) == []


@pytest.mark.parametrize(
    ("every", "step", "between", "expected"),
    [
        (10, None, (0, 25), [(0, 10), (10, 20), (20, 25)]),
        (10, None, (0, 20), [(0, 10), (10, 20)]),
        (10, 5, (0, 25), [(0, 10), (5, 15), (10, 20), (15, 25)]),
        (10, 5, (0, 23), [(0, 10), (5, 15), (10, 20), (15, 23)]),
        (10, 20, (0, 45), [(0, 10), (20, 30), (40, 45)]),
        (10, 20, (0, 40), [(0, 10), (20, 30)]),
        (10, 20, (100, 105), [(100, 105)]),
        (10, 3, (7, 8), [(7, 8)]),
    ],
)
def test_series_of_windows(
    pag: Pag, every: int, step: int | None, between: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    windows = pag.run.series(every, step_ns=step, between=between)
    assert [(window.start_ns, window.end_ns) for window in windows] == expected


def test_series_add_up(pag: Pag) -> None:
    """Side by side, windows tile the run: what is spent in them is what is spent in all."""
    end = pag.run.end_ns
    whole = {row["type"]: row["time_ns"] for row in times(pag, end).iter_rows(named=True)}
    parts = times(pag, end // 7)
    assert parts["window"].max() >= 7
    summed = parts.group_by("type").agg(pl.col("time_ns").sum())
    assert dict(summed.iter_rows()) == whole
    paths = pl.DataFrame(pl.from_arrow(pag.series("critical-path", every_ns=end // 7)))
    assert paths["length_ns"].sum() == end
    assert (paths["to_ns"] - paths["from_ns"]).equals(paths["span_ns"], check_names=False)


def times(pag: Pag, every_ns: int) -> pl.DataFrame:
    """Time per window and type, straight from the snapshots."""
    rows = []
    for number, snapshot in enumerate(pag.run.snapshots(pag.run.series(every_ns))):
        window = snapshot.window
        part = pl.min_horizontal("end_ns", pl.lit(window.end_ns)) - pl.max_horizontal(
            "start_ns", pl.lit(window.start_ns)
        )
        rows.append(
            snapshot.local.group_by("type")
            .agg(time_ns=part.sum())
            .select(pl.lit(number).alias("window"), "type", "time_ns")
        )
    return pl.concat(rows).filter(pl.col("time_ns") > 0)


def test_latency_windows_go_from_the_first_event_of_an_epoch_to_its_last(pag: Pag) -> None:
    vertices = pag.vertices().collect()
    for epoch in (1, 4):
        window = pag.run.window(latency=epoch)
        mine = vertices.filter(pl.col("epoch") == epoch, pl.col("seq").is_not_null())
        # Dropped events count as well: the window can only be wider.
        assert window.start_ns <= mine["t_ns"].min()
        assert window.end_ns >= mine["t_ns"].max()
        row = pag.epochs.filter(pl.col("epoch") == epoch).row(0, named=True)
        assert (window.start_ns, window.end_ns) == (row["entry_ns"], row["exit_ns"])
        assert window.name == f"latency of epoch {epoch}"
        assert pag.critical_path(latency=epoch).length_ns == window.span_ns
    assert pag.waits(latency=4).num_rows


def test_windows_that_there_are_not(pag: Pag, tmp_path: Path) -> None:
    end = pag.run.end_ns
    for wrong in (
        lambda: pag.run.window(latency=4_000),
        lambda: pag.run.window(between=(5, end + 1)),
        lambda: pag.run.window(between=(5, 5)),
        lambda: pag.run.series(0),
        lambda: pag.run.series(10, step_ns=0),
        lambda: pag.run.series(1, step_ns=1),
        lambda: pag.series("invariants", every_ns=10),
        lambda: pag.series("waits", every_ns=10_000_000, no_such=1),
    ):
        with pytest.raises(InvalidParameterError):
            wrong()
    api.build(SAMPLES / "skewed", tmp_path / "st2", rules="st2", engine="local")
    with pytest.raises(UnsupportedPlanError):
        api.open(tmp_path / "st2").run.series(10_000_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7500", 7500), ("10ms", 10_000_000), ("1.5s", 1_500_000_000), ("20us", 20_000), ("3 ns", 3), ("0.5us", 500)],
)
def test_times_are_read(text: str, expected: int) -> None:
    assert nanoseconds(text) == expected


@pytest.mark.parametrize("text", ["", "ms", "-5", "1e3", "0.5", "5 w", "1.5ns", "٣"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="is not a time"):
        nanoseconds(text)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("critical-path", "--every", "10ms"), 0, ("from_ns", "10,000,000", "length_ns")),
        (("profile", "--every", "10ms", "--step", "5ms", "--format", "json"), 0, ('"windows"', '"step_ns": 5000000')),
        (("waits", "--every", "10ms", "--between", "5ms", "20ms", "--format", "csv"), 0, ("window,from_ns,to_ns",)),
        (("critical-path", "--between", "1ms", "2.5ms"), 0, ("1,500,000 ns, path 1,500,000 ns",)),
        (("critical-path", "--latency", "4"), 0, ("Latency of epoch 4",)),
        (("critical-path", "--latency", "4", "--epoch", "4"), 2, ("only one of",)),
        (("critical-path", "--step", "5ms"), 2, ("--step needs --every",)),
        (("critical-path", "--every", "5 minutes"), 2, ("is not a time",)),
        (("diff", "--latency", "4", "--against-latency", "3"), 0, ("difference_ns",)),
    ],
)
def test_the_command_line_has_all_windows(
    pag: Pag,
    run_pag: Callable[..., tuple[int, str, str]],
    arguments: tuple[str, ...],
    code: int,
    words: tuple[str, ...],
) -> None:
    name, *rest = arguments
    ended, out, err = run_pag(name, pag.run.info.path, *rest)
    shown = " ".join((out + err).split())
    assert ended == code, shown
    for word in words:
        assert word in shown
