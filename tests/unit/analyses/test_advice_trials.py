"""Whether ports helped: intervals, what is remembered of them, and writers that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.analyses.advising.advice_state import AdviceState, Blacklisted, PortName, port_names, read_state
from pag_graph.analyses.advising.advice_trials import _nested_ports
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import RuleSet
from pag_graph.store.in_place import write_whole
from pag_graph.testing.traces import draw
from tests.support.named_operators import built

if TYPE_CHECKING:
    from pathlib import Path


TIMES = {
    "before": (100, 102, 104, 103),
    "faster": (60, 62, 64, 63),
    "slower": (140, 142, 144, 143),
    "alike": (101, 103, 105, 104),
}
"""How long a round takes in each run, by the kind of run."""


def log(batch_ns: int, *, moved: bool) -> tuple[str, ...]:
    """Draw ten rounds, in which operator 2 runs inside operator 1, or on a thread of its own."""
    own, other, now = [], [], 0
    for _ in range(10):
        half, end = now + batch_ns // 2, now + batch_ns
        inner = "" if moved else f" | {half} start 2 | {end} stop 2"
        own.append(f"{now} start 1{inner} | {end} stop 1 | {end} end")
        other.append(f"{half} start 2 | {end} stop 2 | {end} end")
        now = end
    return (" | ".join(own), " | ".join(other)) if moved else (" | ".join(own),)


def store(place: Path, name: str, batch_ns: int, *, moved: bool) -> Path:
    built(draw(*log(batch_ns, moved=moved), rules=RuleSet.STATED), place, name=name, operators=(1, 2))
    return place / f"{name}.pag"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    place = tmp_path_factory.mktemp("trials")
    return {
        kind: [store(place, f"{kind}-{time}", time, moved=kind != "before") for time in several]
        for kind, several in TIMES.items()
    }


@pytest.mark.parametrize(("kind", "decision"), [("faster", "keep"), ("slower", "revert"), ("alike", "undecided")])
def test_a_port_is_kept_if_all_runs_after_are_faster(
    runs: dict[str, list[Path]], tmp_path: Path, kind: str, decision: str
) -> None:
    # Nobody says that operator 2 got the port: it is outermost on a thread only after.
    evaluation = api.advise_evaluate(runs["before"], runs[kind], tmp_path / "state.json", alpha=1.0)
    [row] = evaluation.table.to_pylist()
    assert (row["port"], row["decision"]) == ("Op2", decision)
    state = read_state(tmp_path / "state.json")
    assert state == evaluation.state
    port = PortName("Op2")
    assert (state.kept, [entry.port for entry in state.blacklist]) == (
        (port,) if decision == "keep" else (),
        [port] if decision == "revert" else [],
    )
    ratio = (min(100 / each for each in row_times(kind)), max(104 / each for each in row_times(kind)))
    assert (row["ratio_low"], row["ratio_high"]) == pytest.approx(ratio)


def row_times(kind: str) -> tuple[int, ...]:
    return TIMES[kind]


def test_what_was_reverted_is_not_proposed_again(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    pag = api.open(runs["before"][0])
    assert [row["operator"] for row in pag.advise().table.to_pylist()] == [2]
    api.advise_evaluate(runs["before"], runs["slower"], file, alpha=1.0)
    after = pag.advise(state=str(file))
    assert after.table.num_rows == 0
    assert after.halt == "candidate"
    assert after.ports.status[2] == "blacklisted"
    # With other ports around it, it may help: that is what the paper's alternative remembers.
    known = read_state(file)
    with_another = AdviceState(
        alpha=1.0, kept=(PortName("Op7"),), blacklist=known.blacklist, candidates=known.candidates
    )
    write_whole(file, with_another.text)
    again = pag.advise(state=str(file), blacklist="configuration")
    assert [row["operator"] for row in again.table.to_pylist()] == [2]


def test_too_much_that_did_not_help_is_a_halt(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    evaluation = api.advise_evaluate(runs["before"], runs["slower"], tmp_path / "state.json")
    assert (evaluation.state.blacklisted_share, evaluation.state.halt) == (1.0, "blacklist")
    assert api.open(runs["before"][0]).advise(state=str(tmp_path / "state.json")).halt == "blacklist"
    # A better run of the same port is heard.
    better = api.advise_evaluate(runs["before"], runs["faster"], tmp_path / "state.json")
    assert (better.state.halt, better.state.blacklist) == (None, ())
    assert len(better.state.trials) == 2


def test_the_same_runs_are_one_trial(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    first = api.advise_evaluate(runs["before"], runs["faster"], file)
    text = file.read_text()
    again = api.advise_evaluate(runs["before"], runs["faster"], file)
    assert (again.state, file.read_text()) == (first.state, text)


def test_what_is_counted_is_the_same_in_all_runs(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    # These runs say how many records operator 2 reads, and the ones before do not.
    faster = []
    for time in TIMES["faster"]:
        logs = [text.replace("start 2", "start 2 *1000") for text in log(time, moved=True)]
        built(draw(*logs, rules=RuleSet.STATED), tmp_path, name=f"records-{time}", operators=(1, 2))
        faster.append(tmp_path / f"records-{time}.pag")
    [row] = api.advise_evaluate(runs["before"], faster, tmp_path / "state.json").table.to_pylist()
    assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((100 / 64, 104 / 60))
    [row] = api.advise_evaluate(faster[:2], faster[2:], tmp_path / "other.json", ports=["Op2"]).table.to_pylist()
    assert row["before_per_s"] == pytest.approx(1000 * 1e9 / 61, rel=0.01)


def test_what_is_undecided_stays_as_it_was(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    api.advise_evaluate(runs["before"], runs["faster"], file)
    later = api.advise_evaluate(runs["before"], runs["alike"], file)
    assert later.table["decision"].to_pylist() == ["undecided"]
    assert later.state.kept == (PortName("Op2"),)
    # The same runs again, but too few of them are believed now: what they said before is replaced.
    few = tmp_path / "few.json"
    for single, kept in ((True, (PortName("Op2"),)), (False, ())):
        state = api.advise_evaluate(runs["before"][:2], runs["faster"][:2], few, single=single).state
        assert (state.kept, len(state.trials)) == (kept, 1)


def test_a_port_leaves_the_blacklist_if_the_runs_that_put_it_there_are_too_few(
    runs: dict[str, list[Path]], tmp_path: Path
) -> None:
    file, few = tmp_path / "state.json", (runs["before"][:2], runs["slower"][:2])
    reverted = api.advise_evaluate(*few, file, single=True).state
    assert ([entry.port for entry in reverted.blacklist], reverted.halt) == ([PortName("Op2")], "blacklist")
    believed = api.advise_evaluate(*few, file).state
    assert (believed.blacklist, believed.halt, len(believed.trials)) == ((), None, 1)
    # What other runs said as well stays.
    api.advise_evaluate(runs["before"], runs["slower"], file)
    api.advise_evaluate(*few, file, single=True)
    both = api.advise_evaluate(*few, file).state
    assert ([entry.port for entry in both.blacklist], len(both.trials)) == ([PortName("Op2")], 2)


def test_an_activity_that_is_not_stopped_hides_no_outermost_ones(tmp_path: Path) -> None:
    """Activity 3 ends with the one around it; what comes later is as outermost as before."""
    before = "0 start 1 | 1 start 3 | 2 start 2 | 9 stop 2 | 10 stop 1 | 10 end"
    after = (
        "0 start 1 | 1 start 3 | 10 stop 1 | 10 end",
        "0 start 4 | 1 start 3 | 2 stop 4 | 3 start 2 | 9 stop 2 | 10 end",
    )
    pags = []
    for name, logs in (("a", (before,)), ("b", after)):
        pags.append(built(draw(*logs, rules=RuleSet.STATED), tmp_path, name=name, operators=(1, 2, 3, 4)))
    assert _nested_ports(pags[0].run, pags[1].run) == [PortName("Op2"), PortName("Op4")]


@pytest.mark.parametrize("few", [2, 3])
def test_few_runs_a_side_decide_nothing_unless_asked(runs: dict[str, list[Path]], tmp_path: Path, few: int) -> None:
    sides = runs["before"][:few], runs["slower"][:few]
    for more, decision in (({}, "undecided"), ({"single": True}, "revert"), ({"paper": True}, "revert")):
        [row] = api.advise_evaluate(*sides, tmp_path / "state.json", **more).table.to_pylist()  # type: ignore[arg-type]
        assert row["decision"] == decision


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "pag-advice", "format_version": 2}', "\ud800".encode("utf-8", "replace").decode()],
)
def test_another_file_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameterError, match=r"state\.json"):
        read_state(tmp_path / "state.json")


def test_the_same_run_on_both_sides_is_refused(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="hold the same run"):
        api.advise_evaluate(runs["before"], runs["before"], tmp_path / "state.json")
    with pytest.raises(InvalidParameterError, match="no operator 'Filter'"):
        api.advise_evaluate(runs["before"], runs["faster"], tmp_path / "state.json", ports=["Filter"])
    assert not (tmp_path / "state.json").exists()


KILLED = """
import os, sys
from pathlib import Path
from pag_graph.analyses.advising.advice_state import PortName, AdviceState
from pag_graph.store.in_place import write_whole
left = int(sys.argv[2])

def stop(event, arguments):
    # Every call that could change the folder counts; the one after the last that is allowed ends the process.
    global left
    changes = event in {"os.rename", "os.remove", "os.link", "os.chmod", "os.truncate"}
    opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if changes or opens:
        left -= 1
        if left < 0:
            os._exit(9)

sys.addaudithook(stop)
write_whole(Path(sys.argv[1]), AdviceState(kept=(PortName("new"),)).text)
"""


def test_a_writer_that_is_killed_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    old, new = (AdviceState(kept=(PortName(name),)) for name in ("old", "new"))
    seen = []
    for calls in range(20):
        write_whole(file, old.text)
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, str(file), str(calls)],
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
        )
        seen.append(read_state(file))
        assert seen[-1] in (old, new)
        # The next call works, whatever lies about.
        write_whole(file, new.text)
        assert read_state(file) == new
        assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
        if ended.returncode == 0:
            break
    assert (seen[0], seen[-1], ended.returncode) == (old, new, 0)


def test_a_state_says_all_that_it_knows(tmp_path: Path) -> None:
    port = PortName("Map", 1, 2)
    state = AdviceState(
        alpha=0.25,
        kept=(port,),
        blacklist=(Blacklisted(port=PortName("Filter"), reason="0.9 x", configuration=(port,)),),
        candidates=(PortName("Filter"), port),
        trials=({"before": ["a"], "after": ["b"], "ports": []},),
        halt="blacklist",
    )
    write_whole(tmp_path / "state.json", state.text)
    assert read_state(tmp_path / "state.json") == state
    assert json.loads((tmp_path / "state.json").read_text())["format_version"] == 1
    assert str(port) == "Map #2 input 2"
    assert state.avoided() == {PortName("Filter")}
    assert state.avoided("configuration") == {PortName("Filter")}


def test_names_of_ports_follow_addresses(runs: dict[str, list[Path]]) -> None:
    assert port_names(api.open(runs["before"][0]).run) == {1: PortName("Op1"), 2: PortName("Op2")}
