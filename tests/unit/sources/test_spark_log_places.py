"""Where logs lie: what Databricks rolls, what lies beside logs, and what is none."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pag_graph.cli.app import app
from pag_graph.sources.spark.logfiles import find_logs, scan_logs
from pag_graph.sources.spark.reader import read_log
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]


def one_job() -> EventLog:
    log = EventLog(cores=[1]).job(0, 1000, [0]).stage(0, 1000, tasks=1).task(0, 0, "0", 1010, 1900, run=880)
    return log.stage_done(0, 1905).job_done(0, 1910).end(2000)


def rolled_by_databricks(folder: Path, *, parts: tuple[int, ...] = (0, 1, 2)) -> None:
    lines = [line.encode() for line in one_job().lines[1:]]
    names = ["eventlog-2026-01-02--09-00.gz", "eventlog-2026-01-02--10-00.gz", "eventlog"]
    folder.mkdir()
    for number in parts:
        head = {"Event": "DBCEventLoggingListenerMetadata", "Spark Version": "3.3.0", "Rollover Number": number}
        own = [json.dumps(head).encode(), *(lines[:4], lines[4:6], lines[6:])[number]]
        content = b"\n".join(own) + b"\n"
        (folder / names[number]).write_bytes(gzip.compress(content) if names[number].endswith("gz") else content)
    (folder / "stdout").write_text("hello")
    (folder / "log4j-active.log").write_text("hello")


def test_parts_that_databricks_rolled_are_one_log(tmp_path: Path) -> None:
    rolled_by_databricks(tmp_path / "driver")
    one_job().write(tmp_path / "app-1")
    logs, skipped = scan_logs(tmp_path)
    assert [(log.name, len(log.files)) for log in logs] == [("app-1", 1), ("driver", 3)]
    assert skipped == []
    (log,) = find_logs(tmp_path / "driver")
    assert [file.name for file in log.files][-1] == "eventlog"
    read = read_log(log)
    assert (read.tasks.height, read.jobs.height, read.version, read.complete) == (1, 1, "3.3.0", True)
    assert [finding.finding for finding in read.findings] == []


def test_a_part_of_databricks_that_is_missing_is_told(tmp_path: Path) -> None:
    rolled_by_databricks(tmp_path / "driver", parts=(0, 2))
    (log,) = find_logs(tmp_path / "driver")
    found = {finding.finding: finding.observed for finding in read_log(log).findings}
    assert found["log_part_missing"] == 1


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_a_file_that_is_no_log_is_the_same_error_in_every_form(run_pag: Command, form: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no event\n")
    code, told, error = run_pag("spark", tmp_path / "notes", "--format", form)
    assert (code, told) == (3, "")
    assert "is not an event log of Spark" in error
    assert "left out" not in error


def test_what_is_left_out_of_a_directory_is_told(tmp_path: Path) -> None:
    one_job().write(tmp_path / "app-1")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "junk\x1b[2J").write_text("no event\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(one_job().content)[:12])
    (tmp_path / "folder").mkdir()
    (tmp_path / ".hidden").write_text("")
    # Its begin is a log's, and the rest is not: it is read, and refused.
    (tmp_path / "bad").write_text('{"Event":\n')
    for form in ("json", "table"):
        run = CliRunner().invoke(app, ["spark", str(tmp_path), "--format", form])
        assert run.exit_code == 0, run.output
        told = [line for line in run.stderr.splitlines() if line.startswith("left out")]
        assert told == [
            "left out: cut.gz: truncated at byte 12",
            "left out: empty: empty",
            "left out: folder: a directory without parts of a log",
            "left out: junk?[2J: no event of Spark at its begin",
            "left out: bad is not an event log of Spark: none of its lines is an event.",
        ]
