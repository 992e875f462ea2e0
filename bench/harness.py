"""What every measurement shares: fixed inputs, warm-up, medians and spread, a yardstick in the same run, machine facts.

A module of this package that has a value ``BENCH`` of type `Bench` takes part. Its function gets a `Session`, asks it
for inputs and hands it what to measure; everything else (repeating, tables, JSON, ``docs/performance.md``) is done
here.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.runtime import memory
from pag_graph.runtime.threads import CORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pag_graph.engines.spark import SparkEngine

FORMAT = 1
"""Version of the results' JSON."""

ROOT = Path(__file__).parents[1]
_PACKAGES = ("pag-graph", "polars", "pyarrow", "numba", "numpy", "deltalake", "pyspark")
_MOST_SECONDS = 30.0
_FEWEST_RUNS = 3
_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A set of measurements; a module registers itself by having one in ``BENCH``."""

    name: str
    """On the command line, and of the result's file."""
    title: str
    """Heading of its section in ``docs/performance.md``."""
    run: Callable[[Session], None]
    """Makes the measurements."""
    about: str = ""
    """What is measured on what, in a few sentences; Markdown, stands above the table."""
    needs: Callable[[], str] = str
    """Says what is missing on this machine (a server, cargo, data), or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """Something simple that runs in turn with what is measured, so that the ratio holds on another machine."""

    name: str
    run: Callable[[], object]


@dataclass(slots=True, kw_only=True)
class Figure:
    """One measurement: what came out of several runs."""

    name: str
    seconds: list[float] = field(default_factory=list)
    """Wall-clock time of each run, in the order of the runs."""
    cpu_seconds: list[float] = field(default_factory=list)
    """Processor time of this process in each run, all threads summed."""
    yardstick: str | None = None
    yardstick_seconds: list[float] = field(default_factory=list)
    """Of the yardstick's run right before each run."""
    items: int | None = None
    """How many things a run works through."""
    unit: str = "events"
    """What they are."""
    peak_bytes: int | None = None
    """Most memory that the process had in the first run, warm-up or not, above what it had before."""
    target: str = ""
    """What is aimed at, in words."""
    note: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    """Other numbers, by name with their unit."""

    @property
    def median(self) -> float:
        """Median of the wall-clock times."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float | None:
        """Median of the ratios to the yardstick, run by run; below 1 is faster than the yardstick."""
        pairs = zip(self.seconds, self.yardstick_seconds, strict=False)
        ratios = [subject_s / yardstick_s for subject_s, yardstick_s in pairs if yardstick_s > 0]
        return statistics.median(ratios) if ratios else None

    @property
    def rate(self) -> float | None:
        """Items per second, of the median run."""
        return self.items / self.median if self.items and self.seconds and self.median > 0 else None


def memory_copy(size_bytes: int) -> Yardstick:
    """Return the yardstick of copying so many bytes within memory."""
    import numpy as np

    source = np.ones(max(size_bytes // 8, 1), np.int64)
    target = np.empty_like(source)
    return Yardstick(name=f"copy of {size_bytes / 1e6:.0f} MB in memory", run=lambda: np.copyto(target, source))


def polars_reads(files: Sequence[str | Path], *, columns: Sequence[str] | None = None, name: str = "") -> Yardstick:
    """Return the yardstick of Polars reading Parquet files (some columns, or all) into memory."""
    import polars as pl

    paths = [str(path) for path in files]

    def read() -> object:
        frame = pl.scan_parquet(paths)
        return (frame.select(columns) if columns else frame).collect()

    return Yardstick(name=name or "Polars reads the same tables", run=read)


@contextmanager
def spark_engine(master: str = f"local[{CORES}]") -> Iterator[SparkEngine]:
    """Start a Spark session, lend the engine that runs on it, and stop it at the end."""
    from pag_graph.engines.session import spark_session
    from pag_graph.engines.spark import SparkEngine

    spark = spark_session(app="bench", master=master)
    try:
        yield SparkEngine(spark)
    finally:
        spark.stop()


class Session:
    """One run of a bench: makes inputs, measures, and collects the figures.

    Parameters
    ----------
    scratch
        Where inputs are kept from run to run, and where a bench may write.
    quick
        Whether to make do with small inputs and few runs: for trying out, not for numbers to keep.
    repeat
        Runs of each measurement; the bench's own choice where absent.
    """

    def __init__(self, scratch: Path, *, quick: bool = False, repeat: int | None = None) -> None:
        self.scratch, self.quick, self._repeat = scratch, quick, repeat
        self.figures: list[Figure] = []

    def fixed(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return a fixed input, made once and kept.

        Parameters
        ----------
        name
            Says everything that the input depends on: sizes, seeds, format version.
        make
            Makes it at the path that it is given; a directory or a file.

        Returns
        -------
        Path
            Complete: what a killed run left is made anew.
        """
        path = self.scratch / "inputs" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f"{path.name}.unfinished")
            if unfinished.exists():
                shutil.rmtree(unfinished) if unfinished.is_dir() else unfinished.unlink()
            self.say(f"making {name}")
            make(unfinished)
            unfinished.rename(path)
        return path

    def new_folder(self, name: str) -> Path:
        """Return a path that does not exist, for a run to write to; what an earlier run wrote there is gone."""
        path = self.scratch / "output" / name
        if path.is_file():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def measure(
        self,
        name: str,
        subject: Callable[..., object],
        *,
        before: Callable[[], Any] | None = None,
        against: Yardstick | None = None,
        items: int | None = None,
        unit: str = "events",
        repeat: int = 7,
        warm: int = 1,
        most_seconds: float = _MOST_SECONDS,
        target: str = "",
        note: str = "",
    ) -> Figure:
        """Run something several times, in turn with its yardstick.

        Parameters
        ----------
        name
            Unique within the bench, the same from commit to commit.
        subject
            What is measured.
        before
            Called before each run, outside the measured time; `subject` gets what it returns.
        against
            Yardstick; runs before each run of the subject.
        items, unit
            How many things a run works through, and what they are.
        repeat
            Runs that count; half of them when quick.
        warm
            Runs before, that do not count (compilation, caches of the file system).
        most_seconds
            After so much time no further run begins; at least three are made.
        target, note
            Words for the table.

        Returns
        -------
        Figure
            It is also kept for the table.
        """
        figure = Figure(name=name, items=items, unit=unit, target=target, note=note)
        figure.yardstick = against.name if against else None
        runs = self._repeat or (max(_FEWEST_RUNS, repeat // 2) if self.quick else repeat)
        start = time.monotonic()
        for run in range(-warm, runs):
            if run >= _FEWEST_RUNS and time.monotonic() - start > most_seconds:
                break
            arguments = () if before is None else (before(),)
            yardstick_s = _timed(against.run)[0] if against else None
            first = run == -warm
            if first:
                # What earlier measurements freed is not this one's; what this one frees its next runs use again.
                memory.give_back()
            base = _reset_peak()
            wall, cpu = _timed(lambda arguments=arguments: subject(*arguments))
            peak = status_bytes("VmHWM")
            if first and base is not None and peak is not None:
                figure.peak_bytes = peak - base
            if run >= 0:
                figure.seconds.append(wall)
                figure.cpu_seconds.append(cpu)
                if yardstick_s is not None:
                    figure.yardstick_seconds.append(yardstick_s)
        self.keep(figure)
        return figure

    def keep(self, figure: Figure) -> None:
        """Keep a figure that a bench measured itself, for the table."""
        self.figures.append(figure)
        self.say(" | ".join(_cells(figure)))

    def say(self, text: str) -> None:
        """Tell whoever watches what is going on."""
        print(text, file=sys.stderr, flush=True)


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return the wall-clock and the processor time of a call."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = run()
    times = time.perf_counter() - wall, time.process_time() - cpu
    del result
    return times


def _reset_peak() -> int | None:
    """Let the process' peak of memory begin anew, and return what it has now; None where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return status_bytes("VmRSS")


def status_bytes(name: str) -> int | None:
    """Return what the system says of this process' memory, such as ``VmRSS``; None where it does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * _KIB for line in lines if line.startswith(f"{name}:")), None)


def machine() -> dict[str, Any]:
    """Return what a reader must know of the machine and of what else ran on it."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in _lines(Path("/proc/cpuinfo"))
            if line.startswith(("model name", "Hardware", "CPU part"))
        ),
        platform.processor() or platform.machine(),
    )
    installed = next(
        (int(line.split()[1]) * _KIB for line in _lines(Path("/proc/meminfo")) if "MemTotal" in line), None
    )
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": model,
        "cores": CORES,
        "memory_bytes": installed,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions,
        "load_average": round(os.getloadavg()[0], 2),
    }


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def commit() -> str:
    """Return the commit that is measured, with a mark if files differ from it."""

    def git(*arguments: str) -> str:
        process = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return process.stdout.strip() if process.returncode == 0 else ""

    name = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "pag_graph", "adapters", "bench/*.py")
    return f"{name}-changed" if name and changed else name


def run(bench: Bench, session: Session) -> dict[str, Any]:
    """Run a bench and return its result as plain values.

    Parameters
    ----------
    bench, session
        What to run, and where.

    Returns
    -------
    dict
        As written to ``bench/results/NAME.json``.
    """
    facts, begun = machine(), datetime.now(UTC)
    bench.run(session)
    facts["load_average_after"] = round(os.getloadavg()[0], 2)
    return {
        "format": FORMAT,
        "bench": bench.name,
        "title": bench.title,
        "about": bench.about,
        "commit": commit(),
        "begun": begun.isoformat(timespec="seconds"),
        "quick": session.quick,
        "machine": facts,
        "figures": [asdict(figure) for figure in session.figures],
    }


def load(path: Path) -> dict[str, Any]:
    """Read a result.

    Raises
    ------
    SystemExit
        If it is no result, or of another version.
    """
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        message = f"{path} has format {content.get('format')}, and this program knows {FORMAT}."
        raise SystemExit(message)
    return content


def save(result: dict[str, Any], path: Path) -> None:
    """Write a result."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def figures(result: dict[str, Any]) -> list[Figure]:
    """Return the figures of a result."""
    return [Figure(**entry) for entry in result["figures"]]


def markdown(result: dict[str, Any]) -> str:
    """Return a result's section of ``docs/performance.md``."""
    facts = result["machine"]
    installed = f", {facts['memory_bytes'] / 2**30:.0f} GiB" if facts.get("memory_bytes") else ""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    state = (
        f"{facts['processor']}, {facts['cores']} cores{installed}, {facts['system']};"
        f" Python {facts['python']}, {packages};"
        f" load average {facts['load_average']} before and {facts['load_average_after']} after;"
        f" commit {result['commit'] or 'unknown'}, {result['begun']}{', quick' if result['quick'] else ''}."
    )
    parts = [f"## {result['title']}", result["about"].strip(), state]
    timed = [figure for figure in figures(result) if figure.seconds]
    if timed:
        header = ("measurement", "median", "fastest to slowest", "rate", "yardsticks", "memory", "aim")
        rows = [_cells(figure) for figure in timed]
        sticks: dict[str, list[float]] = {}
        for figure in timed:
            sticks.setdefault(figure.yardstick or "", []).extend(figure.yardstick_seconds)
        yardstick_medians = [
            f"{name}: {_time(statistics.median(times))}" for name, times in sorted(sticks.items()) if times
        ]
        parts.append(_table(header, rows))
        if yardstick_medians:
            yardstick_note = (
                "Yardsticks ran in turn with the measurements; the column says how many times as long these took."
            )
            parts.append(f"{yardstick_note} Medians: {'; '.join(yardstick_medians)}.")
    # A table for all that have the same values.
    figures_of_names: dict[tuple[str, ...], list[Figure]] = {}
    for figure in figures(result):
        if figure.values:
            figures_of_names.setdefault(tuple(figure.values), []).append(figure)
    for names, same_names in figures_of_names.items():
        rows = [(figure.name, *(_value(figure.values[name]) for name in names)) for figure in same_names]
        parts.append(_table(("measurement", *names), rows))
    parts += [f"{figure.name}: {figure.note}" for figure in figures(result) if figure.note]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _cells(figure: Figure) -> tuple[str, ...]:
    if not figure.seconds:
        return (figure.name, *(f"{name} {_value(value)}" for name, value in figure.values.items()))
    ratio, rate = figure.ratio, figure.rate
    return (
        figure.name,
        _time(figure.median),
        f"{_time(min(figure.seconds))} to {_time(max(figure.seconds))} ({len(figure.seconds)})",
        f"{_value(rate)} {figure.unit}/s" if rate else "",
        f"{ratio:.2f} x {figure.yardstick}" if ratio is not None else "",
        f"{figure.peak_bytes / 1e6:.0f} MB" if figure.peak_bytes is not None else "",
        figure.target,
    )


def _time(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float | int) and not isinstance(value, bool):
        for factor, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
            if abs(value) >= factor:
                return f"{value / (1e3 if unit == ' k' else factor):.3g}{unit}"
        return f"{value:.3g}" if isinstance(value, float) else str(value)
    return str(value)


def with_section(page: str, name: str, content: str) -> str:
    """Return the text of a page with one of its generated sections replaced.

    Parameters
    ----------
    page
        Markdown.
    name
        The section stands between comments that say ``begin`` and ``end`` with this name.
    content
        What is to stand there.

    Returns
    -------
    str
        A page without the section gets it at its end; all else is as it was.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    section = f"{begin}\n\n{content.strip()}\n\n{end}"
    if begin not in page:
        return f"{page.rstrip()}\n\n{section}\n"
    head, _, tail = page.partition(begin)
    return head + section + tail.partition(end)[2]


def compare(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return a Markdown table of two results of one bench, as of two commits.

    Parameters
    ----------
    before, after
        Results of the same bench.

    Returns
    -------
    str
        One row per measurement of either. Where both have the same yardstick, the change is that of the ratios to it,
        so that results of two machines, or of a busy and a quiet one, can be compared; it says `same` where the
        ranges of all runs overlap.
    """
    old_figures, new_figures = (
        {figure.name: figure for figure in figures(result) if figure.seconds} for result in (before, after)
    )
    rows = []
    for name in dict.fromkeys([*old_figures, *new_figures]):
        a, b = old_figures.get(name), new_figures.get(name)
        if a is None or b is None:
            rows.append((name, *(_time(f.median) if f else "" for f in (a, b)), "gone" if b is None else "new", ""))
            continue
        before_measures, after_measures = _measures(a, b)
        change = statistics.median(after_measures) / statistics.median(before_measures)
        overlap = min(before_measures) <= max(after_measures) and min(after_measures) <= max(before_measures)
        verdict = "same" if overlap else "faster" if change < 1 else "slower"
        rows.append((name, _time(a.median), _time(b.median), f"{change:.2f} x", verdict))
    head = f"{after['bench']}: {before['commit'] or 'before'} to {after['commit'] or 'after'}"
    return f"{head}\n\n{_table(('measurement', 'before', 'after', 'change', 'verdict'), rows)}\n"


def _measures(a: Figure, b: Figure) -> tuple[list[float], list[float]]:
    if a.yardstick and a.yardstick == b.yardstick:
        a_ratios, b_ratios = (
            [subject_s / yardstick_s for subject_s, yardstick_s in zip(f.seconds, f.yardstick_seconds, strict=False)]
            for f in (a, b)
        )
        if a_ratios and b_ratios:
            return a_ratios, b_ratios
    return a.seconds, b.seconds
