"""Two logs of the same work: what goes together, differences that add up, and runs that took too long."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.spark_gate import NOISES, drawn_alarms, recorded_noise
from pag_graph.cli.app import app
from pag_graph.diagnosis.spark.answer import answer
from pag_graph.diagnosis.spark.comparison.accounting import compare, volume_part
from pag_graph.diagnosis.spark.comparison.gate import Measure, judge, measured, share_of
from pag_graph.diagnosis.spark.comparison.matching import Unit, match_units
from pag_graph.errors import InvalidParameterError
from pag_graph.sources.spark.logfiles import find_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer

LOGS = Path(__file__).parents[2] / "data" / "spark"
PAIRS = [
    *(
        (f"plans/{name}-planted", f"plans/{name}-twin")
        for name in ("broadcast-missed", "python-udf", "repeated-subplan")
    ),
    ("cores/cores-many-jobs-1", "cores/cores-many-jobs-2"),
    ("cores/cores-skewed-key-2", "cores/cores-skewed-key-1x2"),
    ("concurrent-jobs", "two-jobs"),
    ("streaming", "sql"),
]


@cache
def told(name: str) -> SparkAnswer:
    (log,) = find_logs(LOGS / f"{name}.zstd")
    return answer(log)


@pytest.mark.parametrize(("new", "base"), PAIRS)
def test_rows_add_up_and_change_their_sign(new: str, base: str) -> None:
    there, back = compare(told(new), told(base)), compare(told(base), told(new))
    assert sum(row.new_ns for row in there.rows) == told(new).diagnosis.span_ns
    assert sum(row.difference_ns for row in there.rows) == there.difference_ns == -back.difference_ns
    parts = [
        Counter((row.name, row.kind, row.activity, sign * row.difference_ns, sign * row.rate_ns) for row in found.rows)
        for sign, found in ((1, there), (-1, back))
    ]
    assert parts[0] == parts[1]
    assert there.matched == back.matched[::-1]


@pytest.mark.parametrize("name", [PAIRS[0][0], "cores/cores-many-jobs-1", "streaming", "failed-job"])
def test_a_log_beside_itself_is_all_zero(name: str) -> None:
    same = compare(told(name), told(name))
    assert not same.differences
    assert all(row.difference_ns == 0 and not row.volume_ns for row in same.rows)
    assert same.matched == (1.0, 1.0)
    assert all(pair.new == pair.base for pair in same.pairs)


def test_the_setting_that_was_changed_comes_first() -> None:
    found = compare(told("plans/broadcast-missed-planted"), told("plans/broadcast-missed-twin"))
    assert found.differences[0][1:] == ("spark.sql.autoBroadcastJoinThreshold", "-1", "10485760")
    assert found.matched == (1.0, 1.0)
    assert ("SortMergeJoin in plans", "1", "0") in [row[1:] for row in found.differences]


STREAMS = ("streams/h-no-broadcast-planted", "streams/h-no-broadcast-twin")
"""The same ten queries, of the shapes that those of TPC-H have, but for one setting."""


def test_of_a_stream_of_queries_the_one_setting_that_was_changed_comes_first() -> None:
    new, base = (told(name) for name in STREAMS)
    found = compare(new, base)
    assert found.differences[0][1:] == ("spark.sql.autoBroadcastJoinThreshold", "-1", "10485760")
    assert [row.what for row in found.differences].count("setting") == 1
    assert sum(row.new_ns for row in found.rows) == new.diagnosis.span_ns
    assert sum(row.base_ns for row in found.rows) == base.diagnosis.span_ns
    assert sum(row.difference_ns for row in found.rows) == new.diagnosis.span_ns - base.diagnosis.span_ns
    # A query goes with itself, however its joins bring rows together.
    assert found.matched == (1.0, 1.0)
    queries = [(pair.new, pair.base) for pair in found.pairs if pair.new and pair.base and pair.new.kind == "query"]
    assert {base.number - new.number for new, base in queries} == {22}


def test_other_numbers_of_cores_are_told_and_jobs_go_together() -> None:
    found = compare(told("cores/cores-many-jobs-1"), told("cores/cores-many-jobs-2"))
    assert ("cores", "most cores at a time", "1", "2") in found.differences
    assert [(pair.new.number, pair.base.number) for pair in found.pairs if pair.new and pair.base] == [
        (pair.new.number, pair.new.number) for pair in found.pairs if pair.new
    ]


# --- Matching ---------------------------------------------------------------------------------------------------------


def units(words: Sequence[str]) -> list[Unit]:
    """One unit per word: mark, site and nodes are its letters before, between and after colons."""
    found = []
    for number, word in enumerate(words):
        mark, site, nodes = (*word.split(":"), "", "")[:3]
        found.append(
            Unit(kind="query", number=number, name=site, start_ns=number, mark=mark, nodes=Counter(nodes or mark))
        )
    return found


def paired(new: Sequence[str], base: Sequence[str]) -> list[tuple[int | None, int | None]]:
    pairs = match_units(units(new), units(base))
    return [(pair.new.number if pair.new else None, pair.base.number if pair.base else None) for pair in pairs]


def test_equal_marks_go_together_around_what_is_new() -> None:
    assert paired(["a", "b", "c"], ["a", "c"]) == [(0, 0), (1, None), (2, 1)]
    assert paired(["a", "a", "a"], ["a", "a"]) in ([(0, 0), (1, 1), (2, None)], [(0, None), (1, 0), (2, 1)])


def test_another_plan_of_the_same_call_site_goes_together_if_half_of_it_is_alike() -> None:
    assert paired(["a", "x:site:pqrs", "c"], ["a", "y:site:pqrt", "c"]) == [(0, 0), (1, 1), (2, 2)]
    for other in ("y:other:pq", "y:site:rstuv"):
        assert set(paired(["a", "x:site:pq", "c"], ["a", other, "c"])) == {(0, 0), (1, None), (None, 1), (2, 2)}


def test_queries_that_ran_at_the_same_time_come_in_any_order() -> None:
    assert sorted(paired(["a", "b", "c", "d"], ["b", "a", "d", "c"])) == [(0, 1), (1, 0), (2, 3), (3, 2)]


@given(st.lists(st.sampled_from("abcde"), max_size=7), st.lists(st.sampled_from("abcde"), max_size=7))
def test_every_unit_is_in_one_pair_whichever_way_round(new: list[str], base: list[str]) -> None:
    pairs = paired(new, base)
    assert sorted(i for i, _ in pairs if i is not None) == list(range(len(new)))
    assert sorted(j for _, j in pairs if j is not None) == list(range(len(base)))
    assert all(new[i] == base[j] for i, j in pairs if i is not None and j is not None)
    # As many go together as can.
    both = (Counter(new) & Counter(base)).total()
    assert sum(i is not None and j is not None for i, j in pairs) == both
    if new != base:
        assert sorted((j, i) for i, j in paired(base, new) if None not in {i, j}) == sorted(
            pair for pair in pairs if None not in pair
        )


@given(*[st.integers(0, 10**15)] * 2, *[st.integers(1, 10**9)] * 2)
def test_volume_and_rate_change_their_sign(new_ns: int, base_ns: int, new_rows: int, base_rows: int) -> None:
    there = volume_part(new_ns, new_rows, base_ns, base_rows)
    back = volume_part(base_ns, base_rows, new_ns, new_rows)
    assert there is not None
    assert back == -there
    if new_ns * base_rows == base_ns * new_rows:
        # The same rate: all of it is volume.
        assert there == new_ns - base_ns


# --- Runs that took too long ------------------------------------------------------------------------------------------


def test_what_the_limit_is_for_few_and_many_baselines() -> None:
    assert [judge(value, [100], 0.1).too_long for value in (110, 111)] == [False, True]
    assert judge(111, [100], 0.1).noise == "unknown"
    # With some, a run must be slower than all of them.
    assert [judge(value, [100, 100, 130], 0.1).too_long for value in (130, 131)] == [False, True]
    # With many, one outlier says little, and the spread of the others counts.
    many = [96, 98, 100, 102, 104, 500]
    assert judge(112, many, 0.1).limit == pytest.approx(101 * 1.1 + 2.2, abs=3)
    assert judge(150, many, 0.1).noise == "deviation"
    assert judge(150, many, 0.1).too_long


def test_noise_seldom_is_an_alarm_and_a_fifth_more_nearly_always() -> None:
    chance = random.Random(25)
    alarms = [0, 0]
    for _ in range(100):
        baselines = [round(1e9 * chance.gauss(1, 0.03)) for _ in range(5)]
        for place, times in enumerate((1.0, 1.2)):
            alarms[place] += judge(round(1e9 * times * chance.gauss(1, 0.03)), baselines, 0.1).too_long
    assert alarms[0] <= 5
    assert alarms[1] >= 95


@pytest.mark.parametrize("noise", ["normal", "heavy tails"])
@pytest.mark.parametrize("scatter", [0.03, 0.08])
def test_wrong_alarms_stay_few_however_much_runs_scatter(noise: str, scatter: float) -> None:
    # Three deviations, by the median of absolute deviations, gave 5.3 % at a scatter of 8 %.
    wrong, right = drawn_alarms(NOISES[noise], scatter)
    assert wrong <= 0.04
    assert right >= (0.95 if scatter < 0.05 else 0.3)


def test_as_recorded_runs_scatter_one_in_twenty_alarms_is_wrong_at_most() -> None:
    deviations = recorded_noise()
    # Three deviations, by the median of absolute deviations, gave 8 %.
    assert drawn_alarms(lambda draw: draw.choice(deviations), 1.0)[0] <= 0.05


def test_student_by_his_tables() -> None:
    # A single run beside those of known mean 0 and deviation 1; the last count is nearly normal.
    for count, factor in ((5, 2.776), (6, 2.571), (10, 2.262), (31, 2.042)):
        times = [1_000_000 + 10_000 * (number % 2 * 2 - 1) for number in range(count)]
        spread = statistics.stdev(times) * (1 + 1 / count) ** 0.5
        limit = judge(2_000_000, times, 0.0).limit
        assert limit == pytest.approx(statistics.fmean(times) + factor * spread, abs=20)


def test_what_can_be_compared() -> None:
    one = told("cores/cores-many-jobs-1")
    values = [measured(one, of) for of in Measure]
    assert values == [one.diagnosis.span_ns, one.diagnosis.active_ns, sum(one.diagnosis.core_ns.values())]
    assert (share_of("12.5 %"), share_of("0%")) == (0.125, 0.0)
    with pytest.raises(InvalidParameterError, match="not a percentage"):
        share_of("a tenth")


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["spark", *words])
    return result.exit_code, result.stdout, str(result.exception)


def path(name: str) -> str:
    return str(LOGS / f"{name}.zstd")


def test_the_command_compares_and_ends_with_an_alarm() -> None:
    new, base = path("plans/broadcast-missed-planted"), path("plans/broadcast-missed-twin")
    code, text, _ = run(new, "--against", base)
    assert code == 0
    assert text.index("spark.sql.autoBroadcastJoinThreshold: -1, was 10485760") < text.index("Where the paths differ")
    assert run(new, "--against", base, "--fail-over", "10%")[0] == 9
    assert run(path(STREAMS[0]), "--against", path(STREAMS[1]), "--fail-over", "10%")[0] == 9
    code, text, _ = run(base, "--against", new, "--fail-over", "10%", "--format", "json")
    found = json.loads(text)
    assert (code, found["gate"]["too_long"], found["gate"]["noise"]) == (0, False, "unknown")
    assert sum(row["difference_ns"] for row in found["comparison"]["rows"]) == found["comparison"]["difference_ns"]


def test_runs_that_are_not_alike_are_never_judged() -> None:
    code, _, error = run(path("concurrent-jobs"), "--against", path("plans/python-udf-twin"), "--fail-over", "10%")
    assert code != 0
    assert "not of the same kind" in error
    code, _, error = run(path("two-jobs"), path("healthy"), "--against", path("two-jobs"))
    assert "needs one log" in error
