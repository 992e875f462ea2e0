"""Compile the kernels that commands call, once for all processes: ``python -m tests.support.compiled_kernels``.

Two processes that miss the same kernel compile it twice.
"""

from __future__ import annotations

from pag_graph.kernels.compiling import prepare
from pag_graph.kernels.expected import expecting

PARTS = ("build", "why", "spans", "spark", "torch", "follow", "standing")

if __name__ == "__main__":
    with expecting(*PARTS):
        prepare(*PARTS)
