"""Kills, full disks and broken ones at named points: compiles the shim, and asks a zygote to do things under it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from tests.attack.states import nameless

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
Mode = Literal["off", "list", "kill", "torn", "full", "broken"]
LONGEST_S = 120.0
KILLED = -9
_LINGER_S = 0.5


def compiler() -> str | None:
    """Return the C compiler of this machine, if it has one."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")


def build_shim(folder: Path) -> Path:
    """Compile the shim."""
    found = compiler()
    assert found is not None
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(
        [found, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
    )
    return library


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One call that changes what lies below the target."""

    number: int
    call: str
    path: str
    """Without numbers drawn at random."""
    other: str = ""

    def __str__(self) -> str:
        return f"{self.number} {self.call} {self.path}" + (f" {self.other}" if self.other else "")

    @property
    def name(self) -> str:
        """What stays the same from run to run."""
        return f"{self.call} {self.path}"


def points(log: Path, target: Path) -> list[Point]:
    """Read the points that the shim wrote down."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else []:
        number, call, path, other = line.split("\t")
        names = [nameless(name.removeprefix(str(target)).lstrip("/")) for name in (path, other)]
        found.append(Point(number=int(number), call=call, path=names[0], other=names[1]))
    return sorted(found, key=lambda point: point.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a process ended."""

    code: int
    """Exit code; negative where a signal ended it."""
    hung: bool
    said: str
    result: Any = None
    passed: list[Point]
    """Points that it passed, where it was armed."""

    @property
    def killed(self) -> bool:
        """Whether it was."""
        return self.code == KILLED and not self.hung


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What the shim does to a process."""

    target: Path
    mode: Mode
    at: int = 0


class Zygote:
    """A process that does things in forks of itself.

    Parameters
    ----------
    library
        The shim; without it nothing can be armed.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="attack-")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        if library is not None:
            environment["LD_PRELOAD"] = str(library)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[str] = self._process.stdin
        self._answers: IO[str] = self._process.stdout
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        assert json.loads(self._answers.readline())["ready"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        self._process.wait(LONGEST_S)
        self._reader.join()
        self._answers.close()
        self._folder.cleanup()

    def _read(self) -> None:
        for line in self._answers:
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer)
        for future in self._waiting.values():
            future.set_exception(EOFError("the zygote has ended"))

    def start(self, call: str, *arguments: Any, arm: Arm | None = None, timeout: float = LONGEST_S) -> Task:
        """Begin to call ``module:function`` in a fork."""
        number = next(self._numbers)
        folder = Path(self._folder.name) / str(number)
        folder.mkdir()
        request: dict[str, Any] = {
            "id": number,
            "call": call,
            "args": arguments,
            "timeout": timeout,
            "said": str(folder / "said"),
        }
        if arm is not None:
            request["arm"] = {
                "target": str(arm.target.resolve()),
                "state": str(folder / "state"),
                "log": str(folder / "log"),
                "mode": arm.mode,
                "at": arm.at,
            }
        future: Future[dict[str, Any]] = Future()
        self._waiting[number] = future
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        return Task(future=future, folder=folder, arm=arm)

    def call(self, call: str, *arguments: Any) -> Any:
        """Call ``module:function`` in a fork and return what it returns."""
        outcome = self.start(call, *arguments).wait()
        assert outcome.code == 0, outcome.said
        return outcome.result

    def pag(self, *arguments: object, arm: Arm | None = None) -> Outcome:
        """Run the command in a fork."""
        return self.start("tests.attack.zygote:pag", *map(str, arguments), arm=arm).wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something that a fork is at."""

    future: Future[dict[str, Any]]
    folder: Path
    arm: Arm | None

    def wait(self) -> Outcome:
        """Wait for its end."""
        answer = self.future.result(LONGEST_S * 2)
        passed = points(self.folder / "log", self.arm.target.resolve()) if self.arm else []
        said = (self.folder / "said").read_text(errors="replace") if (self.folder / "said").exists() else ""
        shutil.rmtree(self.folder)
        return Outcome(code=answer["code"], hung=answer["hung"], said=said, result=answer["result"], passed=passed)


def run_alone(words: Sequence[str], arm: Arm, library: Path, place: Path) -> Outcome:
    """Run the command as a process of its own, with all that it starts under the shim."""
    with tempfile.TemporaryDirectory(dir=place, prefix="alone-") as name:
        folder = Path(name)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SPARK_MASTER": "local[2]",
            "LD_PRELOAD": str(library),
            "ATTACK_TARGET": str(arm.target.resolve()),
            "ATTACK_STATE": str(folder / "state"),
            "ATTACK_LOG": str(folder / "log"),
            "ATTACK_MODE": arm.mode,
            "ATTACK_AT": str(arm.at),
        }
        command = [sys.executable, "-c", "from pag_graph.cli.app import main; main()", *words]
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
            try:
                code = process.wait(LONGEST_S)
                hung = False
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code, hung = process.wait(), True
        if code == KILLED:
            # Spark's Python processes are a group of their own, and end when they notice that Java has.
            time.sleep(_LINGER_S)
        return Outcome(
            code=code,
            hung=hung,
            said=(folder / "said").read_text(errors="replace"),
            passed=points(folder / "log", arm.target.resolve()),
        )
