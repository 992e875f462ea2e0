"""What goes when epochs lose detail: compared with what all epochs show before and after, on random logs."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.errors import InvalidParameterError
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.model import FINDING
from pag_graph.sinks.neo4j.retention import KeepDetail
from pag_graph.sinks.neo4j.trimming import trimmed
from pag_graph.testing.strategies import small_traces
from tests.support.skewed_rounds import SLOW, skewed_rounds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import polars as pl

    from pag_graph.testing.traces import SmallTrace

PROVE = os.environ.get("PAG_PROVE") == "1"
KEYS = {
    "events": ("id",),
    "segments": ("id",),
    "activities": ("src", "dst", "type"),
    "then": ("source", "target"),
    "released": ("source", "target", "src"),
    "steps": ("epoch", "step"),
}
ORDER = list(Detail)


def shown(reader: Reader, details: Mapping[int, Detail]) -> dict[str, dict[tuple[object, ...], bool]]:
    """Return what all epochs show, one after the other: per table, each row, and whether it is critical."""
    found: dict[str, dict[tuple[object, ...], bool]] = {name: {} for name in KEYS}
    for epoch, detail in details.items():
        content = reader.read([reader.run.window(epoch=epoch)], detail)
        for name, key in KEYS.items():
            rows: pl.DataFrame = getattr(content, name)
            critical = rows["critical"].to_list() if "critical" in rows.columns else [False] * rows.height
            for row, is_critical in zip(rows.select(key).iter_rows(), critical, strict=True):
                found[name][row] = found[name].get(row, False) or bool(is_critical)
    return found


def check_trimmed(trace: SmallTrace, place: Path, seed: int) -> int:
    """Take detail from some epochs, and compare; return how many rows went."""
    chance = random.Random(seed)
    store = api.build(trace.write(place / "trace"), place / "store", engine="local").store.path
    reader = Reader(api.open(store).run)
    epochs = sorted(reader.run.epochs["epoch"])
    before = {epoch: chance.choice(ORDER) for epoch in epochs}
    losing = [epoch for epoch in epochs if before[epoch] is not Detail.SUMMARY and chance.random() < 0.6]
    less: dict[int, Detail | None] = {
        epoch: chance.choice([None, *ORDER[: ORDER.index(before[epoch])]]) for epoch in losing
    }
    if not less:
        return 0
    others = {epoch: detail for epoch, detail in before.items() if epoch not in less}
    found = trimmed(reader, {epoch: (before[epoch], less[epoch]) for epoch in less}, others)
    kept = {epoch: now for epoch in epochs if (now := less.get(epoch, before[epoch])) is not None}
    had, has = shown(reader, before), shown(reader, kept)
    gone = {**found.gone, "steps": found.steps}
    for name, key in KEYS.items():
        assert set(gone[name].select(key).iter_rows()) == had[name].keys() - has[name].keys(), name
    for name, rows in found.unmarked.items():
        expected = {row for row, critical in has[name].items() if had[name][row] and not critical}
        assert set(rows.select(KEYS[name]).iter_rows()) == expected, name
    drawn = [{row[:2] for row, critical in what["released"].items() if critical} for what in (had, has)]
    assert set(found.drawn.iter_rows()) == drawn[0] - drawn[1]
    return sum(rows.height for rows in gone.values())


@settings(max_examples=500 if PROVE else 4, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(small_traces(max_workers=3, complete=True), st.integers(0, 2**32))
def test_what_goes_is_what_nobody_shows_any_more(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, seed: int
) -> None:
    check_trimmed(replace(trace, complete=True), tmp_path_factory.mktemp("trimmed"), seed)


@pytest.mark.parametrize("seed", range(20 if PROVE else 2))
def test_rounds_that_messages_cross(tmp_path: Path, seed: int) -> None:
    assert check_trimmed(skewed_rounds(8, {3, 4}, seed), tmp_path, seed) > 0


@pytest.mark.parametrize(
    "text",
    ["", "full", "full:0", "full:" + "9" * 5000, "nothing:3", "waits:2,full:3", "full:3,waits:2", "full:all,waits:all"],
)
def test_what_keeps_nothing_sensible_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match=r"does not|must go from"):
        KeepDetail.of(text)


def test_little_is_not_removed_before_there_is_more() -> None:
    keep = KeepDetail.of("full:8,waits:16,summary:all")
    full = dict.fromkeys(range(9), Detail.FULL)
    assert keep.due(full, exactly=False) == {}
    assert keep.due(full, exactly=True) == {0: Detail.WAITS}
    assert keep.due(dict.fromkeys(range(10), Detail.FULL), exactly=False) == {0: Detail.WAITS, 1: Detail.WAITS}
    assert KeepDetail.of("all").due(full, exactly=True) == {}
    assert KeepDetail.of("waits:2").due(dict.fromkeys(range(3), Detail.WAITS), exactly=True) == {0: None}


def test_alerts_stand_among_the_findings(tmp_path: Path) -> None:
    trace = skewed_rounds(16, {6, 7}).write(tmp_path / "trace")
    store = api.build(trace, tmp_path / "store", engine="local", alerts=[SLOW]).store.path
    reader = Reader(api.open(store).run)
    (alert,) = reader.findings.filter(finding="alert").to_dicts()
    seen = [alert[name] for name in ("rule", "first_epoch", "resolved_epoch", "action", "limit", "learned", "at_epoch")]
    assert seen == ["slow", 6, 10, "resolved", 150.0, False, 6]
    assert set(FINDING.columns) <= set(alert)
    content = reader.read([reader.run.window(epoch=epoch) for epoch in (5, 6, 7)], Detail.SUMMARY)
    snapshot = content.snapshots.filter(epoch=6)["id"].item()
    assert content.findings.filter(finding=alert["id"])["snapshot"].to_list() == [snapshot]
