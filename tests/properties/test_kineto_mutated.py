"""Mutated Kineto traces: each file is a typed error, or read with every event a row, dropped and counted, or a finding.

What can be read is mapped; now and then it is made a trace, and built. With ``PAG_PROVE=1`` a hundred thousand.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.errors import PagGraphError
from pag_graph.sources.kineto.convert import map_files, write_mapped
from pag_graph.testing.kineto_traces import Job, simulate
from tests.support.kineto_ranks import gloo_rank
from tests.support.mutated import mutate_bytes, mutate_value, tries

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.sources.kineto.convert import Mapped

TRIES = tries(120)
ROWS_EACH, BUILT_EACH, LONGEST_S = 5, 60, 60
KINDS = ("one", "two", "gloo")


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, bytes]]]:
    """Return files of jobs: one rank with a stream, two with collectives, and two whose processors carry them out."""
    folder = tmp_path_factory.mktemp("originals")
    jobs = {
        "one": simulate(Job(ranks=1, steps=1, layers=1)).write(folder / "one"),
        "two": simulate(Job(ranks=2, steps=1, layers=1, hosts=False)).write(folder / "two"),
        "gloo": [gloo_rank(folder, rank, asked=100 + 40 * rank, ended=640) for rank in (0, 1)],
    }
    return {name: [(file.name, file.read_bytes()) for file in files] for name, files in jobs.items()}


def mutated(content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 1 / 3:
        return mutate_bytes(content, chance)
    return mutate_value(json.loads(content), chance)


def events_in(content: bytes) -> int | None:
    """Count the events that a document holds; None if it is none."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    return len(events) if isinstance(events, list) else None


def attempt(folder: Path, contents: dict[str, bytes], number: int) -> str:
    files = []
    for name, content in contents.items():
        files.append(folder / name)
        files[-1].write_bytes(content)
    try:
        mapped = map_files(files)
        check_counted(mapped, contents)
        if number % BUILT_EACH == 0:
            write_mapped(mapped, folder / "trace")
            api.build(folder / "trace", folder / "pag", engine="local")
        elif number % ROWS_EACH == 0:
            assert sum(table.num_rows for _, table in mapped.events()) > 0
    except PagGraphError as error:
        return type(error).__name__
    return "finding" if mapped.findings.num_rows else "read"


def check_counted(mapped: Mapped, contents: dict[str, bytes]) -> None:
    for rank in mapped.ranks:
        log = rank.log
        stated = events_in(contents[log.file.name])
        told = {name: count for name, _, count in log.found}
        if stated is not None and "trace_truncated" not in told:
            damaged = told.get("event_damaged", 0)
            assert len(log.kind) + log.dropped.total() + damaged >= stated, log.file.name


def test_mutated_kineto_traces(tmp_path: Path, originals: dict[str, list[tuple[str, bytes]]]) -> None:
    outcomes: Counter[str] = Counter()
    for number in TRIES:
        chance = random.Random(f"kineto-{number}")
        contents = dict(originals[KINDS[number % len(KINDS)]])
        name = chance.choice(sorted(contents))
        contents[name] = mutated(contents[name], chance)
        place = tmp_path / "try"
        place.mkdir()
        began = time.process_time()
        try:
            outcomes[attempt(place, contents, number)] += 1
        except BaseException as error:
            error.add_note(f"{number}")
            raise
        assert time.process_time() - began < LONGEST_S, number
        shutil.rmtree(place)
    print(f"kineto: {len(TRIES):,} mutations: {dict(outcomes)}")  # noqa: T201
    assert outcomes["TraceFormatError"] > len(TRIES) // 100, outcomes
    assert outcomes["read"] + outcomes["finding"] > len(TRIES) // 2, outcomes
