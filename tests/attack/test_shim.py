"""The shim sees what is changed, stops it where it was told to, and nothing else; and nothing gets round it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.attack.harness import ROOT, Arm, compiler
from tests.attack.operations import OPERATIONS, prepare, write_inputs
from tests.attack.states import nameless

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attack.harness import Mode, Outcome, Zygote

PROVE = os.environ.get("PAG_PROVE") == "1"
CARELESS = "tests.attack.careless:write"
CALLS = [
    *("mkdir kept", "open kept/a", "write kept/a", "link b", "symlink c", "rename b", "ftruncate kept/a", "unlink c"),
    *("unlink kept/a", "rmdir kept"),
]

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build the shim with")


def run(zygote: Zygote, target: Path, mode: Mode, at: int = 0) -> Outcome:
    target.mkdir()
    return zygote.start(CARELESS, str(target), arm=Arm(target=target, mode=mode, at=at)).wait()


def test_every_kind_of_change_is_a_point(zygote: Zygote, tmp_path: Path) -> None:
    outcome = run(zygote, tmp_path / "there", "list")
    assert outcome.code == 0, outcome.said
    assert [point.name for point in outcome.passed] == CALLS
    # What lies beside the target is nobody's business.
    beside = zygote.start(CARELESS, str(tmp_path), arm=Arm(target=tmp_path / "elsewhere", mode="kill", at=1)).wait()
    assert (beside.code, beside.passed) == (0, [])


def test_a_kill_comes_before_the_change(zygote: Zygote, tmp_path: Path) -> None:
    there = tmp_path / "there"
    for at, (call, left) in enumerate(
        [
            ("mkdir", []),
            ("open", ["kept"]),
            ("write", ["kept", "kept/a"]),
            ("link", ["kept", "kept/a"]),
            ("symlink", ["b", "kept", "kept/a"]),
        ],
        1,
    ):
        outcome = run(zygote, there, "kill", at)
        assert outcome.killed
        assert (outcome.passed[-1].number, outcome.passed[-1].call) == (at, call)
        assert sorted(str(path.relative_to(there)) for path in there.rglob("*")) == left
        shutil.rmtree(there)


def test_writes_are_torn_and_disks_fail(zygote: Zygote, tmp_path: Path) -> None:
    assert run(zygote, tmp_path / "torn", "torn", 3).killed
    assert (tmp_path / "torn" / "kept" / "a").read_bytes() == b"01234"
    full = run(zygote, tmp_path / "full", "full", 3)
    assert "No space left on device" in full.said
    assert (tmp_path / "full" / "kept" / "a").read_bytes() == b""
    broken = run(zygote, tmp_path / "broken", "broken", 5)
    assert "Input/output error" in broken.said
    assert "symlink" in broken.said
    # Afterwards the disk works again.
    assert (tmp_path / "broken" / "kept" / "a").read_bytes() == b"0123456789"


def test_a_careless_writer_is_caught(zygote: Zygote, tmp_path: Path) -> None:
    """What a kill leaves of a file that is written in place is neither the old content nor the new one."""
    found = set()
    for at in (1, 2, 3):
        (tmp_path / "file").write_text("what was")
        arm = Arm(target=tmp_path, mode="kill", at=at)
        assert zygote.start("tests.attack.careless:write_in_place", str(tmp_path), "what is", arm=arm).wait().killed
        found.add((tmp_path / "file").read_text())
    assert found == {"what was", "", "wha"}


@pytest.mark.skipif(not PROVE, reason="PAG_PROVE=1 runs builds under strace, to see that nothing gets round the shim")
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("name", ["convert-replace", "append", "vacuum", "spark-replace"])
def test_nothing_gets_round_the_shim(zygote: Zygote, tmp_path: Path, name: str) -> None:
    write_inputs(tmp_path / "in")
    operation = next(one for one in OPERATIONS if one.name == name)
    prepared = prepare(zygote, operation, tmp_path / "in", tmp_path)
    log, target = tmp_path / "strace", tmp_path / "traced"
    shutil.copytree(prepared.template, target)
    program = [sys.executable, "-c", "from pag_graph.cli.app import main; main()", *prepared.words(target)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # -y names the folder that a number of a file stands for.
    traced = ["strace", "-f", "-y", "-e", f"trace={','.join(NAMES)}", "-o", log, *program]
    subprocess.run(traced, check=True, env=environment)
    seen = changes(log.read_text(errors="replace"), str(target))
    ours = sorted(
        (point.call, point.path) for point in prepared.passed if point.call not in {"write", "fsync", "ftruncate"}
    )
    assert seen == ours
    assert len(seen) >= 9


NAMES = {
    **dict.fromkeys(("mkdir", "mkdirat"), "mkdir"),
    **dict.fromkeys(("open", "openat", "openat2", "creat"), "open"),
    **dict.fromkeys(("rename", "renameat", "renameat2"), "rename"),
    **dict.fromkeys(("link", "linkat"), "link"),
    **dict.fromkeys(("symlink", "symlinkat"), "symlink"),
    **dict.fromkeys(("unlink", "unlinkat"), "unlink"),
    "rmdir": "rmdir",
}
"""Calls of the system, and what the shim calls them."""


def changes(log: str, target: str) -> list[tuple[str, str]]:
    """Read from strace's log what was changed below a folder."""
    found = []
    for line in log.splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)", line)
        if call is None or call[1] not in NAMES:
            continue
        name, words = NAMES[call[1]], call[2]
        if name == "open" and "O_CREAT" not in words and "O_TRUNC" not in words:
            continue
        if "AT_REMOVEDIR" in words:
            name = "rmdir"
        paths = [path if path.startswith("/") else f"{folder}/{path}" for folder, path in _paths(words)]
        # A rename is known by where it came from, a link by where it leads to.
        path = paths[-1] if name == "link" else paths[0]
        if f"{path}/".startswith(f"{target}/"):
            found.append((name, nameless(path.removeprefix(target).lstrip("/"))))
    return sorted(found)


def _paths(words: str) -> list[tuple[str, str]]:
    """Return the paths among the arguments of a call, each after the folder that it is relative to."""
    return re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"', words)
