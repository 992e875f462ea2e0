"""Advice checked by re-execution: what `advise` says of every cut of a pipeline, and how long it then takes.

``python -m bench.advice`` records the adapter's program `pipeline` on one worker, asks for advice, runs it on two
workers with each cut, and compares. ``--held-out`` takes shapes at which nobody looked when constants were chosen.
``--quick`` makes do with one run of each; ``--only NAME`` with some shapes.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from bench.reexecution import command_line, first_in_line, repeats, result_of, rounds, spread, write_section
from pag_graph import api
from pag_graph.sources.record import build_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.api import Pag

PAGE = harness.ROOT / "docs" / "advice.md"
_SIDES = (1, 2)
"""Operators side by side where the program divides records (``--split``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A pipeline: what its operators cost, and how records come."""

    name: str
    costs: tuple[int, ...]
    """Nanoseconds for a record, per operator."""
    arguments: Mapping[str, int | str]
    cuts: tuple[int, ...] = (1, 2, 3)
    """Operators from which on all are moved to the other worker."""


_BATCHES: dict[str, int | str] = {"records": 1_000, "batch": 100, "epochs": 20}

SHAPES = (
    Shape(name="equal", costs=(2_000, 2_000, 2_000, 2_000), arguments=_BATCHES),
    Shape(name="heavy head", costs=(5_000, 1_000, 1_000, 1_000), arguments=_BATCHES),
    Shape(name="heavy tail", costs=(1_000, 1_000, 1_000, 5_000), arguments=_BATCHES),
    Shape(name="one heavy", costs=(500, 6_000, 500, 500), arguments=_BATCHES),
    Shape(name="100 batches", costs=(2_000, 2_000, 2_000, 2_000), arguments={**_BATCHES, "batch": 10}),
    Shape(name="1 batch", costs=(2_000, 2_000, 2_000, 2_000), arguments={**_BATCHES, "batch": 0}),
    Shape(
        name="20 ns, 4 KiB payload",
        costs=(20, 20, 20, 20),
        # The memory of the payloads is new to the process for the first dozen epochs.
        arguments={"records": 2_000, "batch": 100, "epochs": 60, "payload": 4_096},
    ),
    Shape(name="8 epochs in flight", costs=(2_000,) * 4, arguments={"records": 100, "epochs": 100, "inflight": 8}),
    Shape(
        name="sleeping",
        costs=(50_000, 50_000, 50_000, 50_000),
        arguments={"records": 100, "batch": 10, "epochs": 20, "work": "sleep"},
    ),
)

HELD_OUT = (
    Shape(
        name="three stages",
        costs=(1_500, 4_000, 2_500),
        arguments={"records": 1_200, "batch": 150, "epochs": 20},
        cuts=(1, 2),
    ),
    Shape(
        name="six stages",
        costs=(1_500, 500, 3_000, 700, 2_500, 800),
        arguments={"records": 800, "batch": 80, "epochs": 20},
        cuts=(1, 2, 3, 4, 5),
    ),
    Shape(name="uneven records", costs=(700, 1_400, 1_400, 700), arguments={**_BATCHES, "uneven": 10}),
    Shape(
        name="batches of 25",
        costs=(3_000, 1_000, 2_000, 2_000),
        arguments={"records": 500, "batch": 25, "epochs": 30},
    ),
    Shape(
        name="two batches", costs=(2_500, 1_000, 2_000, 3_500), arguments={"records": 600, "batch": 300, "epochs": 20}
    ),
    Shape(name="diamond, 70 to 30", costs=(1_500, 4_000, 2_500, 2_000), arguments={**_BATCHES, "split": 70}),
    Shape(name="diamond, uneven", costs=(500, 6_000, 1_000, 3_000), arguments={**_BATCHES, "split": 40, "uneven": 4}),
    Shape(name="512 byte payload", costs=(1_000, 3_000, 1_000, 2_000), arguments={**_BATCHES, "payload": 512}),
    Shape(
        name="2 epochs in flight",
        costs=(1_000, 2_000, 3_000, 1_000),
        arguments={"records": 400, "batch": 50, "epochs": 40, "inflight": 2},
    ),
    Shape(
        name="one message at a time",
        costs=(2_000, 1_000, 4_000, 1_000),
        arguments={"records": 800, "batch": 40, "epochs": 20, "atonce": 1},
    ),
)
"""Chosen after the constants of replays, and before any of them was run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Shapes that are reported together."""

    name: str
    """Of the generated section and the result."""
    shapes: tuple[Shape, ...]

    @property
    def result(self) -> Path:
        """The file of the result."""
        return harness.ROOT / "bench" / "results" / f"{self.name}.json"


FITTED, UNSEEN = Part(name="advice", shapes=SHAPES), Part(name="advice-held-out", shapes=HELD_OUT)


@dataclass(slots=True, kw_only=True)
class Cut:
    """What was said of a cut, and what came; nanoseconds of the rounds that count, one of each run."""

    shape: str
    operator: str
    recorded_ns: list[int] = field(default_factory=list)
    low_ns: list[int] = field(default_factory=list)
    predicted_ns: list[int] = field(default_factory=list)
    high_ns: list[int] = field(default_factory=list)
    measured_ns: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    verdict: list[str] = field(default_factory=list)
    utility: list[float] = field(default_factory=list)
    untraced: list[float] = field(default_factory=list)
    """Time on one worker over time on two, of whole runs that nobody records."""

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return statistics.median(self.predicted_ns) / statistics.median(self.measured_ns) - 1

    @property
    def spread(self) -> float:
        """By how much runs with the same arguments differ: (slowest - fastest) / median, with the cut or without."""
        return spread(self.recorded_ns, self.measured_ns)

    @property
    def inside(self) -> bool:
        """Whether what was measured lies in what was said, widened by the spread."""
        measured = statistics.median(self.measured_ns)
        low, high = (statistics.median(values) for values in (self.low_ns, self.high_ns))
        return low * (1 - self.spread) <= measured <= high * (1 + self.spread)


def cut_places(shape: Shape, cut: int | None) -> list[int]:
    """Return the worker of each operator: those downstream of a cut are on the second one; all on the first without."""
    if cut in _SIDES and "split" in shape.arguments:
        # What follows either side reads on both workers.
        return [int(stage == cut) for stage in range(len(shape.costs))]
    return [int(cut is not None and stage >= cut) for stage in range(len(shape.costs))]


def command(program: Path, shape: Shape, places: Sequence[int]) -> list[str]:
    """Return how to run a shape with its operators on some workers."""
    words = [word for name, value in shape.arguments.items() for word in (f"--{name}", str(value))]
    return [
        *(str(program), "--costs", ",".join(map(str, shape.costs)), "--place", ",".join(map(str, places))),
        *("-w", str(max(places) + 1), *words),
    ]


def recorded(program: Path, shape: Shape, places: Sequence[int], place: Path, *, rt: bool) -> Pag:
    """Run a shape once and build its graph."""
    words = [*command(program, shape, places), "--trace", str(place / "trace")]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, preexec_fn=first_in_line if rt else None)
    api.build(place / "trace", place / "store", engine="local")
    return api.open(place / "store")


def untraced_ns(program: Path, shape: Shape, places: Sequence[int], *, rt: bool) -> int:
    """Return how long a run takes that nobody records."""
    words = command(program, shape, places)
    process = subprocess.run(
        words, check=True, capture_output=True, text=True, preexec_fn=first_in_line if rt else None
    )
    [elapsed_text] = re.findall(r"elapsed_ns (\d+)", process.stdout + process.stderr)
    return int(elapsed_text)


def check(program: Path, shape: Shape, *, repeat: int, rt: bool) -> list[Cut]:
    """Record, ask for advice, and run every cut; several times in turn."""
    cuts = {cut: Cut(shape=shape.name, operator=f"stage {cut}") for cut in shape.cuts}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            no_places = cut_places(shape, None)
            pag = recorded(program, shape, no_places, Path(folder), rt=rt)
            window = rounds(pag.run)
            uncut_ns = untraced_ns(program, shape, no_places, rt=rt)
            advice = pag.advise(epoch=window[0].epoch, until=window[-1].epoch, beta=0.0)
            row_of_operator = {row["operator_name"]: row for row in advice.table.to_pylist()}
            for number, cut in cuts.items():
                row, places = row_of_operator[cut.operator], cut_places(shape, number)
                for name in ("low_ns", "predicted_ns", "high_ns", "rank", "verdict", "utility"):
                    getattr(cut, name).append(row[name])
                cut.recorded_ns.append(window[-1].end_ns - window[0].start_ns)
                with tempfile.TemporaryDirectory() as cut_folder:
                    cut_rounds = rounds(recorded(program, shape, places, Path(cut_folder), rt=rt).run)
                cut.measured_ns.append(cut_rounds[-1].end_ns - cut_rounds[0].start_ns)
                cut.untraced.append(uncut_ns / untraced_ns(program, shape, places, rt=rt))
    return list(cuts.values())


def line(cut: Cut) -> str:
    """Return a cut's row of the table."""
    times = [
        f"{statistics.median(values) / 1e6:.2f}"
        for values in (cut.recorded_ns, cut.low_ns, cut.predicted_ns, cut.high_ns, cut.measured_ns)
    ]
    verdict = max(set(cut.verdict), key=cut.verdict.count)
    cells = (cut.shape, cut.operator, f"{statistics.median(cut.utility):.2f}", *times, f"{cut.error:+.1%}")
    last_cells = (
        f"{cut.spread:.1%}",
        "yes" if cut.inside else "no",
        verdict,
        f"{statistics.median(cut.untraced):.2f} x",
    )
    return "| " + " | ".join((*cells, *last_cells)) + " |"


def summary(cuts: Sequence[Cut]) -> dict[str, Any]:
    """Return what all cuts say together."""
    errors = sorted(abs(cut.error) for cut in cuts)
    best, losing = [], []
    for name in dict.fromkeys(cut.shape for cut in cuts):
        shape_cuts = [cut for cut in cuts if cut.shape == name]
        measured = {cut.operator: statistics.median(cut.measured_ns) for cut in shape_cuts}
        first_ranked = min(shape_cuts, key=lambda cut: statistics.median(cut.rank))
        best.append(measured[first_ranked.operator] / min(measured.values()) - 1)
        is_faster = [statistics.median(cut.recorded_ns) > measured[cut.operator] for cut in shape_cuts]
        losing += [cut for cut, won in zip(shape_cuts, is_faster, strict=True) if not won and "insert" in cut.verdict]
    return {
        "cuts": len(cuts),
        "inside": sum(cut.inside for cut in cuts),
        "median_error": statistics.median(errors),
        "worst_error": errors[-1],
        "shapes": len(best),
        "first_within_5_percent": sum(loss <= 0.05 for loss in best),  # noqa: PLR2004
        "worst_first": max(best),
        "inserted_but_slower": len(losing),
    }


def section(result: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    cuts = [Cut(**entry) for entry in result["cuts"]]
    totals, facts = summary(cuts), result["machine"]
    first = ", before all other processes" if result["first_in_line"] else ""
    head = (
        f"Of {totals['cuts']} cuts of {totals['shapes']} shapes, {totals['inside']} lie between the least and the most,"
        f" widened by `spread`. The median error is {totals['median_error']:.1%}, the worst"
        f" {totals['worst_error']:.1%}. In {totals['first_within_5_percent']} shapes the cut that is ranked first is"
        f" within 5 % of the best cut; in the worst case it is {totals['worst_first']:.1%} slower. Cuts with the"
        f" verdict `insert` that made the program slower: {totals['inserted_but_slower']}. Each shape has"
        f" {result['repeat']} recordings and as many runs of every cut, in turn{first}, on {facts['cores']} cores"
        f" ({facts['processor']}), load average {facts['load_average']} to {facts['load_average_after']},"
        f" commit {result['commit']}, {result['begun']}."
    )
    names = "shape | port at | utility | recorded ms | least | predicted | most | measured | error | spread | inside"
    names = f"| {names} | verdict | untraced |"
    return "\n".join([head, "", names, "|" + " --- |" * (names.count("|") - 1), *map(line, cuts)])


def write_page(part: Part, result: Mapping[str, Any]) -> None:
    """Replace a generated part of ``docs/advice.md``."""
    write_section(PAGE, part.name, section(result))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    parser = command_line("advice", __doc__, recordings="recording", subjects="shapes", page=PAGE)
    parser.add_argument("--held-out", action="store_true", help="shapes that no constant was chosen by")
    options = parser.parse_args(arguments)
    cut_set = UNSEEN if options.held_out else FITTED
    if options.page:
        write_page(cut_set, harness.load(cut_set.result))
        return 0
    program = options.program or build_program("pipeline")
    repeat = repeats(options)
    facts, begun = harness.machine(), datetime.now(UTC)
    cuts = []
    for shape in cut_set.shapes:
        if options.only and shape.name not in options.only:
            continue
        for cut in check(program, shape, repeat=repeat, rt=options.first_in_line):
            cuts.append(cut)
            print(line(cut), flush=True)
    print(summary(cuts))
    if not options.quick and not options.only:
        kept_cuts = [asdict(cut) for cut in cuts]
        result = result_of(cut_set.name, options, facts, begun, repeat=repeat, cuts=kept_cuts)
        cut_set.result.parent.mkdir(exist_ok=True)
        harness.save(result, cut_set.result)
        write_page(cut_set, result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
