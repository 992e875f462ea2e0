"""Make the event logs of Spark jobs whose trouble is known: one cluster on loopback, one program after the other.

    python bench/spark_causes/make_logs.py --out logs                  # every cause: logs/<cause>/<application>
    python bench/spark_causes/make_logs.py --out logs --only spill sql
    python bench/spark_causes/make_logs.py --out logs --seed 1         # the same troubles in other sizes
    python bench/spark_causes/make_logs.py --out logs --codecs         # one log in every form that Spark writes
    python bench/spark_causes/make_logs.py --out logs --tests-data tests/data/spark

`logs/README.md` says for each log what was done and what the right answer is. Everything runs on the loopback
addresses, under the user name `spark`. What a log still tells about the machine is removed from it afterwards, line by
line (`scrub`): the environment event keeps only Spark's own settings and the versions of Java and Scala, and the
folder that the run took place in is written as `/spark`, the one with Python's packages as `/python`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from causes import ALL, CAUSES, CORES, Cause
from cluster import SPARK, Cluster, environment, standalone
from streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Iterable

_HERE = Path(__file__).parent
_RUN_SECONDS = 900
_CODECS = ("zstd", "lz4", "snappy", "lzf")
_KEPT_JVM = ("Java Version", "Scala Version")
_PATHS = re.compile(r"^spark\.(eventLog\.dir|sql\.warehouse\.dir|local\.dir|jars|submit\.pyFiles|repl\..*)$")
# Where a stream keeps its state if the program does not say.
_TEMPORARY = re.compile(r"/[^\s\"',()]*/temporary-[0-9a-f]{8}-[0-9a-f-]{27}")
# Logs that the tests need, small enough to be kept with the code.
TESTED = tuple(cause.name for cause in CAUSES)


def main() -> None:
    """Read the options and make the logs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the logs")
    parser.add_argument("--only", nargs="+", choices=sorted(ALL | STREAMS), metavar="CAUSE", help="some by name")
    parser.add_argument("--cores", action="store_true", help="also the programs with one core and with two")
    parser.add_argument("--streams", action="store_true", help="streams that workers join and leave, and nothing else")
    parser.add_argument("--codecs", action="store_true", help="also one small log in each codec, and rolling")
    parser.add_argument("--seed", type=int, default=0, help="other sizes of the same troubles; 0 for the usual ones")
    parser.add_argument("--tests-data", type=Path, help="copy the causes' logs here, compressed")
    arguments = parser.parse_args()
    causes = STREAMS if arguments.streams else ALL
    everything = [*STREAMS.values()] if arguments.streams else [*CAUSES, *(CORES if arguments.cores else ())]
    if any(name not in causes for name in arguments.only or ()):
        parser.error(f"--only: choose from {', '.join(causes)}")
    chosen = [causes[name] for name in arguments.only] if arguments.only else everything
    arguments.out.mkdir(parents=True, exist_ok=True)
    # Whoever ends this script ends the cluster: an exit goes through the `with` blocks, a signal by itself does not.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    if arguments.streams:
        streams(arguments.out, chosen)
        return
    with tempfile.TemporaryDirectory(prefix="spark-causes-") as temporary:
        folder = Path(temporary)
        with standalone(folder, cores=max(cause.executor_cores for cause in chosen)) as cluster:
            failed = []
            for cause in chosen:
                try:
                    target = arguments.out / cause.name
                    report(cause, run(cause, cluster, folder=folder, out=target, seed=arguments.seed))
                except RuntimeError as error:
                    # The other programs have nothing to do with it.
                    print(error, flush=True)
                    failed.append(cause.name)
            if arguments.codecs:
                forms(cluster, folder=folder, out=arguments.out)
    write_readme(arguments.out)
    if arguments.tests_data:
        keep(arguments.out, arguments.tests_data)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def streams(out: Path, chosen: Iterable[Cause]) -> None:
    """Run each stream in a cluster of its own, which has as many workers as it begins with."""
    for cause in chosen:
        with (
            tempfile.TemporaryDirectory(prefix="spark-streams-") as temporary,
            standalone(Path(temporary), workers=cause.executors) as cluster,
        ):
            files = run(cause, cluster, folder=Path(temporary), out=out / cause.name, script="streams.py")
        report(cause, files)


def run(
    cause: Cause,
    cluster: Cluster,
    *,
    folder: Path,
    out: Path,
    settings: dict[str, str] | None = None,
    seed: int = 0,
    script: str = "causes.py",
) -> list[Path]:
    """Run one program and collect its log.

    Parameters
    ----------
    cause
        The program.
    cluster
        Where to run it.
    folder
        The cluster's folder.
    out
        Folder for the log; what is in it is replaced.
    settings
        More settings for Spark.
    seed
        Of the program's sizes; 0 for the usual ones.
    script
        The file that has the program.

    Returns
    -------
    list of Path
        The log's files, scrubbed where they are plain text.

    Raises
    ------
    RuntimeError
        If the program fails or leaves no log; says which output to read.
    """
    logs = folder / "events"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    setup = {
        "master": cluster.master,
        "workers": cluster.workers,
        "folder": str(folder),
        "log": str(logs),
        "settings": settings or {},
        "seed": seed,
    }
    for name in ("causes.py", "cluster.py", "streams.py"):
        # Stages are named after the calling line and its file: this way the file's place is the run's folder.
        shutil.copy(_HERE / name, folder / name)
    output = folder / "logs" / f"{cause.name}.log"
    with output.open("wb") as to:
        program = subprocess.Popen(
            [sys.executable, script, cause.name],
            env=environment(folder) | {"SPARK_CAUSES": json.dumps(setup)},
            cwd=folder,
            stdout=to,
            stderr=subprocess.STDOUT,
        )
        try:
            program.wait(_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{cause.name} takes longer than {_RUN_SECONDS} s", flush=True)
        finally:
            if program.poll() is None:
                program.kill()
                program.wait()
    logs_written = sorted(logs.iterdir())
    if program.returncode or not logs_written:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(output, out.with_suffix(".failed"))
        message = f"The program {cause.name} failed; its output is {out.with_suffix('.failed')}."
        raise RuntimeError(message)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    files = []
    for log in logs_written:
        target = out / log.name
        shutil.move(log, target)
        files += [target] if target.is_file() else sorted(target.iterdir())
    for file in files:
        if file.suffix not in {f".{codec}" for codec in _CODECS}:
            scrub(file, folder)
    return files


def forms(cluster: Cluster, *, folder: Path, out: Path) -> None:
    """Write the log of `two-jobs` in every form: rolling by a run of its own, compressed by Spark's own codecs."""
    rolling = {"spark.eventLog.rolling.enabled": "true", "spark.eventLog.rolling.maxFileSize": "10m"}
    run(ALL["two-jobs"], cluster, folder=folder, out=out / "forms" / "rolling", settings=rolling)
    (log,) = (out / "two-jobs").iterdir()
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    try:
        java = gateway.jvm
        for name in _CODECS:
            target = out / "forms" / name / f"{log.name}.{name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            codec = java.org.apache.spark.io.CompressionCodec.createCodec(java.org.apache.spark.SparkConf(), name)
            stream = codec.compressedContinuousOutputStream(java.java.io.FileOutputStream(str(target)))
            # Spark flushes when a job or stage ends, so a stream has many blocks or frames.
            lines = log.read_bytes().splitlines(keepends=True)
            for start in range(0, len(lines), 20):
                stream.write(b"".join(lines[start : start + 20]))
                stream.flush()
            stream.close()
    finally:
        gateway.shutdown()


def scrub(file: Path, folder: Path) -> None:
    """Remove from a log in plain text what it tells about the machine that it was made on."""
    names = dict.fromkeys((str(folder), str(folder.resolve())), "/spark") | {str(SPARK.parent): "/python"}
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        for name, neutral in names.items():
            line = line.replace(name, neutral)  # noqa: PLW2901
        line = _TEMPORARY.sub("/spark/checkpoint", line)  # noqa: PLW2901
        if line.startswith('{"Event":"SparkListenerEnvironmentUpdate"'):
            line = json.dumps(_without_paths(json.loads(line)), separators=(",", ":"))  # noqa: PLW2901
        lines.append(line)
    file.write_text("\n".join(lines) + ("\n" if lines else ""), encoding="utf-8")


def _without_paths(event: dict[str, dict[str, str]]) -> dict[str, object]:
    jvm = {name: value for name, value in event["JVM Information"].items() if name in _KEPT_JVM}
    settings = {name: value for name, value in event["Spark Properties"].items() if not _PATHS.match(name)}
    empty: dict[str, object] = {name: {} for name in event if name != "Event"}
    return {"Event": event["Event"]} | empty | {"JVM Information": jvm, "Spark Properties": settings}


def keep(logs: Path, target: Path) -> None:
    """Copy the logs that the tests need, compressed with zstd, and the answers with them."""
    target.mkdir(parents=True, exist_ok=True)
    file = target / "answers.json"
    answers = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in TESTED:
        if (logs / name).is_dir():
            (log,) = (logs / name).iterdir()
            (target / f"{name}.zstd").write_bytes(packed(log.read_bytes()))
            answers[name] = {"done": ALL[name].done, "answer": ALL[name].answer}
    for codec in _CODECS:
        for log in (logs / "forms" / codec).glob(f"*.{codec}"):
            (target / "forms").mkdir(exist_ok=True)
            shutil.copy(log, target / "forms" / f"two-jobs.{codec}")
    for folder in (logs / "forms").glob("rolling/eventlog_v2_*"):
        rolled = target / "forms" / "eventlog_v2_two-jobs"
        shutil.rmtree(rolled, ignore_errors=True)
        rolled.mkdir(parents=True)
        for log_part in folder.iterdir():
            if log_part.name.startswith("events_"):
                # As Spark names them with spark.eventLog.compress.
                (rolled / f"{log_part.name}.zstd").write_bytes(packed(log_part.read_bytes()))
            elif log_part.name.startswith("appstatus_"):
                shutil.copy(log_part, rolled / log_part.name)
    file.write_text(json.dumps(answers, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def packed(log: bytes) -> bytes:
    """Return a log compressed with zstd."""
    return bytes(pa.Codec("zstd", compression_level=19).compress(log, asbytes=True))


def report(cause: Cause, files: Iterable[Path]) -> None:
    """Say what was made."""
    for file in files:
        print(
            f"{cause.name}: {file.name}, {file.stat().st_size / 1e6:.2f} MB, load {os.getloadavg()[0]:.1f}", flush=True
        )


def write_readme(out: Path) -> None:
    """List the logs that are there, what was done and what the right answer is."""
    lines = ["# Event logs of Spark jobs whose trouble is known", ""]
    lines += ["Made by `bench/spark_causes/make_logs.py` on a standalone cluster of two workers.", ""]
    lines += ["| log | seconds | what was done | right answer |", "|---|---|---|---|"]
    for name, cause in ALL.items():
        for log in sorted((out / name).glob("*")):
            lines.append(f"| `{name}/{log.name}` | {_seconds(log):.1f} | {cause.done} | {cause.answer} |")
    forms_written = sorted(log for log in (out / "forms").glob("*/*"))
    if forms_written:
        lines += ["", "The program `two-jobs` in every form that Spark writes:", ""]
        lines += [f"- `{log.relative_to(out)}`" for log in forms_written]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _seconds(log: Path) -> float:
    """Return how long an application took, by its own first and last event."""
    times = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        if line.startswith(('{"Event":"SparkListenerApplicationStart"', '{"Event":"SparkListenerApplicationEnd"')):
            event = json.loads(line)
            times[event["Event"]] = event["Timestamp"]
    return (max(times.values()) - min(times.values())) / 1000 if times else 0.0


if __name__ == "__main__":
    started = time.monotonic()
    main()
    print(f"{time.monotonic() - started:.0f} s")
