"""The demonstration of a run that is followed: it ends by itself, alerts open, and the store is a build's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from pag_graph import api, samples
from pag_graph.cli import demo_live
from pag_graph.cli.app import app
from pag_graph.store.trace import Trace
from tests.support.compare import committed, differences

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_alerts_appear_and_in_the_end_the_store_is_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_live, "SECONDS", 0.5)
    # What an earlier one left is replaced.
    for _ in range(2):
        ended = CliRunner().invoke(app, ["demo", "--live", "--folder", str(tmp_path)], catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        assert "alert opened: records_to_one_worker" in ended.output
        assert "closed: epoch 0" in ended.output
    source, received = Trace.open(samples.path("skewed")), Trace.open(tmp_path / "skewed-live.trace")
    assert received.events().equals(source.events())
    api.build(source.path, tmp_path / "once", engine="local")
    assert differences(committed(tmp_path / "skewed-live.pag"), committed(tmp_path / "once")) == ""
