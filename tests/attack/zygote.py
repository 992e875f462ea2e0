"""A process that has everything loaded and forks for each task: one that is to be killed costs a tenth of a second.

It reads requests from its input, a JSON object per line, and answers each when its fork has ended. Polars, Arrow and
Delta start their threads when they are first used, which only forks do; compiled kernels are loaded before.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from numba.core.registry import CPUDispatcher

from pag_graph import api
from pag_graph.cli import app
from pag_graph.testing.traces import draw
from tests.attack import states
from tests.support.spark_logs import EventLog

_LATE = (
    "pag_graph.builder.build",
    "pag_graph.engines.following",
    "pag_graph.sources",
    "pag_graph.diagnosis.spark.answer",
)
"""Modules that the command loads where it needs them."""
TWO = draw(
    "0 start 1 | 4 send 3>1 | 5 stop 1 | 10 end | 12 start 1 | 20 stop 1 | 30 end", "0 park | 7 recv 3<0 | 30 end"
)


def pag(*arguments: str) -> None:
    """Run the command; ends the process."""
    sys.argv = ["pag", *arguments]
    app.main()


def _warm() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = EventLog(cores=[1]).job(0, 100, [0]).stage(0, 110, tasks=1)
        log.task(0, 0, "0", 120, 170, run=40).stage_done(0, 171).job_done(0, 180).end(200).write(folder / "log")
        sys.stdout = sys.stderr = (folder / "said").open("w")
        with contextlib.suppress(SystemExit):
            pag("spark", str(folder / "log"), "--out", str(folder / "out"))
        api.build(TWO.write(folder / "trace"), folder / "store", engine="local")
        states.store_state(str(folder / "store"))


def _kernels() -> dict[str, CPUDispatcher]:
    found = (thing for thing in gc.get_objects() if isinstance(thing, CPUDispatcher))
    return {
        f"{one.py_func.__module__}.{one.py_func.__qualname__}": one
        for one in found
        if one.py_func.__module__.startswith("pag_graph")
    }


def _load_kernels() -> None:
    """Load compiled kernels from their cache, without running them: a fork says which there are."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        _warm()
        with os.fdopen(sink, "wb") as out:
            pickle.dump({name: list(kernel.signatures) for name, kernel in _kernels().items()}, out)
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as inward:
        signatures = pickle.load(inward)
    os.waitpid(child, 0)
    kernels = _kernels()
    for name, known in signatures.items():
        for signature in known if name in kernels else ():
            kernels[name].compile(signature)


def _arm(*, target: str, state: str, log: str, mode: str, at: int) -> None:
    words = [word.encode() for word in (target, state, log, mode)]
    if error := ctypes.CDLL(None).attack_arm(*words, ctypes.c_long(at)):
        raise OSError(error, os.strerror(error))


def _do(request: dict[str, Any], answer: Path) -> None:
    """Do a request in a fork; never returns."""
    os.setpgid(0, 0)
    said = os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 1
    try:
        if "arm" in request:
            _arm(**request["arm"])
        module, _, function = request["call"].partition(":")
        result = getattr(importlib.import_module(module), function)(*request["args"])
        answer.write_text(json.dumps(result))
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not `exit`: what other processes registered to be done then is theirs.
        os._exit(code)


def _answer(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until the input ends."""
    for name in _LATE:
        importlib.import_module(name)
    threads = {task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")}
    # Forks would wait for threads for ever that they do not have: no module computes anything when it is loaded.
    assert not any(re.fullmatch(r"polars-\d+", name) for name in threads), f"threads before the first fork: {threads}"
    _load_kernels()
    _answer(ready=os.getpid())
    running: dict[int, tuple[dict[str, Any], float, Path]] = {}
    pending = b""
    closed = False
    with tempfile.TemporaryDirectory(prefix="zygote-") as folder:
        while not (closed and not running):
            ready, _, _ = select.select([] if closed else [0], [], [], 0.002 if running else 1)
            if ready:
                block = os.read(0, 1 << 16)
                closed = not block
                pending += block
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    answer = Path(folder) / str(request["id"])
                    child = os.fork()
                    if not child:
                        _do(request, answer)
                    running[child] = (request, time.monotonic() + request["timeout"], answer)
            for child, (request, limit, answer) in list(running.items()):
                hung = time.monotonic() > limit
                if hung:
                    os.kill(child, signal.SIGKILL)
                done, status = os.waitpid(child, 0 if hung else os.WNOHANG)
                if done:
                    del running[child]
                    result = json.loads(answer.read_text()) if answer.exists() else None
                    answer.unlink(missing_ok=True)
                    code = os.waitstatus_to_exitcode(status)
                    _answer(id=request["id"], code=code, hung=hung, result=result)


if __name__ == "__main__":
    main()
