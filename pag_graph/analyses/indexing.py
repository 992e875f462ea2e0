"""The index of analyses, from their modules: ``python -m pag_graph.analyses.indexing``.

What listing them needs stands in a file, so that nothing is imported for it. A test compares the file.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

MODULES = (
    "why",
    "critical_path",
    "profile",
    "profile_rounds",
    "sample",
    "imbalance",
    "slack",
    "what_if",
    "causal_profile",
    "advise",
    "advise_ports",
    "participation",
    "k_hops",
    "k_hops_st2",
    "metrics",
    "matrix",
    "skew",
    "invariants",
    "diff",
    "waits",
    "blame",
    "stragglers",
    "traffic",
)
"""All modules with an `ANALYSIS`, in the order in which they are listed."""
_HEAD = '''\
"""All analyses of this package, in the order in which they are listed: what they are called, and what they do.

Made from their definitions: change them, and run `python -m pag_graph.analyses.indexing`.
"""

INDEX = {
'''


def source() -> str:
    """Return the text of ``pag_graph/analyses/index.py``.

    Returns
    -------
    str
        Python. All modules of analyses are imported.
    """
    analyses = (import_module(f"pag_graph.analyses.{module}").ANALYSIS for module in MODULES)
    return _HEAD + "".join(f'    "{analysis.name}": "{analysis.help}",\n' for analysis in analyses) + "}\n"


if __name__ == "__main__":
    # Not through the shell, which would empty the file that is imported here.
    Path(__file__).with_name("index.py").write_text(source(), encoding="utf-8")
