"""What the defaults of `pag advise` and `pag advise-evaluate` cost: beta by runs, alpha by results of `bench.advice`.

``python -m bench.advice_defaults`` records pipelines whose operators sleep and stand on two workers, half on each. The
fewer messages an epoch has, the longer the workers wait for each other, and the less busy the busiest is. Then it runs
every cut on a third worker. Were more ports proposed with a lower beta, and did they help?
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from bench.advice import FITTED, PAGE, UNSEEN, Shape, recorded
from bench.reexecution import command_line, repeats, result_of, rounds, write_section
from pag_graph.analyses.advising.advice_state import AdviceState
from pag_graph.analyses.advising.advice_trials import advise_evaluate, decided
from pag_graph.analyses.repetitions import compared
from pag_graph.sources.record import build_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.api import Pag
    from pag_graph.graph.run import Run

NAME = "advice-defaults"
_RECORDS = 120
_BATCHES = (1, 2, 3, 4, 6, 12, 40)
"""Messages of an epoch."""
_COSTS = {"equal": (100_000,) * 4, "heavy end": (60_000, 60_000, 120_000, 120_000)}
_PLACES = (0, 0, 1, 1)
_CUTS = {"stage 1": (0, 2, 1, 1), "stage 3": (0, 0, 1, 2)}
"""Where operators are with a port at one of them."""
_BETAS = (0.5, 0.6, 0.7, 0.8, 0.9)
_ALPHAS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A port of a pipeline on two workers, and what became of it."""

    shape: str
    batches: int
    operator: str
    busiest: float
    """The share of its time for which the busiest worker works; the median over runs."""
    predicted: float
    """How many times as fast the program becomes; the median over runs."""
    least: float
    """The same at least."""
    verdict: str
    """The most frequent."""
    ratio_low: float
    ratio_high: float
    decision: str
    """What `advise-evaluate` says of the runs."""


def try_ports(program: Path, name: str, batches: int, *, repeat: int, rt: bool) -> list[Tried]:
    """Record a pipeline with and without each port, in turn."""
    size = {"records": _RECORDS, "batch": _RECORDS // batches, "epochs": 20, "work": "sleep"}
    shape = Shape(name=name, costs=_COSTS[name], arguments=size)
    uncut: list[Run] = []
    with_port: dict[str, list[Run]] = {operator: [] for operator in _CUTS}
    advice: dict[str, list[Mapping[str, Any]]] = {operator: [] for operator in _CUTS}
    busiest: list[float] = []
    with tempfile.TemporaryDirectory() as folder:

        def record(side: str, number: int, places: Sequence[int]) -> Pag:
            place = Path(folder, f"{side} {number}")
            place.mkdir()
            return recorded(program, shape, places, place, rt=rt)

        for number in range(repeat):
            pag = record("uncut", number, _PLACES)
            uncut.append(pag.run)
            window = rounds(pag.run)
            answer = pag.advise(epoch=window[0].epoch, until=window[-1].epoch, beta=0.0)
            busiest.append(max(bounds.likely for bounds in answer.ports.work.busy.values()))
            ports = {row["operator_name"]: row for row in answer.table.to_pylist() if row["kind"] == "port"}
            for operator, places in _CUTS.items():
                advice[operator].append({**ports[operator], "span_ns": answer.window.span_ns})
                with_port[operator].append(record(operator, number, places).run)
        return [
            _tried(shape, batches, operator, statistics.median(busiest), advice[operator], uncut, with_port[operator])
            for operator in _CUTS
        ]


def _tried(
    shape: Shape,
    batches: int,
    operator: str,
    busiest: float,
    advice: Sequence[Mapping[str, Any]],
    before: Sequence[Run],
    after: Sequence[Run],
) -> Tried:
    [row] = advise_evaluate(before, after, AdviceState(), ports=[operator]).table.to_pylist()
    verdicts = [said["verdict"] for said in advice]
    return Tried(
        shape=shape.name,
        batches=batches,
        operator=operator,
        busiest=busiest,
        predicted=statistics.median(said["span_ns"] / said["predicted_ns"] for said in advice),
        least=statistics.median(said["span_ns"] / said["high_ns"] for said in advice),
        verdict=max(set(verdicts), key=verdicts.count),
        ratio_low=row["ratio_low"],
        ratio_high=row["ratio_high"],
        decision=row["decision"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The ports of a program in the order in which they are ranked, each tried alone."""

    shape: str
    decisions: tuple[str, ...]

    def tried(self, alpha: float) -> int:
        """Return after how many ports the advisor stops."""
        reverted = 0
        for count, decision in enumerate(self.decisions, 1):
            reverted += decision == "revert"
            if reverted / len(self.decisions) > alpha:
                return count
        return len(self.decisions)


def programs() -> list[Program]:
    """Return the shapes of `bench.advice`, whose cuts were all run."""
    found: list[Program] = []
    for part in (FITTED, UNSEEN):
        cuts = harness.load(part.result)["cuts"]
        for shape in dict.fromkeys(cut["shape"] for cut in cuts):
            ranked = sorted(
                (cut for cut in cuts if cut["shape"] == shape), key=lambda cut: float(statistics.median(cut["rank"]))
            )
            found.append(Program(shape=shape, decisions=tuple(map(_decision, ranked))))
    return found


def _decision(cut: Mapping[str, Any]) -> str:
    """Return what `advise-evaluate` would say of a cut's runs."""
    before, after = ([1 / ns for ns in cut[name]] for name in ("recorded_ns", "measured_ns"))
    return decided(compared(before, after), len(before), len(after), single=False, paper=False)


def section(result: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    tried, facts = [Tried(**entry) for entry in result["tried"]], result["machine"]
    first = ", before all other processes" if result["first_in_line"] else ""
    head = (
        f"{len(tried)} ports of {len(tried) // len(_CUTS)} pipelines on two workers, {result['repeat']} runs on each"
        f" side, in turn{first}, on {facts['cores']} cores ({facts['processor']}), load average"
        f" {facts['load_average']} to {facts['load_average_after']}, commit {result['commit']}, {result['begun']}."
    )
    rows = ["| beta | ports advised | helped | did not | not advised though they helped |", "| --- " * 5 + "|"]
    for beta in _BETAS:
        advised = [port for port in tried if port.verdict == "insert" and port.busiest >= beta]
        kept = sum(port.decision == "keep" for port in advised)
        missed = sum(port.decision == "keep" for port in tried) - kept
        rows.append(f"| {beta} | {len(advised)} | {kept} | {len(advised) - kept} | {missed} |")
    rows += ["", "| costs | messages | port at | busiest | predicted | least | measured | verdict | decision |"]
    rows.append("| --- " * 9 + "|")
    rows += [
        f"| {port.shape} | {port.batches} | {port.operator} | {port.busiest:.0%} | {port.predicted:.2f} x |"
        f" {port.least:.3f} x |"
        f" {port.ratio_low:.2f} to {port.ratio_high:.2f} x | {port.verdict} | {port.decision} |"
        for port in tried
    ]
    return "\n".join([head, "", *rows, "", *_alphas(programs())])


def _alphas(known: Sequence[Program]) -> list[str]:
    """Return what each alpha would have done in programs whose cuts were all run."""
    cuts = [decision for program in known for decision in program.decisions]
    head = (
        f"Alpha, by the {len(cuts)} cuts of the {len(known)} shapes above, each tried alone in the order of ranks:"
        f" {cuts.count('keep')} would be kept, {cuts.count('revert')} taken back, {cuts.count('undecided')} undecided."
    )
    rows = ["| alpha | shapes in which it stops early | cuts not tried | of them helpful |", "| --- " * 4 + "|"]
    for alpha in _ALPHAS:
        left = [program.decisions[program.tried(alpha) :] for program in known]
        untried = [decision for decisions in left for decision in decisions]
        rows.append(f"| {alpha} | {sum(map(bool, left))} | {len(untried)} | {untried.count('keep')} |")
    return [head, "", *rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    parser = command_line("advice_defaults", __doc__, recordings="recording", subjects="costs", page=PAGE)
    options = parser.parse_args(arguments)
    file = harness.ROOT / "bench" / "results" / f"{NAME}.json"
    if options.page:
        result = harness.load(file)
    else:
        program = options.program or build_program("pipeline")
        repeat = repeats(options)
        facts, begun = harness.machine(), datetime.now(UTC)
        tried: list[Tried] = []
        for name in _COSTS:
            for batches in _BATCHES if not options.only or name in options.only else ():
                tried += try_ports(program, name, batches, repeat=repeat, rt=options.first_in_line)
                print(*tried[-len(_CUTS) :], sep="\n", flush=True)
        result = result_of(NAME, options, facts, begun, repeat=repeat, tried=list(map(asdict, tried)))
        print(section(result))
        if options.quick or options.only:
            return 0
        harness.save(result, file)
    write_section(PAGE, NAME, section(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
