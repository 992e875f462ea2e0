"""Public event logs, counted a second time: `pag spark` against a script that shares no code with its reader.

    git clone --depth 1 https://github.com/NVIDIA/spark-rapids-tools
    python -m bench.spark_public spark-rapids-tools/core/src/test/resources

Reads every log below a folder with `json` alone, counts length, jobs, tasks, failures, run time, garbage collection,
spilled and moved bytes, and compares with what `pag spark` says of the same log. Where the two differ, a rule of
`docs/spark.md` must say why, and by how much: the script works out every rule's part on its own, and what is left must
be 0. Exit code 1 if anything is left. The logs are read where they lie; none is kept.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pag_graph.sources.spark.logfiles import LogFiles

__all__ = ["FACTS", "Counted", "answered", "compare", "count_log", "logs_below"]

FACTS = ("span_ms", "jobs", "tasks", "failed", "run_ms", "gc_ms", "spilled_bytes", "read_bytes", "written_bytes")
"""What is compared."""
_PIECE = 1 << 10
"""Bytes that are unpacked at a time: of a file that is cut short, what is before the piece with the cut counts."""


@dataclass(slots=True)
class Counted:
    """A log as it was counted."""

    facts: Counter[str] = field(default_factory=Counter)
    """As the events have them."""
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(fact, rule of the documentation) to what the rule adds."""

    def expected(self, fact: str) -> int:
        """Return a fact with what the rules of the reader add to it or take from it."""
        return self.facts[fact] + sum(added for (rule_fact, _), added in self.rules.items() if rule_fact == fact)


def _lines(file: Path) -> Iterator[bytes]:
    """Yield a file's lines as far as it can be read; told apart by their first bytes."""
    with file.open("rb") as opened:
        head = opened.read(4)
    if head[:2] == b"\x1f\x8b":
        content = gzip.decompress(file.read_bytes())
    elif head == b"\x28\xb5\x2f\xfd":
        expanded = bytearray()
        with pa.input_stream(file, compression="zstd") as stream:
            try:
                while piece := stream.read(_PIECE):
                    expanded += piece
            except OSError:
                pass  # cut short: what is before counts
        content = bytes(expanded)
    else:
        content = file.read_bytes()
    yield from content.split(b"\n")


def _events(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in files:
        for line in _lines(file):
            try:
                event = json.loads(line)
                yield event["Event"].rsplit(".", 1)[-1].removeprefix("SparkListener"), event
            except (ValueError, KeyError, TypeError, AttributeError):
                continue


def count_log(files: Sequence[Path]) -> Counted:
    """Count a log's files, as the events have it and with the rules of the documentation.

    Parameters
    ----------
    files
        Of one log, in order.
    """
    counted = Counted()
    began_ms: int | None = None
    ended_ms: int | None = None
    times: list[int] = []
    jobs: set[int] = set()
    ends: dict[int, dict[str, Any]] = {}
    starts: dict[int, dict[str, Any]] = {}
    lost_tasks: dict[int, dict[str, Any]] = {}
    removed: dict[str, int] = {}
    for name, event in _events(files):
        if name == "ApplicationStart":
            began_ms = event["Timestamp"]
        elif name == "ApplicationEnd":
            ended_ms = event["Timestamp"]
        elif name == "JobStart":
            jobs.add(event["Job ID"])
            times.append(event["Submission Time"])
        elif name == "JobEnd":
            times.append(event["Completion Time"])
        elif name in {"SQLExecutionStart", "SQLExecutionEnd"}:
            times.append(event["time"])
        elif name in {"StageSubmitted", "StageCompleted"}:
            info = event["Stage Info"]
            times += [info[key] for key in ("Submission Time", "Completion Time") if info.get(key)]
        elif name == "ExecutorRemoved":
            removed[event["Executor ID"]] = event["Timestamp"]
        elif name == "TaskStart":
            starts[event["Task Info"]["Task ID"]] = event
        elif name == "TaskEnd":
            number = event["Task Info"]["Task ID"]
            if (event.get("Task End Reason") or {}).get("Reason") == "Resubmitted":
                lost_tasks[number] = event
            elif number in ends:
                counted.facts["tasks"] += 1
                counted.rules["tasks", "task_end_twice"] -= 1
            else:
                ends[number] = event
    # A task that is only told of as resubmitted was there all the same.
    ends |= {number: event for number, event in lost_tasks.items() if number not in ends}
    open_tasks = [event for number, event in starts.items() if number not in ends]
    finishes = [event["Task Info"]["Finish Time"] for event in ends.values()]
    launches = [event["Task Info"]["Launch Time"] for event in (*ends.values(), *open_tasks)]
    first_ms = began_ms if began_ms is not None else min([*times, *launches], default=0)
    last_ms = (
        max([*finishes, *launches], default=first_ms) if ended_ms is not None else max([*times, *finishes, *launches])
    )
    counted.facts["span_ms"] = (ended_ms if ended_ms is not None else last_ms) - first_ms
    if ended_ms is not None and last_ms > ended_ms:
        counted.rules["span_ms", "ends with its last task"] = last_ms - ended_ms
    counted.facts["jobs"] = len(jobs)
    end = max(last_ms, ended_ms or 0)
    for event in ends.values():
        _count_task(counted, event, event["Task Info"]["Finish Time"])
    for event in open_tasks:
        gone_ms = removed.get(event["Task Info"]["Executor ID"], end)
        _count_open(counted, event, min(gone_ms, end), at_work=ended_ms is None and gone_ms >= end)
    return counted


def _count_open(counted: Counted, event: dict[str, Any], until: int, *, at_work: bool) -> None:
    """Count a task of which the log has no end: it was there until its executor went, or the log ends."""
    counted.rules["tasks", "task_without_end"] += 1
    counted.rules["failed", "task_without_end"] += not at_work
    counted.rules["run_ms", "task_without_end"] += max(0, until - event["Task Info"]["Launch Time"])


def _count_task(counted: Counted, event: dict[str, Any], finish: int) -> None:
    info, metrics = event["Task Info"], event.get("Task Metrics") or {}
    facts, rules = counted.facts, counted.rules
    shuffled, wrote = (metrics.get(f"Shuffle {direction} Metrics") or {} for direction in ("Read", "Write"))
    run, gc = metrics.get("Executor Run Time", 0), metrics.get("JVM GC Time", 0)
    facts["tasks"] += 1
    facts["failed"] += bool(info.get("Failed") or info.get("Killed"))
    facts["run_ms"] += run
    facts["gc_ms"] += gc
    facts["spilled_bytes"] += metrics.get("Disk Bytes Spilled", 0)
    facts["read_bytes"] += (metrics.get("Input Metrics") or {}).get("Bytes Read", 0)
    facts["read_bytes"] += shuffled.get("Remote Bytes Read", 0) + shuffled.get("Local Bytes Read", 0)
    facts["written_bytes"] += (metrics.get("Output Metrics") or {}).get("Bytes Written", 0)
    facts["written_bytes"] += wrote.get("Shuffle Bytes Written", 0)
    # What `docs/spark.md` says of parts that do not fit into a task, worked out here once more.
    launch, getting = info["Launch Time"], info.get("Getting Result Time", 0)
    finish = max(finish, launch)
    whole_ms = (getting if launch <= getting <= finish else finish) - launch
    loading = min(metrics.get("Executor Deserialize Time", 0), whole_ms)
    good = not (info.get("Failed") or info.get("Killed"))
    if not metrics or (run == 0 and not good):
        sending = min(metrics.get("Result Serialization Time", 0), whole_ms - loading - min(run, whole_ms - loading))
        fitted = whole_ms - loading - sending
        rules["run_ms", "without metrics all its time is work"] += fitted - run
    else:
        fitted = min(run, whole_ms - loading)
        rules["run_ms", "task_parts_exceed_task"] += fitted - run
    write = min(wrote.get("Shuffle Write Time", 0), fitted * 1_000_000)
    waited = min(shuffled.get("Fetch Wait Time", 0) * 1_000_000, fitted * 1_000_000 - write)
    room = fitted * 1_000_000 - write - waited
    # In nanoseconds, so that parts of milliseconds add up.
    rules["gc_ns", "gc_exceeds_task"] += min(gc * 1_000_000, room) - gc * 1_000_000


def answered(log: LogFiles, counted: Counted) -> dict[str, int]:
    """Return what `pag spark` says of a log, in nanoseconds where it is a time.

    Parameters
    ----------
    log
        The log.
    counted
        The same log as it was counted: what the reader says it cut is added to its rules.
    """
    from pag_graph.diagnosis.spark.causes import diagnose
    from pag_graph.sources.spark.convert import map_log
    from pag_graph.sources.spark.reader import read_log

    schedule = map_log(read_log(log)).schedule
    diagnosis = diagnose(schedule)
    for finding in schedule.findings:
        if finding.finding == "task_launch_shifted" and (cut := re.search(r"(\d+) ms of work cut", finding.detail)):
            # Which task a core gives to which is the mapping's choice: only what it says of it can be taken off.
            counted.rules["run_ms", "task_launch_shifted"] -= int(cut[1])
    columns = ("tasks", "failed", "run_ns", "gc_ns", "spilled_bytes", "read_bytes", "written_bytes")
    sums = {name: int(diagnosis.stages[name].sum()) for name in columns}
    numbered = sum(job.number is not None for job in schedule.jobs)
    return {"span_ns": diagnosis.span_ns, "jobs": numbered, **sums}


def compare(told: dict[str, int], counted: Counted) -> dict[str, tuple[int, int, int]]:
    """Return per fact what `pag spark` says, what was counted, and what no rule explains.

    Parameters
    ----------
    told
        As `answered` returns it.
    counted
        The same log, counted.
    """
    rows = {}
    for fact in FACTS:
        name, scale = (fact.replace("_ms", "_ns"), 1_000_000) if fact.endswith("_ms") else (fact, 1)
        expected = counted.expected(fact) * scale
        if fact == "gc_ms":
            expected += counted.rules["gc_ns", "gc_exceeds_task"]
        rows[fact] = (told[name], counted.facts[fact] * scale, told[name] - expected)
    return rows


def logs_below(folder: Path) -> list[LogFiles]:
    """Return the logs in a folder and in all below it, each once; folders may hold none.

    Parameters
    ----------
    folder
        What holds logs beside other files.
    """
    from pag_graph.errors import TraceFormatError
    from pag_graph.sources.spark.logfiles import find_logs

    logs: dict[tuple[Path, ...], LogFiles] = {}
    for place in sorted({path.parent for path in folder.rglob("*") if path.is_file()}):
        with suppress(TraceFormatError):
            logs |= {log.files: log for log in find_logs(place)}
    return list(logs.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all logs below a folder, and say where they differ and why."""
    from pag_graph.errors import PagGraphError

    parser = argparse.ArgumentParser(prog="python -m bench.spark_public", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    equal = explained = unequal = unread = 0
    reasons: Counter[str] = Counter()
    for log in logs_below(options.folder):
        try:
            counted = count_log(log.files)
            rows = answered(log, counted)
        except PagGraphError as error:
            unread += 1
            print(f"{log.name}: {error}")
            continue
        compared = compare(rows, counted)
        differing = {fact: numbers for fact, numbers in compared.items() if numbers[0] != numbers[1]}
        wrong = {fact: numbers for fact, numbers in compared.items() if numbers[2]}
        equal, explained, unequal = (
            equal + (not differing),
            explained + bool(differing and not wrong),
            unequal + bool(wrong),
        )
        applied = {rule for (_, rule), value in counted.rules.items() if value}
        if differing and not wrong:
            reasons.update(applied)
        for fact, (answered_number, counted_number, unexplained) in differing.items():
            numbers = f"{answered_number:,} told, {counted_number:,} counted, {unexplained:,} unexplained"
            print(f"{log.name}: {fact} {numbers} ({', '.join(applied)})")
    print(
        f"{equal + explained + unequal} logs: {equal} equal, {explained} explained, {unequal} not; {unread} are no logs"
    )
    print(", ".join(f"{rule}: {count} logs" for rule, count in reasons.most_common()))
    return int(unequal > 0)


if __name__ == "__main__":
    sys.exit(main())
