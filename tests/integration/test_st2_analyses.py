"""SnailTrail 2's own answers against analyses of its graphs: metrics, k-hops, invariants."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pag_graph import api
from pag_graph.model.enums import RuleSet

ORACLES = Path(__file__).parents[2].parent / "shared" / "oracles"
TYPES = {
    "Busy": "busy",
    "Waiting": "waiting",
    "Spinning": "spinning",
    "Processing": "processing",
    "DataMessage": "data_message",
    "ControlMessage": "progress_message",
}
NAMES = ["minimal-w2", "skewed-w4", "imb1-w4", "tri-m-w2"]
UNITS = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}"),
]


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, api.Pag]:
    folder = ORACLES / "st2" / request.param
    place = tmp_path_factory.mktemp("st2")
    api.convert(folder / "raw.parquet", place / "trace")
    api.build(place / "trace", place / "store", rules=RuleSet.ST2, engine="local")
    return folder, api.open(place / "store")


def ns(text: str) -> int:
    """Read a duration as Rust prints it; it has at most nanoseconds."""
    number, unit = re.fullmatch(r"([\d.]+)(ns|µs|ms|s)", text).groups()  # type: ignore[union-attr]
    whole, _, rest = number.partition(".")
    digits = len(str(UNITS[unit])) - 1
    return int(whole) * UNITS[unit] + int(rest.ljust(digits, "0") or 0)


def test_metrics_are_those_of_snailtrail(case: tuple[Path, api.Pag]) -> None:
    folder, pag = case
    names = ("epoch", "from_worker", "to_worker", "type", "activities", "duration_ns", "records")
    rows = [row for epoch in pag.epochs["epoch"] for row in pag.metrics(epoch=epoch).to_pylist()]
    counted = {kind: {row["records"] is not None for row in rows if row["type"] == kind} for kind in TYPES.values()}
    # Its programs count what activities read and data messages hold, and it writes 0 for all others.
    assert counted["data_message"] <= {True}
    assert all(counted[kind] <= {False} for kind in ("progress_message", "waiting", "busy"))
    ours = Counter(tuple({**row, "records": row["records"] or 0}[name] for name in names) for row in rows)
    theirs = pl.read_csv(folder / "metrics.csv").with_columns(pl.col("activity_type").replace_strict(TYPES))
    assert ours == Counter(theirs.iter_rows())
    sent = {"data_message", "progress_message"}
    for epoch in pag.epochs["epoch"].to_list()[:5]:
        rows = theirs.filter(pl.col("epoch") == epoch, pl.col("activity_type").is_in(sent))
        counted = sum(row["messages"] for row in pag.matrix(epoch=epoch).to_pylist())
        assert counted == rows["#(activities)"].sum()


def test_k_hops_are_those_of_snailtrail(case: tuple[Path, api.Pag]) -> None:
    folder, pag = case
    line = re.compile(r"(\d+): \(\((\w+), (\d+), (\d+)\), \((\d+), (\d+)\)\)")
    found = map(line.fullmatch, (folder / "khops.txt").read_text(encoding="utf-8").splitlines())
    theirs = Counter(
        (int(epoch) - 1, int(hop), TYPES[kind], int(worker), int(count), int(took))
        for epoch, kind, worker, hop, count, took in (match.groups() for match in found if match)
    )
    assert Counter(tuple(row.values()) for row in pag.k_hops_st2(k=10).to_pylist()) == theirs


def test_invariants_are_those_of_snailtrail(case: tuple[Path, api.Pag]) -> None:
    folder, pag = case
    text = (folder / "invariants_e1_o1_m1_p1.txt").read_text(encoding="utf-8")
    limit = 1_000_000
    given: dict[str, Any] = {"some_progress": False, "learn": False}
    violations = pag.invariants(epoch_max_ns=limit, message_max_ns=limit, operator_max_ns=limit, **given).to_pylist()
    took = r"ran from (\S+) to \S+, taking (\S+?)\. Maximum"
    epochs = Counter((int(e), ns(start), ns(t)) for e, start, t in re.findall(rf"Epoch (\d+) {took}", text))
    messages = Counter(
        (TYPES[kind], int(e), int(a), int(b), ns(start), ns(t))
        for kind, e, a, b, start, t in re.findall(rf"(\w+) \(payload: .*?\) in e(\d+), w(\d+) to w(\d+) {took}", text)
    )
    operators = Counter(
        (int(o), int(w), int(e), ns(start), ns(t))
        for o, w, e, start, t in re.findall(rf"Operator (\d+) in w(\d+)@e(\d+) \(.*?\) {took}", text)
    )
    of = {name: [row for row in violations if row["invariant"] == name] for name in ("epoch_max", "message_max")}
    assert Counter((row["epoch"], row["start_ns"], row["observed"]) for row in of["epoch_max"]) == epochs
    ours = Counter(
        tuple(row[name] for name in ("type", "epoch", "worker", "to_worker", "start_ns", "observed"))
        for row in of["message_max"]
    )
    assert ours == messages
    slow = Counter(
        tuple(row[name] for name in ("operator", "worker", "epoch", "start_ns", "observed"))
        for row in violations
        if row["invariant"] == "operator_max"
    )
    assert slow == operators
    assert len(epochs) + len(messages) + len(operators) > 40


def test_every_worker_made_progress_in_every_epoch(case: tuple[Path, api.Pag]) -> None:
    # SnailTrail 2 asks for as many messages as it has workers itself (one here), so it never complains.
    folder, pag = case
    assert "Sent progress" not in (folder / "invariants_e1_o1_m1_p1.txt").read_text(encoding="utf-8")
    found = pag.invariants(learn=False)
    assert set(found["invariant"].to_pylist()) <= {"some_progress"}
