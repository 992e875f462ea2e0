"""Stores whose files are not as they were written: every reader says so, names the file, and gives no other rows."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api
from pag_graph.errors import FormatVersionError, StoreError
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store import delta, history
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROVE = os.environ.get("PAG_PROVE") == "1"
FLIPS, MUTATIONS = (400, 600) if PROVE else (30, 90)

WORK = " | ".join(
    f"{t} start 1 | {t + 3} send 3>1 #{e} | {t + 5} stop 1 | {t + 8} end" for e, t in enumerate((0, 20, 40))
)
WAIT = " | ".join(f"{t} park | {t + 6} unpark | {t + 7} recv 3<0 #{e} | {t + 9} end" for e, t in enumerate((0, 20, 40)))
WHOLE = draw(f"{WORK} | 60 start 1", WAIT)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three commits, with files that stay, that were replaced, and that belong to open epochs."""
    folder = tmp_path_factory.mktemp("damage")
    for epoch in (0, 1):
        trace = replace(WHOLE.until_epoch(epoch), complete=False).write(folder / f"trace-{epoch}")
        api.build(trace, folder / "store", engine="local", mode="append")
    api.build(WHOLE.write(folder / "whole"), folder / "store", engine="local", mode="append")
    return folder / "store"


def answers(store: Path) -> dict[str, Any]:
    pag = api.open(store)
    tables = {name: pag.run.scan(name).collect().rows() for name in STORE_TABLES}
    window = pag.run.window(between=(0, pag.run.end_ns))
    told = pag.run.snapshot(window).edges.rows()
    commits = [commit.id for commit in history.commits(pag.run.info)]
    return {**tables, "window": told, "run": dict(pag.run.info.run), "commits": commits}


def committed_files(store: Path) -> list[Path]:
    info = delta.open_store(store)
    return [store / name / part.path for name in STORE_TABLES for part in info.parts(name)]


def test_no_bit_flips_unnoticed(store: Path, tmp_path: Path) -> None:
    draws, expected = random.Random(19), answers(store)
    files = [file.relative_to(store) for file in committed_files(store)]
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    for _ in range(FLIPS):
        file = copy / draws.choice(files)
        content = file.read_bytes()
        changed = bytearray(content)
        at = draws.randrange(8 * len(content))
        changed[at // 8] ^= 1 << at % 8
        file.write_bytes(changed)
        with pytest.raises(StoreError, match="its bytes are not those that were committed") as caught:
            answers(copy)
        assert caught.value.context["file"] == str(file)
        assert caught.value.context["table"] == file.parent.name
        assert str(file) in caught.value.message
        file.write_bytes(content)
    assert answers(copy) == expected


def _flip(draws: random.Random, content: bytes) -> bytes:
    at = draws.randrange(max(8 * len(content), 1))
    changed = bytearray(content or b"\0")
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def _cut(draws: random.Random, content: bytes) -> bytes:
    return content[: draws.randrange(len(content) + 1)]


def _zeros(draws: random.Random, content: bytes) -> bytes:
    at = draws.randrange(len(content) + 1)
    return content[:at] + bytes(min(64, len(content) - at)) + content[at + 64 :]


def _line_lost(draws: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[draws.randrange(len(lines)) :][:1]
    return b"".join(lines[:-1])


def _line_twice(draws: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join([*lines, draws.choice(lines)])


def _lines_mixed(draws: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    draws.shuffle(lines)
    return b"".join(lines)


def _digit(draws: random.Random, content: bytes) -> bytes:
    digits = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
    at = draws.choice(digits or [0])
    return content[:at] + str(draws.randrange(10)).encode() + content[at + 1 :]


def _value(draws: random.Random, content: bytes) -> bytes:
    """Put something of another type somewhere in a line of JSON."""
    try:
        lines = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        return b"{}"
    place: Any = draws.choice(lines)
    while isinstance(place, dict) and place:
        key = draws.choice(sorted(place))
        if not (isinstance(place[key], dict) and place[key]) or draws.random() < 0.2:
            place[key] = draws.choice([None, 7, -1, "x", [], {}, "../../elsewhere.parquet", 2**62, True])
            break
        place = place[key]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


MUTATIONS_OF_A_FILE: list[Callable[[random.Random, bytes], bytes | None]] = [
    _flip,
    _cut,
    _zeros,
    _line_lost,
    _line_twice,
    _lines_mixed,
    _digit,
    _value,
    lambda _, __: b"",
    lambda _, __: None,
    lambda draws, content: content + draws.randbytes(9),
    lambda draws, _: draws.randbytes(200),
]


def test_no_damage_of_logs_and_files_goes_unnoticed(store: Path, tmp_path: Path) -> None:
    draws, expected, noticed = random.Random(600), answers(store), 0
    commits = expected.pop("commits")
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    logs = [file.relative_to(store) for file in sorted(store.glob("*/_delta_log/*"))]
    data = [file.relative_to(store) for file in sorted(store.glob("*/*.parquet"))]
    for number in range(MUTATIONS):
        file = copy / draws.choice(data if number % 6 == 5 else logs)
        content = file.read_bytes()
        change = MUTATIONS_OF_A_FILE[number % len(MUTATIONS_OF_A_FILE)]
        changed = change(draws, content)
        if changed is None:
            file.unlink()
        else:
            file.write_bytes(changed)
        found, said = expected, ""
        try:
            found = answers(copy)
        except (StoreError, FormatVersionError) as error:
            said = error.message
        noticed += bool(said)
        assert not said or str(copy) in said
        # Delta forgets old commits: of these, the newest ones are all there is to tell.
        told = found.pop("commits", commits)
        assert told == commits[-len(told) :]
        assert found == expected, f"{change} of {file}, in silence"
        file.write_bytes(content)
    assert answers(copy) == {**expected, "commits": commits}
    assert noticed > MUTATIONS // 4


def test_an_emptied_log_is_told(store: Path, tmp_path: Path) -> None:
    for name in STORE_TABLES:
        copy = tmp_path / name
        shutil.copytree(store, copy)
        for file in (copy / name / "_delta_log").glob("*.json"):
            file.write_bytes(b"")
        with pytest.raises(StoreError, match=f"of the table {name} of the store .*, is damaged") as caught:
            answers(copy)
        assert "build it again" in str(caught.value.hint)


def test_a_lost_commit_is_told(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    max((copy / "epochs" / "_delta_log").glob("*.json")).unlink()
    with pytest.raises(StoreError, match="is missing"):
        api.open(copy)


def test_a_window_reads_only_files_that_it_needs(tmp_path: Path) -> None:
    """So does its check: what lies far away may be damaged."""
    line = " | ".join(f"{t} start 1 | {t + 5} stop 1 | {t + 9} end" for t in (0, 20, 40))
    for epoch in range(3):
        grown = replace(draw(line).until_epoch(epoch), complete=epoch == 2)
        trace = grown.write(tmp_path / f"trace-{epoch}")
        info = api.build(trace, tmp_path / "store", engine="local", mode="append").store
    files = info.bounds("edges").with_columns(path=pl.Series([part.path for part in info.parts("edges")]))
    (tmp_path / "store" / "edges" / files.sort("min_epoch")["path"][-1]).write_bytes(b"nothing")
    run = api.open(tmp_path / "store").run
    assert run.snapshot(run.window(epoch=0)).edges.height
    assert next(run.snapshots(run.windows()[:1])).edges.height
    with pytest.raises(StoreError, match="7 bytes"):
        run.snapshot(run.window(epoch=2))
    with pytest.raises(StoreError, match="7 bytes"):
        run.scan("edges")


def test_checks_tell_what_is_damaged(store: Path, tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    code, _, told = run_pag("check", copy, "--deep")
    files = committed_files(copy)
    assert code == 0
    assert f"All {len(files)} files" in told
    api.open(copy).run.scan("vertices")
    broken = [next(file for file in files if file.parent.name == name) for name in ("vertices", "findings")]
    for file in broken:
        file.write_bytes(_flip(random.Random(1), file.read_bytes()))
    code, _, told = run_pag("check", copy, "--deep")
    assert code == 4
    assert f"2 of {len(files)} files" in told.replace("\n", " ")
    assert all(file.name in told.replace("\n", "") for file in broken)
