"""Advice followed step by step: what `advise` proposes is done, recorded, and judged by `advise-evaluate`.

``python -m bench.advice_steps`` begins with eight operators on one worker, each of which sleeps for every record, so
that threads need no core of their own; in each step every port that is proposed gets a worker. It ends when nothing is
proposed or kept. ``--atonce 0`` lets operators take all messages that are there, and shows what comes of it.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from bench.advice import PAGE, Shape, recorded
from bench.reexecution import command_line, repeats, result_of, rounds, spread, write_section
from pag_graph import api
from pag_graph.sources.record import build_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.api import Advice, Pag

RESULT = harness.ROOT / "bench" / "results" / "advice-steps.json"
_OPERATORS = 8
_STEPS = 4
_FEWEST = 3
"""Runs without which nothing is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What was proposed, and what came of it; nanoseconds of the rounds that count, medians of runs."""

    ports: list[str]
    threads: int
    """Workers with these ports."""
    low_ns: int
    predicted_ns: int
    high_ns: int
    measured_ns: float
    spread: float
    decisions: list[str]


def proposed(advice: Advice) -> list[dict[str, Any]]:
    """Return the rows of what is to be inserted first; nothing where there is no such thing."""
    rows = [row for row in advice.table.to_pylist() if row["kind"] == "port" and row["verdict"] == "insert"]
    return [row for row in rows if row["rank"] == rows[0]["rank"]]


def with_ports(places: Sequence[int], stages: Sequence[int]) -> list[int]:
    """Return the places of operators after each of some stages got a worker for what follows it on its own."""
    result = list(places)
    for number, stage in enumerate(sorted(stages), max(places) + 1):
        old = places[stage]
        for place in range(stage, len(places)):
            if places[place] == old:
                result[place] = number
    return result


def length_ns(pag: Pag) -> int:
    """Return how long the rounds took that count."""
    counted = rounds(pag.run)
    return counted[-1].end_ns - counted[0].start_ns


def follow(program: Path, shape: Shape, folder: Path, *, repeat: int, rt: bool) -> tuple[float, list[Step]]:
    """Follow advice until nothing more is proposed or kept; return the length at the beginning, and the steps."""

    def runs(places: Sequence[int], name: str) -> list[Pag]:
        pags = []
        for number in range(repeat):
            place = folder / f"{name}-{number}"
            place.mkdir()
            pags.append(recorded(program, shape, places, place, rt=rt))
        return pags

    places = [0] * len(shape.costs)
    before = runs(places, "before")
    first_ns = statistics.median(map(length_ns, before))
    steps: list[Step] = []
    while len(steps) < _STEPS:
        state = folder / "advice.json"
        usual_pag = sorted(before, key=length_ns)[len(before) // 2]
        window = rounds(usual_pag.run)
        advice = usual_pag.advise(
            epoch=window[0].epoch, until=window[-1].epoch, state=str(state) if state.exists() else None
        )
        rows = proposed(advice)
        if not rows:
            break
        names = [row["operator_name"] for row in rows]
        places = with_ports(places, [int(name.removeprefix("stage ")) for name in names])
        after = runs(places, f"after-{len(steps)}")
        judged = api.advise_evaluate(before, after, state)
        lengths = [length_ns(pag) for pag in after]
        step = Step(
            ports=names,
            threads=max(places) + 1,
            **{name: rows[0][name] for name in ("low_ns", "predicted_ns", "high_ns")},
            measured_ns=statistics.median(lengths),
            spread=spread(lengths),
            decisions=judged.table["decision"].to_pylist(),
        )
        steps.append(step)
        print(line(first_ns, step), flush=True)
        if set(step.decisions) != {"keep"}:
            break
        before = after
    return first_ns, steps


def line(first_ns: float, step: Step) -> str:
    """Return a step's row of the table."""
    times = [f"{ns / 1e6:.1f}" for ns in (step.low_ns, step.predicted_ns, step.high_ns, step.measured_ns)]
    speed = [f"{first_ns / step.predicted_ns:.2f} x", f"{first_ns / step.measured_ns:.2f} x", f"{step.spread:.1%}"]
    decided = ", ".join(f"{step.decisions.count(decision)} {decision}" for decision in sorted(set(step.decisions)))
    return "| " + " | ".join([", ".join(step.ports), str(step.threads), *times, *speed, decided]) + " |"


def section(result: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    facts, steps = result["machine"], [Step(**entry) for entry in result["steps"]]
    first = ", before all other processes" if result["first_in_line"] else ""
    runs = f"{result['repeat']} runs on each side{first}, {result['first_ns'] / 1e9:.2f} s on one worker"
    load = f"load average {facts['load_average']} to {facts['load_average_after']}"
    head = (
        f"{_OPERATORS} operators that sleep {result['cost_ns'] / 1e6:g} ms for each record;"
        f" {result['records']} records an epoch, one in a message; {runs}; {facts['cores']} cores"
        f" ({facts['processor']}), {load}, commit {result['commit']}, {result['begun']}."
    )
    names = "ports at | workers | least ms | predicted | most | measured | times as fast, predicted | measured | spread"
    names = f"| {names} | decided |"
    return "\n".join(
        [head, "", names, "|" + " --- |" * (names.count("|") - 1), *(line(result["first_ns"], s) for s in steps)]
    )


def write_page(result: Mapping[str, Any]) -> None:
    """Replace a generated part of ``docs/advice.md``."""
    write_section(PAGE, "advice-steps", section(result))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    parser = command_line("advice_steps", __doc__, recordings="run", subjects="shapes", page=PAGE)
    parser.add_argument("--atonce", type=int, default=1, help="messages that operators take at once; not 1: no file")
    parser.add_argument("--records", type=int, default=150, help="records of an epoch")
    parser.add_argument("--cost-us", type=int, default=2_000, help="microseconds for a record, in each operator")
    options = parser.parse_args(arguments)
    if options.page:
        write_page(harness.load(RESULT))
        return 0
    costs = (options.cost_us * 1_000,) * _OPERATORS
    sizes: dict[str, int | str] = {"records": options.records, "batch": 1, "epochs": 6, "atonce": options.atonce}
    shape = Shape(name="steps", costs=costs, arguments={**sizes, "work": "sleep"})
    program = options.program or build_program("pipeline")
    facts, begun = harness.machine(), datetime.now(UTC)
    repeat = max(_FEWEST, repeats(options))
    with tempfile.TemporaryDirectory() as folder:
        first_ns, steps = follow(program, shape, Path(folder), repeat=repeat, rt=options.first_in_line)
    if options.quick or options.only or options.atonce != 1:
        return 0
    content = {"repeat": repeat, "cost_ns": costs[0], "records": options.records, "first_ns": first_ns}
    result = result_of("advice-steps", options, facts, begun, **content, steps=list(map(asdict, steps)))
    RESULT.parent.mkdir(exist_ok=True)
    harness.save(result, RESULT)
    write_page(result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
