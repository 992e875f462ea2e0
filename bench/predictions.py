"""Predictions checked by re-execution: what-if says how long epochs would take; then the program runs that way.

``python -m bench.predictions`` records the adapter's program `adjustable`, predicts its epochs for other costs, runs it
with these costs, and compares. ``--quick`` makes do with one recording of each; ``--only NAME`` with some programs, and
``--only NAME --save`` replaces their pairs in the result.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bench import harness
from bench.reexecution import command_line, first_in_line, repeats, rounds, spread
from pag_graph import api
from pag_graph.analyses.what_if import WhatIfParameters, what_if
from pag_graph.model.ranks import rank_of
from pag_graph.sources.record import build_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pag_graph.graph.run import Run

RESULT = harness.ROOT / "bench" / "results" / "predictions.json"
PAGE = harness.ROOT / "docs" / "predictions.md"

Numbers = dict[str, int]
OPERATORS = {"before": "before", "cost": "middle", "after": "after", "slow": "middle", "prepare": "prepare"}
"""What each argument is the cost of: name of the operator, or of the program's own activity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A way to run `adjustable`, and what to change of it."""

    name: str
    says: str
    arguments: Mapping[str, int]
    changes: tuple[Mapping[str, int], ...]
    """New values of arguments; each is one prediction per number of workers."""
    workers: tuple[int, ...] = (1, 2)
    flags: tuple[str, ...] = ()
    extra: bool = False
    """Whether it asks for more workers than there are cores: shown, and not counted."""


_BASE: Numbers = {"epochs": 40, "records": 2_000, "before": 300, "cost": 1_000, "after": 300}

PROGRAMS = (
    Program(
        name="balanced",
        says="records are spread evenly",
        arguments=_BASE,
        changes=({"cost": 250}, {"cost": 500}, {"cost": 2_000}, {"cost": 4_000}, {"before": 1_500}, {"after": 0}),
    ),
    Program(
        name="slow worker",
        says="worker 0 takes three times as long for a record in the middle",
        arguments={**_BASE, "slow": 300},
        changes=({"slow": 100}, {"slow": 200}, {"slow": 600}, {"cost": 500}, {"after": 1_500}),
        workers=(2,),
    ),
    Program(
        name="skewed",
        says="60 % of the records, and a share of the others, go to worker 0 in the middle",
        arguments={**_BASE, "skew": 60},
        changes=({"cost": 300}, {"cost": 3_000}, {"before": 1_500}),
        workers=(2,),
    ),
    Program(
        name="fan-in",
        says="all records go to worker 0 at last",
        arguments={**_BASE, "gather": 100},
        changes=({"after": 100}, {"after": 1_000}, {"cost": 250}, {"cost": 4_000}),
        workers=(2,),
    ),
    Program(
        name="input-bound",
        says="the program prepares its input for longer than the dataflow works",
        arguments={**_BASE, "cost": 400, "prepare": 4_000},
        changes=({"prepare": 1_000}, {"prepare": 8_000}, {"cost": 4_000}),
    ),
    Program(
        name="pipelined",
        says="input comes in batches of 200 records, and a step is taken after each",
        arguments={**_BASE, "batch": 200},
        changes=({"cost": 250}, {"cost": 4_000}, {"before": 1_500}),
    ),
    Program(
        name="message-bound",
        says="batches of 20 records that cost little: most time is spent on messages and progress",
        arguments={**_BASE, "batch": 20, "before": 50, "cost": 200, "after": 50},
        changes=({"cost": 50}, {"cost": 1_000}, {"before": 250}),
    ),
    Program(
        name="spinning",
        says="workers take steps without end instead of parking",
        arguments={**_BASE, "skew": 60},
        changes=({"cost": 300}, {"cost": 3_000}),
        flags=("--step",),
    ),
    Program(
        name="open loop",
        says="input comes every 12 ms, whether or not the work before is done; from when it was due to its end",
        arguments={**_BASE, "skew": 60, "period": 12_000},
        changes=({"cost": 300}, {"cost": 2_000}, {"before": 1_500}, {"after": 0}),
    ),
    Program(
        name="four workers on two cores",
        says="as balanced; workers compete for cores",
        arguments=_BASE,
        changes=({"cost": 500}, {"cost": 2_000}),
        workers=(4,),
        extra=True,
    ),
)


@dataclass(slots=True, kw_only=True)
class Pair:
    """A prediction and what came."""

    program: str
    workers: int
    change: str
    extra: bool
    recorded_ns: list[float] = field(default_factory=list)
    """Median round of each recording."""
    predicted_ns: list[float] = field(default_factory=list)
    """The same rounds, as what-if says they would be."""
    measured_ns: list[float] = field(default_factory=list)
    """Median round of each run with the change."""

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return statistics.median(self.predicted_ns) / statistics.median(self.measured_ns) - 1

    @property
    def unchanged(self) -> float:
        """The error of saying that nothing would change."""
        return statistics.median(self.recorded_ns) / statistics.median(self.measured_ns) - 1

    @property
    def noise(self) -> float | None:
        """By how much runs with the same arguments differ: (slowest - fastest) / median, with the change or without."""
        if len(self.measured_ns) < 2:  # noqa: PLR2004
            return None
        return spread(self.recorded_ns, self.measured_ns)


class Recorded(NamedTuple):
    """One run of the program."""

    run: Run
    due_ns: Mapping[int, int]
    """By epoch: when its input was due on the first worker, from the run's origin; nothing in a closed loop."""


def execute(
    executable: Path, program: Program, workers: int, arguments: Mapping[str, int], *, place: Path, rt: bool
) -> Recorded:
    """Run the program once and build its graph."""
    words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    command = [str(executable), "-w", str(workers), "--trace", str(place / "trace"), *words, *program.flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, preexec_fn=first_in_line if rt else None)
    api.build(place / "trace", place / "store", engine="local")
    run = api.open(place / "store").run
    report = api.latency(place / "trace")
    if report.loop == "closed":
        return Recorded(run, {})
    origin = run.info.run["origin_unix_ns"]
    return Recorded(run, {number: due - origin for number, due in report.first_due().items()})


def spans(recorded: Recorded) -> list[int]:
    """Return the lengths of the rounds that count; where input comes by the clock, from when it was due."""
    windows = rounds(recorded.run)
    return [window.span_ns - due_ns for window, due_ns in zip(windows, _due_before_start(recorded), strict=True)]


def _due_before_start(recorded: Recorded) -> list[int]:
    """Return when the input of each round was due, from the round's start: before it, where the one before was late."""
    windows = rounds(recorded.run)
    if not recorded.due_ns:
        return [0] * len(windows)
    return [recorded.due_ns[window.epoch] - window.start_ns for window in windows if window.epoch is not None]


def predicted(recorded: Recorded, old: Mapping[str, int], new: Mapping[str, int]) -> list[int]:
    """Return the lengths of the same rounds with other costs, as what-if predicts them."""
    run = recorded.run
    changes = list(_changes(run, old, new))
    return [
        what_if(run.snapshot(window), changes).span_ns - due_ns
        for window, due_ns in zip(rounds(run), _due_before_start(recorded), strict=True)
    ]


def _changes(run: Run, old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[WhatIfParameters]:
    """Say in the terms of what-if what the program is told: a record takes so much longer, or a thing so many times."""
    loop: Literal["closed", "open"] = "open" if old.get("period") else "closed"
    for name, value in new.items():
        named = run.operators.filter(run.operators["name"] == OPERATORS[name])["operator"].to_list()
        operator = tuple(named)
        other_workers = tuple(worker for worker in run.workers if worker)
        added, slow = value - old[name], old.get("slow", 100) / 100
        if name == "prepare":
            yield WhatIfParameters(operator=operator, factor=value / old[name], loop=loop)
        elif name == "slow":
            yield WhatIfParameters(operator=operator, worker=(0,), record_ns=added * old["cost"] / 100, loop=loop)
        else:
            first = added * slow if name == "cost" else added
            yield WhatIfParameters(operator=operator, worker=(0,), record_ns=first, loop=loop)
            if other_workers:
                yield WhatIfParameters(operator=operator, worker=other_workers, record_ns=added, loop=loop)


def check(
    program: Program, workers: int, change: Mapping[str, int], *, executable: Path, repeat: int, rt: bool
) -> Pair:
    """Record, predict, run with the change; several times in turn."""
    says = ", ".join(f"{name} {program.arguments[name]} to {value}" for name, value in change.items())
    pair = Pair(program=program.name, workers=workers, change=says, extra=program.extra)
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            places = [Path(folder) / name for name in ("recorded", "changed")]
            for place in places:
                place.mkdir()
            recorded, changed = (
                execute(executable, program, workers, arguments, place=place, rt=rt)
                for place, arguments in zip(places, (program.arguments, {**program.arguments, **change}), strict=True)
            )
            pair.recorded_ns.append(statistics.median(spans(recorded)))
            pair.predicted_ns.append(statistics.median(predicted(recorded, program.arguments, change)))
            pair.measured_ns.append(statistics.median(spans(changed)))
    return pair


def line(pair: Pair) -> str:
    """Return a pair's row of the table."""
    recorded, predicted_, measured = (
        f"{statistics.median(values) / 1e6:.3f}" for values in (pair.recorded_ns, pair.predicted_ns, pair.measured_ns)
    )
    noise = "" if pair.noise is None else f"{pair.noise:.1%}"
    cells = (pair.program, str(pair.workers), pair.change, recorded, predicted_, measured, f"{pair.error:+.1%}")
    return "| " + " | ".join((*cells, noise, f"{pair.unchanged:+.0%}")) + " |"


def summary(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return what the pairs that count say together; a percentile is the nearest rank."""
    sizes = sorted(abs(pair.error) for pair in pairs if not pair.extra)
    counted = [pair for pair in pairs if not pair.extra]
    beyond = sum(pair.noise is not None and abs(pair.error) > pair.noise for pair in counted)
    return {
        "pairs": len(sizes),
        "median": statistics.median(sizes),
        "p95": sizes[rank_of(0.95, len(sizes)) - 1],
        "most": sizes[-1],
        "beyond_spread": beyond,
    }


def section(result: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    pairs = [Pair(**entry) for entry in result["pairs"]]
    totals, facts = summary(pairs), result["machine"]
    run_parts = result["pieces"]
    first = ", before all other processes" if all(part["first_in_line"] for part in run_parts) else ""
    loads = [load for part in run_parts for load in (part["load_average"], part["load_average_after"])]
    repeats, begun = (_range(part[name] for part in run_parts) for name in ("repeat", "begun"))
    commits = ", ".join(sorted({str(part["commit"]) for part in run_parts}))
    head = (
        f"{totals['pairs']:.0f} pairs: the median error is {totals['median']:.1%}, 95 % of them are within"
        f" {totals['p95']:.1%}, and the worst is {totals['most']:.1%}. {totals['beyond_spread']:.0f} are off by more"
        f" than `spread`. Each pair has {repeats} recordings and as many runs with the change, in turn{first},"
        f" on {facts['cores']} cores"
        f" ({facts['processor']}), load average {_range(loads)}, commits {commits}, {begun}."
    )
    names = (
        "program",
        "workers",
        "change",
        "recorded ms",
        "predicted ms",
        "measured ms",
        "error",
        "spread",
        "unchanged",
    )
    table = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    counted = [*table, *(line(pair) for pair in pairs if not pair.extra)]
    extra = [*table, *(line(pair) for pair in pairs if pair.extra)]
    parts = [head, "\n".join(counted), _EXTRA, "\n".join(extra)]
    return "\n\n".join(parts)


_EXTRA = "These pairs have more workers than cores, and are not counted above:"


def _range(values: Iterable[Any]) -> str:
    """Return the least and the most of some values, once where they are the same."""
    ordered = sorted(set(values))
    return str(ordered[0]) if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def write_page(result: Mapping[str, Any]) -> None:
    """Replace the generated part of ``docs/predictions.md``."""
    text = harness.with_section(PAGE.read_text(encoding="utf-8"), "predictions", section(result))
    PAGE.write_text(text, encoding="utf-8")


def write(
    before: Mapping[str, Any], pairs: Sequence[Pair], piece: Mapping[str, Any], *, machine: Mapping[str, Any]
) -> None:
    """Save the result, with what another run says about other programs, and write the page."""
    programs = [program.name for program in PROGRAMS]
    covered = {name for earlier in before.get("pieces", []) for name in earlier["programs"]} - set(piece["programs"])
    kept_entries = [entry for entry in before.get("pairs", []) if entry["program"] in covered]
    entries = sorted([*kept_entries, *map(asdict, pairs)], key=lambda entry: programs.index(entry["program"]))
    earlier_pieces = [
        {**earlier, "programs": sorted(covered.intersection(earlier["programs"]))}
        for earlier in before.get("pieces", [])
    ]
    result = {
        "format": harness.FORMAT,
        "bench": "predictions",
        "pieces": [*(earlier for earlier in earlier_pieces if earlier["programs"]), piece],
        "machine": machine,
        "pairs": entries,
    }
    RESULT.parent.mkdir(exist_ok=True)
    harness.save(result, RESULT)
    write_page(result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    parser = command_line("predictions", __doc__, recordings="recording", subjects="programs", page=PAGE)
    parser.add_argument("--save", action="store_true", help="with --only: replace their pairs in the result")
    options = parser.parse_args(arguments)
    if options.page:
        write_page(harness.load(RESULT))
        return 0
    executable = options.program or build_program("adjustable")
    repeat = repeats(options)
    facts, begun = harness.machine(), datetime.now(UTC)
    pairs = []
    for program in PROGRAMS:
        if options.only and program.name not in options.only:
            continue
        for workers in program.workers:
            for change in program.changes:
                pair = check(program, workers, change, executable=executable, repeat=repeat, rt=options.first_in_line)
                pairs.append(pair)
                print(line(pair), flush=True)
    if any(not pair.extra for pair in pairs):
        print(json.dumps(summary(pairs)))
    if not options.quick and (not options.only or options.save):
        facts["load_average_after"] = round(os.getloadavg()[0], 2)
        piece = {
            "programs": sorted({pair.program for pair in pairs}),
            "begun": begun.isoformat(timespec="seconds"),
            "load_average": facts["load_average"],
            "load_average_after": facts["load_average_after"],
            "repeat": repeat,
            "first_in_line": options.first_in_line,
            "commit": harness.commit(),
        }
        before = harness.load(RESULT) if options.only and RESULT.exists() else {}
        write(before, pairs, piece, machine=facts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
