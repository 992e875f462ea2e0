"""Traces of ranks that are made by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def gloo_rank(folder: Path, rank: int, *, asked: float, ended: float) -> Path:
    """Write a rank that asks for a collective at some time and rests until it has ended; times are microseconds."""
    events = [
        {"cat": "user_annotation", "name": "ProfilerStep#1", "tid": 1, "ts": 0, "dur": ended + 60},
        {"cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 0, "dur": asked - 10},
        {"cat": "cpu_op", "name": "c10d::allreduce_", "tid": 1, "ts": asked - 5, "dur": 10},
        {"cat": "user_annotation", "name": "gloo:all_reduce", "tid": 2, "ts": asked + 10, "dur": ended - asked - 10},
        {"cat": "cpu_op", "name": "aten::add", "tid": 1, "ts": ended + 20, "dur": 30},
    ]
    info = {"rank": rank, "world_size": 2, "backend": "gloo"}
    document = {"distributedInfo": info, "host_name": "node-0"}
    document["traceEvents"] = [{"ph": "X", "pid": 1, **event} for event in events]
    file = folder / f"rank-{rank}.json"
    file.write_text(json.dumps(document))
    return file
