"""A follower stays within its memory, however long an epoch is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pag_graph
from bench.multiply import multiply
from pag_graph.store.delta import open_store
from pag_graph.store.trace import Trace

SAMPLE = Path(pag_graph.__file__).parent / "samples" / "triangles"
ROWS = 2_000_000
MOST_MIB = 640
"""It takes 530 to 550 MiB, and is to grow no more: 512 MiB are the aim, for ten times as many rows (docs/live.md)."""
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
    copies = -(-ROWS // 10 // Trace.open(SAMPLE).rows)
    # As a recorder leaves it: a file holds many row groups.
    multiply(SAMPLE, tmp_path / "tenth", times=copies, seed=1)
    multiply(tmp_path / "tenth", tmp_path / "trace", times=10, seed=1, per_epoch=10)
    words = ["follow", str(tmp_path / "trace"), str(tmp_path / "store"), "--memory", "64MiB"]
    ended = subprocess.run([sys.executable, "-c", FOLLOW, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert open_store(tmp_path / "store").events >= ROWS
    peak_mib = int(ended.stderr.split("VmHWM:")[1].split()[0]) / 1024
    assert peak_mib <= MOST_MIB
