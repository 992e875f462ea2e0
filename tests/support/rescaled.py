"""The picture of ``docs/rescaling.md``: ``python -m tests.support.rescaled docs/pictures/rescaling.svg``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pag_graph import api
from pag_graph.sinks.rescaling import rescaling_picture
from pag_graph.testing.queue_runs import QueueRun, simulate

SHOWN = QueueRun(work_ns=2_400_000)
"""The queue of the page: a third worker relieves it."""


def drawn(place: Path) -> str:
    """Build the run of the page in a folder, and draw what became of it."""
    simulate(SHOWN)[0].write(place / "trace", replace=True)
    api.build(place / "trace", place / "store", engine="local", mode="replace")
    return rescaling_picture(api.rescale(place / "store", period_ns=SHOWN.period_ns, first_ns=0, cores=4))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(sys.argv[1]).write_text(drawn(Path(folder)), encoding="utf-8")
