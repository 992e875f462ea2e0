"""Memory that stays with the process while a build needs it, and no longer."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pag_graph.runtime import memory

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import resource
import numpy as np
from pathlib import Path
from pag_graph.runtime import memory


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(6_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])


with memory.kept():
    first, again, inside = faults(), faults(), resident()
outside = resident()
works = memory.keep()
with memory.kept():
    faults()
print(works, first, again, inside, outside, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library of this system keeps what it likes")
def test_blocks_are_used_again_and_given_back_in_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        check=True,
        capture_output=True,
        text=True,
        env={"NUMPY_MADVISE_HUGEPAGE": "0", "PATH": "", "PYTHONPATH": ":".join(sys.path)},
    )
    works, _, again, inside, outside, later = done.stdout.split()
    assert works == "True"
    # 48 MB are 11,719 pages, each of which is touched anew where the block was given back.
    assert int(again) < 1_000
    assert int(later) < 20_000
    assert int(outside) < int(inside) - 10_000


def test_without_such_a_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_library", object)
    monkeypatch.setattr(memory, "_state", {"always": False, "sparing": False})
    assert not memory.keep()
    with memory.kept():
        pass


SPARE = """
import os
from pathlib import Path
from pag_graph.runtime import memory

memory.spare()
import pyarrow as pa

print(pa.default_memory_pool().backend_name, os.environ["_RJEM_MALLOC_CONF"], memory._state["always"])


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])


with memory.kept():
    # The C library gives back what is free at the end of its heap only: the last block holds all others.
    blocks = [bytearray(100_000) for _ in range(500)]
    last, blocks = blocks[-1], None
    inside = resident()
print(inside - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library of this system keeps what it likes")
def test_a_process_that_answers_once_keeps_nothing() -> None:
    environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", SPARE], check=True, capture_output=True, text=True, env=environment)
    *settings, given_back = done.stdout.split()
    assert settings == ["system", "dirty_decay_ms:0,muzzy_decay_ms:0", "True"]
    # Of 50 MB, in pages of 4 KiB, which stayed with the process inside of the block.
    assert int(given_back) > 10_000


FIRST_ARRAY = """
import sys
import pyarrow as pa
from pag_graph.runtime import memory

finders = list(sys.meta_path)
if "spare" in sys.argv:
    memory.spare()
    memory.spare()
print("made", pa.array([6, 7]).to_pylist())
assert sys.meta_path == finders
import pandas
"""


@pytest.mark.parametrize("spares", ["spare", ""])
def test_a_process_that_answers_once_loads_pandas_only_where_it_is_asked_for(tmp_path: Path, spares: str) -> None:
    # Stands for pandas, which need not be here; Arrow loads it for its first array.
    (tmp_path / "pandas.py").write_text('print("asked")\nraise ImportError\n')
    environment = {"PATH": "", "PYTHONPATH": ":".join([str(tmp_path), *sys.path])}
    code = [sys.executable, "-c", FIRST_ARRAY, spares]
    done = subprocess.run(code, check=False, capture_output=True, text=True, env=environment)
    words = [line.split()[0] for line in done.stdout.splitlines()]
    assert ("asked" in words[: words.index("made")]) == (not spares)
    assert words[-1] == "asked"
    assert done.stderr.splitlines()[-1] == "ImportError"
