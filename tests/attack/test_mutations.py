"""Files to which anything was done: typed errors, findings or equal answers, for everything that reads files.

``PAG_PROVE=1`` tries 100,000 mutations, otherwise some hundred. Each runs under a limit of time and of memory, in a
process of its own kind: an abort is a failure of that mutation, and the others go on.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.attack.mutations import READERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attack.harness import Zygote
    from tests.attack.mutations import Reader

PROVE = os.environ.get("PAG_PROVE") == "1"
TRIES = 10_000 if PROVE else 12
"""Mutations for each reader."""
_BATCH = 500 if PROVE else 6


def batch(zygote: Zygote, reader: Reader, seeds: list[str], place: Path) -> list[tuple[str, str, str]]:
    """Try seeds in one process; where it dies, say at which, and go on with another one after it."""
    results: list[tuple[str, str, str]] = []
    progress = place / f"{reader.name}-{seeds[0]}"
    while len(results) < len(seeds):
        rest = seeds[len(results) :]
        task = zygote.start("tests.attack.mutations:try_mutations", reader.name, rest, str(progress), timeout=3_000)
        outcome = task.wait()
        lines = progress.read_text().splitlines() if progress.exists() else []
        assert lines or not outcome.code, f"after {len(results)} of {reader.name} {seeds[0]}: {outcome.said[-1500:]}"
        results += [tuple(json.loads(line)) for line in lines]
        progress.unlink(missing_ok=True)
        if outcome.code:
            assert results, outcome.said
            seed, what, _ = results[-1]
            results[-1] = (seed, what, f"died: {'hung' if outcome.hung else outcome.code}: {outcome.said[-1500:]}")
    return results


@pytest.mark.parametrize("reader", READERS.values(), ids=lambda reader: reader.name)
def test_nothing_breaks_and_nothing_is_silent(reader: Reader, zygote: Zygote, tmp_path: Path) -> None:
    seeds = [str(number) for number in range(TRIES)]
    batches = [seeds[first : first + _BATCH] for first in range(0, TRIES, _BATCH)]
    with ThreadPoolExecutor(2) as pool:
        results = [
            one for many in pool.map(lambda some: batch(zygote, reader, some, tmp_path), batches) for one in many
        ]
    assert len(results) == TRIES
    counts = Counter(verdict.split(":")[0] for _, _, verdict in results)
    print(f"{reader.name}: {dict(counts)}")  # noqa: T201
    allowed = {"error", "finding", "same"} | (set() if reader.sealed else {"silent"})
    wrong = [f"{seed}: {what}: {verdict}" for seed, what, verdict in results if verdict not in allowed]
    # What stays plausible nobody can notice without a checksum; what is gone is told.
    wrong += [
        f"{seed}: {what}: {verdict}"
        for seed, what, verdict in results
        if verdict == "silent" and not reader.sealed and not plausible(reader, what)
    ]
    if wrong:
        pytest.fail(f"{len(wrong)} of {TRIES}, seeds of {reader.name}:\n" + "\n".join(wrong[:200]), pytrace=False)
    # All ways out occur, or the test would show nothing.
    assert counts["error"]
    assert TRIES - counts["error"]


def plausible(reader: Reader, what: str) -> bool:
    """Whether something was done after which a file without checksums may say something else just as well."""
    for done in what.split("; "):
        kind, _, rest = done.partition(" in ")
        name, _, how = rest.partition(": ")
        if kind in PLAUSIBLE:
            return True
        if reader.name.startswith("activities") and name.startswith(("messages", "epochs")) and kind in GONE:
            return True
        if kind == "drop column" and how in OPTIONAL:
            return True
    return False


GONE = {"remove", "empty", "rename", "folder"}
"""Messages and ends of epochs that somebody wrote down, or not: these tables may be absent."""
OPTIONAL = {"operator", "channel", "records", "received"}
"""Columns that activities and messages may come without; a message that nobody read is a finding of the build."""
PLAUSIBLE = {
    *("cut out", "drop rows", "flip", "insert", "line", "number", "repeat rows", "swap rows", "truncate", "value"),
    *("word", "zero"),
}
