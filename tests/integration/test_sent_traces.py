"""Programs that send what they record: the follower is stopped, killed and started again, and nothing is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.sources.record import build_program, free_ports
from pag_graph.store.trace import Trace
from tests.integration.test_record import pytestmark as needs_the_adapter
from tests.support.certificates import identity
from tests.support.compare import committed, differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = needs_the_adapter
PROVE = bool(os.environ.get("PAG_PROVE"))
PATIENCE_S = 600 if PROVE else 60


def until(true: Callable[[], bool]) -> None:
    """Wait until something holds, and not for ever."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def test_a_follower_that_is_stopped_and_killed_misses_nothing_and_the_program_never_waits(tmp_path: Path) -> None:
    [port] = free_ports(1)
    token, spool, store = tmp_path / "token", tmp_path / "spool", tmp_path / "store"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    listening = ["--listen", f"127.0.0.1:{port}", "--token-file", str(token)]

    def follow() -> subprocess.Popen[bytes]:
        code = "from pag_graph.cli.app import main; main()"
        command = [sys.executable, "-c", code, "follow", str(spool), str(store), *listening]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def received() -> int:
        files = (spool / "events").glob("*.parquet") if spool.is_dir() else ()
        return sum(pq.ParquetFile(file).num_row_groups for file in files)

    rounds = "3000" if PROVE else "100"
    program = [str(build_program("bfs", optimised=False)), "-w", "2", "--rounds", rounds, "--trace"]
    # On a busy machine the second follower takes a while to begin.
    sending = ["--send", f"127.0.0.1:{port}", "--token-file", str(token), "--patience", str(PATIENCE_S)]
    first = follow()
    with ExitStack() as started:
        started.callback(_end, first)
        until(lambda: received() or (spool / "received").is_dir())
        running = subprocess.Popen([*program, str(tmp_path / "kept"), *sending], stdout=subprocess.PIPE)
        started.callback(_end, running)
        until(lambda: received() > 2)
        first.send_signal(signal.SIGSTOP)
        until(lambda: len(list((tmp_path / "kept" / "events").glob("*.parquet"))) > 2)
        _end(first)
        second = follow()
        started.callback(_end, second)
        said, errors = second.communicate(timeout=2 * PATIENCE_S)
        assert second.returncode == 0, errors
        assert b"epochs closed" in said
        running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0
    meta = json.loads((spool / "meta.json").read_text())
    assert (meta["complete"], meta["stalled_ns"], "lost" in meta) == (True, 0, False)
    assert not (tmp_path / "kept").exists()
    for worker in (0, 1):
        numbers = Trace.open(spool).events(["seq"], [worker])["seq"].to_pylist()
        assert numbers == list(range(1, len(numbers) + 1))
    api.build(spool, tmp_path / "once", engine="local")
    assert differences(committed(store), committed(tmp_path / "once")) == ""


def test_two_processes_send_one_trace(tmp_path: Path) -> None:
    from pag_graph.sources.record import _hosts, _run
    from pag_graph.sources.wire.listen import listening

    token = "0123456789abcdef"
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    program = str(build_program("bfs", optimised=False))
    with listening(tmp_path / "spool", "127.0.0.1:0", token) as port, _hosts(["-n", "2"]) as groups:
        sending = ["--send", f"127.0.0.1:{port}", "--token-file", str(tmp_path / "token")]
        trace = ["--trace", str(tmp_path / "kept"), "-n", "2", "-w", "1"]
        said, failed = _run([[program, *trace, *sending, *group] for group in groups])
    assert not failed, said
    received = Trace.open(tmp_path / "spool")
    assert received.meta.complete
    assert sorted(received.workers["process"].to_pylist()) == [0, 1]
    assert not (tmp_path / "kept").exists()
    pag = api.open(api.build(tmp_path / "spool", tmp_path / "store", engine="local").store.path)
    assert not {"receive_without_send", "events_missing"} & set(pag.findings()["finding"])


@pytest.mark.skipif(not PROVE, reason="compiles the adapter anew; make prove has the time")
def test_a_program_sends_to_another_machine_as_it_sends_to_this_one(tmp_path: Path) -> None:
    from pag_graph.sources.wire.encrypted import server_context
    from pag_graph.sources.wire.listen import listening

    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "token").chmod(0o600)
    who = identity(tmp_path)
    program = build_program("bfs", optimised=False, features=("tls",))
    with listening(
        tmp_path / "spool", "127.0.0.1:0", "0123456789abcdef", tls=server_context(who.certificate, who.key)
    ) as port:
        sending = ["--send", f"127.0.0.1:{port}", "--token-file", str(tmp_path / "token")]
        trusting = ["--authority", str(who.authority), "-w", "2"]
        subprocess.run([str(program), "--trace", str(tmp_path / "kept"), *sending, *trusting], check=True)
    received = Trace.open(tmp_path / "spool")
    assert received.meta.complete
    assert not (tmp_path / "kept").exists()
    api.build(tmp_path / "spool", tmp_path / "store", engine="local")


@pytest.mark.parametrize("arguments", [["--send", "127.0.0.1:7070"], ["--token-file", "token"]])
def test_a_place_without_a_token_is_told(tmp_path: Path, arguments: list[str]) -> None:
    program = str(build_program("bfs", optimised=False))
    ended = subprocess.run([program, "--trace", str(tmp_path / "x"), *arguments], capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"give both, or neither" in ended.stderr
