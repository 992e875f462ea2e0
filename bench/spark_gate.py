"""How often the gate of `pag spark --against --fail-over` is right about runs that were recorded.

    python -m bench.spark_gate                     # 40 runs as they are, 20 that take a fifth longer; some minutes
    python -m bench.spark_gate --noise             # the same of drawn times, by how and how much they scatter

A program runs again and again on two cores, as it is, and with so many more rows that it takes a fifth longer. A trial
draws five baselines and another run from those recorded: an alarm is wrong where both do the same, and right where the
run has more to do. The times are printed in the order of the runs, so that a drift shows.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
from functools import partial
from typing import TYPE_CHECKING

import orjson

from bench import harness
from bench.spark_truth import RESULT, answered
from pag_graph.diagnosis.spark.comparison.gate import Measure, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

_ROWS = 3_000_000
_MORE = 1.35
"""Times as many rows: a run then takes about a fifth longer, for a part of it does not grow with rows."""
_BASELINES, _TRIALS, _SHARE = 5, 100, 0.1
_WARM_UPS = 3
_SCATTERS, _DRAWN_TRIALS = (0.02, 0.03, 0.05, 0.08), 2_000


def _heavy(draw: random.Random) -> float:
    """Student's t of three degrees: now and then a run is far from the others, on both sides."""
    return draw.gauss() / math.sqrt(draw.gammavariate(1.5, 2) / 3) / math.sqrt(3)


NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda draw: draw.gauss(),
    "heavy tails": _heavy,
    "late only": lambda draw: draw.expovariate(1) - 1,
}
"""What runs scatter by, with mean 0 and deviation 1: also as runs do that nothing makes shorter, and some are late."""


def _work(spark: SparkSession, role: str, folder: Path, rows: int) -> None:  # noqa: ARG001
    """Hash many rows, and ask for the greatest of each group; nothing is wrong with it."""
    from pyspark.sql import functions as f

    hashed = f.sha2(f.col("id").cast("string"), 512).alias("hash")
    table = spark.range(0, rows, 1, 8).select((f.col("id") % 5_000).alias("key"), hashed)
    table.groupBy("key").agg(f.max("hash")).write.format("noop").mode("overwrite").save()


def _recorded(number: int, rows: int, folder: Path) -> dict[Measure, int]:
    from plan_programs import Program
    from record_plans import record

    log = record(Program(name=f"gate-{number}", cause="", run=partial(_work, rows=rows)), "planted", folder)
    diagnosis = answered(log, folder)
    return {Measure.SPAN: diagnosis.span_ns, Measure.ACTIVE: diagnosis.active_ns}


def _alarms(baselines: Sequence[int], others: Sequence[int], draw: random.Random) -> int:
    """Count the alarms of as many trials; a run is never its own baseline."""
    alarms = 0
    for _ in range(_TRIALS):
        drawn = draw.sample(range(len(baselines)), _BASELINES + 1)
        new = baselines[drawn[-1]] if others is baselines else draw.choice(others)
        alarms += judge(new, [baselines[place] for place in drawn[:_BASELINES]], _SHARE).too_long
    return alarms


def recorded_noise() -> list[float]:
    """Return how far runs of `bench.spark_truth` were from the mean of their kind, as shares of it.

    Of programs and roles with as many runs as there are baselines; the deviation within so few is a little too small,
    which is made up for.
    """
    times: dict[tuple[str, ...], list[int]] = {}
    for run in orjson.loads(RESULT.read_bytes())["runs"]:
        times.setdefault((run["program"], run["role"], run["advice"]), []).append(run["active_ns"])
    series = [kind_times for kind_times in times.values() if len(kind_times) >= _BASELINES]
    return [
        (time / statistics.fmean(kind_times) - 1) * math.sqrt(len(kind_times) / (len(kind_times) - 1))
        for kind_times in series
        for time in kind_times
    ]


def drawn_alarms(
    shape: Callable[[random.Random], float], scatter: float, baselines: int = _BASELINES
) -> tuple[float, float]:
    """Return the shares of wrong alarms, and of right ones about a run that takes a fifth longer, among drawn times.

    Parameters
    ----------
    shape
        Draws a run's distance from the mean, in standard deviations; as those of `NOISES`.
    scatter
        Standard deviation, as a share of a run's time.
    baselines
        How many a run is judged beside.
    """
    draw = random.Random(25)

    def time(usual: float = 1e9) -> int:
        return round(usual * (1 + scatter * shape(draw)))

    alarms = [0, 0]
    for _ in range(_DRAWN_TRIALS):
        others = [time() for _ in range(baselines)]
        for place, new in enumerate((time(), time(1.2e9))):
            alarms[place] += judge(new, others, _SHARE).too_long
    return alarms[0] / _DRAWN_TRIALS, alarms[1] / _DRAWN_TRIALS


def _print_drawn() -> None:
    print(f"limit {_SHARE:.0%}, seed 25, {_DRAWN_TRIALS:,} trials; wrong alarms, right ones of runs a fifth longer")
    for baselines in (_BASELINES, 2 * _BASELINES):
        for noise, shape in NOISES.items():
            cells = [(scatter, *drawn_alarms(shape, scatter, baselines)) for scatter in _SCATTERS]
            told = "; ".join(f"{scatter:.0%}: {wrong:.1%}, {right:.0%}" for scatter, wrong, right in cells)
            print(f"{baselines} baselines, {noise}: {told}", flush=True)
    deviations = recorded_noise()
    wrong, right = drawn_alarms(lambda draw: draw.choice(deviations), 1.0)
    print(f"{_BASELINES} baselines, as {len(deviations)} kept runs of bench.spark_truth: {wrong:.1%}, {right:.0%}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the runs, draw the trials, and print what the gate said."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_gate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="runs as they are; half as many have more to do")
    parser.add_argument("--noise", action="store_true", help="judge times that are drawn, and record nothing")
    options = parser.parse_args(arguments)
    if options.noise:
        _print_drawn()
        return 0
    sys.path.insert(0, str(harness.ROOT / "bench" / "spark_causes"))
    from plan_programs import Program
    from record_plans import recording

    kinds = {"as it is": _ROWS, "a fifth longer": round(_ROWS * _MORE)}
    times: dict[str, list[dict[Measure, int]]] = {kind: [] for kind in kinds}
    with recording(Program(name="gate", cause="", run=partial(_work, rows=_ROWS))) as folder:
        for _ in range(_WARM_UPS):
            _recorded(0, _ROWS, folder)
        for number in range(options.runs):
            times["as it is"].append(_recorded(number, _ROWS, folder))
            if number % 2:
                times["a fifth longer"].append(_recorded(number, kinds["a fifth longer"], folder))
    print(f"load of the machine {os.getloadavg()[0]:.1f}, seed 1, limit {_SHARE:.0%}, {_BASELINES} baselines")
    for measure in (Measure.SPAN, Measure.ACTIVE):
        same, more = ([run[measure] for run in times[kind]] for kind in kinds)
        draw = random.Random(1)
        middle = statistics.median(same)
        print(f"{measure}, s: {' '.join(f'{time / 1e9:.2f}' for time in same)}")
        print(
            f"{measure}: median {middle / 1e9:.2f} s, {min(same) / 1e9:.2f} to {max(same) / 1e9:.2f}, with more to do"
            f" {statistics.median(more) / middle - 1:+.0%}; of {_TRIALS} trials {_alarms(same, same, draw)} wrong"
            f" alarms, {_alarms(same, more, draw)} right ones",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
