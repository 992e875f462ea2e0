"""The page about the model: its pictures are those that the code draws, and its table names every finding."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pag_graph.sources.spans import oddities
from tests.support.pictures import draw_all, draw_spans

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "model.md"
# Findings whose names a call does not state itself: they come from a table or a choice near it.
INDIRECT = {
    "activation_not_stopped",
    "application_not_stopped",
    "message_across_epochs",
    "no_idle_logged",
    "receive_without_send",
    "rules_contradict_trace",
    "send_without_receive",
    "spawn_of_nobody",
    "spawned_after_birth",
    "spawned_twice",
    # What rule sets remark, from tables of theirs.
    "park_in_stated_trace",
    "park_without_unpark",
    "records_on_stop",
    "start_of_message_type",
    "unpark_without_park",
    "wait_without_ender",
    # Doubts about names of workers, made in one loop.
    "worker_not_listed",
    "worker_without_activity",
    "worker_misspelt",
    "cycle",  # one word
    # Reasons for which entries of files of spans are left out.
    "record_unknown",
    "span_unreadable",
}
MAKERS = {"findings", "findings_of", "report", "Remark"}


def sources() -> list[Path]:
    package = ROOT / "pag_graph"
    # Some readers tell of their own findings on their own pages.
    return [
        p
        for p in sorted(package.rglob("*.py"))
        if not {"testing", "spark", "kineto"} & set(p.relative_to(package).parts)
    ]


def named_in_code() -> set[str]:
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS and node.args:
                first = node.args[0]
                name = first.value if isinstance(first, ast.Constant) else None
                # Others report progress: their words are no names.
                if isinstance(name, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", name):
                    found.add(name)
    return found | {name for name, *_ in oddities.FINDINGS.values()}


def test_every_finding_is_explained() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Findings")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| (info|warning|error) \| \S.* \| \S.* \|$", table, re.MULTILINE)
    explained = [name for name, _ in rows]
    assert len(explained) == len(set(explained))
    assert set(explained) == named_in_code() | INDIRECT
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources())
    assert all(f'"{name}"' in text for name in explained)


def test_the_pictures_are_current() -> None:
    drawn = draw_all()
    shown = set(re.findall(r"\(pictures/(model-[a-z]+\.svg)\)", PAGE.read_text(encoding="utf-8")))
    assert shown == set(drawn) == {path.name for path in (ROOT / "docs" / "pictures").glob("model-*.svg")}
    for name, text in drawn.items():
        assert text == (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8"), name


def test_the_picture_of_spans_is_current() -> None:
    page = (ROOT / "docs" / "spans.md").read_text(encoding="utf-8")
    for name, text in draw_spans().items():
        assert f"(pictures/{name})" in page
        assert text == (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8"), name
