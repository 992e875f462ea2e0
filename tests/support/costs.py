"""Write down which tests take long, so that `make test` can draw some of them (`tests.support.sampling`).

``make costs`` runs all tests with few examples, and calls this on pytest's report of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.sampling import COSTS

DEAR_S = 1.0
ALWAYS = ("tests/meta/", "tests/properties/")
"""What is never left out: checks of the repository, and properties, which draw few examples."""


def list_dear(report: Path) -> dict[str, float]:
    """Return seconds per test that took `DEAR_S` or longer, from a report in JUnit's format."""
    costs = {}
    for case in ET.parse(report).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        if not file.startswith(ALWAYS) and float(case.attrib["time"]) >= DEAR_S:
            costs[f"{file}::{case.attrib['name']}"] = float(case.attrib["time"])
    return costs


def write_costs(costs: dict[str, float]) -> None:
    """Replace the list: a line per test, in the order of files and names."""
    COSTS.write_text("".join(f"{cost:.1f}\t{test}\n" for test, cost in sorted(costs.items())))


if __name__ == "__main__":
    write_costs(list_dear(Path(sys.argv[1])))
