"""How often the gate of `pag spark --against --fail-over` is right about runs that were recorded.

    python -m bench.spark_gate                     # 40 runs as they are, 20 that take a fifth longer; some minutes

A program runs again and again on two cores, as it is, and with so many more rows that it takes a fifth longer. A trial
draws five baselines and another run from those recorded: an alarm is wrong where both do the same, and right where the
run has more to do.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from functools import partial
from typing import TYPE_CHECKING

from bench import harness
from bench.spark_truth import answered
from pag_graph.diagnosis.spark.comparison.gate import Measure, judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

_ROWS = 3_000_000
_MORE = 1.35
"""Times as many rows: a run then takes about a fifth longer, for a part of it does not grow with rows."""
_BASELINES, _TRIALS, _SHARE = 5, 100, 0.1
_WARM_UPS = 3


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the runs, draw the trials, and print what the gate said."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_gate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="runs as they are; half as many have more to do")
    options = parser.parse_args(arguments)
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
        print(
            f"{measure}: median {middle / 1e9:.2f} s, {min(same) / 1e9:.2f} to {max(same) / 1e9:.2f}, with more to do"
            f" {statistics.median(more) / middle - 1:+.0%}; of {_TRIALS} trials {_alarms(same, same, draw)} wrong"
            f" alarms, {_alarms(same, more, draw)} right ones",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
