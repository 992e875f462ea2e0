"""`pag spark`: point it at event logs and hear why the applications were slow."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pag_graph import errors
from pag_graph.cli.output import Format, compiling, print_csv, print_json, progress, stdout, tell_left_out, tell_next
from pag_graph.diagnosis.spark.comparison.gate import Measure
from pag_graph.store.in_place import check_output, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.sources.spark.logfiles import LogFiles

_CAUSE_COLUMNS = [
    *("log", "rank", "cause", "saved_ns", "saved_low_ns", "saved_high_ns", "share", "stage", "text", "advice"),
]


_Logs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LOG...",
        help="Event logs: files, rolling directories, or folders of logs; also at s3://, gs://, abfss://, hdfs://.",
    ),
]
_Html = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also write a page with a timeline by executor.")]
_Markdown = Annotated[
    Path | None, typer.Option(metavar="FILE.md", help="Also write the answer as Markdown, for a comment or an issue.")
]
_Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Keep trace and store here, for all other commands.")]
_Cores = Annotated[
    list[int] | None, typer.Option(metavar="N", min=1, help="Predict the end with this many cores; may be repeated.")
]
_Independent = Annotated[
    list[str] | None,
    typer.Option(
        metavar="JOBS",
        help="Predict the end if these jobs do not wait for each other: 3,4,5 or 'query 0,query 1'; may be repeated.",
    ),
]
_Calibrate = Annotated[
    Path | None,
    typer.Option(
        metavar="LOG",
        help="Log of the same program with another number of cores; it tells how much tasks slow each other down.",
    ),
]
_Processors = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of processors of each host; makes predictions for other numbers of cores more exact.",
    ),
]
_KeepTexts = Annotated[
    bool,
    typer.Option(
        "--keep-texts", help="Keep descriptions of jobs, SQL and reasons in full; only you can then read the files."
    ),
]
_Against = Annotated[
    list[str] | None,
    typer.Option(metavar="LOG", help="Say where the run differs from this one; if repeated, from the median of them."),
]
_FailOver = Annotated[
    str | None,
    typer.Option(metavar="PERCENT", help="With --against: exit code 9 if the run is this much above the median."),
]
_Of = Annotated[
    Measure,
    typer.Option(
        help="What --fail-over compares: the whole time, the time since the first job, or the time of all cores."
    ),
]
_History = Annotated[
    str | None, typer.Option(metavar="URL", help="Take logs from this History Server, by --app or --name.")
]
_Apps = Annotated[
    list[str] | None, typer.Option("--app", metavar="ID", help="With --history: id of an application; may be repeated.")
]
_Name = Annotated[
    str | None, typer.Option(metavar="REGEX", help="With --history: the newest applications whose name matches.")
]
_FleetFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.parquet", help="Only sum up many logs; the file keeps a row for each log, so each is read once."
    ),
]
_Form = Annotated[Format, typer.Option("--format", help="table for people, json with all, csv of the causes.")]


def spark(
    logs: _Logs = None,
    html: _Html = None,
    markdown: _Markdown = None,
    out: _Out = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what is in the directory.")] = False,
    cores: _Cores = None,
    independent: _Independent = None,
    calibrate: _Calibrate = None,
    processors: _Processors = None,
    top: Annotated[int, typer.Option(min=1, help="Rows of each part of the text.")] = 6,
    keep_texts: _KeepTexts = False,
    against: _Against = None,
    fail_over: _FailOver = None,
    of: _Of = Measure.SPAN,
    history: _History = None,
    apps: _Apps = None,
    name: _Name = None,
    last: Annotated[int, typer.Option(min=1, help="With --name: how many of them.")] = 1,
    fleet: _FleetFile = None,
    form: _Form = Format.TABLE,
) -> None:
    """Say why Spark applications were slow, from their event logs, and what would help.

    Reads logs of Spark 2 to 4, plain or compressed (gzip, zstd, lz4, snappy, lzf), rolled, cut short or in progress.

    Example: pag spark eventlogs/app-20261121183148-0000 --html why.html --cores 8
    """
    from pag_graph.runtime import memory

    # Before Polars is loaded; a log of many tasks is held in several forms, one after the other.
    memory.spare()
    check_output(html, ".html", ".htm")
    check_output(markdown, ".md", ".markdown")
    pages = [file for file in (html, markdown) if file is not None]
    asked: dict[str, Any] = {"cores": cores or (), "independent": independent or ()}
    asked |= {"beside": calibrate, "processors": processors}
    options: dict[str, Any] = {"pages": pages, "out": out, "replace": replace, "asked": asked, "top": top}
    compared = {"against": against or [], "fail_over": fail_over, "of": of}
    if fleet is not None:
        _say_fleet(
            logs or [], fleet, [html, markdown, out, *asked.values(), against, history, keep_texts], top=top, form=form
        )
        return
    with _places(logs or [], history, apps or [], name, last) as places:
        _say(places, compared, keep_texts=keep_texts, form=form, **options)


@contextmanager
def _places(logs: list[str], history: str | None, apps: list[str], name: str | None, last: int) -> Iterator[list[Path]]:
    """Give the places of logs; those of a server or an object store are there for as long as they are read."""
    if history is None and not logs:
        message = "No log is given."
        raise errors.InvalidParameterError(message, "pag spark LOG, or pag spark --history URL --app ID", {})
    with _local(logs) as places:
        if history is None:
            yield places
            return
        from pag_graph.sources.spark.history import choose_applications, fetch_application

        chosen = apps or choose_applications(history, name=name, last=last)
        if not chosen:
            message = "The History Server has no application of this name."
            raise errors.TraceFormatError(message, "Look at what it lists.", {"name": name})
        with TemporaryDirectory(prefix="pag-history-") as folder:
            yield [
                *places,
                *(fetch_application(history, application, Path(folder)) for application in dict.fromkeys(chosen)),
            ]


@contextmanager
def _local(logs: Sequence[str]) -> Iterator[list[Path]]:
    """Give the places of logs on this machine; those in an object store are copied, and gone afterwards."""
    if not any("://" in log for log in logs):
        yield [Path(log) for log in logs]
        return
    from pag_graph.sources.spark.object_stores import fetch_logs, is_address

    with TemporaryDirectory(prefix="pag-logs-") as folder:
        yield [
            fetch_logs(log, _new_folder(Path(folder), number)) if is_address(log) else Path(log)
            for number, log in enumerate(logs)
        ]


def _new_folder(folder: Path, number: int) -> Path:
    new_folder = folder / str(number)
    new_folder.mkdir()
    return new_folder


def _say_fleet(logs: list[str], file: Path, other_options: Sequence[object], *, top: int, form: Format) -> None:
    """Sum up many logs; the other options are about single ones."""
    from pag_graph.cli.spark_fleet import say_fleet

    if any(other_options):
        message = "--fleet sums up folders of logs, and goes with --top and --format only."
        raise errors.InvalidParameterError(message, "Ask for pages and comparisons of single logs.", {})
    say_fleet([Path(log) for log in logs], file, top=top, form=form)


def _say(
    logs: list[Path],
    compared: dict[str, Any],
    *,
    pages: Sequence[Path],
    out: Path | None,
    replace: bool,
    asked: dict[str, Any],
    top: int,
    keep_texts: bool,
    form: Format,
) -> None:
    """Answer for logs at some places, and print it."""
    from pag_graph.diagnosis.spark.lines import text_lines
    from pag_graph.sources.spark.logfiles import scan_logs

    scans = [scan_logs(path) for path in logs]
    log_files = [log for scanned, _ in scans for log in scanned]
    skipped = [entry for _, scanned in scans for entry in scanned]
    if asked["beside"] is not None:
        asked = {**asked, "beside": _only_log(asked["beside"])}
    answers: list[SparkAnswer] = []
    failed: list[errors.TraceFormatError] = []
    for log in log_files:
        folder = None if out is None else (out if len(log_files) == 1 else out / log.name)
        options: dict[str, Any] = {"folder": folder, "replace": replace, "keep_texts": keep_texts, **asked}
        try:
            answers.append(_answered(log, quiet=form is not Format.TABLE, **options))
        except errors.TraceFormatError as error:
            # One bad log among many is told, and does not keep the others from being answered.
            failed.append(error)
    unread = [error.message for error in failed[0 if answers else 1 :]]
    tell_left_out([*(f"{name}: {reason}" for name, reason in skipped), *unread])
    if not answers:
        raise failed[0]
    if compared["against"] or compared["fail_over"] is not None:
        _say_against(answers, keep_texts=keep_texts, top=top, form=form, **compared)
        return
    for file in pages:
        _write_page(file, answers, keep_texts=keep_texts)
    if form is Format.JSON:
        facts = [answer.facts() for answer in answers]
        print_json(facts[0] if len(log_files) == 1 else facts)
    elif form is Format.CSV:
        print_csv(_cause_rows(answers), _CAUSE_COLUMNS)
    else:
        for number, answer in enumerate(answers):
            stdout().print("\n".join([*([""] if number else []), *text_lines(answer, top)]), markup=False)
        for file in pages:
            stdout().print(f"Wrote {file}.")
        if out is not None:
            store = out if len(log_files) == 1 else out / answers[0].log.name
            tell_next("pag", "critical-path", store / "pag")


def _only_log(path: Path) -> LogFiles:
    """Return the only log of a place."""
    from pag_graph.sources.spark.logfiles import find_logs

    log_files = find_logs(path)
    if len(log_files) != 1:
        message = f"{path} holds {len(log_files)} logs, and --calibrate takes exactly one."
        raise errors.InvalidParameterError(message, "pag spark LOG --calibrate OTHER", {"logs": len(log_files)})
    return log_files[0]


def _say_against(answers: list[SparkAnswer], *, against: list[str], keep_texts: bool, **options: Any) -> None:
    from pag_graph.cli.spark_against import say_against
    from pag_graph.sources.spark.logfiles import find_logs

    if len(answers) != 1 or not against:
        message = "A comparison needs one log, and at least one to compare it with."
        raise errors.InvalidParameterError(message, "pag spark NEW --against BASE", {"logs": len(answers)})
    quiet = options["form"] is not Format.TABLE
    read_options = {"folder": None, "replace": False, "keep_texts": keep_texts, "cores": ()}
    with _local(against) as places:
        baselines = [_answered(log, quiet=quiet, **read_options) for path in places for log in find_logs(path)]
    say_against(answers[0], baselines, **options)


def _write_page(file: Path, answers: list[SparkAnswer], *, keep_texts: bool) -> None:
    """Write all answers as a page, or as Markdown where the file's name says so."""
    from pag_graph.diagnosis.spark.markdown import markdown_text
    from pag_graph.diagnosis.spark.page import html_page
    from pag_graph.sources.spark.texts import private

    markdown = file.suffix in {".md", ".markdown"}
    text = "\n".join(map(markdown_text, answers)) if markdown else html_page(answers)
    with private(keep_texts):
        if keep_texts and file.is_file():
            file.chmod(0o600)
        write_whole(file, text)


def _answered(log: LogFiles, *, quiet: bool, **options: Any) -> SparkAnswer:
    from pag_graph.diagnosis.spark.answer import answer

    with progress(quiet=quiet) as report, compiling("spark", quiet=quiet, report=report):
        return answer(log, progress=report, **options)


def _cause_rows(answers: Sequence[SparkAnswer]) -> list[dict[str, Any]]:
    return [
        {"log": answer.log.name, "rank": rank, **cause.facts()}
        for answer in answers
        for rank, cause in enumerate(answer.diagnosis.causes, 1)
    ]
