"""Logs in object stores: what is copied, what is refused, and that nothing stays."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.sources.spark.history import Bounds
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.object_stores import fetch_logs, is_address
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a folder that stands for a bucket: two logs, of which one is rolled, and an object far below."""
    log = EventLog().job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 100, 900, run=800)
    log.stage_done(0, 901).job_done(0, 902).end(1_000)
    bucket = tmp_path / "bucket"
    (bucket / "eventlog_v2_app-2").mkdir(parents=True)
    log.write(bucket / "app-1")
    log.write(bucket / "eventlog_v2_app-2" / "events_1_app-2")
    (bucket / "a" / "b").mkdir(parents=True)
    (bucket / "a" / "b" / "far").write_bytes(b"below")
    return bucket


def test_a_folder_of_logs_and_a_log_are_copied(store: Path, tmp_path: Path) -> None:
    place = fetch_logs(store.as_uri(), tmp_path / "copied")
    assert sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()) == [
        "app-1",
        "eventlog_v2_app-2/events_1_app-2",
    ]
    assert [log.name for log in find_logs(place)] == ["app-1", "eventlog_v2_app-2"]
    one = fetch_logs((store / "app-1").as_uri(), tmp_path / "one")
    assert one.read_bytes() == (store / "app-1").read_bytes()


@pytest.mark.parametrize(
    ("bounds", "said"), [(Bounds(content_bytes=2_000), "larger than"), (Bounds(members=1), "more than 1 files")]
)
def test_there_are_bounds(store: Path, tmp_path: Path, bounds: Bounds, said: str) -> None:
    with pytest.raises(TraceFormatError, match=said):
        fetch_logs(store.as_uri(), tmp_path / "copied", bounds=bounds)


def test_what_is_not_there_and_what_is_no_address(store: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="There is no event log at file:"):
        fetch_logs((store / "absent").as_uri(), tmp_path / "copied")
    assert is_address("s3a://bucket/eventlogs")
    assert not is_address("eventlogs:old/app-1")
    assert not is_address("/folder/s3://bucket")


@pytest.mark.parametrize("address", ["s3://key:secret@bucket/logs", "s3://bucket/logs?access_key=a&secret_key=secret"])
def test_passwords_are_refused_and_not_told(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        fetch_logs(address, tmp_path)
    assert "secret" not in f"{refused.value} {refused.value.context}".replace("secret_key", "")


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="is not an address"):
        fetch_logs("s3://[::1/logs", tmp_path)


def test_the_command_answers_for_an_address_and_keeps_nothing(
    store: Path, tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    code, out, err = run_pag("spark", store.as_uri(), "--format", "csv")
    assert code == 0, err
    assert out.startswith("log,rank,cause")
    code, out, err = run_pag("spark", (store / "app-1").as_uri(), "--against", store.as_uri(), "--format", "json")
    assert code == 0, err
    assert list(own.iterdir()) == []
