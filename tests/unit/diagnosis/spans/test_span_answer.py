from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.diagnosis.spans.aggregates import (
    CLASSES,
    QUANTILES,
    by_call_path,
    by_latency,
    by_operation,
    difference,
    percentile,
    slowest,
)
from pag_graph.diagnosis.spans.answer import answer
from pag_graph.diagnosis.spans.sums import summed
from pag_graph.errors import InvalidParameterError
from pag_graph.testing.span_traces import Settings, jaeger, simulate, zipkin
from tests.support.simulated_spans import requests_of, span

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.sources.spans.requests import Requests

    RunPag = Callable[..., tuple[int, str, str]]

SAMPLE = SAMPLES / "spans/traces.json"


@pytest.fixture(scope="module")
def two_sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Requests, Requests]:
    folder = tmp_path_factory.mktemp("sets")
    slow = Settings(slow=("service-2", 900_000))
    before, after = simulate(1, 120), simulate(2, 90, slow)
    return requests_of(before.spans, folder / "before"), requests_of(after.spans, folder / "after")


def test_differences_by_operation_add_up_to_that_of_latencies(two_sets: tuple[Requests, Requests]) -> None:
    before, after = both = [summed([made]) for made in two_sets]
    for own in ((before.counted, after.counted), (slowest(before), slowest(after))):
        change = difference(before, after, own)
        counts = change["requests"]
        exact = sum(
            Fraction(row["after_ns"], counts["after"]) - Fraction(row["before_ns"], counts["before"])
            for row in change["operations"]
        )
        means = [Fraction(int(sums.latency[which].sum()), len(which)) for sums, which in zip(both, own, strict=True)]
        assert exact == means[1] - means[0]
    by_service: dict[str, float] = {}
    for row in difference(before, after, (before.counted, after.counted))["operations"]:
        service = row["operation"].partition(".")[0]
        by_service[service] = by_service.get(service, 0) + row["mean_change_ns"]
    assert max(by_service, key=by_service.__getitem__) == "service-2"


def test_sums_and_percentiles_are_those_of_numpy(two_sets: tuple[Requests, Requests]) -> None:
    made = two_sets[0]
    sums = summed([made])
    parts = sums.paths
    rows = by_operation(sums)
    assert sum(row["path_ns"] for row in rows) == made.latency.sum()
    assert sum(row["calls"] for row in rows) == len(made.row)
    codes = {operation.label: code for code, operation in enumerate(made.table.operations)}
    for row in rows:
        dense = np.zeros(made.count)
        own = parts.filter(parts["operation"] == codes[row["operation"]])
        dense[own["request"].to_numpy()] = own["path_ns"].to_numpy()
        calls = made.own[made.operation == codes[row["operation"]]]
        for share in QUANTILES:
            assert row[f"path_p{share}_ns"] == np.percentile(dense, share)
            assert row[f"own_p{share}_ns"] == np.percentile(calls, share)
        assert row["path_mean_ns"] == dense.sum() / len(dense)


@pytest.mark.parametrize("zeros", [0, 1, 40])
def test_percentiles_are_those_of_numpy_to_the_last_bit(zeros: int) -> None:
    draw = np.random.default_rng(zeros)
    for size in (1, 2, 3, 7, 100, 1_001):
        values = np.sort(draw.integers(1, 1 << 50, size))
        padded = np.concatenate([np.zeros(zeros, np.int64), values])
        for share in (*QUANTILES, 0, 12.5, 100):
            assert percentile(values, zeros, share) == np.percentile(padded, share)


def test_classes_of_latency_and_call_paths_cover_everything(two_sets: tuple[Requests, Requests]) -> None:
    made = two_sets[0]
    sums = summed([made])
    classes = by_latency(sums)
    assert [row["requests"] for row in classes] == [made.count // CLASSES] * CLASSES
    assert sum(sum(row["path_ns"].values()) for row in classes) == made.latency.sum()
    assert all(one["to_ns"] <= other["from_ns"] for one, other in pairwise(classes))
    tree = by_call_path(sums)
    assert sum(row["path_ns"] for row in tree) == made.latency.sum()
    assert sum(row["calls"] for row in tree) == len(made.row)
    for operation in by_operation(sums):
        paths = [row for row in tree if row["operation"] == operation["operation"]]
        assert sum(row["path_ns"] for row in paths) == operation["path_ns"]
    for line, row in enumerate(tree):
        assert row["above"] < line
        assert row["depth"] == (tree[row["above"]]["depth"] + 1 if row["above"] >= 0 else 0)


def test_operations_of_one_name_are_told_apart(tmp_path: Path, run_pag: RunPag) -> None:
    """The service `x` has an operation `b.c`, and `x.b` has `c`: both were called `x.b.c`."""
    spans = [span("1", None, 0, 100, service="x", operation="b.c")]
    spans.append(span("2", "1", 10, 60, service="x.b", operation="c"))
    (tmp_path / "both.json").write_bytes(jaeger(spans))
    (tmp_path / "one.json").write_bytes(jaeger(spans[:1]))
    told = json.loads(
        run_pag("spans", tmp_path / "both.json", "--against", tmp_path / "one.json", "--format", "json")[1]
    )
    path_ns = {row["operation"]: row["path_ns"] for row in told["operations"]}
    assert path_ns.keys() == {"x/b.c", "x.b/c"}
    assert sum(path_ns.values()) == 100_000
    assert told["latency_classes"][0]["path_ns"] == path_ns
    (slowest_one, *_) = told["shown"]
    assert (slowest_one["operation"], {part["operation"] for part in slowest_one["path"]}) == ("x/b.c", set(path_ns))
    assert {row["operation"] for row in told["call_paths"]} == set(path_ns)
    # Of two sets one has a single one of them.
    changes = {row["operation"]: (row["before_ns"], row["after_ns"]) for row in told["changes"]["all"]["operations"]}
    assert changes == {"x/b.c": (100_000, path_ns["x/b.c"]), "x.b/c": (0, path_ns["x.b/c"])}
    assert run_pag("spans", tmp_path / "both.json", "--out", tmp_path / "out")[0] == 0
    assert set(api.open(tmp_path / "out" / "pag").run.operators["name"]) == set(path_ns)


def test_of_equally_slow_requests_the_one_is_kept_that_is_shown(tmp_path: Path, run_pag: RunPag) -> None:
    file, out = tmp_path / "spans.json", tmp_path / "kept"
    file.write_bytes(jaeger([replace(span("1", None, 10 * n, 10 * n + 5), trace=f"a{n}") for n in range(3)]))
    shown = json.loads(run_pag("spans", file, "--out", out, "--slowest", 1, "--format", "json")[1])["shown"]
    kept = pl.read_parquet(out / "trace" / "requests.parquet")["trace"].to_list()
    assert kept == [row["trace"] for row in shown if row["role"] == "slowest"]


def test_the_sample_is_answered_in_all_forms(tmp_path: Path, run_pag: RunPag) -> None:
    code, told, _ = run_pag("spans", SAMPLE, "--format", "json")
    facts = json.loads(told)
    slow = next(row for row in facts["shown"] if row["role"] == "slowest")
    assert (code, sum(part["duration_ns"] for part in slow["path"])) == (0, slow["latency_ns"])
    assert {row["finding"] for row in facts["findings"]} == {"clock_estimated"}
    for policy in ("jaeger", "crisp"):
        compared = json.loads(run_pag("spans", SAMPLE, "--policy", policy, "--format", "json")[1])
        assert compared["policy"] == policy
        assert compared["operations"]
    out = tmp_path / "kept"
    code, told, _ = run_pag("spans", SAMPLE, "--out", out, "--slowest", 2, "--against", SAMPLE)
    assert code == 0
    assert "0 ns in the mean" in told
    path = json.loads(run_pag("critical-path", out / "pag", "--epoch", 4, "--format", "json")[1])
    assert path
    assert run_pag("spans", SAMPLE, "--policy", "crisp", "--out", out)[0] == 2
    assert run_pag("spans", SAMPLE, "--format", "csv")[1].startswith("operation,calls,path_ns")


def test_call_paths_are_shown_below_their_callers_and_findings_of_one_name_are_counted(
    tmp_path: Path, run_pag: RunPag
) -> None:
    spans = [span("1", None, 0, 100, kind="client", host="h0", service="a", operation="top")]
    for number in range(1, 13):
        # Each call to a host of its own, whose clock is off.
        place = {"kind": "client", "host": f"h{number - 1}", "service": f"s{number - 1}"}
        spans.append(span(f"{number}0", f"{number - 1}" if number == 1 else f"{number - 1}1", 5, 9, **place))
        there = {"kind": "server", "host": f"h{number}", "service": f"s{number}"}
        spans.append(span(f"{number}1", f"{number}0", 1_000 * number, 1_000 * number + 2, **there))
    spans[1] = replace(spans[1], parent="1", service="a")
    (tmp_path / "spans.json").write_bytes(jaeger(spans))
    code, text, errors = run_pag("spans", tmp_path / "spans.json", "--top", 3)
    assert code == 0
    tree = text.partition("Call paths")[2].splitlines()
    names = [line.partition("  1 ")[0].rstrip() for line in tree if line.lstrip().startswith(("a.", "s"))]
    assert names[:3] == ["a.top", "  a.op-10", "    s1.op-11"]
    assert errors.count("finding: clock_estimated: host") == 3
    assert "9 more (--format json has all)" in errors.replace("\n", " ")


def test_names_from_traces_do_not_reach_the_terminal_as_they_are(tmp_path: Path, run_pag: RunPag) -> None:
    (tmp_path / "evil.json").write_bytes(jaeger([span("1", None, 0, 5, operation="\x1b[31mred", service="[bold]x")]))
    code, told, _ = run_pag("spans", tmp_path / "evil.json")
    assert code == 0
    assert "\x1b[31m" not in told
    assert "[bold]x" in told


def test_a_trace_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InvalidParameterError, match="No trace has the id"), answer([SAMPLE], request="f00"):
        pass


def test_a_trace_is_kept_without_its_requests_that_take_no_time(tmp_path: Path, run_pag: RunPag) -> None:
    file, out = tmp_path / "spans.json", tmp_path / "kept"
    spans = [span("1", None, 0, 0), span("2", None, 5, 25), replace(span("3", None, 9, 9), trace="e")]
    file.write_bytes(zipkin(spans))
    assert run_pag("spans", file, "--request", spans[0].trace, "--out", out)[0] == 0
    windows = json.loads(run_pag("info", out / "pag", "--format", "json")[1])["epochs"]
    assert [row["span_ns"] for row in windows if row["role"] == "round"] == [20_000]
    code, _, errors = run_pag("spans", file, "--request", "e", "--out", out, "--replace")
    assert code == 3
    assert "No request takes any time" in errors


def test_options_that_would_be_ignored_are_refused(tmp_path: Path, run_pag: RunPag) -> None:
    for options in (("--slowest", 2), ("--slowest", 2, "--request", "1", "--out", tmp_path / "kept")):
        code, _, errors = run_pag("spans", SAMPLE, *options)
        assert code == 2
        assert "--slowest says which requests --out keeps" in " ".join(errors.split())


def test_requests_of_which_none_has_its_root_are_told_and_not_summed(tmp_path: Path, run_pag: RunPag) -> None:
    file = tmp_path / "spans.json"
    file.write_bytes(zipkin([span("1", "ff", 0, 9), span("2", "fe", 0, 40), span("3", "2", 10, 20)]))
    code, text, _ = run_pag("spans", str(file), "--format", "json")
    found = json.loads(text)
    assert code == 0
    assert (found["requests"], found["left_out_requests"], found["operations"], found["call_paths"]) == (0, 2, [], [])
    (shown,) = found["shown"]
    assert (shown["role"], shown["operation"], shown["latency_ns"]) == ("rootless", "s.op-2", 40_000)
    assert sum(part["duration_ns"] for part in shown["path"]) == 40_000
    assert {row["finding"]: row["observed"] for row in found["findings"]}["parent_missing"] == 2
    code, text, errors = run_pag("spans", str(file), "--against", str(file))
    assert code == 0
    assert "Rootless request: s.op-2, 40.0 us" in text
    assert "left out: 2 requests without their roots" in errors
