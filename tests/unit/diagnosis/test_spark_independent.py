"""Jobs that a user declares independent: what they wait for then, and when the application ends."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.diagnosis.spark.independent import independent_jobs, what_if_independent, without_waits
from pag_graph.diagnosis.spark.list_schedule import JobPlan, StagePlan, WorkPlan, list_schedule
from pag_graph.errors import InvalidParameterError
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log

if TYPE_CHECKING:
    from collections.abc import Callable

LOGS = Path(__file__).parents[2] / "data" / "spark"


def chain(gaps: list[int], last: tuple[int, ...] = (), **more: JobPlan) -> WorkPlan:
    """Jobs one after the other, each of one task of ten."""
    jobs = [JobPlan(after=(n - 1,) if n else (), gap_ns=gap) for n, gap in enumerate(gaps)]
    jobs = [more.get(f"job{n}", job) for n, job in enumerate(jobs)]
    stages = tuple(StagePlan(job=n, tasks=(n,)) for n in range(len(jobs)))
    return WorkPlan(
        jobs=tuple(jobs), stages=stages, durations=np.full(len(jobs), 10), last=last or (len(jobs) - 1,), tail_ns=1
    )


def test_a_job_waits_for_what_came_before_all_of_them() -> None:
    plan = chain([5, 2, 3, 4])
    at_once = without_waits(plan, [[1], [2]], driver="at once")
    assert [job.after for job in at_once.jobs] == [(), (0,), (0,), (1, 2)]
    assert [job.gap_ns for job in at_once.jobs] == [5, 2, 3, 4]
    one_by_one = without_waits(plan, [[1], [2]], driver="one by one")
    assert [job.gap_ns for job in one_by_one.jobs] == [5, 2, 5, 4]
    # 5, 10, then both on a core each, 4 and 10 of the last job, 1 of the driver.
    assert list_schedule(at_once, [(0, None)] * 2) == 5 + 10 + 3 + 10 + 4 + 10 + 1
    assert list_schedule(plan, [(0, None)] * 2) == 5 + 10 + 2 + 10 + 3 + 10 + 4 + 10 + 1


def test_the_first_jobs_begin_where_the_first_one_did_and_the_end_waits_for_all() -> None:
    plan = without_waits(chain([100, 2, 3]), [[0], [1], [2]], driver="at once")
    assert [(job.after, job.gap_ns) for job in plan.jobs] == [((), 100)] * 3
    assert plan.last == (0, 1, 2)


def test_who_stands_between_is_waited_for_still() -> None:
    plan = without_waits(chain([1, 2, 3]), [[0], [2]], driver="at once")
    assert [job.after for job in plan.jobs] == [(), (0,), (1,)]


def test_jobs_of_one_query_stay_in_their_order() -> None:
    plan = without_waits(chain([1, 2, 3, 4, 5]), [[0, 1], [2, 3]], driver="one by one")
    assert [job.after for job in plan.jobs] == [(), (0,), (), (2,), (0, 1, 2, 3)]
    assert plan.jobs[2].gap_ns == 1 + 2 + 3


def test_a_job_of_another_thread_may_begin_earlier() -> None:
    plan = chain([1, 2, 3], job2=JobPlan(begun=1, gap_ns=7), last=(1, 2))
    free = without_waits(plan, [[0], [1], [2]], driver="at once")
    assert [(job.after, job.begun) for job in free.jobs] == [((), -1)] * 3
    assert free.jobs[2].gap_ns == 7


def test_a_long_chain_is_no_deep_recursion() -> None:
    free = without_waits(chain([1] * 5_000), [[n] for n in range(5_000)], driver="at once")
    assert all(job.after == () for job in free.jobs)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_waits_for_more_than_before(seed: int) -> None:
    """With reachability by brute force: independent jobs wait for none of the others, all else stays in its order."""
    draw = random.Random(seed)
    count = draw.randint(3, 12)
    jobs = [
        JobPlan(
            after=tuple(sorted(draw.sample(range(n), min(n, draw.randint(0, 2))))),
            begun=draw.randrange(n) if n and not draw.randrange(4) else -1,
            gap_ns=draw.randint(0, 9),
        )
        for n in range(count)
    ]
    plan = WorkPlan(
        jobs=tuple(jobs),
        stages=tuple(StagePlan(job=n, tasks=(n,)) for n in range(count)),
        durations=np.array([draw.randint(1, 20) for _ in range(count)]),
        last=(count - 1,),
    )
    named = draw.sample(range(count), draw.randint(2, count))
    cuts = sorted(draw.sample(range(1, len(named)), draw.randint(1, len(named) - 1)))
    members = [sorted(named[low:high]) for low, high in pairwise([0, *cuts, len(named)])]
    element = {job: place for place, own in enumerate(members) for job in own}
    free = without_waits(plan, members, driver=draw.choice(["at once", "one by one"]))
    before, after = reached(plan), reached(free)
    assert all(after[job] <= before[job] for job in range(count))
    for job in range(count):
        others = {other for other in element if job in element and element[other] != element[job]}
        direct = {*free.jobs[job].after, free.jobs[job].begun}
        assert not direct & others
        if job not in element and set(plan.jobs[job].after) & set(element):
            # Waits for every independent one that it came after, if only by way of others of them.
            assert set(plan.jobs[job].after) <= set(free.jobs[job].after)
    longest, cores = list_schedule(plan, [(0, None)] * count), [(0, None)] * count
    assert list_schedule(without_waits(plan, members, driver="at once"), cores) <= longest + sum(
        job.gap_ns for job in jobs
    )


def reached(plan: WorkPlan) -> list[set[int]]:
    found: list[set[int]] = []
    for job in plan.jobs:
        direct = {*job.after, *([job.begun] if job.begun >= 0 else [])}
        found.append(direct.union(*(found[other] for other in direct)))
    return found


def test_the_program_that_runs_them_at_once_takes_what_was_predicted() -> None:
    schedules = {}
    for name in ("one-by-one", "at-once"):
        [log] = find_logs(LOGS / "orders" / f"{name}.zstd")
        schedules[name] = map_log(read_log(log)).schedule
    # The first job only warms up.
    first = {name: schedule.jobs[1].start_ns for name, schedule in schedules.items()}
    ends = {name: schedule.end_ns - first[name] for name, schedule in schedules.items()}
    recorded = schedules["one-by-one"]
    told = what_if_independent(recorded, diagnose(recorded), "query 1,query 2,query 3,query 4").end
    assert told.ns - first["one-by-one"] == pytest.approx(ends["at-once"], rel=0.1)
    # Saying that nothing changes is farther off.
    assert ends["one-by-one"] > 1.4 * ends["at-once"]


def test_names_of_jobs_and_queries_are_read() -> None:
    [log] = find_logs(LOGS / "sql.zstd")
    schedule = map_log(read_log(log)).schedule
    units = list(dict.fromkeys(job.unit for job in schedule.jobs))
    first, second = [unit for unit in units if unit.startswith("query")][:2]
    found = independent_jobs(schedule, f"{first}, {second}")
    assert [{schedule.jobs[index].unit for index in own} for own in found] == [{first}, {second}]
    number = str(schedule.jobs[found[1][0]].number)
    assert independent_jobs(schedule, f"{first},{number}")[1] == [found[1][0]]
    inside = str(schedule.jobs[found[0][0]].number)
    for text in ("", first, f"{first},{first}", f"{first},{inside}", f"{first},query 99", "0;1"):
        with pytest.raises(InvalidParameterError) as error:
            independent_jobs(schedule, text)
        assert "--independent" in str(error.value.hint)


def test_the_command_says_what_was_asked_first(run_pag: Callable[..., tuple[int, str, str]]) -> None:
    log, asked = LOGS / "two-jobs.zstd", "query 0,query 1"
    code, said, _ = run_pag("spark", log, "--independent", asked)
    assert code == 0
    assert f"{asked} at once:" in said.partition("What if")[2].splitlines()[1]
    code, said, _ = run_pag("spark", log, "--independent", asked, "--format", "json")
    told = json.loads(said)["what_if"]["changes"][0]
    # The second one need not wait for the first, nor for the second between them.
    assert told["change"] == f"{asked} at once"
    assert told["saved_low_ns"] > 0
    code, _, error = run_pag("spark", log, "--independent", "7,8")
    assert code == 2
    assert "no job or query '7'" in error
