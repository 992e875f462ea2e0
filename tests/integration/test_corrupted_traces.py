"""Damaged copies of recorded traces: each is refused, or built with a finding, or gives the very same graph.

The damage is done in another process, so that even a crash of the interpreter would be seen as what it is.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import TraceFormatError
from pag_graph.store.trace import Trace
from tests.support.corruption import answer, damage, seal, try_one, verdict

if TYPE_CHECKING:
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
COPIES = 1_000 if PROVE else 30
TRACES = ["skewed", "bfs", "ground_truth", "triangles"] if PROVE else ["skewed"]
LONGEST_S = 120


def tries(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, checked: bool) -> list[tuple[int, str, str]]:
    """Damage and build many copies; what was done and what came of it, by seed."""
    intact = answer(trace, tmp_path / "store")
    assert answer(trace, tmp_path / "store") == intact
    if PROVE and checked:
        # Kernels check their indices, and are compiled for it: apart from those that others use.
        monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    seeds = range(COPIES // len(TRACES))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        tasks = [pool.submit(try_one, trace, tmp_path, seed, intact) for seed in seeds]
        results = [task.result(timeout=LONGEST_S) for task in tasks]
    return [(seed, what, said) for seed, (what, said) in zip(seeds, results, strict=True)]


def shown(results: list[tuple[int, str, str]]) -> str:
    return "\n".join(f"seed {seed}: {what}: {said}" for seed, what, said in results)


@pytest.mark.parametrize("name", TRACES)
def test_damage_is_never_silent(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tries(seal(SAMPLES / name, tmp_path / "sealed"), tmp_path, monkeypatch, checked=name == TRACES[0])
    bad = [result for result in results if result[2] not in {"error", "finding", "same"}]
    assert not bad, shown(bad)
    # Both ways out occur, or the test would show nothing.
    assert {"error", "finding"} <= {said for _, _, said in results}


@pytest.mark.parametrize("name", TRACES)
def test_without_checksums_structure_still_tells(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What writes no checksums: no crash, and events that are lost inside a log, repeated or swapped are noticed."""
    trace = seal(SAMPLES / name, tmp_path / "sealed")
    (trace / "checksums.json").unlink()
    results = tries(trace, tmp_path, monkeypatch, checked=False)
    crashed = [result for result in results if result[2] not in {"error", "finding", "same", "silent"}]
    assert not crashed, shown(crashed)
    told = [result for result in results if result[1].split(" in ")[0] not in PLAUSIBLE]
    bad = [result for result in told if result[2] == "silent" and not at_the_end(result[1])]
    assert not bad, shown(bad)
    assert {"error", "finding"} <= {said for _, _, said in told}


def at_the_end(what: str) -> bool:
    """Whether the last events of a log were lost: the log then looks like one that ended sooner."""
    found = re.fullmatch(r"(?:lose events|drop rows) in events/.*: rows \d+ to (\d+) of (\d+)", what)
    return found is not None and found[1] == found[2]


PLAUSIBLE = {"value", "event value", "flip", "entry", "drop rows"}
"""Damage after which a file can say something else that makes sense just as well: only checksums can tell."""


@pytest.mark.parametrize(
    ("name", "rows"),
    [("skewed", 1), ("bfs", 5)],
)
def test_lost_events_leave_a_gap_in_their_numbers(tmp_path: Path, name: str, rows: int) -> None:
    """Also without checksums: the adapter numbers the events of a worker without gaps."""
    trace = seal(SAMPLES / name, tmp_path / "trace")
    (trace / "checksums.json").unlink()
    assert Trace.open(trace).findings.num_rows == 0
    file = sorted((trace / "events").glob("*.parquet"))[1]
    table = pq.read_table(file)
    for low in (0, 17):
        pq.write_table(pa.concat_tables([table.slice(0, low), table.slice(low + rows)]), file)
        (found,) = Trace.open(trace).findings.to_pylist()
        assert (found["finding"], found["worker"], found["observed"]) == ("events_missing", 1, rows)
        assert found["file"] == f"events/{file.name}"


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("records", 3, -1),
        ("records", 3, 2**63 - 1),
        ("operator", 0, -5),
        ("peer", 2, -1),
        ("message_seq", 2, -(2**63)),
        ("timeout_ns", 1, -1),
        ("epoch", -1, 2**62),
        ("seq", -1, 2**63 - 1),
        ("t_ns", -1, 2**63 - 1),
        ("t_ns", 0, -(2**63)),
    ],
)
def test_numbers_out_of_any_range_are_refused(tmp_path: Path, column: str, row: int, value: int) -> None:
    """Sums with them would overflow, or a negative number would be taken for none."""
    trace = seal(SAMPLES / "skewed", tmp_path / "trace")
    file = min((trace / "events").glob("*.parquet"))
    table = pq.read_table(file)
    values = table[column].to_pylist()
    values[row] = value
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type)), file)
    with pytest.raises(TraceFormatError, match=str(value)) as caught:
        api.build(trace, tmp_path / "store", engine="local")
    assert file.name in str(caught.value)


@pytest.mark.parametrize(("entry", "value"), [("missing_progress", -1), ("missing_progress", True), ("rules", {})])
def test_an_entry_of_another_type_is_refused(tmp_path: Path, entry: str, value: object) -> None:
    trace = seal(SAMPLES / "skewed", tmp_path / "trace")
    meta = trace / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), entry: value}))
    with pytest.raises(TraceFormatError, match=entry):
        Trace.open(trace)


def test_files_may_differ_in_what_they_declare_as_null(tmp_path: Path) -> None:
    """A worker's events in two files, one of which says that the column could be null."""
    trace = seal(SAMPLES / "skewed", tmp_path / "trace")
    expected = answer(trace, tmp_path / "store")
    file = min((trace / "events").glob("*.parquet"))
    table = pq.read_table(file)
    loose = table.schema.field("worker").with_nullable(nullable=True)
    pq.write_table(table.slice(0, 100), file)
    later = table.slice(100).set_column(0, loose, table.slice(100)["worker"])
    pq.write_table(later, file.with_name("worker-0000000-0000001.parquet"))
    (trace / "checksums.json").unlink()
    assert answer(trace, tmp_path / "store") == expected


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    trace = seal(SAMPLES / "skewed", tmp_path / "trace")
    assert Trace.open(trace).findings.num_rows == 0
    meta = trace / "meta.json"
    meta.write_text(meta.read_text() + "\n")
    (found,) = Trace.open(trace).findings.to_pylist()
    assert (found["finding"], found["severity"], found["file"]) == ("file_changed", "error", "meta.json")


def test_the_damage_is_done(tmp_path: Path) -> None:
    """What the test above relies on: seeds differ in kind, and silence would be noticed."""
    trace = seal(SAMPLES / "skewed", tmp_path / "trace")
    intact = answer(trace, tmp_path / "store")
    assert verdict(intact, {**intact, "graph": "another"}) == "silent"
    assert verdict(intact, intact) == "same"
    kinds = set()
    for seed in range(60):
        shutil.copytree(trace, tmp_path / "copy")
        kinds.add(damage(tmp_path / "copy", seed).split(" in ")[0])
        shutil.rmtree(tmp_path / "copy")
    assert len(kinds) == 12
