from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph.errors import StoreExistsError, TraceFormatError
from pag_graph.sources import FORMATS, convert, detect_format

if TYPE_CHECKING:
    from pathlib import Path


def test_unknown_formats_are_explained(tmp_path: Path) -> None:
    pl.DataFrame({"seq_no": [1], "epoch": [2]}).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(TraceFormatError, match="in no known format") as caught:
        detect_format(tmp_path / "log.parquet")
    assert all(f"{name}: " in caught.value.message for name in FORMATS)
    assert "st2-lrs: it lacks the column(s) timestamp, local_worker" in caught.value.message


def test_a_directory_without_logs(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"timely-prototype: the directory holds no meta-N.json; st2-raw: it is"):
        convert(tmp_path, tmp_path / "trace")


def test_a_canonical_trace_needs_no_conversion(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "meta.json").touch()
    with pytest.raises(TraceFormatError, match="needs no conversion"):
        detect_format(tmp_path)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("hello")
    with pytest.raises(TraceFormatError, match="st2-raw: it cannot be read as Parquet"):
        detect_format(tmp_path / "log.txt")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="There is nothing at"):
        convert(tmp_path / "nowhere", tmp_path / "trace")


def test_more_than_one_format_fits(tmp_path: Path) -> None:
    names = (
        "epoch seq_no length ts worker kind id is_send source target channel msg_seq msg_length addr name"
        " timestamp local_worker activity_type event_type remote_worker operator_id channel_id correlator_id"
    )
    pl.DataFrame({name: [1] for name in names.split()}).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(TraceFormatError, match=r"more than one known format .*st2-raw: fits; st2-lrs: fits"):
        detect_format(tmp_path / "log.parquet")


def test_a_format_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"'csv' is not known.\n.*timely-prototype, st2-raw, st2-lrs"):
        convert(tmp_path, tmp_path / "trace", format="csv")
    with pytest.raises(TraceFormatError, match="is not in the format st2-raw: it is not a file"):
        convert(tmp_path, tmp_path / "trace", format="st2-raw")


def test_existing_targets_are_kept(tmp_path: Path) -> None:
    columns = ("timestamp", "seq_no", "epoch", "local_worker", "remote_worker", "operator_id", "channel_id")
    pl.DataFrame(
        {
            **{name: [1] for name in (*columns, "correlator_id", "length")},
            "activity_type": ["Scheduling"],
            "event_type": ["Start"],
        }
    ).write_parquet(tmp_path / "lrs.parquet")
    first = convert(tmp_path / "lrs.parquet", tmp_path / "trace")
    with pytest.raises(StoreExistsError):
        convert(tmp_path / "lrs.parquet", tmp_path / "trace")
    assert convert(tmp_path / "lrs.parquet", tmp_path / "trace", replace=True, format="st2-lrs") == first
