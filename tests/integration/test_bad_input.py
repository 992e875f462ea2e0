"""Traces that are broken, and places that are taken: a typed error or a finding, and never half a store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.errors import (
    FormatVersionError,
    MissingColumnError,
    PagGraphError,
    SchemaError,
    StoreExistsError,
    TraceFormatError,
    UnsupportedPlanError,
)
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace

    Pag = Callable[..., tuple[int, str]]

GOOD = draw(
    "0 start 1 | 4 send 3>1 | 5 stop 1 | 10 end | 12 start 1 | 20 stop 1 | 30 end",
    "0 park | 6 unpark | 7 recv 3<0 | 11 end | 30 end",
)
EVENTS = "events/worker-001.parquet"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return GOOD.write(tmp_path / "trace")


def rewrite(trace: Path, change: Callable[[pa.Table], pa.Table], name: str = EVENTS) -> None:
    pq.write_table(change(pq.read_table(trace / name)), trace / name)


def truncate(trace: Path, name: str = EVENTS) -> None:
    content = (trace / name).read_bytes()
    (trace / name).write_bytes(content[: len(content) // 2])


def damage_pages(trace: Path) -> None:
    """Leave the footer whole, so that only whoever reads the rows can tell."""
    content = bytearray((trace / EVENTS).read_bytes())
    content[4 : len(content) // 3] = b"\xff" * (len(content) // 3 - 4)
    (trace / EVENTS).write_bytes(content)


def set_meta(trace: Path, **changes: object) -> None:
    file = trace / "meta.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def replace_trace(trace: Path, small: SmallTrace) -> None:
    for file in (trace / "events").iterdir():
        file.unlink()
    small.write(trace.with_name("other"))
    for file in (trace.with_name("other") / "events").iterdir():
        file.rename(trace / "events" / file.name)


def set_event(trace: Path, row: int, **changes: object) -> None:
    def change(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[row] |= changes
        return pa.Table.from_pylist(rows, table.schema)

    rewrite(trace, change)


def drop_all(trace: Path) -> None:
    for file in (trace / "events").iterdir():
        rewrite(trace, lambda table: table.slice(0, 0), f"events/{file.name}")


def null_time(trace: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        values = [None, *table["t_ns"].to_pylist()[1:]]
        return table.set_column(table.column_names.index("t_ns"), "t_ns", pa.array(values, pa.int64()))

    rewrite(trace, change)


# What is done to the trace, the error, and what its message must name.
BROKEN: dict[str, tuple[Callable[[Path], object], type[PagGraphError], tuple[str, ...]]] = {
    "missing-column": (
        lambda trace: rewrite(trace, lambda table: table.drop_columns(["seq"])),
        MissingColumnError,
        (EVENTS, "seq"),
    ),
    "wrong-type": (
        lambda trace: rewrite(trace, lambda table: table.set_column(3, "t_ns", table["t_ns"].cast(pa.float64()))),
        SchemaError,
        (EVENTS, "t_ns", "double"),
    ),
    "no-value": (null_time, TraceFormatError, (EVENTS, "worker 1", "seq 0", "t_ns")),
    "truncated-events": (truncate, TraceFormatError, (EVENTS, "truncated")),
    "truncated-workers": (lambda trace: truncate(trace, "workers.parquet"), TraceFormatError, ("workers.parquet",)),
    "damaged-pages": (damage_pages, PagGraphError, (EVENTS,)),
    "no-parquet": (lambda trace: (trace / EVENTS).write_text("hello"), TraceFormatError, (EVENTS,)),
    "same-seq": (
        lambda trace: set_event(trace, 2, seq=1),
        TraceFormatError,
        (EVENTS, "worker 1", "event seq 1 occurs more than once"),
    ),
    "falling-seq": (lambda trace: set_event(trace, 2, seq=0), TraceFormatError, (EVENTS, "worker 1", "seq 0")),
    "clock-goes-back": (
        lambda trace: set_event(trace, 2, t_ns=2),
        TraceFormatError,
        (EVENTS, "worker 1", "event seq 2 happened 4 ns before event seq 1"),
    ),
    "epoch-goes-back": (
        lambda trace: set_event(trace, 1, epoch=3),
        TraceFormatError,
        (EVENTS, "worker 1", "event seq 2 is of epoch 0"),
    ),
    "unknown-kind": (
        lambda trace: set_event(trace, 2, kind="nap"),
        TraceFormatError,
        (EVENTS, "worker 1", "seq 2", "'nap'"),
    ),
    "unknown-worker": (lambda trace: set_event(trace, 2, worker=9), TraceFormatError, (EVENTS, "worker 9")),
    "empty": (drop_all, TraceFormatError, ("no events",)),
    "format-version": (
        lambda trace: set_meta(trace, format_version=99),
        FormatVersionError,
        ("meta.json", "99", "version 1"),
    ),
    "meta-is-no-json": (
        lambda trace: (trace / "meta.json").write_text("{"),
        TraceFormatError,
        ("meta.json",),
    ),
    "prepared": (lambda trace: set_meta(trace, prepared=True), UnsupportedPlanError, ("--rules st2",)),
}


@pytest.fixture
def pag(run_pag: Callable[..., tuple[int, str, str]]) -> Pag:
    """Run the command in this process; gives its exit code and all that it said, line breaks taken out."""

    def run(*arguments: object) -> tuple[int, str]:
        code, out, err = run_pag(*arguments)
        return code, " ".join((out + err).split())

    return run


@pytest.mark.parametrize("exists", [False, True], ids=["new", "replace"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_trace_is_a_typed_error(trace: Path, tmp_path: Path, name: str, *, exists: bool) -> None:
    store = tmp_path / "store"
    if exists:
        api.build(trace, store, engine="local")
        before = api.open(store).run.info.versions
    break_it, kind, words = BROKEN[name]
    break_it(trace)
    with pytest.raises(kind) as caught:
        api.build(trace, store, engine="local", mode="replace", slice_events=2)
    for word in words:
        assert word in str(caught.value), word
    if exists:
        assert api.open(store).run.info.versions == before
        assert not list(store.glob("_staging-*"))
    else:
        assert not store.exists() or not any(store.iterdir())


@pytest.mark.parametrize("name", BROKEN)
def test_the_command_names_it_and_its_exit_code_is_stable(trace: Path, tmp_path: Path, pag: Pag, name: str) -> None:
    break_it, kind, words = BROKEN[name]
    break_it(trace)
    code, text = pag("build", trace, tmp_path / "store", "--engine", "local")
    assert code == (8 if kind is UnsupportedPlanError else 3)
    assert "error" in text
    assert "Traceback" not in text
    shown = text.replace(" ", "")
    for word in words:
        assert word.replace(" ", "") in shown, word


@pytest.mark.parametrize(
    ("small", "finding", "worker", "seq"),
    [
        (GOOD.changed(0, 1), "receive_without_send", 1, 2),
        (GOOD.changed(1, 2), "send_without_receive", 0, 1),
        (GOOD.changed(0, 1, t_ns=5), None, None, None),
        (GOOD.changed(1, 1), "park_without_unpark", 1, 0),
        (GOOD.changed(1, 0), "unpark_without_park", 1, 1),
        (GOOD.changed(0, 0), "stop_without_start", 0, 2),
        (GOOD.changed(1, 3, peer=None), None, None, None),
        (draw("0 send 3>1 | 9 end", "0 recv 3<0 | 9 end", offsets_ns=[0, -5]), "negative_transfer", 1, 0),
        (draw("0 end | 9 end", "3 end"), "epoch_incomplete", None, None),
        (draw("0 start 1 | 9 stop 1", "3 start 1"), "epoch_end_not_logged", None, None),
    ],
)
def test_what_can_be_understood_is_a_finding(
    tmp_path: Path, small: SmallTrace, finding: str | None, worker: int | None, seq: int | None
) -> None:
    small.write(tmp_path / "trace")
    report = api.build(tmp_path / "trace", tmp_path / "store", engine="local", slice_events=2)
    rows = [row for row in report.findings.to_pylist() if row["finding"] != "activation_not_stopped"]
    assert [row["finding"] for row in rows] == ([finding] if finding else [])
    stored = api.open(tmp_path / "store").findings().to_dicts()
    assert sorted(row["finding"] for row in stored) == sorted(report.findings["finding"].to_pylist())
    for row in rows:
        assert (row["worker"], row["seq"]) == (worker, seq)
        assert row["action"]
        if seq is not None:
            assert row["file"] == f"events/worker-{worker:03}.parquet"


def test_the_command_counts_findings(tmp_path: Path, pag: Pag) -> None:
    GOOD.changed(0, 1).write(tmp_path / "trace")
    code, text = pag("build", tmp_path / "trace", tmp_path / "store", "--engine", "local")
    assert code == 0
    assert "finding: 1 x receive_without_send" in text


def test_places_that_are_taken(trace: Path, tmp_path: Path, pag: Pag) -> None:
    api.build(trace, tmp_path / "store", engine="local")
    before = api.open(tmp_path / "store").run.info.versions
    code, text = pag("build", trace, tmp_path / "store", "--engine", "local")
    assert (code, "already holds run" in text, "--append" in text) == (4, True, True)
    assert api.open(tmp_path / "store").run.info.versions == before

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for more in ((), ("--append",), ("--replace",)):
        code, text = pag("build", trace, tmp_path / "mine", "--engine", "local", *more)
        assert (code, "is not a store" in text, "notes.txt" in text) == (4, True, True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    # A trace is no store either, not even for its own graph.
    with pytest.raises(StoreExistsError):
        api.build(trace, trace, engine="local", mode="replace")


def test_there_is_no_trace(tmp_path: Path, pag: Pag) -> None:
    code, text = pag("build", tmp_path / "nothing", tmp_path / "store", "--engine", "local")
    assert (code, "no trace" in text) == (3, True)
    assert not (tmp_path / "store").exists()
