"""A follower stays within its memory, however long an epoch is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pag_graph
from bench.multiply import multiply
from pag_graph.store.delta import open_store
from pag_graph.store.trace import Trace

SAMPLE = Path(pag_graph.__file__).parent / "samples" / "triangles"
TIMES = 100 if os.environ.get("PAG_PROVE") == "1" else 10
ROWS = 200_000 * TIMES
MOST_MIB = 512
FOLLOW = """
import sys
from pathlib import Path
from pag_graph.cli.app import main
try:
    main()
finally:
    print(next(line for line in Path("/proc/self/status").open() if line.startswith("VmHWM")), file=sys.stderr)
"""


def test_one_long_epoch_that_is_there_at_once(tmp_path: Path) -> None:
    copies = -(-ROWS // TIMES // Trace.open(SAMPLE).rows)
    # As a recorder leaves it: a file holds many row groups.
    multiply(SAMPLE, tmp_path / "part", times=copies, seed=1)
    multiply(tmp_path / "part", tmp_path / "trace", times=TIMES, seed=1, per_epoch=TIMES)
    words = ["follow", str(tmp_path / "trace"), str(tmp_path / "store"), "--memory", "32MiB"]
    ended = subprocess.run([sys.executable, "-c", FOLLOW, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert open_store(tmp_path / "store").events >= ROWS
    peak_mib = int(ended.stderr.split("VmHWM:")[1].split()[0]) / 1024
    assert peak_mib <= MOST_MIB
