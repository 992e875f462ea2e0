"""Queues that are rescaled: instants are those of the simulation, and verdicts are true."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from pag_graph import api
from pag_graph.analyses.rescaling.settled import TOLERANCE
from pag_graph.testing.queue_runs import QueueRun, simulate

if TYPE_CHECKING:
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
RUNS = 200 if PROVE else 10
OPPOSITE = {"relieved": {"saturated_not_relieved"}, "not_saturated_faster": {"not_saturated_slower"}}
OPPOSITE |= {wrong: {right} for right, wrongs in OPPOSITE.items() for wrong in wrongs}


def drawn(seed: int) -> QueueRun:
    """Draw a queue that is clearly saturated, or clearly not, before and after."""
    chance = random.Random(seed)
    while True:
        workers, added = chance.randint(1, 3), chance.choice([1, 1, 2, -1])
        wanted = chance.choice([chance.uniform(0.2, 0.7), chance.uniform(1.1, 1.3)])
        if workers + added < 1:
            continue
        run = QueueRun(
            work_ns=int(wanted * 1_000_000 * workers),
            coordination_ns=chance.choice([0, 0, 60_000]),
            noise=chance.uniform(0, 0.05),
            workers=workers,
            added=added,
            bootstrap_ns=chance.randint(100_000, 3_000_000),
            records=chance.choice([60, 61]),
            seed=seed,
        )
        if not any(0.8 < run.utilisation(count) < 1.05 for count in (workers, workers + added)):
            return run


def true_verdict(run: QueueRun) -> str:
    before, after = run.utilisation(run.workers), run.utilisation(run.workers + run.added)
    if after >= 1:
        # Latencies never settle.
        return "cannot_tell"
    if before >= 1:
        return "relieved"
    change = after / before - 1
    return f"not_saturated_{'same' if abs(change) < TOLERANCE else 'slower' if change > 0 else 'faster'}"


def test_instants_are_exact_and_verdicts_true(tmp_path: Path) -> None:
    right = asked = 0
    for seed in range(RUNS):
        run = drawn(seed)
        expected = true_verdict(run)
        trace, truth = simulate(run)
        trace.write(tmp_path / "trace", replace=True)
        api.build(tmp_path / "trace", tmp_path / "store", engine="local", mode="replace")
        answer = api.rescale(tmp_path / "store", period_ns=run.period_ns, first_ns=0)
        [row] = answer.table.to_pylist()
        found = tuple(row[name] for name in ("request_ns", "birth_ns", "ready_ns", "work_ns"))
        assert found == truth[:4], seed
        assert row["new_workers"] == run.added
        late = [row["latency_ns"] for row in answer.named("latency").to_pylist()]
        assert all(ns >= backlog for ns, backlog in zip(late, truth.backlog[1:], strict=True))
        assert row["verdict"] not in OPPOSITE.get(expected, set()), (seed, expected)
        change = run.utilisation(run.workers + run.added) / run.utilisation(run.workers)
        if abs(abs(change - 1) - TOLERANCE) > TOLERANCE / 4:
            asked, right = asked + 1, right + (row["verdict"] == expected)
    assert right >= 0.95 * asked


def test_queues_of_every_kind_are_drawn() -> None:
    verdicts = {true_verdict(drawn(seed)) for seed in range(200)}
    assert verdicts >= {"relieved", "cannot_tell", "not_saturated_slower", "not_saturated_faster", "not_saturated_same"}
