"""Answers to one question: why was this distributed dataflow slow, and what would make it faster.

Execution traces become a program activity graph; critical paths and k-hops explain it; Neo4j and GraphFrames query it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pag_graph.api import BuildReport, CriticalPath, Pag, Snapshot, Window, build, convert, open  # noqa: A004

__all__ = [
    "BuildReport",
    "CriticalPath",
    "Pag",
    "Snapshot",
    "Window",
    "build",
    "convert",
    "open",
]


def __getattr__(name: str) -> Any:
    # Polars, numba and Arrow take a second to load: only who uses the API pays for it.
    if name in __all__:
        from pag_graph import api

        return getattr(api, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
