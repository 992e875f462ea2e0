"""The example of `docs/torch.md`: traces of a made-up job, and the picture of one of its steps.

``python -m tests.support.torch_example`` writes both; a test makes them again and compares.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pag_graph import api
from pag_graph.diagnosis.torch.answer import answer
from pag_graph.testing.kineto_traces import Job, Plant, simulate

EXAMPLE = Path("docs") / "examples" / "torch"
PICTURE = Path("docs") / "pictures" / "torch-step.svg"
JOB = Job(seed=4, steps=3, plants=(Plant(cause="late_rank", rank=1, step=2, by_ns=200_000),))
"""Two ranks; in step 2 rank 1 comes late."""
_SMALL = Job(seed=4, steps=1, layers=1, plants=(Plant(cause="late_rank", rank=1, by_ns=60_000),))


def draw_step() -> str:
    """Draw a step of one layer with its critical path."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        answer(simulate(_SMALL).write(place / "traces"), folder=place / "out")
        api.open(place / "out" / "pag").draw(place / "step.svg", epoch=1)
        return (place / "step.svg").read_text(encoding="utf-8")


def main() -> None:
    """Write traces and picture into the documentation."""
    for file in simulate(JOB).write(EXAMPLE, "gzip"):
        sys.stdout.write(f"{file}\n")
    PICTURE.write_text(draw_step(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")


if __name__ == "__main__":
    main()
