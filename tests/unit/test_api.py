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
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import EpochRole
from pag_graph.model.tables import STORE_TABLES
from pag_graph.sinks.timeline import timeline

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.skipif(os.environ.get("PAG_PROVE") != "1", reason="mypy reads everything: with PAG_PROVE=1")
def test_a_slip_of_the_pen_is_a_type_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import pag_graph\npag = pag_graph.open('x')\npag.why(lines=3)\npag.why(lin=3)\npag.wy()\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert [line.split(":")[1] for line in said.splitlines() if ": error:" in line] == ["4", "5"], said
