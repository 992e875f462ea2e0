"""What `pag spark` predicts, beside what the same programs took once its advice was followed.

    python -m bench.spark_truth --run             # runs every program as it was and mended, and writes the page anew
    python -m bench.spark_truth --run --pairs 5 --lines 2000000   # more often, with larger tables for the held-out half
    python -m bench.spark_truth --run --sets held-out --only h-band
    python -m bench.spark_truth                   # the page anew, from the result that is kept

Programs of the training half are those of `bench/spark_causes/plan_programs.py`, of the held-out half those of
`query_programs.py`; `harder_programs.py` makes causes of the training half small, or puts two into one program. A pair
is one run with the planted cause and one with the advice applied; pairs alternate (ABBA), so what a machine does
meanwhile meets both. Every change of a setting that an answer proposes is applied as well, to the planted program,
whatever the cause. The application's time since its first job counts.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from bench import harness
from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.reader import read_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from spark_causes.plan_programs import Program

    from pag_graph.diagnosis.spark.changes import Change

__all__ = ["Run", "Tried", "Truth", "answered", "compare", "half", "section", "tried", "wilson"]

RESULT = harness.ROOT / "bench" / "results" / "spark-truth.json"
PAGE = harness.ROOT / "docs" / "spark-truth.md"
_SCRIPTS = harness.ROOT / "bench" / "spark_causes"
SETS = {
    "training": "Training half",
    "held-out": "Held-out half",
    "near": "Causes that are hardly large enough",
    "pairs": "One cause beside another",
}
"""What programs are for: the halves, and variants of the training half that are harder to tell."""
_OF_AN_ESTIMATE, _OF_A_BOUND = 0.5, 0.2
"""Least part of a predicted saving that must come true: of an estimate, and of what is only a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a program."""

    program: str
    cause: str
    """What was planted."""
    role: str
    active_ns: int
    load: float
    """Of the machine when it ended."""
    ranked: list[dict[str, Any]]
    """Causes that the answer names, in order: `cause`, `saved_ns`, `upper_bound`, `class`, `settings` (proposed)."""
    half: str = "training"
    """One of `SETS`: ``training`` if rules were made with the program in view, and so on."""
    lines: int = 0
    """Of the largest table, where programs share tables."""
    sha256: str = ""
    """Of the log as it was written, without what tells of the machine."""
    advice: str = ""
    """For the role ``advised``: the setting with its proposed value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A program's advice, and what came of it: medians over its runs."""

    program: str
    cause: str
    rank: int | None
    """Place of the cause in the answer, the worst of all runs; None where a run lacks it."""
    kind: str
    bound: bool
    predicted_ns: int
    measured_ns: int
    planted_ns: int
    noise_ns: int
    """Largest difference between runs of one role."""
    pairs: int
    decoys: int
    """Runs of the decoy."""
    false: int
    """Of these, runs in which the cause was named."""
    twins_named: int
    """Runs with the advice applied in which the cause was named still."""

    @property
    def true(self) -> bool:
        """Whether the advice saved more than noise, and enough of what was predicted."""
        return self.rank is not None and _came_true(
            self.predicted_ns, self.measured_ns, self.noise_ns, bound=self.bound
        )

    @property
    def held(self) -> bool | None:
        """Whether no more was saved than the bound says; None for an estimate."""
        return self.measured_ns <= self.predicted_ns if self.bound else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting that an answer proposed, and what came of it: medians over the runs of a program."""

    program: str
    cause: str
    advice: str
    bound: bool
    predicted_ns: int
    measured_ns: int
    noise_ns: int
    """Largest difference between runs of one kind."""

    @property
    def true(self) -> bool:
        """Whether it saved more than noise, and enough of what was predicted."""
        return _came_true(self.predicted_ns, self.measured_ns, self.noise_ns, bound=self.bound)


def _came_true(predicted: int, measured: int, noise: int, *, bound: bool) -> bool:
    least = (_OF_A_BOUND if bound else _OF_AN_ESTIMATE) * predicted
    return measured > noise and measured >= least


def tried(runs: Iterable[Run]) -> list[Tried]:
    """Return one row per program, cause and setting that was applied."""
    planted: dict[str, list[Run]] = {}
    advised: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.role == "planted":
            planted.setdefault(run.program, []).append(run)
        elif run.role == "advised":
            advised.setdefault((run.program, run.advice), []).append(run)
    return [
        setting_row
        for (program, advice), advised_runs in advised.items()
        for setting_row in _tried(program, advice, planted[program], advised_runs)
    ]


def _tried(program: str, advice: str, planted: list[Run], advised: list[Run]) -> Iterator[Tried]:
    before, after = ([run.active_ns for run in role_runs] for role_runs in (planted, advised))
    for cause in sorted(
        {
            ranked_cause["cause"]
            for run in planted
            for ranked_cause in run.ranked
            if advice in ranked_cause.get("settings", ())
        }
    ):
        cause_rows = [ranked_cause for run in planted for ranked_cause in run.ranked if ranked_cause["cause"] == cause]
        yield Tried(
            program=program,
            cause=cause,
            advice=advice,
            bound=bool(cause_rows[0]["upper_bound"]),
            predicted_ns=int(statistics.median(ranked_cause["saved_ns"] for ranked_cause in cause_rows)),
            measured_ns=int(statistics.median(before) - statistics.median(after)),
            noise_ns=max(max(times) - min(times) for times in (before, after)),
        )


def compare(runs: Iterable[Run]) -> list[Truth]:
    """Return one row per program, in the order of their first runs."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        groups.setdefault(run.program, {}).setdefault(run.role, []).append(run)
    return [_truth(name, by_role) for name, by_role in groups.items() if "planted" in by_role and "twin" in by_role]


def _truth(name: str, by_role: dict[str, list[Run]]) -> Truth:
    planted, twins, decoys = by_role["planted"], by_role["twin"], by_role.get("decoy", [])
    cause = planted[0].cause
    cause_of_run = [
        next((ranked_cause for ranked_cause in run.ranked if ranked_cause["cause"] == cause), None) for run in planted
    ]
    ranks = [
        run.ranked.index(ranked_cause) + 1 if ranked_cause else None
        for run, ranked_cause in zip(planted, cause_of_run, strict=True)
    ]
    named_causes = [ranked_cause for ranked_cause in cause_of_run if ranked_cause]
    times = {role: [run.active_ns for run in of_role] for role, of_role in (("planted", planted), ("twin", twins))}
    return Truth(
        program=name,
        cause=cause,
        rank=None if None in ranks else max(rank for rank in ranks if rank),
        kind=named_causes[0]["class"] if named_causes else "",
        bound=bool(named_causes and named_causes[0]["upper_bound"]),
        predicted_ns=int(statistics.median(ranked_cause["saved_ns"] for ranked_cause in named_causes))
        if named_causes
        else 0,
        measured_ns=int(statistics.median(times["planted"]) - statistics.median(times["twin"])),
        planted_ns=int(statistics.median(times["planted"])),
        noise_ns=max(max(times_of_role) - min(times_of_role) for times_of_role in times.values()),
        pairs=min(len(planted), len(twins)),
        decoys=len(decoys),
        false=sum(cause in [ranked_cause["cause"] for ranked_cause in run.ranked] for run in decoys),
        twins_named=sum(cause in [ranked_cause["cause"] for ranked_cause in run.ranked] for run in twins),
    )


def wilson(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval in which a share lies, with 95 % confidence (Wilson 1927).

    Examples
    --------
    >>> tuple(round(end, 2) for end in wilson(9, 10))
    (0.6, 0.98)
    """
    if not of:
        return 0.0, 1.0
    share, extra = hits / of, z * z / of
    middle = share + extra / 2
    spread = z * math.sqrt(share * (1 - share) / of + extra / (4 * of))
    return max(0.0, (middle - spread) / (1 + extra)), min(1.0, (middle + spread) / (1 + extra))


def _part(hits: int, of: int) -> str:
    low, high = wilson(hits, of)
    return f"{hits} of {of} ({low:.0%} to {high:.0%})"


def half(runs: Sequence[Run]) -> str:
    """Return what the page says of one half: planted causes, settings that were applied, and what else was named."""
    rows, settings = compare(runs), tried(runs)
    planted = {row.program: row.cause for row in rows}
    right = sum(row.rank is not None for row in rows)
    dear = [row for row in rows if row.measured_ns > row.noise_ns]
    named_dear = sum(row.rank is not None for row in dear)
    still = sum(row.twins_named + row.false for row in rows)
    other_settings = [row for row in settings if row.cause != planted.get(row.program)]
    wrong = still + sum(not row.true for row in other_settings)
    right_names = right + sum(row.true for row in other_settings)
    lines = [
        f"- recall, programs whose planted cause is named in every run: {_part(right, len(rows))}",
        f"- of the programs whose planted cause costs more than noise: {_part(named_dear, len(dear))}",
        f"- precision, names that are right of those that could be checked: {_part(right_names, right_names + wrong)}",
        f"- names that nobody could check, because their advice is no setting: {_unchecked(runs, planted, settings)}",
    ]
    healthy = [run for run in runs if run.role == "healthy"]
    if healthy:
        names = sorted({f"{run.program} `{row['cause']}`" for run in healthy for row in run.ranked})
        count = sum(bool(run.ranked) for run in healthy)
        listed = f": {', '.join(names)}" if names else ""
        lines.append(f"- queries without a planted cause in which one is named: {count} of {len(healthy)}{listed}")
    if sizes := sorted({run.lines for run in runs if run.lines}):
        lines.append(f"- lines of the largest table: {', '.join(f'{size:,}' for size in sizes)}")
    lines += ["", section(rows, [run.load for run in runs])]
    if settings:
        columns = ("program", "cause", "setting", "predicted s", "measured s", "noise s", "true")
        lines += ["", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        for row in settings:
            at_most = "at most " if row.bound else ""
            cells = [row.program, f"`{row.cause}`", f"`{row.advice}`", f"{at_most}{row.predicted_ns / 1e9:.2f}"]
            cells += [f"{row.measured_ns / 1e9:.2f}", f"{row.noise_ns / 1e9:.2f}", "yes" if row.true else "no"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _unchecked(runs: Sequence[Run], planted: dict[str, str], settings: Sequence[Tried]) -> str:
    """Count the programs and names of planted runs that are neither the planted cause nor checked by a setting."""
    checked = {(row.program, row.cause) for row in settings}
    names = {(run.program, row["cause"]) for run in runs if run.role == "planted" for row in run.ranked}
    unchecked = sorted(
        f"{program} `{cause}`"
        for program, cause in names
        if planted.get(program) != cause and (program, cause) not in checked
    )
    return f"{len(unchecked)}" + (f" ({', '.join(unchecked)})" if unchecked else "")


def section(found: Sequence[Truth], loads: Sequence[float]) -> str:
    """Return the generated part of the page: counts with their intervals (`wilson`), and one row per program."""
    named_rows = [row for row in found if row.rank is not None]
    first_rows = [row for row in found if row.rank == 1]
    true_rows = [row for row in found if row.true]
    bounds = [row for row in found if row.held is not None]
    near = sum(row.held is not None and row.measured_ns <= row.predicted_ns + row.noise_ns for row in found)
    decoys, false = sum(row.decoys for row in found), sum(row.false for row in found)
    twins, still = sum(row.pairs for row in found), sum(row.twins_named for row in found)
    head = [
        f"- programs whose cause is named in every run: {_part(len(named_rows), len(found))}",
        f"- named first in every run: {_part(len(first_rows), len(found))}",
        f"- advice that came true: {_part(len(true_rows), len(found))}",
        f"- bounds that held: {_part(sum(bool(row.held) for row in bounds), len(bounds))}",
        f"- bounds that held within noise: {_part(near, len(bounds))}",
        f"- decoys that were taken for the cause: {false} of {decoys}",
        f"- mended runs that kept it: {still} of {twins}",
        f"- load of the machine (2 cores) while they ran: {min(loads):.1f} to {max(loads):.1f}",
    ]
    columns = ("program", "cause", "rank", "class", "took s", "predicted s", "measured s", "noise s", "pairs", "true")
    columns = (*columns, "bound held")
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for row in found:
        at_most = "at most " if row.bound else ""
        held_text = "" if row.held is None else ("yes" if row.held else "no")
        cells = [row.program, f"`{row.cause}`", str(row.rank or "missed"), row.kind, f"{row.planted_ns / 1e9:.2f}"]
        cells += [f"{at_most}{row.predicted_ns / 1e9:.2f}", f"{row.measured_ns / 1e9:.2f}", f"{row.noise_ns / 1e9:.2f}"]
        cells += [str(row.pairs), "yes" if row.true else "no", held_text]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*head, "", *lines])


def answered(log: bytes, folder: Path) -> Diagnosis:
    """Return what is said of a log, which is left in a folder."""
    file = folder / "log"
    file.write_bytes(log)
    return diagnose(map_log(read_log(LogFiles(name="log", files=(file,)))).schedule)


def run_all(pairs: int, only: Sequence[str], sets: Sequence[str], lines: int) -> Iterator[Run]:
    """Run all programs, and yield every run.

    Parameters
    ----------
    pairs
        How often each is run as it is planted and as it is mended, in turn; the decoy runs once, and each setting that
        was proposed runs as often.
    only
        Names of programs; all if empty.
    sets
        Which of `SETS`.
    lines
        Lines of the largest table.
    """
    sys.path.insert(0, str(_SCRIPTS))
    from harder_programs import NEAR, PAIRS
    from plan_programs import PROGRAMS
    from query_data import write_tables
    from query_programs import HEALTHY, HELD_OUT
    from record_plans import record, recording

    chosen = [
        (name, replace(program, prepare=partial(write_tables, lines=lines)) if program.data else program)
        for name, programs in zip(SETS, (PROGRAMS, (*HELD_OUT, *HEALTHY), NEAR, PAIRS), strict=True)
        for program in programs
        if name in sets and (not only or program.name in only)
    ]
    with recording(PROGRAMS[0]) as folder:

        def one(name: str, program: Program, role: str, advice: str = "") -> Run:
            changed = dict([advice.split("=", 1)]) if advice else {}
            log = record(program, "planted" if advice or role == "healthy" else role, folder, changed)
            run = _run(name, program, "advised" if advice else role, log, folder, advice)
            return replace(run, lines=lines if program.data else 0)

        for name, program in chosen:
            if not program.cause:
                yield one(name, program, "healthy")
                continue
            yield one(name, program, "decoy")
            proposed: set[str] = set()
            for pair in range(pairs):
                for role in ("planted", "twin") if pair % 2 == 0 else ("twin", "planted"):
                    run = one(name, program, role)
                    if role == "planted":
                        proposed |= {setting for ranked_cause in run.ranked for setting in ranked_cause["settings"]}
                    yield run
            mended = {f"{key}={value}" for key, value in program.fixed_settings.items()}
            for setting in sorted(proposed - mended):
                for _ in range(pairs):
                    yield one(name, program, "advised", setting)


def _run(half_name: str, program: Program, role: str, log: bytes, folder: Path, advice: str) -> Run:
    diagnosis = answered(log, folder)
    ranked = [
        {
            "cause": cause.cause,
            "upper_bound": cause.bound,
            "class": cause.kind,
            "saved_ns": cause.saved_ns,
            "settings": sorted(f"{change.what}={change.proposed}" for change in cause.changes if _mechanical(change)),
        }
        for cause in diagnosis.causes
    ]
    names = [row["cause"] for row in ranked]
    print(f"{program.name} {role} {advice}: {diagnosis.active_ns / 1e9:.2f} s, {names}", flush=True)
    return Run(
        program=program.name,
        cause=program.cause,
        role=role,
        active_ns=diagnosis.active_ns,
        load=round(os.getloadavg()[0], 1),
        ranked=ranked,
        half=half_name,
        sha256=hashlib.sha256(log).hexdigest(),
        advice=advice,
    )


def _mechanical(change: Change) -> bool:
    """Return whether a change is a setting with a value, which can be applied without looking at the program."""
    return change.what.startswith("spark.") and " " not in change.proposed


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, run, compare, and write page and result."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_truth", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="run the programs; without it the kept result is shown")
    parser.add_argument("--pairs", type=int, default=2, help="pairs of each program")
    parser.add_argument("--lines", type=int, default=400_000, help="lines of the held-out half's largest table")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="some sets only")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some programs; replaces their runs")
    options = parser.parse_args(arguments)
    runs_kept = [Run(**fields) for fields in orjson.loads(RESULT.read_bytes())["runs"]] if RESULT.exists() else []
    if options.run:
        programs_run: set[str] = set()
        for run in run_all(options.pairs, options.only, options.sets, options.lines):
            if run.program not in programs_run:
                programs_run.add(run.program)
                runs_kept = [kept_run for kept_run in runs_kept if kept_run.program != run.program]
            runs_kept.append(run)
            # After each run: whoever stops this keeps what was measured.
            rows = [asdict(kept_run) for kept_run in runs_kept]
            harness.save({"format": harness.FORMAT, "bench": "spark-truth", "runs": rows}, RESULT)
    runs_of_set = {title: [run for run in runs_kept if run.half == name] for name, title in SETS.items()}
    text = "\n\n".join(f"### {title}\n\n{half(set_runs)}" for title, set_runs in runs_of_set.items() if set_runs)
    print(text)
    PAGE.write_text(harness.with_section(PAGE.read_text(encoding="utf-8"), "truth", text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
