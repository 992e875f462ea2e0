"""Predictions for other numbers of cores, checked against the same programs run with them.

    python bench/spark_causes/make_logs.py --out logs --only cores-healthy-1 cores-healthy-2 ...
    python -m bench.spark_cores --keep logs    # takes these logs over into tests/data/spark/cores
    python -m bench.spark_cores                # writes docs/spark-cores.md and bench/results/spark-cores.json anew

A log is named ``cores-PROGRAM-SHAPE`` or ``cores-PROGRAM-SHAPE.N``; shape 1 is one executor of one core, 2 are two of
them, 1x2 is one executor of two cores, N numbers runs of the same. Every run predicts all runs of its program that had
another number of cores.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench import harness
from pag_graph.diagnosis.spark.cores import predict_cores
from pag_graph.diagnosis.spark.work_plan import plan_work
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Prediction", "Recording", "compare", "recordings", "section"]

LOGS = harness.ROOT / "tests" / "data" / "spark" / "cores"
RESULT = harness.ROOT / "bench" / "results" / "spark-cores.json"
PAGE = harness.ROOT / "docs" / "spark-cores.md"
_NAME = re.compile(r"^cores-(?P<program>[a-z-]+)-(?P<shape>\d+(?:x\d+)?)(?:\.\d+)?(?:\.zstd)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One run of a program."""

    program: str
    shape: str
    """Executors, and cores of each if they had more than one."""
    cores: int
    start_ns: int
    """From the application's start to its first job."""
    active_ns: int
    """From there to the application's end."""
    predicted_ns: dict[int, int]
    """Number of cores to the time from the first job to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the runs of one shape say of those of another one: medians over the runs of each."""

    program: str
    recorded: str
    predicted: str
    recorded_ns: int
    predicted_ns: int
    measured_ns: int
    runs: int
    """Runs with the number of cores that was predicted."""
    spread: float | None
    """Slowest minus fastest of these over their median; None for a single one."""

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted_ns / self.measured_ns - 1

    @property
    def unchanged(self) -> float:
        """The error of saying that nothing would change."""
        return self.recorded_ns / self.measured_ns - 1


def recordings(folder: Path) -> list[Recording]:
    """Read all logs of a folder that are named as `make_logs.py` names them, by name; other files are passed over."""
    runs = []
    for path in sorted(folder.iterdir()):
        match = _NAME.match(path.name)
        if match is None:
            continue
        executors, _, cores = match["shape"].partition("x")
        (log,) = find_logs(path)
        runs.append(_recording(read_log(log), match["program"], match["shape"], int(executors) * int(cores or 1)))
    return runs


def _recording(log: object, program: str, shape: str, cores: int) -> Recording:
    schedule = map_log(log).schedule  # type: ignore[arg-type]
    first_job_ns = min(job.start_ns for job in schedule.jobs)
    predictions = predict_cores(schedule, plan_work(schedule), [1, 2])
    # Where cores came and went, the replay of that is no prediction.
    predicted = {
        prediction.cores: prediction.predicted_ns - first_job_ns
        for prediction in sorted(predictions, key=lambda prediction: prediction.recorded)
    }
    return Recording(
        program=program,
        shape=shape,
        cores=cores,
        start_ns=first_job_ns,
        active_ns=schedule.end_ns - first_job_ns,
        predicted_ns=predicted,
    )


def compare(runs: Sequence[Recording]) -> list[Prediction]:
    """Return one prediction for each program, shape recorded and shape predicted with another number of cores."""
    groups: dict[tuple[str, str], list[Recording]] = {}
    for run in runs:
        groups.setdefault((run.program, run.shape), []).append(run)
    predictions = []
    for (program, recorded), recorded_runs in sorted(groups.items()):
        for (other_program, predicted), target in sorted(groups.items()):
            cores = target[0].cores
            if other_program != program or cores == recorded_runs[0].cores:
                continue
            times = [run.active_ns for run in target]
            measured = statistics.median(times)
            predictions.append(
                Prediction(
                    program=program,
                    recorded=recorded,
                    predicted=predicted,
                    recorded_ns=int(statistics.median(run.active_ns for run in recorded_runs)),
                    predicted_ns=int(statistics.median(run.predicted_ns[cores] for run in recorded_runs)),
                    measured_ns=int(measured),
                    runs=len(target),
                    spread=(max(times) - min(times)) / measured if len(times) > 1 else None,
                )
            )
    return predictions


def summary(found: Iterable[Prediction]) -> dict[str, float]:
    """Return how far off predictions are, as shares of what was measured.

    Returns
    -------
    dict
        ``predictions`` (how many), ``median``, ``p90`` and ``most`` of the errors' sizes, and ``unchanged``: the median
        error of predicting that nothing changes.
    """
    predictions = list(found)
    errors = sorted(abs(prediction.error) for prediction in predictions)
    return {
        "predictions": len(errors),
        "median": statistics.median(errors),
        "p90": errors[min(len(errors) - 1, int(0.9 * len(errors)))],
        "most": errors[-1],
        "unchanged": statistics.median(abs(prediction.unchanged) for prediction in predictions),
    }


def section(found: Sequence[Prediction]) -> str:
    """Return the generated part of the page: a sentence, and a table of one row per prediction."""
    sums = summary(found)
    head = (
        f"{sums['predictions']} predictions: the median error is {sums['median']:.1%}, 90 % of them are within"
        f" {sums['p90']:.1%}, and the worst is {sums['most']:.1%}."
        f" Predicting that nothing changes has a median error of {sums['unchanged']:.0%}."
    )
    names = ("program", "recorded", "predicted", "recorded s", "predicted s", "measured s", "error", "runs", "spread")
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for prediction in found:
        times = [f"{ns / 1e9:.2f}" for ns in (prediction.recorded_ns, prediction.predicted_ns, prediction.measured_ns)]
        spread = "" if prediction.spread is None else f"{prediction.spread:.0%}"
        cells = [
            prediction.program,
            prediction.recorded,
            prediction.predicted,
            *times,
            f"{prediction.error:+.1%}",
            str(prediction.runs),
            spread,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n\n".join([head, "\n".join(lines)])


def keep(logs: Path, target: Path) -> None:
    """Take the logs of a folder over, each compressed under its name, numbered if there is one of that name."""
    target.mkdir(parents=True, exist_ok=True)
    for folder in sorted(logs.iterdir()):
        if _NAME.match(folder.name) and folder.is_dir():
            (log,) = folder.iterdir()
            name, number = folder.name, 1
            while (target / f"{name}.zstd").exists():
                number += 1
                name = f"{folder.name}.{number}"
            packed = pa.Codec("zstd", compression_level=19).compress(log.read_bytes(), asbytes=True)
            (target / f"{name}.zstd").write_bytes(packed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, compare, and write page and result."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_cores", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="LOGS", help="take over logs that make_logs.py made")
    parser.add_argument("--logs", type=Path, default=LOGS, help="compare the logs of this folder; writes nothing")
    options = parser.parse_args(arguments)
    if options.keep:
        keep(options.keep, LOGS)
    predictions = compare(recordings(options.logs))
    print(section(predictions))
    if options.logs == LOGS:
        rows = [{**asdict(prediction), "error": prediction.error} for prediction in predictions]
        record = {
            "format": harness.FORMAT,
            "bench": "spark-cores",
            "summary": summary(predictions),
            "predictions": rows,
        }
        harness.save(record, RESULT)
        text = harness.with_section(PAGE.read_text(encoding="utf-8"), "predictions", section(predictions))
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
