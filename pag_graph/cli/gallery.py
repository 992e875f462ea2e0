"""The pictures of ``docs/analyses.md``, drawn from a bundled trace: ``python -m pag_graph.cli.gallery docs/pictures``.

A test compares them with the files.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.analyses import ANALYSES, Scope
from pag_graph.analyses.reference_page import picture_name
from pag_graph.cli.demo import SAMPLES
from pag_graph.store.in_place import write_whole

if TYPE_CHECKING:
    from pag_graph.api import Pag
    from pag_graph.model.enums import RuleSet

_EPOCH = 4
_PARAMETERS: dict[str, dict[str, Any]] = {
    "what-if": {"operator": ("FlatMap",), "factor": 0.5},
    "sample": {"fraction": 0.6},
    "invariants": {"message_max_ns": 500_000, "learn": False},
}
"""Where the defaults would show nothing."""


def pictures(runs: dict[RuleSet, Pag]) -> dict[str, str]:
    """Draw every analysis that has a picture.

    Parameters
    ----------
    runs
        The bundled trace ``skewed``, built with the rule sets that analyses need.

    Returns
    -------
    dict
        SVG documents by file name.
    """
    from pag_graph.sinks.charts import picture

    drawn: dict[str, str] = {}
    for analysis in ANALYSES:
        name = picture_name(analysis)
        if name is None or name in drawn:
            continue
        pag = runs[analysis.needs.usual]
        window: dict[str, Any] = {} if analysis.scope is Scope.RUN else {"epoch": _EPOCH}
        result = pag.analyse(analysis.name, **window, **_PARAMETERS.get(analysis.name, {}))
        snapshot = pag.snapshot(**window) if analysis.scope is Scope.WINDOW else None
        drawn[name] = picture(analysis, result, run=pag.run, snapshot=snapshot)
    return drawn


def main(folder: Path) -> None:
    """Write the pictures to a folder."""
    from pag_graph import api

    with tempfile.TemporaryDirectory() as place:
        runs = {}
        for rules in {analysis.needs.usual for analysis in ANALYSES}:
            api.build(SAMPLES / "skewed", Path(place) / rules, rules=rules, engine="local")
            runs[rules] = api.open(Path(place) / rules)
        for name, text in pictures(runs).items():
            write_whole(folder / name, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
