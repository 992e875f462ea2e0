"""Activations up to a level: what lies deeper becomes part of what is kept."""

from __future__ import annotations

import numpy as np

from pag_graph.kernels.activations import (
    INFERRED,
    PROCESSING,
    PUSH_PROGRESS,
    RECEIVE,
    SCOPE,
    SPINNING,
    START,
    STOP,
    activations,
    at_level,
)

# A dataflow (0) with a scope (1) that receives and pushes nothing itself, and operators in both.
ROWS = [
    (START, 0, -1),  # 0
    (START, 1, -1),  # 1
    (START, 5, -1),  # 2
    (RECEIVE, -1, 4),
    (STOP, 5, -1),
    (START, 6, -1),  # 5
    (STOP, 6, -1),
    (STOP, 1, -1),
    (PUSH_PROGRESS, 7, -1),
    (START, 7, -1),  # 9
    (STOP, 7, -1),
    (STOP, 0, -1),
]


def levels(level: int) -> tuple[list[int], list[int], list[int]]:
    kind, operator, records = (np.array(values) for values in zip(*ROWS, strict=True))
    no_gaps = np.empty(0, np.int64)
    innermost, role, consumed, _ = activations(kind.astype(np.int8), operator, records, no_gaps)
    new = at_level(innermost, role, consumed, level, no_gaps)
    return new[0].tolist(), new[1].tolist(), new[2].tolist()


def test_one_level_is_the_dataflow() -> None:
    innermost, role, consumed = levels(1)
    assert innermost == [0] * 11 + [-1]
    assert role[0] == PROCESSING
    assert consumed[0] == 4


def test_two_levels_keep_the_scope_and_what_stands_beside_it() -> None:
    innermost, role, consumed = levels(2)
    assert innermost == [0, 1, 1, 1, 1, 1, 1, 0, 0, 9, 0, -1]
    assert [role[0], role[1], role[9]] == [SCOPE, PROCESSING, INFERRED]
    assert [consumed[0], consumed[1]] == [-1, 4]


def test_levels_deeper_than_the_log_change_nothing() -> None:
    innermost, role, _ = levels(3)
    assert innermost == [0, 1, 2, 2, 1, 5, 1, 0, 0, 9, 0, -1]
    assert [role[0], role[1], role[2], role[5], role[9]] == [SCOPE, SCOPE, PROCESSING, SPINNING, INFERRED]
    assert levels(9) == levels(3)
