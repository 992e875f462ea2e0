"""`pag changes`, `pag alerts`, and the options of builds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.skewed_rounds import portions, skewed_rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RULES = """
[[alert]]
name = "slow"
query = "invariants:learn=false:message-max-ns=150:some-progress=false"
where = "row.type = 'data_message'"
subject = ["to_worker"]
"""


@pytest.fixture
def pag(run_pag: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str]]:
    def run(*words: object) -> tuple[int, str]:
        code, out, err = run_pag(*map(str, words))
        # Messages are folded.
        return code, out + " ".join(err.split())

    return run


def test_appends_keep_queries_and_hand_out_what_is_new(tmp_path: Path, pag: Callable[..., tuple[int, str]]) -> None:
    store, file, rules = tmp_path / "store", tmp_path / "out.jsonl", tmp_path / "rules.toml"
    rules.write_text(RULES)
    codes = []
    for number, part in enumerate(portions(skewed_rounds(16, {5, 6}), [4, 9])):
        trace = part.write(tmp_path / f"trace-{number}")
        asked = ("--query", "metrics", "--alerts", rules) if number == 0 else ()
        words = ("--engine", "local", "--append", "--to", file, "--fail-on", "alert", *asked)
        codes.append(pag("build", trace, store, *words)[0])
    # The second portion has the slow rounds; in the third the alert is resolved.
    assert codes == [0, 9, 0]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    shown: list[dict[str, Any]] = json.loads(pag("alerts", store, "--format", "json")[1])
    assert [row["event"] for row in shown] == ["opened", "resolved"]
    assert [line["key"] for line in lines if line["kind"] == "alert"] == [
        f"{row['id']}/{row['event']}" for row in shown
    ]
    code, printed = pag("changes", store, "--query", "metrics", "--format", "csv", "--since", 1)
    assert code == 0
    header, *rows = printed.splitlines()
    assert header.startswith("commit,ordinal,diff,")
    assert len(rows) == sum(line["commit"] > 1 for line in lines if line.get("query") == "metrics")
    assert "to_worker" in pag("alerts", store)[1]
    assert pag("alerts", store, "--since", 99)[1] == "No alerts.\n"


def test_what_cannot_be_is_told(tmp_path: Path, pag: Callable[..., tuple[int, str]]) -> None:
    trace = skewed_rounds(2, ()).write(tmp_path / "trace")
    for query, code, said in (
        ("why", 8, "cannot be a standing query"),
        ("nothing", 2, "There is no analysis"),
        ("metrics:x", 2, "not of the form"),
        ("k-hops:q=3", 2, "has no parameter"),
        ("motif:pattern=late_sender", 8, "needs last"),
        ("motif:pattern=(a)-[e->(b):last=3", 2, "brackets end with ']'"),
    ):
        found = pag("build", trace, tmp_path / "store", "--engine", "local", "--query", query)
        assert found[0] == code
        assert said in found[1]
    assert pag("build", trace, tmp_path / "store", "--engine", "local", "--query", "metrics")[0] == 0
    code, said = pag("changes", tmp_path / "store", "--query", "traffic")
    assert code == 2
    assert "has no standing query 'traffic'; it has metrics" in said
    assert "--append --query traffic`" in said
    # A store that was followed cannot be appended to.
    assert pag("follow", trace, tmp_path / "followed", "--query", "metrics")[0] == 0
    code, said = pag("changes", tmp_path / "followed", "--query", "traffic")
    assert code == 2
    assert f"Register it: `pag follow TRACE {tmp_path / 'followed'} --query traffic`." in said
    code, said = pag("build", trace, tmp_path / "s", "--engine", "local", "--to", "http://example.org/")
    assert code == 2
    assert "cannot be sent" in said
