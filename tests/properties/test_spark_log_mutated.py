"""Event logs with anything done to them: always read or refused with our own error, and nothing is lost silently."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.errors import TraceFormatError
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import LogFiles
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import EventLog, check_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.sources.spark.log_tables import SparkLog

PROVE = os.environ.get("PAG_PROVE") == "1"
READ = 100_000 if PROVE else 300
"""Mutated logs that are read."""
MAPPED_EACH = 20 if PROVE else 5
"""Of so many read ones, one is mapped and diagnosed as well."""


NUMBERS = (b"1e308", b"9223372036854775808", b"2147483647", b"4611686018426", b"9" * 5_000)
TEXTS = (rb'"\ud800"', rb'"\u0000\u202e[/x]"', b"[" * 2_000 + b"]" * 2_000)
"""Numbers at the limits of what computers hold, and texts that some of them cannot hold at all."""


def original() -> EventLog:
    log = EventLog(cores=[2, 1]).job(0, 100, [0, 1], parents={1: [0]}, spark_sql_execution_id="0")
    log.add(
        "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
        executionId=0,
        description="count at program.py:1",
        time=1_700_000_000_050,
        sparkPlanInfo={
            "nodeName": "HashAggregate",
            "simpleString": "HashAggregate(keys=[])",
            "children": [{"nodeName": "Exchange", "simpleString": "Exchange", "children": [], "metrics": []}],
            "metrics": [{"name": "time in aggregation build", "accumulatorId": 3, "metricType": "timing"}],
        },
    )
    log.stage(0, 110, tasks=4)
    for index in range(4):
        start = 120 + 60 * index
        log.task(
            0, index, str(index % 2), start, start + 90, run=60, deserialize=10, serialize=2, gc=5, write_ns=3_000_000,
            wrote=(100 * (index + 1), 10), input_records=50,
        )  # fmt: skip
    log.stage_done(0, 400).stage(1, 401, tasks=3)
    log.task(1, 0, "0", 410, 440, run=20, read=(300, 100, 20), getting=430)
    log.task(1, 1, "0", 410, 500, reason="ExceptionFailure").task(1, 2, "1", 412, 900, run=450, read=(500, 90, 20))
    log.executor_gone("1", 950).executor("2", 960, 1)
    log.task(1, 1, "2", 970, 1000, run=20, attempt=1, read=(10, 0, 1)).stage_done(1, 1001).job_done(0, 1005)
    log.job(1, 300, [2]).stage(2, 305, tasks=1).task(2, 0, "0", 501, 530, run=20).stage_done(2, 531).job_done(1, 540)
    return log.end(1200)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Return a log to which one to four things were done: to bytes, numbers, lines, or all that follows a place."""
    for _ in range(chance.randint(1, 4)):
        lines = content.split(b"\n")
        at = chance.randrange(len(lines))
        match chance.randrange(9):
            case 0:
                place = chance.randrange(len(content))
                content = content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]
                continue
            case 1:
                content = content[: chance.randrange(1, len(content) + 1)]
                continue
            case 2:
                del lines[at]
            case 3:
                lines.insert(at, lines[chance.randrange(len(lines))])
            case 4:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 5:
                lines[at] = _other_number(lines[at], chance)
            case 6:
                words = [
                    b"null",
                    b"{}",
                    b"[]",
                    b'""',
                    b"true",
                    b"-1",
                    b"1e9",
                    b"99999999999999999999",
                    *NUMBERS,
                    *TEXTS,
                ]
                head, colon, rest = lines[at].rpartition(b":")
                tail = rest.lstrip(b'0123456789"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-')
                lines[at] = head + colon + chance.choice(words) + tail
            case 7:
                lines[at] = lines[at][: len(lines[at]) // 2]
            case _:
                key = chance.choice([b"Launch Time", b"Stage ID", b"Executor ID", b"Task ID", b"Job ID", b"Task Info"])
                lines[at] = lines[at].replace(key, b"Other")
        content = b"\n".join(lines) or b"\n"
    return content


def _other_number(line: bytes, chance: random.Random) -> bytes:
    places = [k for k, byte in enumerate(line) if 48 <= byte <= 57]
    if not places:
        return line
    at = chance.choice(places)
    return line[:at] + bytes([48 + chance.randrange(10)]) + line[at + 1 :]


def accounted(content: bytes, log: SparkLog) -> None:
    """Check that every line is an event that was read, or in a finding."""
    lines = [line for line in content.split(b"\n") if line]
    found = {finding.finding: finding.observed for finding in log.findings if finding.finding != "event_damaged"}
    assert sum(log.events.values()) + found.get("line_unreadable", 0) + found.get("line_too_long", 0) == len(lines)
    damaged = sum(finding.observed for finding in log.findings if finding.finding == "event_damaged")
    ends = log.events.get("SparkListenerTaskEnd", 0)
    seen = log.tasks.filter(pl.col("flags") & 8 != 0).height
    left_out = damaged + found.get("second_application", 0)
    assert seen <= ends <= seen + left_out + found.get("task_end_twice", 0)


def read(path: Path, content: bytes) -> SparkLog | None:
    path.write_bytes(content)
    try:
        return read_log(LogFiles(name=path.name, files=(path,)))
    except TraceFormatError:
        return None


def test_the_original_is_whole(tmp_path: Path) -> None:
    log = read(tmp_path / "log", original().content)
    assert log is not None
    assert log.findings == []
    assert log.tasks.height == 9


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(20))
def test_mutated_logs(seed: int, tmp_path: Path) -> None:
    content, file = original().content, tmp_path / "log"
    for number in range(READ // 20):
        chance = random.Random(f"{seed}-{number}")
        changed = mutated(content, chance)
        began = time.process_time()
        try:
            log = read(file, changed)
            if log is None:
                continue
            accounted(changed, log)
            if number % MAPPED_EACH == 0:
                mapped = map_log(log)
                check_rows(pl.concat([pl.from_arrow(table) for _, table in mapped.events()], how="diagonal"))
                diagnosis = diagnose(mapped.schedule)
                assert diagnosis.span_ns == mapped.schedule.end_ns
        except Exception as error:
            error.add_note(f"log {seed}-{number}")
            raise
        # No hang: a log of 8 kB takes milliseconds.
        assert time.process_time() - began < 60
