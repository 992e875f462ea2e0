"""What the checks by re-execution share: their command line, the order of runs, and the rounds that count."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from pag_graph.model.enums import WARM_UP_ROUNDS, EpochRole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pag_graph import api
    from pag_graph.graph.run import Run

_REPEAT = 5


def command_line(
    name: str, about: str | None, *, recordings: str, subjects: str, page: Path
) -> argparse.ArgumentParser:
    """Return the options that all checks have.

    Parameters
    ----------
    name
        Of the module, behind ``python -m bench.``.
    about
        Its docstring, the first line of which is shown.
    recordings
        What is repeated.
    subjects
        What ``--only`` chooses from.
    page
        The generated page.
    """
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=(about or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"one {recordings} instead of {_REPEAT}; writes no file")
    parser.add_argument("--repeat", type=int, help=f"{recordings}s of each")
    parser.add_argument("--only", action="append", help=f"{subjects} to try; writes no file")
    parser.add_argument("--first-in-line", action="store_true", help="run before all other processes (as root)")
    parser.add_argument("--program", type=Path, help="the compiled program; cargo builds it where absent")
    parser.add_argument("--page", action="store_true", help=f"only write docs/{page.name} anew from the result")
    return parser


def repeats(options: argparse.Namespace) -> int:
    """Return how often everything is run."""
    return options.repeat or (1 if options.quick else _REPEAT)


def first_in_line() -> None:
    """Let this process run before all others of the machine, if the system allows it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError) as error:
        print(f"runs at usual priority: {error}", file=sys.stderr)


def result_of(
    name: str, options: argparse.Namespace, machine: Mapping[str, Any], begun: datetime, **content: Any
) -> dict[str, Any]:
    """Return what a check keeps, once it has ended.

    Parameters
    ----------
    name
        Of the result.
    options
        Of the command line.
    machine
        What `harness.machine` said when the check began.
    begun
        When that was.
    content
        What was measured.
    """
    return {
        "format": harness.FORMAT,
        "bench": name,
        "machine": {**machine, "load_average_after": round(os.getloadavg()[0], 2)},
        "begun": begun.isoformat(timespec="seconds"),
        "first_in_line": options.first_in_line,
        "commit": harness.commit(),
        **content,
    }


def write_section(page: Path, name: str, content: str) -> None:
    """Replace a generated part of a page."""
    page.write_text(harness.with_section(page.read_text(encoding="utf-8"), name, content), encoding="utf-8")


def rounds(run: Run) -> list[api.Window]:
    """Return the rounds of a run that count."""
    return [window for window in run.windows() if window.role is EpochRole.ROUND][WARM_UP_ROUNDS:]


def spread(*sides: Sequence[float]) -> float:
    """Return by how much runs with the same arguments differ: (slowest - fastest) / median, the most of all sides."""
    return max((max(runs) - min(runs)) / statistics.median(runs) for runs in sides)
