"""The page about PyTorch traces: its example and picture are made by the code, and its table names every finding."""

from __future__ import annotations

import ast
import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.diagnosis.torch.answer import answer, text_lines
from pag_graph.diagnosis.torch.causes import ADVICE
from pag_graph.testing.kineto_traces import simulate
from tests.support.torch_example import EXAMPLE, JOB, PICTURE, draw_step

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")


def words_of_the_reader() -> Iterator[str]:
    for path in (ROOT / "pag_graph" / "sources" / "kineto").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "findings":
                yield from re.findall(r"'([a-z]+_[a-z_]+)'", ast.unparse(node.args[0]))
            if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
                text = node.elts[0].value
                # Tables of findings: name, what was done, how often.
                action = ast.unparse(node.elts[1]) if len(node.elts) == 3 else ""
                if isinstance(text, str) and " " in action and re.fullmatch(r"[a-z]+(_[a-z]+)+", text):
                    yield text


def test_every_finding_and_every_cause_is_explained() -> None:
    explained = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE))
    assert explained == set(words_of_the_reader()) | set(ADVICE)


def test_the_example_is_what_the_simulation_makes(tmp_path: Path) -> None:
    for file in simulate(JOB).write(tmp_path, "gzip"):
        shown = ROOT / EXAMPLE / file.name
        assert gzip.decompress(file.read_bytes()) == gzip.decompress(shown.read_bytes())
    assert (ROOT / PICTURE).read_text(encoding="utf-8") == draw_step()


def test_the_answer_on_the_page_is_that_of_the_command() -> None:
    found = answer(sorted((ROOT / EXAMPLE).glob("*.json.gz")), step=2)
    told = "\n".join(text_lines(found, 3))
    (shown,) = re.findall(r"```text\n(Step 2.*?)```", PAGE, re.DOTALL)
    for part in shown.split("...\n"):
        assert part.strip() in told
