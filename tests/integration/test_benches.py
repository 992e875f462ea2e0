"""Every bench makes its measurements: a small run of each, as of ``python -m bench run NAME --quick``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import __main__ as bench
from bench import harness
from tests.support.sampling import proved_only

if TYPE_CHECKING:
    from pathlib import Path

BENCHES = bench.benches()


@proved_only("what single benches compute, in tests/unit/bench")
@pytest.mark.parametrize("name", BENCHES)
def test_a_small_run_of_each_bench_makes_all_its_measurements(tmp_path: Path, name: str) -> None:
    if lack := BENCHES[name].needs():
        pytest.skip(f"it needs {lack}")
    results, scratch = tmp_path / "results", tmp_path / "scratch"
    assert bench.main(["run", name, "--quick", "--results", str(results), "--scratch", str(scratch)]) == 0
    figures = harness.load(results / f"{name}.json")["figures"]
    assert figures
    assert all(figure["seconds"] or figure["values"] for figure in figures)
