"""Scaling studies of the adapter's programs: recorded with more and more workers, compared by `pag scaling`.

``python -m bench.scaling`` records `triangles` and `bfs`, five times each with 1, 2 and 4 workers, and writes
``docs/scaling.md`` with its pictures; ``--quick`` records each twice, and writes nothing. Once a program has taken
``--minutes``, no further repetition of it begins (two are made); the page says how many there were.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench import harness
from pag_graph import api
from pag_graph.model.units import duration
from pag_graph.runtime.threads import CORES
from pag_graph.sinks.scaling import scaling_picture
from pag_graph.sources.record import build_program, run_program

if TYPE_CHECKING:
    from pag_graph.analyses.scaling import Scaling

PAGE = harness.ROOT / "docs" / "scaling.md"
PICTURES = harness.ROOT / "docs" / "pictures"
PROGRAMS = {
    "triangles": ("--nodes", "2000", "--edges", "20000", "--batch", "200", "--rounds", "30"),
    "bfs": ("--nodes", "20000", "--edges", "60000", "--batch", "300", "--rounds", "30"),
}
WORKERS = (1, 2, 4)
_FEWEST = 2
"""Repetitions, which a deviation takes."""


def study(program: str, repeat: int, most_seconds: float) -> Scaling:
    """Record a program with all numbers of workers, several times in turn, and compare the runs."""
    executable = build_program(program)
    with tempfile.TemporaryDirectory() as folder:
        stores, start = [], time.monotonic()
        for number in range(repeat):
            if number >= _FEWEST and time.monotonic() - start > most_seconds:
                break
            for workers in WORKERS:
                place = Path(folder) / f"{workers}-{number}"
                run_program(executable, place / "trace", ["-w", str(workers), *PROGRAMS[program]])
                api.build(place / "trace", place / "run.pag", engine="local")
                stores.append(place / "run.pag")
        return api.scaling(stores, cores=CORES)


def section(program: str, comparison: Scaling) -> list[str]:
    """Return what the page says of a program."""
    arguments = " ".join(PROGRAMS[program])
    lines = [f"### {program}", "", f"Recorded with `{arguments}`.", ""]
    lines += [f"- {line}" for line in comparison.headline().splitlines()]
    lines += ["", f"![Critical paths of {program} by number of workers](pictures/scaling-{program}.svg)", ""]
    lines += ["| by | key | workers | mean | deviation | share | speed-up |", "|---|---|--:|--:|--:|--:|--:|"]
    for row in comparison.table.to_pylist():
        spread = "" if row["deviation_ns"] is None else duration(round(row["deviation_ns"]))
        faster = "" if row["speed_up"] is None else f"{row['speed_up']:.2f}"
        cells = (row["by"], row["key"], row["workers"], duration(round(row["mean_ns"])), spread)
        lines.append("| " + " | ".join(map(str, (*cells, f"{row['share']:.1%}", faster))) + " |")
    return [*lines, ""]


def main() -> None:
    """Record, compare, and write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="Record each twice, and write nothing.")
    options.add_argument("--minutes", type=float, default=2.0, help="Time for one program's repetitions [2].")
    chosen = options.parse_args()
    quick = chosen.quick
    facts = f"{CORES} cores, load average {os.getloadavg()[0]:.2f}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    lines = [f"Measured on {facts}."]
    if os.getloadavg()[0] > CORES:
        lines.append("The machine also did other work; the deviations show how much this matters.")
    lines.append("")
    for program in PROGRAMS:
        comparison = study(program, _FEWEST if quick else 5, 60 * chosen.minutes)
        lines += section(program, comparison)
        if not quick:
            (PICTURES / f"scaling-{program}.svg").write_text(scaling_picture(comparison), encoding="utf-8")
    if quick:
        sys.stdout.write("\n".join(lines))
        return
    PAGE.write_text(
        harness.with_section(PAGE.read_text(encoding="utf-8"), "scaling", "\n".join(lines)), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
