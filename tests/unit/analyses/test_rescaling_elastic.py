"""What `pag rescale` says of recorded runs of the example `elastic`: with time to spare, and under overload."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from pag_graph import api, samples
from pag_graph.errors import InvalidParameterError

DATA = Path(__file__).parents[2] / "data" / "timely"


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the trace, and its store."""
    place = tmp_path_factory.mktemp("elastic")
    with tarfile.open(DATA / "elastic-idle.tar.xz") as archive:
        archive.extractall(place, filter="data")
    api.build(place / "elastic-idle", place / "store", engine="local")
    return place / "elastic-idle", place / "store"


@pytest.fixture(scope="module")
def overload(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the trace, and its store."""
    place = tmp_path_factory.mktemp("elastic") / "store"
    api.build(samples.path("elastic"), place, engine="local")
    return samples.path("elastic"), place


def test_who_has_time_to_spare_is_held_up_by_the_move_alone(idle: tuple[Path, Path]) -> None:
    trace, store = idle
    answer = api.rescale(store, inputs=trace, cores=8)
    found = answer.table.to_pylist()
    assert [(row["kind"], row["saturated"], row["verdict"]) for row in found] == [
        ("activate", "no", "not_saturated_faster")
    ] * 2
    phases = answer.named("phases").to_pylist()
    for operation in (0, 1):
        worst = {row["phase"]: row["max_ns"] for row in phases if row["operation"] == operation}
        assert max(worst, key=lambda phase: worst[phase]) == "bootstrap"
    steps = answer.named("steps").to_pylist()
    assert {(row["side"], row["step"]) for row in steps} == {
        ("server", "routing"),
        ("server", "send_state"),
        ("peer", "backfill"),
    }
    held_up = [row for row in answer.named("held_up").to_pylist() if row["operation"] == 0]
    assert held_up[0]["step"] in {"activate", "peer:backfill"}


def test_overload_is_relieved_and_its_backlog_gone(overload: tuple[Path, Path]) -> None:
    trace, store = overload
    answer = api.rescale(store, inputs=trace, cores=2)
    [row] = answer.table.to_pylist()
    assert (row["saturated"], row["verdict"], row["payback_status"]) == ("yes", "relieved", "paid")
    phases = {row["phase"]: row for row in answer.named("phases").to_pylist()}
    # Nine of ten are done before the next one is due, and the slowest does not hold up two.
    assert phases["after"]["p90_ns"] < 5_000_000
    assert phases["after"]["max_ns"] < 10_000_000 < phases["before"]["p50_ns"]
    # Without due times the backlog is out of sight.
    hidden = api.rescale(store, cores=2)
    assert any("service times" in warning for warning in hidden.warnings)
    assert hidden.table["worst_ns"].to_pylist()[0] < row["worst_ns"]


def test_due_times_are_those_of_the_run(idle: tuple[Path, Path], overload: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidParameterError, match="is not a trace of the run"):
        api.rescale(idle[1], inputs=overload[0])
    with pytest.raises(InvalidParameterError, match="not from both"):
        api.rescale(idle[1], inputs=idle[0], period_ns=20_000_000, first_ns=0)
