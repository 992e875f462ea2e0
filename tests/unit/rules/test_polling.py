"""Waits of workers that poll: the kernels against brute force on random logs."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from pag_graph.kernels import NEVER, polling
from pag_graph.kernels import activations as act
from pag_graph.rules.polling import polled_intervals
from pag_graph.rules.rows import KIND_CODES
from pag_graph.testing.polling_reference import PolledRow, looked_in_vain, polled_stretches

LOGS = 10_000 if os.environ.get("PAG_PROVE") == "1" else 300
PROCESSES = np.array([0, 0, 1], np.int64)
KINDS = (
    *("start", "start", "start", "stop", "stop", "stop", "stop", "send", "receive", "progress_send"),
    *("progress_receive", "push_progress", "epoch_end", "application_start", "application_stop", "arrival"),
)


def random_log(seed: int) -> list[dict[str, Any]]:
    """Rows of a worker 0, whose peers are worker 1 of the same process and worker 2 of another one."""
    draw = random.Random(seed)
    losing = random.Random(seed)
    now, stack, log = 0, [], []

    def add(kind: str, operator: int | None = None, peer: int = -1, sent: int | None = None) -> None:
        arrived = None if sent is None or draw.random() < 0.7 else now - draw.choice([0, 2, 20])
        after_gap = seed % 3 == 0 and bool(log) and losing.random() < 0.1
        row = {"t": now, "kind": kind, "operator": operator, "peer": peer, "sent": sent, "arrived": arrived}
        log.append(row | {"after_gap": after_gap})

    for _ in range(draw.randint(1, 40)):
        now += draw.choice([0, 1, 1, 2, 5, 20])
        kind = draw.choice(KINDS)
        if kind == "start":
            stack.append(draw.randint(0, 3))
            add(kind, stack[-1])
        elif kind == "stop":
            add(kind, stack.pop() if stack and draw.random() < 0.9 else draw.randint(0, 3))
        elif kind == "push_progress":
            add(kind, draw.randint(0, 3))
            if draw.random() < 0.6:
                now += draw.choice([0, 1])
                stack.append(log[-1]["operator"])
                add("start", stack[-1])
        elif kind in {"receive", "progress_receive"}:
            known = draw.random() < 0.9
            add(kind, peer=draw.randint(0, 2), sent=now - draw.choice([0, 1, 3, 10, 40, -2]) if known else None)
        elif kind.startswith("application"):
            add(kind, draw.randint(0, 2))
        else:
            add(kind, peer=draw.randint(0, 2) if kind == "send" else -1)
    return log


def came(row: dict[str, Any]) -> int | None:
    """When a message arrived at the earliest, unless its send is unknown or contradicts the clocks."""
    if row["sent"] is None or row["sent"] > row["t"]:
        return None
    return max(row["sent"], row["sent"] if row["arrived"] is None else row["arrived"])


def test_stretches_are_those_of_the_definition() -> None:
    counts = set()
    for seed in range(LOGS):
        log = random_log(seed)
        kind = np.array([KIND_CODES[row["kind"]] for row in log], np.int8)
        operator = np.array([-1 if row["operator"] is None else row["operator"] for row in log], np.int64)
        gaps = np.flatnonzero([row["after_gap"] for row in log])
        innermost, role, _, _ = act.activations(kind, operator, np.full(len(log), -1, np.int64), gaps)
        reads = np.flatnonzero((kind == act.RECEIVE) | (kind == act.PROGRESS_RECEIVE)).astype(np.int32)
        rows: Any = SimpleNamespace(
            worker=0,
            starts_run=True,
            before_t=NEVER,
            gaps=gaps,
            kind=kind,
            t=np.array([row["t"] for row in log], np.int64),
            operator=operator,
            peer=np.array([row["peer"] for row in log], np.int64),
            reads=reads,
            sender=np.array([log[row]["peer"] for row in reads], np.int64),
            sent=np.array([NEVER if log[row]["sent"] is None else log[row]["sent"] for row in reads], np.int64),
            arrived=np.array([NEVER if row["arrived"] is None else row["arrived"] for row in log], np.int64),
        )
        same = [
            PolledRow(
                t=row["t"],
                kind=row["kind"],
                operator=row["operator"],
                depth=int(innermost[place] >= 0),
                works=bool(kind[place] == act.START and role[place] in {act.PROCESSING, act.INFERRED}),
                of_scope=bool(
                    kind[place] == act.SEND and innermost[place] >= 0 and role[innermost[place]] == act.SCOPE
                ),
                sent=came(row),
                same_process=row["peer"] != 2,
                after_gap=row["after_gap"],
                logged=row["arrived"] is not None,
            )
            for place, row in enumerate(log)
        ]
        looked = looked_in_vain(same)
        for pause_ns in (3, 15, 1_000_000):
            polled = polled_intervals(rows, role, innermost, PROCESSES, pause_ns)
            expected = polled_stretches(same, pause_ns)
            assert list(zip(polled.begin.tolist(), polled.end.tolist(), strict=True)) == expected, seed
            counts.add(len(expected))
            for place, read in enumerate(reads.tolist()):
                message = same[read]
                if message.sent is None:
                    continue
                vain = looked.get(read, NEVER)
                known = message.same_process or message.logged
                assert polled.looked[place] == vain, seed
                assert polled.arrived[place] == (max(message.sent, vain) if known else message.sent), seed
    assert len(counts) > 4


def test_starts_without_an_operator_write_nowhere_else() -> None:
    kind, t, nobody = np.array([0, 1, 9], np.int8), np.array([0, 4, 9]), np.full(3, -1, np.int64)
    role, innermost = np.array([act.PROCESSING, 0, 0], np.int8), np.array([0, -1, -1], np.int32)
    log = polling.LoggedRows(kind, t, nobody, role, innermost, np.array([False, False, True]), np.empty(0, np.int64))
    # Not compiled, an index that is out of range is an error.
    for own_causes in (polling.own_causes, polling.own_causes.py_func):
        causes = own_causes(log, polling.steps(log, 100), 0)
        assert (causes.begin.tolist(), causes.end.tolist()) == ([0, 9], [4, 9])
