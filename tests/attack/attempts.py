"""One attempt: stop an operation at a point, look at what readers find, repeat it, and look again."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.attack import states
from tests.attack.harness import Arm, run_alone
from tests.attack.operations import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.attack.harness import Mode, Outcome, Point, Zygote
    from tests.attack.operations import Operation, Prepared
    from tests.attack.states import State

_TAKEN = ("already holds", "exists already")


def said_and_done(words: Sequence[str]) -> tuple[int, str]:
    """Run the command in this process; its exit code and what it said, 70 with the stack if it broke."""
    from tests.attack.zygote import pag

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            pag(*words)
        except SystemExit as ended:
            return int(ended.code or 0), said.getvalue()
        except BaseException:  # noqa: BLE001  (whatever it was, it is what the user sees)
            return 70, said.getvalue() + traceback.format_exc()
    return 0, said.getvalue()


def afterwards(kind: str, path: str, words: list[str], new: State) -> dict[str, Any]:
    """Look, repeat the command as a user would, and look again; then clean up, and look once more; runs in a fork."""
    read, place = states.STATES[kind], Path(path)
    found = read(path)
    code, said = said_and_done(words)
    refused = code == 4 and any(told in " ".join(said.split()) for told in _TAKEN)
    if refused and found == new:
        # It had got through: who wants to be sure replaces it.
        code, said = said_and_done([*words, "--replace"])
    then, left = read(path), states.listing(place.parent, rows=False)
    cleaned, more = said_and_done(["vacuum", str(place / "pag" if kind == "spark" else place)])
    return {
        "found": found,
        "code": code or cleaned,
        "said": said + more,
        "then": then,
        "left": left,
        "at_last": read(path),
        "bare": states.listing(place.parent, rows=True),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of one attempt."""

    operation: str
    mode: Mode
    at: int
    point: Point | None
    """Where it was stopped; None where it ended before that point."""
    outcome: Outcome
    problems: list[str]

    def __str__(self) -> str:
        return f"{self.operation}, {self.mode} at {self.point or self.at}: " + "; ".join(self.problems)


def _differing(found: State, wanted: State) -> str:
    if "error" in found:
        return str(found["error"])
    if not found:
        return "nothing"
    return "other " + ", ".join(name for name in wanted if found.get(name) != wanted[name])


def _is_one(found: State, prepared: Prepared, *, command_done: bool) -> bool:
    old, new = prepared.old, prepared.new
    if command_done:
        return found == new
    if prepared.operation.kind == "spark" and not old:
        # A trace without its store is no answer to anything: whoever asks is told that there is no store.
        return found in ({}, {"trace": new["trace"], "store": {}}, new)
    return found in (old, new)


def attempt(
    zygote: Zygote,
    prepared: Prepared,
    place: Path,
    *,
    mode: Mode,
    at: int,
    library: Path | None = None,
    again: Operation | None = None,
) -> Attempt:
    """Stop an operation at a point and see that nothing is lost, mixed, doubled or left behind.

    A kill may leave the old state or the new one. A disk that fails must be told by a typed error, and then the old
    state is there; or the command got through. Either way the next run succeeds, gives the tables of a run that nothing
    stopped, and leaves no other file than that one.

    Parameters
    ----------
    zygote, prepared, place
        Who does it, what, and an empty folder to do it in.
    mode, at
        What the shim does, and at which point.
    library
        The shim, for a command that starts other processes: it is run by itself, not in a fork.
    again
        What the next run does, where it is not the same.
    """
    target = place / f"{prepared.operation.name}-{mode}-{at}"
    shutil.copytree(prepared.template, target)
    operation = prepared.operation
    try:
        arm = Arm(target=target, mode=mode, at=at)
        if library is None:
            outcome = zygote.pag(*prepared.words(target), arm=arm)
        else:
            outcome = run_alone(prepared.words(target), arm, library, place)
        task = zygote.start(
            "tests.attack.attempts:afterwards",
            operation.kind,
            str(target / operation.path),
            prepared.words(target) if again is None else words_of(again, prepared.inputs, target),
            prepared.new,
        )
        after = task.wait()
        problems = []
        kills = mode in {"kill", "torn"}
        if outcome.hung:
            problems.append("hung")
        elif not kills and (outcome.code not in {0, 3, 4, 5, 6} or "Traceback" in outcome.said):
            problems.append(f"no typed error but exit {outcome.code}: {_last(outcome.said)}")
        elif kills and not outcome.killed and outcome.code:
            problems.append(f"not killed, but exit {outcome.code}: {_last(outcome.said)}")
        if after.code or after.result is None:
            problems.append(f"looking ended with {after.code}: {_last(after.said)}")
        else:
            problems += _judged(after.result, prepared, outcome, at, kills=kills)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    point = next((point for point in outcome.passed if point.number == at), None)
    return Attempt(operation=operation.name, mode=mode, at=at, point=point, outcome=outcome, problems=problems)


def _judged(after: dict[str, Any], prepared: Prepared, outcome: Outcome, at: int, *, kills: bool) -> list[str]:
    problems = []
    found = after["found"]
    if not _is_one(found, prepared, command_done=outcome.code == 0):
        problems.append(f"neither old nor new, but {_differing(found, prepared.new)}")
    elif not kills and outcome.code and found == prepared.new != prepared.old:
        problems.append("said that it failed, and the new state is there")
    if after["code"]:
        problems.append(f"the next run ended with {after['code']}: {_last(after['said'])}")
    if after["then"] != prepared.new:
        problems.append(f"the next run gave {_differing(after['then'], prepared.new)}")
    if after["at_last"] != prepared.new:
        problems.append(f"the clean-up left {_differing(after['at_last'], prepared.new)}")
    looks = [(" by the clean-up", after["bare"], prepared.bare)]
    refused = next((point.call for point in outcome.passed if point.number == at), "")
    if kills or refused not in {"unlink", "rmdir"}:
        # What a disk would not remove it keeps until somebody cleans up; all else is gone with the next run.
        looks.insert(0, ("", after["left"], prepared.left))
    for when, there, wanted in looks:
        if extra := _without(there, wanted):
            problems.append(f"left behind{when} {', '.join(extra)}")
        if missing := _without(wanted, there):
            problems.append(f"missing{when} {', '.join(missing)}")
    return problems


def _without(names: list[str], others: list[str]) -> list[str]:
    rest = list(others)
    more = []
    for name in names:
        if name in rest:
            rest.remove(name)
        else:
            more.append(name)
    return more


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return " / ".join(lines[-2:])[:300]


def chosen(passed: Sequence[Point], *, most: int | None, seed: str) -> list[tuple[int, Mode]]:
    """Choose points to kill at: before each call, and in the midst of the first, a middle and the last write to a file.

    Parameters
    ----------
    passed
        Points of a run that nothing stopped.
    most
        So many of them, drawn by `seed`; all where absent.
    seed
        Any text.
    """
    kills: list[tuple[int, Mode]] = [(point.number, "kill") for point in passed if not point.call.startswith("write")]
    writes: dict[str, list[int]] = {}
    for point in passed:
        if point.call.startswith("write"):
            writes.setdefault(point.path, []).append(point.number)
    for numbers in writes.values():
        torn = {numbers[0], numbers[len(numbers) // 2], numbers[-1]}
        kills += [(number, "torn") for number in sorted(torn)]
    kills.sort()
    if most is None or most >= len(kills):
        return kills
    return sorted(random.Random(seed).sample(kills, most))
