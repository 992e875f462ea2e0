"""Programs compared with themselves: how often `advise-evaluate` and `rescale-overhead` take chance for a difference.

``python -m bench.advice_chance`` records shapes of `bench.advice` with a cut in the middle, the same on both sides, and
in turn. By chance all runs of one side are slower than those of the other once in ten comparisons of three runs a side,
once in 35 of four, once in 126 of five (`pag_graph.analyses.repetitions`).
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from bench.advice import HELD_OUT, PAGE, SHAPES, cut_places, recorded
from bench.reexecution import command_line, repeats, result_of, write_section
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
        return [_compared(shape, middle, sides, fewer_runs) for fewer_runs in range(_FEWEST, runs + 1)], measures


def _compared(shape: Shape, middle: int, sides: tuple[Sequence[Run], Sequence[Run]], runs: int) -> Comparison:
    ports = [f"stage {middle}"]
    before, after = (side[:runs] for side in sides)
    [row] = advise_evaluate(before, after, AdviceState(), ports=ports).table.to_pylist()
    low, high = row["ratio_low"], row["ratio_high"]
    apart = low > 1 or high < 1
    name, decision = shape.name, row["decision"]
    return Comparison(shape=name, runs=runs, ratio_low=low, ratio_high=high, apart=apart, decision=decision)


def section(result: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    comparisons, facts = [Comparison(**entry) for entry in result["comparisons"]], result["machine"]
    first = ", before all other processes" if result["first_in_line"] else ""
    names = list(dict.fromkeys(comparison.shape for comparison in comparisons))
    head = (
        f"{len(names)} shapes, each compared with itself{first}, on {facts['cores']} cores ({facts['processor']}), load"
        f" average {facts['load_average']} to {facts['load_average_after']}, commit {result['commit']},"
        f" {result['begun']}."
    )
    rows = ["| runs a side | told apart | by chance | enough | decided |", "| --- | --- | --- | --- | --- |"]
    for runs in sorted({comparison.runs for comparison in comparisons}):
        of_runs = [comparison for comparison in comparisons if comparison.runs == runs]
        told_apart, decided = (
            sum(comparison.apart for comparison in of_runs),
            sum(comparison.decision != "undecided" for comparison in of_runs),
        )
        by_chance = len(of_runs) * chance_of_separation(runs, runs)
        is_enough = "yes" if enough(runs, runs) else "no"
        rows.append(f"| {runs} | {told_apart} of {len(of_runs)} | {by_chance:.2f} | {is_enough} | {decided} |")
    most_runs = max(comparison.runs for comparison in comparisons)
    rows += ["", f"| shape | ratio of {most_runs} runs a side | decision |", "| --- | --- | --- |"]
    rows += [
        f"| {comparison.shape} | {comparison.ratio_low:.3f} to {comparison.ratio_high:.3f} | {comparison.decision} |"
        for comparison in comparisons
        if comparison.runs == most_runs
    ]
    return "\n".join([head, "", *rows, *_overheads(result["measures"], most_runs)])


def _overheads(measures: Sequence[Mapping[str, Any]], runs: int) -> list[str]:
    """Return what `rescale-overhead` says of the same runs."""
    known_measures = [Measure(**entry) for entry in measures]
    decided = sum(measure.decision != "undecided" for measure in known_measures)
    by_chance = len(known_measures) * chance_of_separation(runs, runs)
    head = (
        f"`rescale-overhead` of the same runs: {len(known_measures)} measures, {decided} decided"
        f" ({by_chance:.2f} by chance),"
        f" {sum(measure.ratio_low <= 1 <= measure.ratio_high for measure in known_measures)} intervals hold 1."
    )
    rows = ["| shape | measure | ratio | decision |", "| --- | --- | --- | --- |"]
    rows += [
        f"| {measure.shape} | {measure.what} | {measure.ratio_low:.3f} to {measure.ratio_high:.3f} |"
        f" {measure.decision} |"
        for measure in known_measures
        if measure.what == "round" or measure.decision != "undecided"
    ]
    return ["", head, "", *rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    parser = command_line("advice_chance", __doc__, recordings="recording", subjects="shapes", page=PAGE)
    options = parser.parse_args(arguments)
    file = harness.ROOT / "bench" / "results" / f"{NAME}.json"
    if options.page:
        result = harness.load(file)
    else:
        program = options.program or build_program("pipeline")
        runs = max(repeats(options), _FEWEST)
        facts, begun = harness.machine(), datetime.now(UTC)
        comparisons: list[Comparison] = []
        measures: list[Measure] = []
        for shape in _COMPARED:
            if not options.only or shape.name in options.only:
                told_apart, of_rounds = compare(program, shape, runs, rt=options.first_in_line)
                comparisons += told_apart
                measures += of_rounds
                print(comparisons[-1], flush=True)
        content = {"runs": runs, "comparisons": list(map(asdict, comparisons)), "measures": list(map(asdict, measures))}
        result = result_of(NAME, options, facts, begun, **content)
        print(section(result))
        if options.quick or options.only:
            return 0
        harness.save(result, file)
    write_section(PAGE, NAME, section(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
