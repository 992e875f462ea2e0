from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from pag_graph.cli.demo import SAMPLES
from pag_graph.cli.output import compiling
from pag_graph.kernels import compiling as kernels
from pag_graph.kernels import expected
from pag_graph.kernels.arranging import largest

DATA = Path(__file__).parents[2] / "data"

CALLED = """
import json, sys
from numba.core.dispatcher import Dispatcher
from pag_graph.cli import app
from pag_graph.kernels.compiling import spelled
try:
    app.main()
except SystemExit as ended:
    assert not ended.code, ended.code
own = "pag_graph.kernels."
called = {
    f"{name.removeprefix(own)}.{value.__name__} {spelled(types)}"
    for name, module in sorted(sys.modules.items()) if name.startswith(own)
    for value in vars(module).values() if isinstance(value, Dispatcher) and value.__module__ == name
    for types in value.signatures
}
open("called.json", "w").write(json.dumps(sorted(called)))
"""

FIRST_CALL = """
import json, sys
from pathlib import Path
from typing import NoReturn
import numpy as np
from pag_graph.kernels import expected
from pag_graph.kernels.decoding import in_order
expected._LINES = Path(sys.argv[1])
told = []
with expected.expecting("some", tell=lambda *what: told.append(what)):
    assert in_order(*np.zeros((3, 2), np.int64)) in (False, True)
print(json.dumps([told, sum(in_order.stats.cache_hits.values()), sum(in_order.stats.cache_misses.values())]))
"""


def run(code: str, *arguments: object, folder: Path, **environment: str) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **paths, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", ["build", "spans", "spark", "torch", "why"])
def test_the_commands_call_what_is_expected_of_them_and_nothing_else(part: str, tmp_path: Path) -> None:
    from pag_graph import api

    store = tmp_path / "run.pag"
    arguments = {
        "build": ("build", SAMPLES / "skewed", store, "--engine", "local"),
        "why": ("why", store),
        "spans": ("spans", SAMPLES / "spans/traces.json"),
        "torch": ("torch", DATA / "kineto"),
        "spark": ("spark", DATA / "spark/skewed-key.zstd"),
    }[part]
    if part == "why":
        api.build(SAMPLES / "skewed", store, engine="local")
    run(CALLED, *arguments, folder=tmp_path)
    called = json.loads((tmp_path / "called.json").read_text())
    assert called == sorted(" ".join(line) for line in expected.variants(frozenset({part})))


def test_a_follower_calls_nothing_that_it_has_not_prepared(tmp_path: Path) -> None:
    queries = [word for name in ("critical-path", "metrics", "invariants") for word in ("--query", name)]
    run(CALLED, "follow", SAMPLES / "skewed", tmp_path / "run.pag", *queries, folder=tmp_path)
    # What is prepared has a signature from then on, called or not; what comes beside it was not.
    called = json.loads((tmp_path / "called.json").read_text())
    assert called == sorted(" ".join(line) for line in expected.variants(frozenset({"follow", "standing"})))


def test_what_is_expected_is_compiled_elsewhere_at_the_first_call_and_told(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text(
        "some,more decoding.in_order int64[] int64[] int64[]\nsome layout.edges_in int8[] int64[]\nmore no.such int64\n"
    )
    said = run(FIRST_CALL, lines, folder=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    told, hits, misses = json.loads(said)
    assert told[0] == ["compiling", 0, 2]
    assert told[-1] == ["compiling", 2, 2]
    assert (hits, misses) == (1, 0)
    assert len(list((tmp_path / "cache").rglob("*edges_in*.nbc"))) == 1
    # The second process finds all of it.
    assert json.loads(run(FIRST_CALL, lines, folder=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache")))[0] == []


def test_another_variant_than_the_expected_is_compiled_by_itself() -> None:
    with expected.expecting("build"):
        assert not expected.missing("columns.in_order", "int32[] int32[] int32[]")
        assert expected._Now.parts == {"build"}
    assert not expected._Now.parts


def test_a_kernel_works_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_: object) -> NoReturn:
        raise RuntimeError

    monkeypatch.setattr(kernels, "_Cache", nowhere)
    assert kernels.kernel(lambda number: number + 1)(1) == 2


@pytest.mark.parametrize(
    "text", ["int64 bool", "int64[] int8[]! bool[]", "uint64[,] int32[,]!", "path.Sends(int64[];int64[]!) bool"]
)
def test_types_are_read_as_they_are_written(text: str) -> None:
    types = tuple(kernels._type(word) for word in text.split())
    assert kernels.spelled(types) == text


def test_other_memory_layouts_are_not_taken_for_the_expected_one() -> None:
    import numba

    assert (
        kernels.spelled((numba.typeof(np.zeros(4)[::2]), numba.typeof(np.zeros((2, 2)).T))) == "float64[]A float64[,]F"
    )


def test_columns_get_read_only_without_a_copy_and_the_callers_own_stay_as_they_are() -> None:
    own = np.arange(3)
    (view,) = kernels.read_only(own)
    assert view.base is own
    assert own.flags.writeable
    before = len(largest.signatures)
    frozen = own.copy()
    frozen.flags.writeable = False
    for value in (own, frozen):
        assert list(largest(np.zeros(3, np.int64), 1, *kernels.read_only(value, value, value))) == [2]
    assert len(largest.signatures) <= before + 1


@pytest.mark.parametrize("quiet", [False, True])
def test_the_command_says_once_that_kernels_are_compiled(*, quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    bars: list[tuple[str, int, int]] = []
    with compiling("build", quiet=quiet, report=lambda *what: bars.append(what)):
        tell = expected._Now.tell
        assert (tell is None) == quiet
        for done in range(3) if tell else ():
            tell("compiling", done, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == ("" if quiet else "Compiling 2 kernels, once per installation.\n")
    assert bars == ([] if quiet else [("compiling", done, 2) for done in range(3)])
