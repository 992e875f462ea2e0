"""What is no file is not waited for, and JSON that no reader could hold is refused with a reason."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api, sources
from pag_graph.errors import FormatVersionError, TraceFormatError
from pag_graph.store import capacity
from pag_graph.store.event_files import open_events, read_groups
from pag_graph.store.log import TraceLog
from pag_graph.store.safe_files import check_folder, check_regular, parse_json
from pag_graph.store.trace import Trace
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return draw("0 start 1 | 4 send 3>1 | 5 stop 1 | 10 end", "0 park | 6 unpark | 7 recv 3<0 | 10 end").write(
        tmp_path / "run[1]*.trace"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5_000 + "}", "a number of thousands of digits"),
        (r'"\ud800"', "half of a character"),
        (r'{"\udfff": 1}', "half of a character"),
        ('{"a": NaN}', "NaN"),
        ("[-Infinity]", "-Infinity"),
        ('{"a": 1, "b": 2, "a": 3}', "states 'a' twice"),
        ("{", "Expecting"),
    ],
)
def test_json_that_cannot_be_held_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_json(text)


def test_other_json_is_read() -> None:
    said = {"a": [1, 1.5, None, True, "\u00e9\U0001f600"], "b": {"c": 2**80}}
    assert parse_json(json.dumps(said)) == said


def test_pipes_and_devices_are_refused_and_links_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "folder").mkdir()
    check_folder(tmp_path)
    with pytest.raises(TraceFormatError, match="is a device"):
        check_regular([tmp_path / "file", type(tmp_path)("/dev/null")])
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other").symlink_to(tmp_path / "pipe")
    with pytest.raises(TraceFormatError, match="other is a pipe"):
        check_folder(tmp_path)
    with pytest.raises(TraceFormatError, match="cannot be listed"):
        check_folder(tmp_path / "file")


@pytest.mark.parametrize(
    "name", ["meta.json", "events/a.parquet", "workers.parquet", "findings.parquet", "checksums.json", "notes"]
)
def test_a_pipe_in_a_trace_is_not_waited_for(trace: Path, name: str) -> None:
    (trace / name).unlink(missing_ok=True)
    os.mkfifo(trace / name)
    with pytest.raises(TraceFormatError, match="is a pipe"):
        Trace.open(trace)


@pytest.mark.parametrize(
    ("entry", "value", "problem"),
    [
        ("trace_id", "\ud800", "half of a character"),
        ("dropped", {"x": 10**30}, "counts go from 0"),
        ("dropped", {"x": -1}, "counts go from 0"),
        ("workers", 10**20, "counts go from 0"),
        ("missing_progress", ["\ud800"], "half of a character"),
    ],
)
def test_entries_that_no_store_can_hold_are_refused(trace: Path, entry: str, value: object, problem: str) -> None:
    meta = trace / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), entry: value}))
    with pytest.raises(TraceFormatError, match=problem):
        Trace.open(trace)


def test_a_version_is_a_whole_number(trace: Path) -> None:
    meta = trace / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "format_version": 1.0}))
    with pytest.raises(FormatVersionError):
        Trace.open(trace)


@pytest.mark.parametrize("text", ["[" * 100_000, r'{"\ud800": 1}', '{"a": ' + "9" * 5_000 + "}"])
def test_damaged_checksums_are_refused(trace: Path, text: str) -> None:
    (trace / "checksums.json").write_text(text)
    with pytest.raises(TraceFormatError, match=r"checksums\.json cannot be read as JSON"):
        Trace.open(trace)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(("row", "value"), [(0, -(2**63)), (-1, 2**63 - 1), (0, -(2**62)), (-1, 2**62)])
def test_times_out_of_range_are_refused_before_slices_are_planned(
    trace: Path, tmp_path: Path, row: int, value: int, *, statistics: bool
) -> None:
    file = trace / "events" / "worker-000.parquet"
    table = pq.read_table(pa.OSFile(str(file)))
    times = table["t_ns"].to_pylist()
    times[row] = value
    at = table.column_names.index("t_ns")
    changed = table.set_column(at, table.schema.field(at), pa.array(times, pa.int64()))
    pq.write_table(changed, file, write_statistics=statistics)
    (trace / "checksums.json").unlink(missing_ok=True)
    with pytest.raises(TraceFormatError, match=rf"worker-000\.parquet: worker 0: event seq \d+ .*{value}"):
        api.build(trace, tmp_path / "store", engine="local", slice_events=2)


def test_a_trace_in_a_folder_whose_name_is_a_pattern_is_built(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "run1.trace").mkdir()
    assert api.build(trace, tmp_path / "store", engine="local", slice_events=2).findings.num_rows == 0


def test_row_groups_that_do_not_fit_are_refused_by_their_footer(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pag_graph.store.event_files._MANY_ROWS", 2)
    monkeypatch.setattr(capacity, "available_bytes", lambda: 10)
    name = "events/worker-000.parquet"
    with (
        open_events(trace, name) as parquet,
        pytest.raises(TraceFormatError, match=r"has 4 rows in 1 row group\(s\) .* 0\.0 are free"),
    ):
        read_groups(parquet, [0], ["t_ns"], where=name)


def test_memory_that_is_free_is_known_and_no_more_than_the_limit() -> None:
    free = capacity.available_bytes()
    assert free is None or free > 0
    assert capacity.lacking(0) is None
    if free is not None:
        assert "GiB of memory" in str(capacity.lacking(2**60))


@pytest.mark.parametrize(
    ("limit", "used", "entry"),
    [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_files_that_were_read_leave_the_group_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, used: str, entry: str
) -> None:
    """A group that has read large files seems full: what the system keeps of them was taken for memory in use."""
    for name, content in ((limit, "1000\n"), (used, "990\n"), ("memory.stat", f"anon 90\n{entry} 900\n")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(capacity, "_CGROUPS", tuple((tmp_path, *names) for _, *names in capacity._CGROUPS))
    assert capacity.available_bytes() == 910


def test_a_row_group_of_many_workers_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took one reading per worker, so a table of thousands of workers was built in quadratic time."""
    (tmp_path / "log").mkdir()
    workers = "".join(f"w{number},{at},{at + 1},busy\n" for number in range(30) for at in range(4))
    (tmp_path / "log" / "activities.csv").write_text("worker,start,end,activity\n" + workers)
    sources.convert(tmp_path / "log", tmp_path / "trace")
    log = TraceLog.index(Trace.open(tmp_path / "trace"))
    reads = []
    expected = {worker: log.read(worker, 1, 6, ["t_ns", "kind"]).to_pylist() for worker in log.chunks}
    reads: list[object] = []

    def counted(parquet: pq.ParquetFile, groups: list[int], names: list[str], **rest: Any) -> pa.Table:
        reads.append(groups)
        return read_groups(parquet, groups, names, **rest)

    monkeypatch.setattr("pag_graph.store.log.read_groups", counted)
    forward = log.forward()
    for worker, rows in expected.items():
        read = pa.concat_tables(forward.tables(worker, 1, 6, ["t_ns", "kind"]))
        assert read.to_pylist() == rows
    assert reads == [[0]]
