"""`pag advise-evaluate`, on runs whose times are known."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pag_graph.cli.app import app
from pag_graph.model.enums import RuleSet
from pag_graph.testing.traces import draw
from tests.support.named_operators import built

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs of five rounds of one operator inside another, of 100 and 50 ns."""
    place = tmp_path_factory.mktemp("stores")
    made = []
    for span in (100, 50):
        rounds = [
            f"{t} start 1 | {t} start 2 | {t + span} stop 2 | {t + span} stop 1 | {t + span} end"
            for t in range(0, 5 * span, span)
        ]
        built(draw(" | ".join(rounds), rules=RuleSet.STATED), place, name=f"run-{span}", operators=(1, 2))
        made.append(str(place / f"run-{span}.pag"))
    return made


def test_what_is_said_and_what_is_remembered(stores: list[str], tmp_path: Path) -> None:
    state = tmp_path / "advice.json"
    arguments = ["advise-evaluate", stores[0], "--after", stores[1], "--state", str(state), "--port", "Op2", "--single"]
    done = CliRunner().invoke(app, [*arguments, "--format", "json"])
    answer = json.loads(done.stdout)
    assert (answer["kept"], answer["trials"][0]["decision"], answer["trials"][0]["ratio_low"]) == (["Op2"], "keep", 2.0)
    assert json.loads(state.read_text())["kept"] == [{"name": "Op2", "occurrence": 0, "input": 0}]
    [row] = csv.DictReader(io.StringIO(CliRunner().invoke(app, [*arguments, "--format", "csv"]).stdout))
    assert (row["port"], row["decision"], row["blacklisted"]) == ("Op2", "keep", "False")
    table = CliRunner().invoke(app, arguments).stdout
    assert table.startswith("1 x keep\n")


def test_without_a_name_nobody_knows_which_port(stores: list[str], tmp_path: Path) -> None:
    arguments = ["advise-evaluate", stores[0], "--after", stores[1], "--state", str(tmp_path / "advice.json")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code != 0
    assert "Say which got a port" in str(done.exception)
    assert not (tmp_path / "advice.json").exists()
    done = CliRunner().invoke(app, [*arguments, "--port", "Op2", "--map", "0.2"])
    assert "not a pair of addresses" in str(done.exception)
