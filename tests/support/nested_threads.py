"""Threads whose activities nest, and the picture of ``docs/advice.md``.

``python -m tests.support.nested_threads docs/pictures/advice-utilisation.svg`` draws it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.model.enums import RuleSet
from pag_graph.sinks.advice import utilisation_picture
from pag_graph.testing.traces import draw
from tests.support.named_operators import built

if TYPE_CHECKING:
    from collections.abc import Sequence

Activity = tuple[int, int, list[Any]]
"""An operator, the time before what nests in it, and that."""


def nested(*activities: Activity, until: int, rest: str = "idle") -> str:
    """Draw the log of a thread that does one activity after the other, and then nothing."""
    events, now = [], 0

    def write(operator: int, own_time: int, inner: Sequence[Activity]) -> None:
        nonlocal now
        events.append(f"{now} start {operator}")
        now += own_time
        for inner_activity in inner:
            write(*inner_activity)
        events.append(f"{now} stop {operator}")

    for activity in activities:
        write(*activity)
    if now < until:
        events += [f"{now} start 99 ={rest}", f"{until} stop 99"]
    return " | ".join([*events, f"{until} end"])


EXAMPLE = (
    nested((0, 25, [(1, 15, []), (3, 30, [(4, 20, [])])]), until=100),
    nested((2, 50, [(3, 30, [(4, 20, [])])]), until=100),
    nested((5, 60, [(6, 10, [(4, 15, []), (10, 5, [])])]), until=100),
    nested((7, 5, [(8, 40, [(10, 20, [])]), (9, 30, [])]), until=100),
)
"""The threads of Tang and Gedik's figure 4, in percent."""


def main(file: str) -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as folder:
        pag = built(draw(*EXAMPLE, rules=RuleSet.STATED), Path(folder), operators=range(12))
        Path(file).write_text(utilisation_picture(pag.advise()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
