"""`pag spark DIR --fleet FILE.parquet`: what many applications lose, and which of them grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph import errors
from pag_graph.cli.output import Format, print_csv, print_json, print_rows, progress, stdout, tell_left_out

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pag_graph.diagnosis.spark.fleet import Fleet

__all__ = ["say_fleet"]

_NS_PER_HOUR = 3_600_000_000_000
_COLUMNS = ["path", "app_name", "program", "started_ms", "span_ns", "active_ns", "busy_ns", "wasted_ns", "idle_ns"]


def say_fleet(folders: Sequence[Path], file: Path, *, top: int, form: Format) -> None:
    """Bring the rows of a file up to date with the logs of some folders, and print what they sum up to.

    Raises
    ------
    InvalidParameterError
        If no folder is given.
    """
    from pag_graph.diagnosis.spark.fleet import survey
    from pag_graph.sources.spark.logfiles import scan_logs

    if not folders:
        message = "No folder of logs is given."
        raise errors.InvalidParameterError(message, "pag spark DIR --fleet FILE.parquet", {})
    logs, left_out = [], []
    for folder in folders:
        of_folder, skipped = scan_logs(folder)
        # A log is known by where it lies: a folder of parts by itself, a file by its name in the folder.
        logs += [(log.files[0] if len(log.files) == 1 else log.files[0].parent, log) for log in of_folder]
        left_out += [f"{name}: {reason}" for name, reason in skipped]
    tell_left_out(left_out)
    with progress(quiet=form is not Format.TABLE) as report:
        fleet = survey(logs, file, progress=report)
    if form is Format.JSON:
        print_json(fleet.facts())
    elif form is Format.CSV:
        print_csv(fleet.answered.to_dicts(), _COLUMNS)
    else:
        _print(fleet, file, top)


def _print(fleet: Fleet, file: Path, top: int) -> None:
    unread = fleet.unread
    log_count = fleet.rows.height
    stdout().print(f"{log_count} logs, {fleet.read} of them read now, the others known from {file}.", markup=False)
    programs = fleet.programs().head(top).to_dicts()
    print_rows(
        [_hours(program) for program in programs], list(_hours({})), "Programs that leave most time of cores unused"
    )
    repeated = [
        {
            "program": cause_row["program"],
            "cause": cause_row["cause"],
            "runs": f"{cause_row['runs']} of {cause_row['of']}",
            "saved": _time(cause_row["saved_ns"]),
        }
        for cause_row in fleet.repeated().head(top).to_dicts()
    ]
    if repeated:
        print_rows(
            repeated, ["program", "cause", "runs", "saved"], "Causes, with what all runs would have saved at most"
        )
    tell_left_out([f"{log_row['path']}: {log_row['error']}" for log_row in unread.to_dicts()])


def _hours(program: dict[str, Any]) -> dict[str, Any]:
    """Return a program's row for people; the names of the columns for an empty one."""
    trend = program.get("trend_ns_per_day")
    return {
        "program": program.get("program", ""),
        "runs": program.get("runs", 0),
        "median": _time(program.get("median_ns") or 0),
        "core-hours": f"{program.get('busy_ns', 0) / _NS_PER_HOUR:,.2f}",
        "wasted": f"{program.get('wasted_ns', 0) / _NS_PER_HOUR:,.2f}",
        "idle": f"{program.get('idle_ns', 0) / _NS_PER_HOUR:,.2f}",
        "per day": "" if trend is None else f"{trend / 1e9:+,.2f} s",
    }


def _time(ns: float) -> str:
    from pag_graph.diagnosis.spark.lines import seconds

    return seconds(ns)
