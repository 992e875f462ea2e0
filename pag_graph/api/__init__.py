"""What a user needs: open a store, ask for windows, and get tables, paths and graphs.

Examples
--------
>>> import pag_graph
>>> pag = pag_graph.open("runs/skewed")  # doctest: +SKIP
>>> print(pag.why())  # doctest: +SKIP
>>> pag.critical_path(epoch=5).by_type  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.analyses import all_analyses
from pag_graph.api.building import build, make_engine
from pag_graph.api.comparing import advise_evaluate, scaling
from pag_graph.api.following import follow, live
from pag_graph.api.jobs import analyse, write_motif
from pag_graph.api.latency import latency, load_curve
from pag_graph.api.questions import Pag, open  # noqa: A004  (pag_graph.open reads as it should)
from pag_graph.api.rescaling import rescale, rescale_overhead
from pag_graph.api.spark_following import follow_on_spark
from pag_graph.api.standing import alerts, changes
from pag_graph.graph.snapshot import Snapshot
from pag_graph.graph.window import Window
from pag_graph.model.enums import EpochRole, RuleSet
from pag_graph.sources import convert

if TYPE_CHECKING:
    from pag_graph.analyses import ANALYSES

__all__ = [
    "ANALYSES",
    "EpochRole",
    "Pag",
    "RuleSet",
    "Snapshot",
    "Window",
    "advise_evaluate",
    "alerts",
    "all_analyses",
    "analyse",
    "build",
    "changes",
    "convert",
    "follow",
    "follow_on_spark",
    "latency",
    "live",
    "load_curve",
    "make_engine",
    "open",
    "rescale",
    "rescale_overhead",
    "scaling",
    "write_motif",
]


def __getattr__(name: str) -> Any:
    # Their modules are imported for it.
    if name == "ANALYSES":
        from pag_graph import analyses

        return analyses.ANALYSES
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
