"""Who follows the worked examples of CONTRIBUTING.md, word by word, ends with commands that work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RUN = """
import io, json, shlex, sys
from contextlib import redirect_stderr, redirect_stdout
from pag_graph.cli.app import main
said = []
for line in sys.stdin.read().splitlines():
    sys.argv, out, progress = shlex.split(line), io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(progress):
            main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    said.append([code, out.getvalue() + (progress.getvalue() if code else '')])
print(json.dumps(said))
"""


class Block(NamedTuple):
    title: str
    language: str
    text: str


def blocks() -> list[Block]:
    examples = PAGE.partition("## Worked examples")[2]
    return [
        Block(section.partition("\n")[0], language, text)
        for section in examples.split("\n### ")[1:]
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    ]


def changed(text: str, diff: str) -> str:
    """Put the lines of a diff that begin with + behind those that begin with a blank, or in place of those with -."""
    lines = diff.splitlines()
    old = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
    new = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
    assert text.count(old) == 1, f"these lines are there {text.count(old)} times:\n{old}"
    return text.replace(old, new)


def says(shown: str, said: str) -> bool:
    """Whether an answer is what is shown; three dots stand for anything."""
    pattern = "(.|\n)*".join(map(re.escape, shown.strip().split("...")))
    return re.fullmatch(pattern, said.strip()) is not None


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what the examples touch of the repository, with the compiled kernels that lie beside it."""
    folder = tmp_path_factory.mktemp("contributing")
    for name in ("pag_graph", "docs", "cypher"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def run(folder: Path, commands: list[str]) -> list[tuple[int, str]]:
    import json

    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        env=environment,
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(code, text) for code, text in json.loads(done.stdout)]


def generate(folder: Path, command: str) -> None:
    """Run a module, as a shell does: the file that its output goes to is emptied before."""
    words, _, target = command.partition(" > ")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with (folder / (target or "output")).open("wb") as file:
        subprocess.run([sys.executable, *shlex.split(words)[1:]], cwd=folder, env=environment, stdout=file, check=True)


def follow(folder: Path, block: Block) -> None:
    """Do what a block says."""
    first, _, rest = block.text.partition("\n")
    if block.language == "python":
        (folder / first.removeprefix("# ")).write_text(rest, encoding="utf-8")
    elif block.language == "diff":
        file = folder / first.removeprefix("# ")
        file.write_text(changed(file.read_text(encoding="utf-8"), rest), encoding="utf-8")
    elif block.language == "csv":
        # The second one goes on with the first.
        with (folder / "laps.csv").open("a", encoding="utf-8") as file:
            file.write(block.text)
    else:
        parts = [part.partition("\n") for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]]
        for command in (command for command, _, _ in parts if command.startswith("python ")):
            generate(folder, command)
        answers = iter(run(folder, [command for command, _, _ in parts if command.startswith("pag ")]))
        for command, _, shown in parts:
            program, *words = shlex.split(command)
            if program == "python":
                continue
            code, said = next(answers) if program == "pag" else (0, (folder / words[0]).read_text(encoding="utf-8"))
            assert code == 0, said
            assert says(shown, said), f"{command} says\n{said}"


def test_the_worked_examples_can_be_followed(copy: Path) -> None:
    for block in blocks():
        follow(copy, block)


def test_they_are_all_there_and_short() -> None:
    titles = {block.title for block in blocks()}
    assert titles == {"A source", "A finding", "An analysis", "A rule set", "An export"}
    sections = PAGE.partition("## Worked examples")[2].split("\n### ")[1:]
    assert all(len(section.splitlines()) < 120 for section in sections)
    assert {block.language for block in blocks()} <= {"python", "diff", "csv", "text"}


def test_what_they_add_is_in_shape() -> None:
    code = [block for block in blocks() if block.language == "python"]
    for block in code:
        name, _, text = block.text.partition("\n")
        command = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "-q", "-"]
        command += ["--stdin-filename", str(ROOT / name.removeprefix("# "))]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
