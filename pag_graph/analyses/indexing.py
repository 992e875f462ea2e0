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
"""All analyses of this package, in the order in which they are listed.

Made from their definitions: change them, and run `python -m pag_graph.analyses.indexing`.
"""

from pag_graph.analyses.definition import Entry

INDEX: tuple[Entry, ...] = (
'''


def source() -> str:
    """Return the text of ``pag_graph/analyses/index.py``."""
    entries = []
    for module in MODULES:
        path = f"pag_graph.analyses.{module}"
        analysis = import_module(path).ANALYSIS
        lines = (f'name="{analysis.name}"', f'help="{analysis.help}"', f'module="{path}"')
        entries.append("    Entry(\n" + "".join(f"        {line},\n" for line in lines) + "    ),\n")
    return _HEAD + "".join(entries) + ")\n"


if __name__ == "__main__":
    # Not through the shell, which would empty the file that is imported here.
    Path(__file__).with_name("index.py").write_text(source(), encoding="utf-8")
