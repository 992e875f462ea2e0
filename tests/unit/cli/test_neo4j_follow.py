"""What `pag neo4j follow` says in the end."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from pag_graph.cli import neo4j_load
from pag_graph.cli.app import app
from pag_graph.sinks.neo4j import follow
from pag_graph.sinks.neo4j.follow import GraphFollowReport


@pytest.mark.parametrize("missed", [0, 9])
def test_missed_epochs_are_said(monkeypatch: pytest.MonkeyPatch, missed: int) -> None:
    done = GraphFollowReport(
        run="r", store="s", ending="complete", version=1, epochs=2, by_detail={"full": 2}, max_lag_s=0.0, missed=missed
    )
    monkeypatch.setattr(neo4j_load, "reach", lambda *_place: None)
    monkeypatch.setattr(follow, "follow_store", lambda *_arguments, **_options: done)
    said = CliRunner().invoke(app, ["neo4j", "follow", "s"]).output
    assert ("9 epochs were removed from the store before they were loaded." in said) == bool(missed)
    told = CliRunner().invoke(app, ["neo4j", "follow", "s", "--format", "json"]).output
    assert json.loads(told)["missed"] == missed
