"""Programs compared with themselves: how often `advise-evaluate` and `rescale-overhead` take chance for a difference.

``python -m bench.advice_chance`` records shapes of `bench.advice` with a cut in the middle, the same on both sides, and
in turn. By chance all runs of one side are slower than those of the other once in ten comparisons of three runs a side,
once in 35 of four, once in 126 of five (`pag_graph.analyses.repetitions`).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from bench.advice import HELD_OUT, PAGE, SHAPES, cut_places, recorded
from bench.reexecution import command_line, repeats
from pag_graph.analyses.advising.advice_state import AdviceState
from pag_graph.analyses.advising.advice_trials import advise_evaluate
from pag_graph.analyses.repetitions import chance_of_separation, enough
from pag_graph.analyses.rescaling.overhead import overhead
from pag_graph.sources.record import build_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.advice import Shape
    from pag_graph.graph.run import Run

NAME = "advice-chance"
_COMPARED = (*SHAPES[:5], *HELD_OUT[:5])
"""Those that work all the time: what sleeps hardly differs from run to run."""
_FEWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """So many runs of a program against as many of the same."""

    shape: str
    runs: int
    """On each side."""
    ratio_low: float
    ratio_high: float
    apart: bool
    """Whether all runs of one side are faster than all of the other."""
    decision: str
    """What `advise-evaluate` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What `rescale-overhead` compares of as many runs of a program on either side."""

    shape: str
    what: str
    ratio_low: float
    ratio_high: float
    decision: str


def compare(program: Path, shape: Shape, runs: int, *, rt: bool) -> tuple[list[Comparison], list[Measure]]:
    """Record both sides in turn, and compare the first runs of each, from three on; and the rounds of all."""
    middle = len(shape.costs) // 2
    places = cut_places(shape, middle)
    with tempfile.TemporaryDirectory() as folder:
        sides: tuple[list[Run], list[Run]] = ([], [])
        for number in range(runs):
            # Neither side always comes first.
            for side in (0, 1) if number % 2 else (1, 0):
                place = Path(folder, f"{side}-{number}")
                place.mkdir()
                sides[side].append(recorded(program, shape, places, place, rt=rt).run)
        names = ("what", "ratio_low", "ratio_high", "decision")
        rows = overhead(*sides).table.select(names).to_pylist()
        measures = [Measure(shape=shape.name, **row) for row in rows]
        return [_compared(shape, middle, sides, few) for few in range(_FEWEST, runs + 1)], measures


def _compared(shape: Shape, middle: int, sides: tuple[Sequence[Run], Sequence[Run]], few: int) -> Comparison:
    ports = [f"stage {middle}"]
    before, after = (side[:few] for side in sides)
    [row] = advise_evaluate(before, after, AdviceState(), ports=ports).table.to_pylist()
    low, high = row["ratio_low"], row["ratio_high"]
    apart = low > 1 or high < 1
    name, decision = shape.name, row["decision"]
    return Comparison(shape=name, runs=few, ratio_low=low, ratio_high=high, apart=apart, decision=decision)


def section(result: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    found, facts = [Comparison(**entry) for entry in result["comparisons"]], result["machine"]
    first = ", before all other processes" if result["first_in_line"] else ""
    names = list(dict.fromkeys(each.shape for each in found))
    head = (
        f"{len(names)} shapes, each compared with itself{first}, on {facts['cores']} cores ({facts['processor']}), load"
        f" average {facts['load_average']} to {facts['load_average_after']}, commit {result['commit']},"
        f" {result['begun']}."
    )
    rows = ["| runs a side | told apart | by chance | enough | decided |", "| --- | --- | --- | --- | --- |"]
    for runs in sorted({each.runs for each in found}):
        own = [each for each in found if each.runs == runs]
        apart, decided = sum(each.apart for each in own), sum(each.decision != "undecided" for each in own)
        by_chance = len(own) * chance_of_separation(runs, runs)
        known = "yes" if enough(runs, runs) else "no"
        rows.append(f"| {runs} | {apart} of {len(own)} | {by_chance:.2f} | {known} | {decided} |")
    most = max(each.runs for each in found)
    rows += ["", f"| shape | ratio of {most} runs a side | decision |", "| --- | --- | --- |"]
    rows += [
        f"| {each.shape} | {each.ratio_low:.3f} to {each.ratio_high:.3f} | {each.decision} |"
        for each in found
        if each.runs == most
    ]
    return "\n".join([head, "", *rows, *_overheads(result["measures"], most)])


def _overheads(measures: Sequence[Mapping[str, Any]], runs: int) -> list[str]:
    """Return what `rescale-overhead` says of the same runs; none of a result that has not looked at that."""
    known = [Measure(**entry) for entry in measures]
    if not known:
        return []
    decided = sum(each.decision != "undecided" for each in known)
    by_chance = len(known) * chance_of_separation(runs, runs)
    head = (
        f"`rescale-overhead` of the same runs: {len(known)} measures, {decided} decided ({by_chance:.2f} by chance), "
        f"{sum(each.ratio_low <= 1 <= each.ratio_high for each in known)} intervals hold 1."
    )
    rows = ["| shape | measure | ratio | decision |", "| --- | --- | --- | --- |"]
    rows += [
        f"| {each.shape} | {each.what} | {each.ratio_low:.3f} to {each.ratio_high:.3f} | {each.decision} |"
        for each in known
        if each.what == "round" or each.decision != "undecided"
    ]
    return ["", head, "", *rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    parser = command_line("advice_chance", __doc__, recordings="recording", subjects="shapes", page=PAGE)
    given = parser.parse_args(arguments)
    file = harness.ROOT / "bench" / "results" / f"{NAME}.json"
    if given.page:
        result = harness.load(file)
    else:
        program = given.program or build_program("pipeline")
        runs = max(repeats(given), _FEWEST)
        facts, begun = harness.machine(), datetime.now(UTC)
        comparisons: list[Comparison] = []
        measures: list[Measure] = []
        for shape in _COMPARED:
            if not given.only or shape.name in given.only:
                told_apart, of_rounds = compare(program, shape, runs, rt=given.first_in_line)
                comparisons += told_apart
                measures += of_rounds
                print(comparisons[-1], flush=True)
        result = {
            "format": harness.FORMAT,
            "bench": NAME,
            "machine": {**facts, "load_average_after": round(os.getloadavg()[0], 2)},
            "begun": begun.isoformat(timespec="seconds"),
            "runs": runs,
            "first_in_line": given.first_in_line,
            "commit": harness.commit(),
            "comparisons": [asdict(each) for each in comparisons],
            "measures": [asdict(each) for each in measures],
        }
        print(section(result))
        if given.quick or given.only:
            return 0
        harness.save(result, file)
    PAGE.write_text(harness.with_section(PAGE.read_text(encoding="utf-8"), NAME, section(result)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
