"""Columns of what a follower keeps beside the tables of a store (`docs/live.md`)."""

from __future__ import annotations

import pyarrow as pa

TIMINGS = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("ended_ns", pa.int64(), nullable=False),
        pa.field("published_ns", pa.int64(), nullable=False),
        pa.field("read_ns", pa.int64(), nullable=False),
        pa.field("closed_ns", pa.int64(), nullable=False),
        pa.field("committed_ns", pa.int64(), nullable=False),
        pa.field("answered_ns", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("commit", pa.int64(), nullable=False),
    ]
)
"""One row per epoch that a follower closed, in that order. Unix time, nanoseconds: when the program ended it, by its
clock, when the recorder had written all that carries its label and all that happened up to its end, when the follower
had read that, found the epoch closed, had committed it, and had told everybody. `rows` events carry its label; `commit`
is the version of the table `epochs`."""
