"""Texts of people and programs in an event log: none of them leaves the reader unless somebody asks for them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph.sources.spark.texts import OTHER, Texts
from tests.support.spark_logs import ORIGIN_MS, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]

SECRET = "hunter2"
SQL = f"SELECT * FROM cards WHERE pin = '{SECRET}'"
KEPT = ("description", "execution", "stage", "node", "removed")
"""Fields whose text `--keep-texts` shows somewhere."""


def secret(field: str) -> str:
    return f"{SQL} -- {field}"


def planted() -> EventLog:
    """Return a log with a secret in every text that Spark writes of a program, but for the program's own name."""
    log = EventLog(cores=[1, 1])
    log.add(
        "SparkListenerEnvironmentUpdate",
        **{
            "Spark Properties": {"spark.password": secret("setting"), "spark.master": secret("master")},
            "JVM Information": {"Java Home": secret("jvm")},
            "Classpath Entries": {secret("classpath"): "x"},
        },
    )
    log.add("SparkListenerNews: " + secret("event name"), text=secret("event"))
    node = {
        "nodeName": f"Scan JDBCRelation(({secret('node')}) x)",
        "simpleString": secret("simple string"),
        "metadata": {"Location": secret("metadata")},
        "metrics": [{"name": secret("metric"), "accumulatorId": 7, "metricType": secret("metric type")}],
        "children": [{"nodeName": secret("child"), "simpleString": secret("child string"), "children": []}],
    }
    sql = "org.apache.spark.sql.execution.ui.SparkListenerSQL"
    log.add(
        f"{sql}ExecutionStart",
        executionId=3,
        description=secret("execution"),
        details=secret("details"),
        physicalPlanDescription=secret("plan"),
        sparkPlanInfo=node,
        modifiedConfigs={"spark.sql.x": secret("config")},
        jobTags=[secret("tag")],
        time=ORIGIN_MS + 60,
    )
    properties = {
        "spark_sql_execution_id": "3",
        "spark_job_description": secret("description"),
        "spark_jobGroup_id": secret("group"),
        "spark_scheduler_pool": secret("pool"),
        "callSite_short": secret("short"),
        "callSite_long": secret("long"),
        "sql_streaming_queryId": secret("stream"),
        "streaming_sql_batchId": "4",
    }
    log.job(0, 100, [0], **properties)
    _stage_texts(log.events[-1]["Stage Infos"][0])
    log.stage(0, 110, tasks=3)
    log.task(0, 0, "0", 120, 400, run=200).task(0, 1, "1", 120, 300, reason="ExceptionFailure")
    log.events[-1]["Task End Reason"] |= {
        "Class Name": "com.example.CardError",
        "Description": secret("exception"),
        "Full Stack Trace": secret("trace"),
    }
    log.task(0, 1, "1", 310, 500, attempt=1, reason="ExecutorLostFailure")
    log.events[-1]["Task End Reason"]["Loss Reason"] = secret("loss")
    log.executor_gone("1", 510, secret("removed"))
    log.task(0, 1, "0", 520, 700, attempt=2, reason=secret("reason")).task(0, 1, "0", 710, 900, attempt=3, run=100)
    log.task(0, 2, "0", 900, 910, reason="FetchFailed")
    log.events[-1]["Task End Reason"]["Message"] = secret("fetch")
    log.stage_done(0, 1000, failure=secret("failure"))
    log.job_done(0, 1005, failed=True)
    log.events[-1]["Job Result"]["Exception"]["Message"] = secret("job error")
    # A second job has neither query nor description.
    log.job(1, 1010, [1]).stage(1, 1020, tasks=1).task(1, 0, "0", 1030, 1400, run=300).stage_done(1, 1410)
    for event in log.events[-4:]:
        if "Stage Info" in event:
            _stage_texts(event["Stage Info"])
    log.job_done(1, 1420)
    log.add(f"{sql}ExecutionEnd", executionId=3, time=ORIGIN_MS + 1100, errorMessage=secret("error message"))
    return log.end(3000)


def _stage_texts(info: dict[str, Any]) -> None:
    info |= {
        "Stage Name": secret("stage"),
        "Details": secret("stage details"),
        "RDD Info": [
            {
                "RDD ID": 1,
                "Name": secret("rdd"),
                "Scope": f'{{"id":"1","name":"Scan {secret("scope")}"}}',
                "Callsite": secret("site"),
            }
        ],
        "Accumulables": [{"ID": 7, "Name": secret("accumulable"), "Value": "100"}],
    }


def contents(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield every file below a folder as text; tables as rows, names of files and metadata as well."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield str(file), str(file.relative_to(folder))
        yield str(file), file.read_bytes().decode("latin-1")
        if file.suffix == ".parquet":
            yield str(file), str(pl.read_parquet(file).to_dicts())


def answers(run_pag: Command, folder: Path, *options: str) -> list[tuple[str, str]]:
    """Return all that is written and said about the planted log, with where it stands."""
    log = planted().write(folder / "app-1")
    out = folder / "out"
    out.mkdir()
    said = [("text", run_pag("spark", log, "--html", out / "page.html", "--out", out / "run", *options))]
    said += [(form, run_pag("spark", log, "--format", form, *options)) for form in ("json", "csv")]
    said += [("convert", run_pag("convert", log, out / "trace", *options))]
    store = out / "run" / "pag"
    said += [("info", run_pag("info", store)), ("check", run_pag("check", store)), ("why", run_pag("why", store))]
    said += [("path", run_pag("critical-path", store, "--role", "shutdown", "--format", "csv"))]
    for name in ("run.json", "run.graphml", "run.svg"):
        said.append((name, run_pag("export", store, out / name)))
    said.append(("csv", run_pag("export", store, out / "tables", "--to", "csv")))
    assert [name for name, (code, _, _) in said if code not in {0, 9}] == []
    return [*((name, f"{text}\n{errors}") for name, (_, text, errors) in said), *contents(out)]


def test_no_text_reaches_any_output(run_pag: Command, tmp_path: Path) -> None:
    told = answers(run_pag, tmp_path)
    assert [where for where, text in told if SECRET in text] == []
    whole = "\n".join(text for _, text in told)
    # Names of code and of Spark are there.
    for name in ("Scan JDBCRelation", "query 3", "other reason", "by hand"):
        assert name in whole, name


def test_texts_are_kept_where_asked_for_and_are_the_users_alone(run_pag: Command, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        log = planted().write(tmp_path / "app-1")
        run, trace, page = tmp_path / "run", tmp_path / "trace", tmp_path / "page.html"
        # A page that others could read so far.
        page.touch(0o644)
        code, said, _ = run_pag("spark", log, "--html", page, "--out", run, "--keep-texts")
        assert code == 0
        assert run_pag("convert", log, trace, "--keep-texts")[0] == 0
        assert run_pag("convert", log, tmp_path / "public")[0] == 0
    finally:
        assert os.umask(before) == 0o022
    whole = said + page.read_text() + "".join(text for _, text in contents(run))
    for field in KEPT:
        assert secret(field)[:60] in whole, field
    private = [page, *run.rglob("*"), trace, *trace.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o700, 0o600}
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) & 0o055


def test_other_formats_have_no_texts_to_keep(run_pag: Command, tmp_path: Path) -> None:
    (tmp_path / "activities.csv").write_text("worker,activity,start,end\n0,processing,0,10\n")
    code, _, error = run_pag("convert", tmp_path, tmp_path / "trace", "--keep-texts")
    assert code == 2
    assert "has no texts that would be left out" in " ".join(error.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count at NativeMethodAccessorImpl.java:0", "count"),
        ("collect at /srv/ada lovelace/x/etl.py:12", "collect at etl.py:12"),
        ("$anonfun$call$1 at CompletableFuture.java:1768", "$anonfun$call$1 at CompletableFuture.java:1768"),
        ("print at <console>:26", "print at <console>:26"),
        ("collect at null:-1", "collect at null:-1"),
        ("<unknown> at <unknown>:0", "<unknown>"),
        ("login at hunter2:22", ""),
        ("SELECT 1 at etl.py:12", ""),
        ("collect at etl.py:12\nSELECT 1", ""),
        (f"collect at {'a' * 600}.py:1", ""),
        (None, ""),
        ({"a": 1}, ""),
    ],
)
def test_call_sites(text: Any, expected: str) -> None:
    assert Texts().call_site(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HashAggregate", "HashAggregate"),
        ("WholeStageCodegen (12)", "WholeStageCodegen (12)"),
        ("Scan parquet spark_catalog.default.cards", "Scan parquet"),
        ("Scan hunter2.cards", "Scan"),
        ("Scan csv ", "Scan csv"),
        ("Execute InsertIntoHadoopFsRelationCommand", "Execute InsertIntoHadoopFsRelationCommand"),
        ("In-memory table `hunter2`", "In"),
        ("BatchScan parquet file:/srv/hunter2", "BatchScan"),
        ("'hunter2'", OTHER),
        ("", OTHER),
    ],
)
def test_plan_nodes(text: str, expected: str) -> None:
    assert Texts().node(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Command exited with code 137", "Command exited with code 137"),
        ("Container from a bad node: c_1 on host: h7. Exit status: 143. Diagnostics: hunter2", "Exit status: 143"),
        ("Executor heartbeat timed out after 120000 ms", "heartbeat timed out after 120000 ms"),
        ("Executor killed by driver.", "killed by driver"),
        ("hunter2", "other reason"),
        ("Worker lost\nhunter2", "Worker lost"),
        ("", ""),
    ],
)
def test_reasons(text: str, expected: str) -> None:
    assert Texts().reason(text) == expected
    assert Texts(keep=True).reason(text) == text.split("\n", maxsplit=1)[0]


def test_streams_stay_apart_by_their_ids() -> None:
    texts = Texts()
    assert texts.query("7d553db7-d5d4-4ba2-af35-17f2b50809dc") == "7d553db7-d5d4-4ba2-af35-17f2b50809dc"
    assert len({texts.query("hunter2"), texts.query("hunter3"), "hunter2", "hunter3"}) == 4
    assert texts.query(None) is None


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ({"Reason": "Success"}, "Success"),
        (
            {"Reason": "ExceptionFailure", "Class Name": "com.example.CardError", "Description": "hunter2"},
            "ExceptionFailure: com.example.CardError",
        ),
        ({"Reason": "ExceptionFailure", "Class Name": "hunter2 said"}, f"ExceptionFailure: {OTHER}"),
        ({"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded"}, "TaskKilled: another attempt succeeded"),
        ({"Reason": "FetchFailed", "Message": "hunter2"}, "FetchFailed: other reason"),
        ({"Reason": "hunter2"}, "other reason"),
    ],
)
def test_ends_of_tasks(reason: dict[str, Any], expected: str) -> None:
    assert Texts().task_end(reason) == expected


ABORTED = "Job aborted due to stage failure: Task 5 in stage 3.0 failed 4 times, most recent failure: Lost task (TID 1)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{ABORTED} (host executor 0): com.acme.GpuSplitAndRetryOOM: buffer of ada's secret\n\tat a.b.C",
            "Job aborted due to stage failure, failed 4 times, com.acme.GpuSplitAndRetryOOM",
        ),
        (f"{ABORTED} (host executor 17): a.b.C: no", "Job aborted due to stage failure, failed 4 times, a.b.C"),
        ("Job 34 cancelled because SparkContext was shut down", "Job 34 cancelled, because SparkContext was shut down"),
        ("Traceback (most recent call last):\nValueError: pin 1234 of ada", "ValueError"),
        ("ada's hunter2Exception is 1234", ""),
        (None, ""),
        ({"a": "secret"}, ""),
    ],
)
def test_failures_of_jobs_are_phrases_and_classes(text: Any, expected: str) -> None:
    assert Texts().failure(text) == expected
