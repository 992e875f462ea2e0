"""A row for each of many logs: read once, summed up by program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pag_graph.diagnosis.spark import fleet
from pag_graph.diagnosis.spark.fleet import program_of, survey
from pag_graph.diagnosis.spark.look import Thresholds
from pag_graph.errors import TraceFormatError
from pag_graph.sources.spark.logfiles import LogFiles
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_MS = 86_400_000
SLOWER_MS = 1_000
"""So much longer takes the program `nightly` from day to day."""


def application(name: str, *, day: int, slow_ms: int) -> EventLog:
    """Return a job of three tasks on three cores, of which one takes `slow_ms` more."""
    log = EventLog(cores=[1, 1, 1]).job(0, 100, [0]).stage(0, 100, tasks=3)
    log.task(0, 0, "0", 100, 1_100, run=1_000).task(0, 1, "1", 100, 1_100, run=1_000)
    log.task(0, 2, "2", 100, 1_100 + slow_ms, run=1_000 + slow_ms)
    log.stage_done(0, 1_100 + slow_ms).job_done(0, 1_100 + slow_ms).end(1_100 + slow_ms)
    text = "\n".join(log.lines).replace("by hand", name)
    for event in (moved := [json.loads(line) for line in text.splitlines()]):
        _move(event, day * DAY_MS)
    log.events = moved
    return log


def _move(value: object, by_ms: int) -> None:
    """Move all instants of an event."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _move(part, by_ms)
    if isinstance(value, dict):
        value |= {key: t + by_ms for key, t in value.items() if isinstance(t, int) and t >= ORIGIN_MS}


@pytest.fixture
def logs(tmp_path: Path) -> list[tuple[Path, LogFiles]]:
    folder = tmp_path / "logs"
    folder.mkdir()
    for day in range(6):
        # One day is an outlier, which a trend by least squares would follow.
        slow = 60_000 if day == 3 else 10_000 + SLOWER_MS * day
        application(f"nightly 2026-11-{day + 1:02}", day=day, slow_ms=slow).write(folder / f"app-{day}")
    application("healthy", day=0, slow_ms=0).write(folder / "healthy")
    (folder / "broken").write_bytes(b'{"Event"\n')
    return [(file, LogFiles(name=file.name, files=(file,))) for file in sorted(folder.iterdir())]


def test_every_log_has_a_row_and_programs_sum_them_up(logs: list[tuple[Path, LogFiles]], tmp_path: Path) -> None:
    made = survey(logs, tmp_path / "fleet.parquet")
    assert made.rows["log"].to_list() == ["app-0", "app-1", "app-2", "app-3", "app-4", "app-5", "broken", "healthy"]
    assert made.unread["log"].to_list() == ["broken"]
    nightly, healthy = made.programs().to_dicts()
    assert (nightly["program"], nightly["runs"], healthy["runs"]) == ("nightly #-#-#", 6, 1)
    assert nightly["median_ns"] == 14_000 * 1_000_000  # of 11, 12, 13, 15, 16 and 61 s
    assert nightly["trend_ns_per_day"] == SLOWER_MS * 1_000_000
    assert healthy["trend_ns_per_day"] is None
    slow = sum(10_000 + SLOWER_MS * day for day in (0, 1, 2, 4, 5)) + 60_000
    assert nightly["idle_ns"] == 2 * slow * 1_000_000
    [repeated] = made.repeated().to_dicts()
    assert {name: repeated[name] for name in ("program", "cause", "runs", "of")} == {
        "program": "nightly #-#-#",
        "cause": "straggler",
        "runs": 6,
        "of": 6,
    }
    causes = made.rows.filter(made.rows["program"] == "nightly #-#-#")["causes"].to_list()
    assert repeated["saved_ns"] == sum(cause["saved_ns"] for own in causes for cause in own)


def test_only_what_is_new_is_read(
    logs: list[tuple[Path, LogFiles]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fleet.parquet"
    first = survey(logs[:3], file)
    assert first.read == 3
    read: list[str] = []
    usual = fleet.read_log
    monkeypatch.setattr(fleet, "read_log", lambda log: (read.append(log.name), usual(log))[1])
    assert survey(logs[1:5], file).rows["log"].to_list() == ["app-0", "app-1", "app-2", "app-3", "app-4"]
    assert read == ["app-3", "app-4"]
    grown = logs[4][0]
    grown.write_bytes(grown.read_bytes() + b"{}\n")
    assert survey(logs[1:5], file).read == 1
    assert survey(logs[1:5], file, thresholds=Thresholds(slow_ratio=3)).read == 4
    assert survey(logs[1:5], file).rows.height == 5


def test_what_was_read_before_it_was_stopped_is_kept(
    logs: list[tuple[Path, LogFiles]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_KEPT_AFTER", 2)
    usual = fleet.read_log

    def stopped(log: LogFiles) -> object:
        if log.name == "app-3":
            raise KeyboardInterrupt
        return usual(log)

    with monkeypatch.context() as patched:
        patched.setattr(fleet, "read_log", stopped)
        with pytest.raises(KeyboardInterrupt):
            survey(logs, tmp_path / "fleet.parquet")
    assert survey(logs, tmp_path / "fleet.parquet").read == len(logs) - 2


def test_another_file_is_not_overwritten(logs: list[tuple[Path, LogFiles]], tmp_path: Path) -> None:
    other = tmp_path / "notes.parquet"
    other.write_text("not a table")
    with pytest.raises(TraceFormatError, match=r"notes\.parquet cannot be read"):
        survey(logs[:1], other)
    assert other.read_text() == "not a table"


def test_the_command(
    logs: list[tuple[Path, LogFiles]], tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]]
) -> None:
    folder = logs[0][0].parent
    code, out, _ = run_pag("spark", folder, "--fleet", tmp_path / "fleet.parquet")
    assert code == 0
    assert "8 logs, 8 of them read now" in out
    assert "nightly #-#-#" in out
    assert "6 of 6" in out
    code, out, _ = run_pag("spark", folder, "--fleet", tmp_path / "fleet.parquet", "--format", "json")
    facts = json.loads(out)
    assert (code, facts["logs"], facts["read"]) == (0, 8, 0)
    assert [row["path"] for row in facts["unread"]] == [str(folder / "broken")]
    code, _, err = run_pag("spark", folder, "--fleet", tmp_path / "fleet.parquet", "--out", tmp_path / "kept")
    assert code == 2
    assert "--fleet sums up folders" in err


def test_names_lose_what_differs_from_run_to_run() -> None:
    assert program_of("daily-20261120-3f9a77c0d1 v2") == "daily-#-# v#"
