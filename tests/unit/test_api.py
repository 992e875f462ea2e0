"""The Python surface: what is there shows itself, and what is wrong is said with a type."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from polars.testing import assert_frame_equal

import pag_graph
from pag_graph import Pag, samples
from pag_graph.analyses.why import WhyParameters
from pag_graph.errors import InvalidParameterError, StoreError
from pag_graph.model.enums import EpochRole
from pag_graph.model.tables import STORE_TABLES
from pag_graph.sinks.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

API: Any = pag_graph.api
"""Without its types, which these tests do not keep to."""
TRACE = samples.path("skewed")


@pytest.fixture(scope="module")
def pag(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    store = tmp_path_factory.mktemp("api") / "skewed.pag"
    pag_graph.build(samples.path("skewed"), store, engine="local")
    return pag_graph.open(store)


def test_the_package_shows_what_it_has() -> None:
    assert {"open", "build", "convert", "Pag", "samples", "__version__"} <= set(dir(pag_graph))
    for name in pag_graph.__all__:
        assert getattr(pag_graph, name) is not None
    assert pag_graph.__version__[0].isdigit()


def test_an_engine_that_there_is_not_is_named(tmp_path: Path, pag: Pag) -> None:
    """Anything but local was taken for Spark."""
    with pytest.raises(InvalidParameterError, match="There is no engine 'Local'; there are local, spark"):
        pag_graph.build(samples.path("skewed"), tmp_path / "store", engine="Local")
    with pytest.raises(InvalidParameterError, match="There is no engine"):
        pag.critical_paths(engine="")


def test_two_choices_of_a_window_are_refused(pag: Pag) -> None:
    """The first of them was taken, and the others left without a word."""
    with pytest.raises(
        InvalidParameterError, match="only one of epoch, role, between and latency; epoch, between were"
    ):
        pag.snapshot(epoch=4, between=(0, 1000))
    with pytest.raises(InvalidParameterError, match="epoch, role were given"):
        pag.critical_path(epoch=4, role="startup")


def test_samples_are_found_by_name() -> None:
    assert samples.names() == ("bfs", "elastic", "ground_truth", "skewed", "triangles")
    assert (samples.path("bfs") / "meta.json").is_file()
    with pytest.raises(InvalidParameterError, match="there are bfs, elastic, ground_truth, skewed, triangles"):
        samples.path("../samples/bfs")


def test_signatures_are_read_without_the_analyses() -> None:
    code = """
        import inspect, sys
        import pag_graph
        print(inspect.signature(pag_graph.Pag.causal_profile))
        print("pag_graph.analyses.causal_profile" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "steps: 'int' = 10" in done[0]
    assert done[1] == "False"


def test_fields_are_given_one_by_one_or_all_at_once(pag: Pag) -> None:
    assert pag.why(epoch=4, lines=5).text() == pag.why(WhyParameters(lines=5), epoch=4).text()
    with pytest.raises(InvalidParameterError, match="Give lines as fields of the parameters"):
        pag.why(WhyParameters(), epoch=4, lines=5)
    assert "lines" in inspect.signature(pag.why).parameters


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"epoch": "four"}, "epoch is 'four', and must be a whole number"),
        ({"epoch": 4.0}, "epoch is 4.0, and must be a whole number"),
        ({"epoch": True}, "epoch is True"),
        ({"latency": "4"}, "latency is '4'"),
        ({"role": "last"}, "must be startup or shutdown"),
        ({"role": "round"}, "must be startup or shutdown"),
        ({"role": EpochRole.ROUND}, "must be startup or shutdown"),
        ({"between": 3}, "two instants in nanoseconds"),
        ({"between": (1, "2")}, "between is '2'"),
        ({"lin": 3}, "why has no parameter 'lin'"),
        ({"lines": "many"}, "must be of type int"),
        # No JSON has the first ones, and no kernel takes the others.
        ({"above": "nan"}, "above is 'nan', and must be finite"),
        ({"above": float("inf")}, "above is inf, and must be finite"),
        ({"above": 10**400}, "must be of type float"),
        ({"lines": 2**63}, "lines is 9223372036854775808, and must fit into 64 bits"),
        ({"lines": "9" * 5_000}, "must be of type int"),
    ],
)
def test_a_wrong_value_is_an_error_with_a_type(pag: Pag, choice: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        pag.why(**choice)


def test_epochs_are_a_list(pag: Pag) -> None:
    for wrong in (4, "3-7", ["4"]):
        with pytest.raises(InvalidParameterError, match="epochs is"):
            pag.motif("(a)-[e]->(b)", epochs=wrong)  # type: ignore[arg-type]
    assert pag.motif("(a)-[e]->(b)", epochs=pag.epochs["epoch"]).total > 0  # type: ignore[arg-type]


def test_every_table_can_be_scanned(pag: Pag) -> None:
    for name in STORE_TABLES:
        assert pag.scan(name).collect_schema().names() == STORE_TABLES[name].names
    assert_frame_equal(pag.scan("epochs").sort("epoch").collect(), pag.epochs)
    with pytest.raises(InvalidParameterError, match="There is no table 'vertexes'"):
        pag.scan("vertexes")


def test_a_window_is_drawn(pag: Pag, tmp_path: Path) -> None:
    assert pag.draw(tmp_path / "epoch.svg", epoch=4, width=600) == tmp_path / "epoch.svg"
    assert (tmp_path / "epoch.svg").read_text(encoding="utf-8") == timeline(pag.snapshot(epoch=4), width=600)
    with pytest.raises(InvalidParameterError, match="at least 300"):
        pag.draw(tmp_path / "narrow.svg", width=10)


def test_a_store_is_where_it_is_whatever_the_folder(pag: Pag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pag.run.info.path.parent)
    opened = pag_graph.open("skewed.pag")
    monkeypatch.chdir(tmp_path)
    assert opened.edges().collect().height == pag.edges().collect().height


def test_a_mode_that_there_is_not_replaces_nothing(tmp_path: Path) -> None:
    """Whatever was neither error nor append replaced the store."""
    store = tmp_path / "run.pag"
    first = pag_graph.build(samples.path("skewed"), store, engine="local").store.run["run_id"]
    for mode in ("apend", "", None):
        with pytest.raises(InvalidParameterError, match="there are error, append, replace"):
            pag_graph.build(samples.path("bfs"), store, engine="local", mode=mode)  # type: ignore[arg-type]
    assert pag_graph.open(store).run.info.run["run_id"] == first


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"rules": "timly"}, "There is no rule set 'timly'; there are st2, timely, stated"),
        ({"slice_events": 1.5}, "slice_events is 1.5, and must be a whole number"),
        ({"slice_events": 0}, "slice_events is 0, and must be at least 1"),
    ],
)
def test_a_build_says_what_is_wrong_with_its_arguments(tmp_path: Path, choice: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        pag_graph.build(samples.path("skewed"), tmp_path / "run.pag", engine="local", **choice)


def test_a_follower_knows_all_of_its_options(tmp_path: Path) -> None:
    """Options that there are not were left out without a word."""
    for function in (pag_graph.follow, lambda *places, **options: list(pag_graph.live(*places, **options))):
        with pytest.raises(InvalidParameterError, match="follow has no option 'keeep'; it has rules"):
            function(samples.path("skewed"), tmp_path / "run.pag", keeep="3")  # type: ignore[operator]
    with pytest.raises(InvalidParameterError, match="There is no rule set 'x'"):
        pag_graph.follow(samples.path("skewed"), tmp_path / "run.pag", rules="x")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"settle_s": float("nan")}, "settle is nan s, and must be a time that is not negative"),
        ({"settle_s": float("inf")}, "settle is inf s, and must be a time that is not negative"),
        ({"commit_every_s": float("nan")}, "commit_every is nan s, and must be a time that is not negative"),
        ({"commit_every_s": "1s"}, "commit_every is 1s s, and must be a time that is not negative"),
        ({"until": 5}, "'5' does not say when to stop"),
        ({"keep": 0}, "'0' would keep nothing"),
    ],
)
def test_a_follower_says_what_is_wrong_with_its_options(tmp_path: Path, choice: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        pag_graph.follow(samples.path("skewed"), tmp_path / "run.pag", **choice)


def test_what_somebody_does_with_the_epochs_stays_with_them(pag: Pag) -> None:
    """All answers of a run read its own frame of epochs, which was given away."""
    opened = pag_graph.open(pag.run.info.path)
    epochs = opened.epochs
    epochs.drop_in_place("role")
    epochs[0, "end_ns"] = 0
    assert_frame_equal(opened.epochs, pag.epochs)
    assert str(opened.why()) == str(pag.why())


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"every_ns": 1e6}, "every_ns is 1000000.0, and must be a whole number"),
        ({"every_ns": None}, "every_ns is None, and must be a whole number"),
        ({"every_ns": 10**6, "step_ns": "1ms"}, "step_ns is '1ms', and must be a whole number"),
        ({"every_ns": 10**6, "between": "ab"}, "between is 'ab', and must be two instants"),
        ({"every_ns": 10**6, "between": (0, 1.5)}, "between is 1.5, and must be a whole number"),
        ({"every_ns": 10**6, "between": ()}, "between is .., and must be two instants"),
        ({"every_ns": 10**6, "between": {0, 5}}, "between is {0, 5}, and must be two instants"),
    ],
)
def test_a_series_says_what_is_wrong_with_its_windows(pag: Pag, choice: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        pag.series("profile", **choice)


def test_parameters_are_those_of_the_analysis(pag: Pag) -> None:
    """Those of another analysis were taken if their fields had the same names."""
    for wrong in (WhyParameters(above=3.0), {"above": 3.0}, 3.0):
        with pytest.raises(InvalidParameterError, match="skew takes SkewParameters"):
            pag.skew(wrong, epoch=4)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match="skew takes SkewParameters"):
            pag.each("skew", wrong)
    with pytest.raises(InvalidParameterError, match="critical-path takes no parameters"):
        pag.analyse("critical-path", WhyParameters())


def test_only_comparisons_compare(pag: Pag) -> None:
    """What to compare with was left out without a word."""
    for choice in ({"against": pag}, {"against_epoch": 3}, {"against_between": (0, 1000)}):
        with pytest.raises(InvalidParameterError, match="why does not compare"):
            pag.analyse("why", epoch=4, **choice)
    with pytest.raises(InvalidParameterError, match="skew does not compare"):
        pag.skew(epoch=4, against_epoch=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidParameterError, match=r"against is 'run\.pag', and must be an open run"):
        pag.diff(against="run.pag")  # type: ignore[arg-type]


def test_a_limit_is_a_number_of_rows(pag: Pag) -> None:
    with pytest.raises(InvalidParameterError, match=r"limit is 1\.5, and must be a whole number"):
        pag.motif("(a)-[e]->(b)", limit=1.5)  # type: ignore[arg-type]
    assert pag.motif("(a)-[e]->(b)", epochs=[4], limit=10**30).table().num_rows > 0
    for wrong in ({"k": 1.5}, {"k": "2"}, {"k": True}, {"limit": 1.5}):
        with pytest.raises(InvalidParameterError, match="must be a whole number"):
            pag.k_hop_paths(epoch=4, **wrong)  # type: ignore[arg-type]
    assert pag.k_hop_paths(epoch=4, limit=10**30).paths == pag.k_hop_paths(epoch=4, limit=10**6).paths


def test_no_store_has_such_a_name() -> None:
    with pytest.raises(StoreError, match="has a NUL in its name"):
        pag_graph.open("a\0b")


SLIPS: dict[str, Callable[[Any, Path], Any]] = {
    "store is 5": lambda *_: API.open(5),
    "store is None": lambda *_: API.open(None),
    "pattern is 5": lambda pag, _: pag.motif(5),
    "where is 5": lambda pag, _: pag.motif("(a)", 5),
    "columns is 5, and must be a list": lambda pag, _: pag.motif("(a)", columns=5),
    "columns is 'a', and must be a list": lambda pag, _: pag.motif("(a)", columns="a"),
    "columns is .5., and must be a list of texts": lambda pag, _: pag.motif("(a)", columns=[5]),
    "parameters is 5, and must be a mapping": lambda pag, _: pag.motif("(a)", parameters=5),
    r"parameter \$x has several values": lambda pag, _: pag.motif("(a)", "a.t_ns > $x", parameters={"x": [1]}),
    "no option 'epok'; a window is": lambda pag, tmp: pag.export(tmp / "a.json", epok=4),
    "no option 'epk'": lambda pag, _: pag.to_networkx(epk=4),
    "no option 'eph'": lambda pag, _: pag.k_hop_paths(eph=4),
    "target is 5": lambda pag, _: pag.export(5),
    "picture is 5": lambda pag, _: pag.draw(5),
    r"no table \['edges'\]": lambda pag, _: pag.scan(["edges"]),
    r"no analysis \['why'\]": lambda pag, _: pag.analyse(["why"]),
    "engine is 5": lambda pag, _: pag.each("metrics", engine=5),
    "panels is 5": lambda pag, _: pag.view(panels=5),
    "trace is 5": lambda _, tmp: API.build(5, tmp / "s", engine="local"),
    "parameters are 5": lambda _, tmp: API.build(TRACE, tmp / "s", engine="local", parameters=5),
    "queries is 'metrics', and": lambda _, tmp: API.build(TRACE, tmp / "s", engine="local", queries="metrics"),
    "alerts is 5": lambda _, tmp: API.build(TRACE, tmp / "s", engine="local", alerts=5),
    "source is 5": lambda _, tmp: API.convert(5, tmp / "t"),
    "format is 5": lambda _, tmp: API.convert(TRACE, tmp / "t", format=5),
    "source is 6": lambda _, tmp: API.follow(6, tmp / "s"),
    "listen is 5": lambda _, tmp: API.follow(tmp, tmp / "s", listen=5, token_file="t"),
    "certificate is 5": lambda _, tmp: API.follow(tmp, tmp / "s", certificate=5),
    "query is 5": lambda pag, _: API.changes(pag.run.info.path, 5),
    "since is 'x'": lambda pag, _: API.alerts(pag.run.info.path, since="x"),
    "traces is 5": lambda *_: API.load_curve(5),
    "runs is '.*', and must be a list": lambda pag, _: API.scaling(str(pag.run.info.path)),
    "n is 'x'": lambda pag, _: API.scaling([pag, pag], n="x"),
    "cores is 'x'": lambda pag, _: API.rescale(pag, cores="x"),
    "period_ns is 'x'": lambda pag, _: API.rescale(pag, period_ns="x", first_ns=0),
    "pairs is .5.": lambda pag, tmp: API.advise_evaluate([pag], [pag], tmp / "a", pairs=[5]),
    "output is 5": lambda pag, _: API.analyse(pag.run.info.path, 5, "metrics", engine="local"),
}
"""What is said, and of what."""


@pytest.mark.parametrize("said", SLIPS)
def test_a_value_of_a_wrong_type_is_named(pag: Pag, tmp_path: Path, said: str) -> None:
    """Python's own errors named some line inside of the package."""
    with pytest.raises(InvalidParameterError, match=said):
        SLIPS[said](pag, tmp_path)


@pytest.mark.skipif(os.environ.get("PAG_PROVE") != "1", reason="mypy reads everything: with PAG_PROVE=1")
def test_a_slip_of_the_pen_is_a_type_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import pag_graph\npag = pag_graph.open('x')\npag.why(lines=3)\npag.why(lin=3)\npag.wy()\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert [line.split(":")[1] for line in said.splitlines() if ": error:" in line] == ["4", "5"], said
