"""Answers to one question: why was this distributed dataflow slow, and what would make it faster.

Execution traces become a program activity graph; critical paths and k-hops explain it; Neo4j and GraphFrames query it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pag_graph import samples
    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.api import (
        Pag,
        Snapshot,
        Window,
        alerts,
        build,
        changes,
        convert,
        follow,
        follow_on_spark,
        live,
        open,  # noqa: A004
    )
    from pag_graph.builder.report import BuildReport
    from pag_graph.engines.following import FollowReport
    from pag_graph.graph.following import Committed
    from pag_graph.sources.replay import ReplayReport, replay

    __version__: str

__all__ = [
    "BuildReport",
    "Committed",
    "CriticalPath",
    "FollowReport",
    "Pag",
    "ReplayReport",
    "Snapshot",
    "Window",
    "__version__",
    "alerts",
    "build",
    "changes",
    "convert",
    "follow",
    "follow_on_spark",
    "live",
    "open",
    "replay",
    "samples",
]


_ELSEWHERE = {
    "BuildReport": "pag_graph.builder.report",
    "Committed": "pag_graph.graph.following",
    "CriticalPath": "pag_graph.analyses.critical_path",
    "FollowReport": "pag_graph.engines.following",
    "ReplayReport": "pag_graph.sources.replay",
    "replay": "pag_graph.sources.replay",
}


def __getattr__(name: str) -> Any:
    # Polars and Arrow take half a second to load, numba as much again, so they are loaded when they are used.
    if name == "__version__":
        from importlib.metadata import version

        return version("pag-graph")
    if name in __all__:
        from importlib import import_module

        if name == "samples":
            return import_module("pag_graph.samples")
        return getattr(import_module(_ELSEWHERE.get(name, "pag_graph.api")), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
