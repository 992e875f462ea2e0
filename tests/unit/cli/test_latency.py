"""`pag latency`: the distribution, and with a graph of the run why the slowest input took so long."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph.api import build
from pag_graph.model.input_tables import TRACE_INPUTS
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]

# Input 1 is due at 100 us; worker 1 answers 800 us later.
LOGS = (
    """
    0 start 7 | 20000 stop 7 | 20000 end | 110000 start 7 | 120000 send 3>1 | 120000 stop 7 | 130000 park
    920000 unpark | 925000 recv 4<1 | 950000 end | 960000 start 7 | 970000 stop 7
    """,
    "0 park | 130000 unpark | 130000 recv 3<0 | 131000 start 9 | 900000 send 4>0 | 901000 stop 9 | 951000 end",
)
INPUTS: list[dict[str, Any]] = [
    {"due_ns": 0, "interval_ns": 100_000, "count": 2},
    {"number": 0, "due_ns": 0, "given_ns": 0, "epoch": 0},
    {"frontier": 1, "noticed_ns": 20_000},
    {"number": 1, "due_ns": 100_000, "given_ns": 110_000, "epoch": 1},
    {"frontier": 2, "noticed_ns": 950_000},
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("latency")
    trace = draw(*LOGS, offsets_ns=[5_000, 5_000]).write(place / "trace")
    (trace / "inputs").mkdir()
    rows = [{"worker": 0} | row for row in INPUTS]
    pq.write_table(pa.Table.from_pylist(rows, TRACE_INPUTS), trace / "inputs" / "worker-0000000-0000000.parquet")
    build(trace, place / "run.pag", engine="local")
    return trace, place / "run.pag"


def test_the_slowest_input_is_explained_from_when_it_was_due(run_pag: Command, recorded: tuple[Path, Path]) -> None:
    trace, store = recorded
    code, plain, _ = run_pag("latency", trace)
    assert code == 0
    assert "Slowest: input 1 of worker 0 took 850.0 us." in plain
    code, text, _ = run_pag("latency", trace, "--store", store)
    assert code == 0
    assert text.startswith(plain.rstrip("\n"))
    # Nobody else worked meanwhile: worker 0 waited for what operator 9 did on worker 1.
    why = " ".join(text.removeprefix(plain).split())
    assert "850.0 us" in why
    assert "worker 1" in why
    code, text, _ = run_pag("latency", trace, "--store", store, "--format", "json")
    answer = json.loads(text)
    assert (answer["slowest"]["number"], answer["slowest"]["latency_ns"]) == (1, 850_000)
    assert " ".join(answer["why"].split()) == why


def test_without_a_graph_nothing_is_explained(run_pag: Command, recorded: tuple[Path, Path]) -> None:
    code, text, _ = run_pag("latency", recorded[0], "--format", "json")
    assert (code, json.loads(text)["why"]) == (0, None)


def test_a_graph_of_another_run_explains_nothing(run_pag: Command, recorded: tuple[Path, Path], tmp_path: Path) -> None:
    other = draw(*LOGS, offsets_ns=[5_000, 6_000]).write(tmp_path / "other")
    meta = (other / "meta.json").read_text()
    (other / "meta.json").write_text(meta.replace(json.loads(meta)["trace_id"], "b" * 32))
    build(other, tmp_path / "other.pag", engine="local")
    code, text, problem = run_pag("latency", recorded[0], "--store", tmp_path / "other.pag")
    assert (code, text) == (2, "")
    assert "is not a trace of the run" in " ".join(problem.split())


def test_a_place_without_a_trace_is_none(run_pag: Command, tmp_path: Path) -> None:
    """It was said that the program should state when input was due."""
    for command in ("latency", "load-curve"):
        code, _, said = run_pag(command, tmp_path / "misspelt")
        assert code == 3
        assert "There is no trace at" in said
