"""What the adapter for Timely costs: two processes, whose messages go over TCP, with and without a tracer, in turn.

Without arrivals, on one process, the adapter's own example `overhead` measures the same (adapters/timely/README.md).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from itertools import cycle, islice
from typing import TYPE_CHECKING

from bench.harness import Bench, Figure, Session
from pag_graph.sources.record import build_program
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PROCESSES = 2
_MOST_SECONDS = 200.0
"""After so much time no further round of all kinds begins."""
_FEWEST_ROUNDS = 3
_ARGUMENTS = ("--nodes", "10000", "--edges", "20000", "--batch", "50")
_OFF = "off"
_KINDS: Mapping[str, tuple[str, ...]] = {
    _OFF: (),
    "events dropped": ("--sink", "drop"),
    "events written": (),
    "events and arrivals dropped": ("--sink", "drop", "--arrivals"),
    "events and arrivals written": ("--arrivals",),
}
_TARGETS = {"events and arrivals dropped": "1.10 x off", "events and arrivals written": "1.25 x off"}


def run(session: Session) -> None:
    """Measure all kinds in turn, each first, second and so on as often as any other."""
    program = build_program("bfs")
    rounds = 30 if session.quick else 300
    place = session.new_folder("recorder")
    place.mkdir(parents=True)
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    _once(program, (*_ARGUMENTS, "--rounds", str(rounds)), place)
    start = time.monotonic()
    for number in range(2 if session.quick else 10):
        if number >= _FEWEST_ROUNDS and time.monotonic() - start > _MOST_SECONDS:
            break
        for kind in islice(cycle(_KINDS), number, number + len(_KINDS)):
            trace = () if kind == _OFF else ("--trace", str(place / "trace"), "--replace")
            words = (*_ARGUMENTS, "--rounds", str(rounds), *trace, *_KINDS[kind])
            seconds[kind].append(_once(program, words, place))
            if kind == "events and arrivals written":
                events = Trace.open(place / "trace").rows
    for kind, times in seconds.items():
        session.keep(
            Figure(
                name=kind,
                seconds=times,
                yardstick=None if kind == _OFF else "the same program without a tracer",
                yardstick_seconds=[] if kind == _OFF else seconds[_OFF],
                items=None if kind == _OFF else events,
                target=_TARGETS.get(kind, ""),
            )
        )


def _once(program: Path, words: Sequence[str], place: Path) -> float:
    """Run the program as two processes of one worker each; return how long worker 0 took, in seconds."""
    hosts = place / "hosts"
    hosts.write_text("".join(f"127.0.0.1:{port}\n" for port in _free_ports()), encoding="utf-8")
    command = [str(program), *words, "-w", "1", "-n", str(_PROCESSES), "-h", str(hosts), "-p"]
    started = [
        subprocess.Popen([*command, str(process)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for process in range(_PROCESSES)
    ]
    outputs = [process.communicate() for process in started]
    codes = [process.returncode for process in started]
    if any(codes):
        message = "\n".join([f"{program} {' '.join(words)} ended with {codes}:", *(errors for _, errors in outputs)])
        raise RuntimeError(message)
    return int(outputs[0][0].partition("elapsed_ns ")[2].split()[0]) / 1e9


def _free_ports() -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(_PROCESSES)]
    ports: list[int] = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


BENCH = Bench(
    name="recorder",
    title="Recording a Timely program",
    about=(
        "The adapter's `bfs` runs as two processes of one worker each, which park when they have nothing to do."
        " It runs without a tracer, with a tracer whose events are dropped, and with a tracer that writes them."
        " The last two also run with arrivals, which Timely's communication threads log. All run in turn. Times"
        " are those of worker 0."
    ),
    run=run,
    needs=lambda: "" if shutil.which("cargo") else "cargo",
)
