"""What `make test` leaves out: drawn, within a budget, and never a whole file; and the list of what is dear."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.support.costs import ALWAYS, DEAR_S, list_dear
from tests.support.sampling import VARIABLE, beyond_budget, read_costs

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_dear[a::b]" time="1.5"/>
<testcase classname="tests.unit.test_a" name="test_cheap" time="0.4"/>
<testcase classname="tests.meta.test_b" name="test_always" time="9.0"/>
</testsuite></testsuites>"""


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), st.integers(1, 50), max_size=20),
    st.integers(0, 200),
)
def test_what_is_left_out_does_not_fit_and_no_file_is_left_out(
    drawn: dict[tuple[str, int], int], budget_s: int
) -> None:
    """What runs costs no more than the budget, but for one test of each file that would have none."""
    costs = {f"{file}.py::test_{number}": float(seconds) for (file, number), seconds in drawn.items()}
    left = beyond_budget([*costs, "a.py::test_cheap"], budget_s, costs)
    kept = costs.keys() - left
    alone = [next(iter(rest)) for file in "bc" if len(rest := [test for test in kept if test.startswith(file)]) == 1]
    assert sum(costs[test] for test in kept) <= budget_s + sum(costs[test] for test in alone)
    assert {test[0] for test in costs} - {"a"} == {test[0] for test in kept} - {"a"}
    assert not left or sum(costs.values()) > budget_s


def test_other_seeds_draw_others_and_the_dear_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with some seed, and what takes long with fewer of them."""
    costs = {f"a.py::test_{number}": float(seconds) for number, seconds in enumerate([1] * 20 + [10] * 20)}
    runs = dict.fromkeys(costs, 0)
    for seed in range(100):
        monkeypatch.setenv(VARIABLE, str(seed))
        for test in costs.keys() - beyond_budget(list(costs), 60, costs):
            runs[test] += 1
    times = list(runs.values())
    assert min(times) > 0
    assert min(times[:20]) > max(times[20:])


def test_the_list_names_tests_that_are_there() -> None:
    """A test that was renamed is dear under its new name only: `make costs` lists anew."""
    for test, seconds in read_costs().items():
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name.partition('[')[0]}\(", (ROOT / file).read_text(), re.MULTILINE), test
        assert seconds >= DEAR_S
        assert not file.startswith(ALWAYS)


def test_the_list_is_made_of_a_report(tmp_path: Path) -> None:
    """What is cheap, and what always runs, is not listed."""
    (tmp_path / "report.xml").write_text(REPORT)
    assert list_dear(tmp_path / "report.xml") == {"tests/unit/test_a.py::test_dear[a::b]": 1.5}
