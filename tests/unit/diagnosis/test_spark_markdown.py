"""The answer for a log as Markdown, and as JSON that its schema describes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import orjson
import pytest

from pag_graph.diagnosis.spark.answer import SCHEMA, SparkAnswer, answer
from pag_graph.diagnosis.spark.markdown import LINES, markdown_text
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parents[2] / "data" / "spark"


def told(name: str) -> SparkAnswer:
    (log,) = find_logs(DATA / name)
    return answer(log)


@pytest.fixture(scope="module")
def schema() -> Any:
    found = orjson.loads((resources.files("pag_graph.diagnosis.spark") / "answer.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$id"] == found["properties"]["schema"]["const"] == SCHEMA
    return found


@pytest.mark.parametrize(
    "name", ["skewed-key.zstd", "healthy.zstd", "failed-job.zstd", "streaming.zstd", "plans/plan-patterns-planted.zstd"]
)
def test_an_answer_fits_on_a_page_and_its_facts_are_as_the_schema_says(name: str, schema: Any) -> None:
    found = told(name)
    text = markdown_text(found)
    assert len(text.splitlines()) <= LINES
    assert text.startswith("### ")
    for cause in found.diagnosis.causes[:1]:
        assert f"**{cause.title}**: " in text
    facts = orjson.loads(orjson.dumps(found.facts(), option=orjson.OPT_NON_STR_KEYS))
    jsonschema.validate(facts, schema)


def test_the_schema_describes_all_that_there_is_and_refuses_what_is_missing(schema: Any) -> None:
    facts = orjson.loads(orjson.dumps(told("skewed-key.zstd").facts(), option=orjson.OPT_NON_STR_KEYS))
    assert set(facts) == set(schema["properties"]) == set(schema["required"])
    assert set(facts["causes"][0]) == set(schema["properties"]["causes"]["items"]["properties"])
    del facts["causes"][0]["saved_low_ns"]
    with pytest.raises(jsonschema.ValidationError, match="saved_low_ns"):
        jsonschema.validate(facts, schema)


def test_texts_of_a_log_do_nothing(tmp_path: Path) -> None:
    log = EventLog().job(0, 100, [0]).stage(0, 100, tasks=1).task(0, 0, "0", 100, 900, run=800)
    log.events[1]["App Name"] = "<script>|x|\n# [a](javascript:b) \x1b[31m"
    file = log.stage_done(0, 901).job_done(0, 902).end(1_000).write(tmp_path / "log")
    text = markdown_text(answer(LogFiles(name="log|`x`", files=(file,))))
    assert text.splitlines()[0].startswith(r"### \<script\>\|x\|")
    assert "\x1b" not in text
    assert r"\[a\](javascript:b)" in text


def test_the_command_writes_it(tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run_pag("spark", DATA / "skewed-key.zstd", "--markdown", tmp_path / "why.md")
    assert code == 0
    assert "Wrote" in out
    assert (tmp_path / "why.md").read_text() == markdown_text(told("skewed-key.zstd"))
    assert run_pag("spark", DATA / "skewed-key.zstd", "--markdown", tmp_path / "why.html")[0] == 2
