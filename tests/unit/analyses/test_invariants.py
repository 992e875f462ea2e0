"""Invariants: of epochs drawn by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api
from pag_graph.analyses.invariants import InvariantsParameters
from pag_graph.errors import InvalidParameterError
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Fixture = Callable[..., Any]


def epochs(*took: int) -> tuple[str, str]:
    """Draw one message per epoch, delivered after so many ns; worker 1 sends progress as well."""
    sender, receiver, now = ["0 start 1"], ["0 start 2"], 0
    for number, ns in enumerate(took):
        sender += [f"{now + 10} send 3>1 #{number}", f"{now + 20} psend 9 #{number}"]
        sender += [f"{now + 1000} precv 9<1 #{number}", f"{now + 1001} end"]
        receiver += [f"{now + 10 + ns} recv 3<0 #{number}", f"{now + 910} psend 9 #{number}"]
        receiver += [f"{now + 911} precv 9<0 #{number}", f"{now + 1001} end"]
        now += 1002
    return " | ".join(sender), " | ".join(receiver)


@pytest.fixture
def pag(tmp_path: Path) -> Callable[..., Any]:
    def run(*took: int) -> Any:
        draw(*epochs(*took)).write(tmp_path / "trace")
        api.build(tmp_path / "trace", tmp_path / "store", engine="local", mode="replace")
        return api.open(tmp_path / "store")

    return run


def found(table: Any) -> list[tuple[Any, ...]]:
    names = ("invariant", "learned", "epoch", "worker", "to_worker", "observed", "limit")
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def test_limits_are_strict_and_alerts_name_the_edge(pag: Fixture) -> None:
    # The first epoch is the startup, and not looked at.
    run = pag(99, 50, 60, 61)
    table = run.invariants(message_max_ns=60, learn=False)
    slow = [row for row in found(table) if row[3:5] == (0, 1)]
    assert ("message_max", False, 3, 0, 1, 61, 60) in slow
    assert all(row[5] > 60 for row in slow)
    [alert] = [row for row in table.to_pylist() if row["observed"] == 61]
    edges = {(row["src"], row["dst"]): row for row in run.edges().collect().iter_rows(named=True)}
    edge = edges[alert["src"], alert["dst"]]
    assert (edge["type"], edge["channel"], edge["start_ns"]) == ("data_message", 3, alert["start_ns"])


def test_progress_of_every_worker_and_gaps_between(pag: Fixture) -> None:
    run = pag(50, 50, 50)
    assert run.invariants(learn=False).num_rows == 0
    # Worker 0 sends at 20, 1022, 2024; the last round ends at 3005.
    rows = [row for row in found(run.invariants(learn=False, progress_max_ns=980)) if row[3] == 0]
    assert rows == [
        ("progress_max", False, 1, 0, None, 1002, 980),
        ("progress_max", False, 2, 0, None, 1002, 980),
        ("progress_max", False, 2, 0, None, 981, 980),
    ]
    assert found(run.invariants(learn=False, progress_max_ns=1002)) == []


@pytest.fixture
def drawn(tmp_path: Path) -> Callable[..., Any]:
    def run(*logs: str) -> Any:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        draw(*logs).write(place / "trace")
        api.build(place / "trace", place / "store", engine="local")
        return api.open(place / "store")

    return run


def test_a_silent_worker_is_told(drawn: Fixture) -> None:
    # The third one is in the table of workers, and logged nothing.
    run = drawn(*epochs(50, 50, 50), "")
    rows = [row for row in found(run.invariants(learn=False)) if row[2] == 1]
    assert rows == [("some_progress", False, 1, 2, None, 0, 1)]
    rows = [row for row in found(run.invariants(learn=False, progress_to_all=True)) if row[2] == 1]
    assert rows == [
        ("some_progress", False, 1, 0, None, 1, 2),
        ("some_progress", False, 1, 1, None, 1, 2),
        ("some_progress", False, 1, 2, None, 0, 2),
    ]


def silent(table: Any) -> list[tuple[Any, ...]]:
    return [row[2:4] + row[5:] for row in found(table) if row[0] == "some_progress"]


def test_workers_that_have_left_or_are_not_born_yet_owe_no_progress(drawn: Fixture) -> None:
    sender, receiver = epochs(50, 50, 50, 50, 50)
    # Worker 2 leaves in epoch 1, and worker 3 is born in epoch 3.
    leaves = "0 start 1 | 5 stop 1 | 1001 end | 1500 exit"
    born = "3500 start 1 ~3 | 3600 stop 1 | 4009 end | 5011 end"
    run = drawn(sender.replace("3016 send", "3010 spawn 3 | 3016 send"), receiver, leaves, born)
    assert silent(run.invariants(learn=False)) == [(4, 3, 0, 1)]
    # The others sent no progress to it, as it was born before the last epoch began.
    to_all = silent(run.invariants(learn=False, progress_to_all=True))
    assert to_all == [(4, 0, 1, 2), (4, 1, 1, 2), (4, 3, 0, 2)]


def test_the_time_after_a_workers_end_is_no_gap_in_its_progress(drawn: Fixture) -> None:
    first = "0 psend 9 #0 | 10 precv 9<1 #0 | 100 end | 190 psend 9 #1 | 200 end"
    second = "0 psend 9 #0 | 10 precv 9<0 #0 | 100 end | 195 precv 9<0 #1 | 200 end"
    ends = "0 psend 9 #0 | 10 precv 9<0 #0 | 100 end | 120 exit"

    def gaps(*logs: str) -> list[tuple[Any, ...]]:
        rows = found(drawn(*logs).invariants(learn=False, progress_max_ns=150))
        return [row[2:6] for row in rows if row[0] == "progress_max"]

    assert gaps(first, second, ends) == [(1, 1, None, 200), (1, 0, None, 190)]
    # One that is alone has nobody to send progress to.
    assert gaps(first, ends) == []


def test_who_has_reached_one_that_owes_nothing_has_not_reached_all(drawn: Fixture) -> None:
    # Worker 0 sends progress to worker 2, which leaves, and not to worker 1.
    first = "0 psend 9 #0 | 10 end | 20 psend 9 #1 | 30 precv 9<1 #1 | 100 end"
    second = "0 psend 9 #0 | 5 precv 9<0 #0 | 10 end | 25 psend 9 #1 | 100 end"
    leaves = "0 psend 9 #0 | 10 end | 40 precv 9<0 #1 | 50 exit"
    run = drawn(first, second, leaves)
    assert silent(run.invariants(learn=False, progress_to_all=True)) == [(1, 0, 0, 1)]
    assert silent(run.invariants(learn=False)) == []


def test_where_the_log_holds_no_progress_nobody_owes_any(drawn: Fixture) -> None:
    run = drawn(*("0 start 1 | 90 stop 1 | 100 end | 110 start 1 | 190 stop 1 | 200 end",) * 2)
    assert silent(run.invariants(learn=False)) == []


def test_progress_of_epochs_without_a_row_counts_in_the_row_that_stands_for_them(drawn: Fixture) -> None:
    # Nobody ends epoch 1: its events count in epoch 2.
    first = "0 psend 9 #0 | 100 end | 110 psend 9 #1 | 150 precv 9<1 #1 | 200 end ~2"
    second = "0 psend 9 #0 | 10 precv 9<0 #0 | 100 end | 120 psend 9 #1 | 150 precv 9<0 #1 | 200 end ~2"
    run = drawn(first, second)
    assert run.run.epochs["epoch"].to_list()[:2] == [0, 2]
    assert silent(run.invariants(learn=False)) == []
    gaps = [row[2:6] for row in found(run.invariants(learn=False, progress_max_ns=100)) if row[0] == "progress_max"]
    assert gaps == [(2, 0, None, 110)]


def test_learned_limits_are_the_median_and_the_mad_of_earlier_epochs(pag: Fixture) -> None:
    run = pag(50, 50, 52, 54, 56, 58, 90, 60)
    rows = [
        row for row in found(run.invariants(at_least=5, least_ns=0)) if row[0] == "message_max" and row[3:5] == (0, 1)
    ]
    # Median of 50, 52, 54, 56, 58 is 54, MAD 2: 54 + 6 x 1.4826 x 2 = 71.79.
    assert [row for row in rows if row[5] == 90] == [("message_max", True, 6, 0, 1, 90, 71)]
    assert not [row for row in rows if row[2] == 7]
    # What is 36 above the median is noise where 1,000 is the least that counts.
    assert not [row for row in found(run.invariants(at_least=5)) if row[5] == 90]
    # With more earlier epochs asked for than there are nothing is unusual.
    assert not [row for row in found(run.invariants(at_least=9, least_ns=0)) if row[1]]


@pytest.mark.parametrize("huge", [{"least_ns": 2**63 - 1}, {"deviations": 1e300, "tolerance": 1e300}])
def test_nothing_exceeds_a_limit_that_no_number_reaches(pag: Fixture, huge: dict[str, Any]) -> None:
    """NumPy warned of such limits, which are more than 64 bits hold."""
    run, least = pag(50, 50, 52, 54, 56, 58, 90, 60), {"deviations": 0, "tolerance": 0, "least_ns": 0, "at_least": 1}
    assert any(learned for _, learned, *_ in found(run.invariants(**least)))
    assert not any(learned for _, learned, *_ in found(run.invariants(**{**least, **huge})))


def test_all_earlier_epochs_count_however_many_there_may_be(pag: Fixture) -> None:
    """Room was made for all that may count, and not for those that there are."""
    run = pag(50, 50, 52, 54, 56, 58, 90, 60)
    learned = found(run.invariants(at_least=5, least_ns=0))
    assert found(run.invariants(at_least=5, least_ns=0, over=2**62)) == learned
    assert not [row for row in found(run.invariants(at_least=2**62, over=2**62, least_ns=0)) if row[1]]


@pytest.mark.parametrize(
    "given", [{"at_least": 0}, {"at_least": 9, "over": 8}, {"message_max_ns": -1}, {"deviations": -0.5}]
)
def test_parameters_out_of_range(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        InvariantsParameters(**given)


def test_the_exit_code_is_for_ci(pag: Fixture, run_pag: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    pag(50, 50, 61)
    for limit, code in ((1000, 0), (60, 9)):
        limits = ["--epoch-max-ns", limit * 1000, "--message-max-ns", limit]
        ended, out, _ = run_pag("invariants", tmp_path / "store", "--no-learn", *limits, "--format", "csv")
        assert ended == code
        assert (len(out.splitlines()) > 1) == (code == 9)
