"""Everything that writes a trace or a store, on inputs so small that one attempt takes a tenth of a second."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pag_graph.testing.traces import draw
from tests.attack.harness import Arm, run_alone
from tests.attack.states import listing
from tests.support.spark_logs import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace
    from tests.attack.harness import Point, Zygote
    from tests.attack.states import State

GROWING = draw(
    "0 start 1 | 4 send 3>1 | 5 stop 1 | 10 end | 12 start 1 | 20 stop 1 | 30 end | 31 start 1 | 33 stop 1 | 40 end",
    "0 park | 6 unpark | 7 recv 3<0 | 11 end | 15 start 2 | 21 stop 2 | 30 end | 32 start 2 | 39 stop 2 | 40 end",
)
OTHER = draw("0 start 4 | 9 send 6>1 *7 | 15 stop 4 | 30 end", "3 start 5 | 20 recv 6<0 *7 | 25 stop 5 | 30 end")

_ACTIVITIES = "worker,start,end,activity,operator\n0,{0},{1},processing,map\n1,{1},{2},processing,reduce\n"
_MESSAGES = "from,to,sent,received\n0,1,{0},{1}\n"


def event_log(tasks: int) -> EventLog:
    """Write the log of an application of one stage."""
    log = EventLog(cores=[1, 1]).job(0, 100, [0]).stage(0, 110, tasks=tasks)
    for task in range(tasks):
        log.task(0, task, str(task % 2), 120 + 100 * task, 200 + 100 * task, run=60)
    return log.stage_done(0, 300 + 100 * tasks).job_done(0, 310 + 100 * tasks).end(400 + 100 * tasks)


def growing(epochs: int) -> SmallTrace:
    """Return a run as it was when so many epochs had ended."""
    return replace(GROWING.until_epoch(epochs - 1), complete=epochs == 3)


def write_tables(folder: Path, numbers: tuple[int, int, int]) -> None:
    """Write two activities and a message by hand, at three instants."""
    folder.mkdir()
    (folder / "activities.csv").write_text(_ACTIVITIES.format(*numbers))
    (folder / "messages.csv").write_text(_MESSAGES.format(*numbers[:2]))


def write_inputs(folder: Path) -> None:
    """Write what the operations read."""
    folder.mkdir()
    write_tables(folder / "old-tables", (0, 10, 30))
    write_tables(folder / "new-tables", (5, 12, 44))
    event_log(2).write(folder / "old-log")
    event_log(3).write(folder / "new-log")
    growing(2).write(folder / "grown-2")
    growing(3).write(folder / "grown-3")
    OTHER.write(folder / "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A command that writes; ``IN`` and ``OUT`` stand for the folders of its inputs and of what it writes."""

    name: str
    kind: str
    """What is written: ``trace``, ``store`` or ``spark``."""
    path: str
    """Where, below ``OUT``."""
    before: tuple[tuple[str, ...], ...]
    """Commands that make what was there before."""
    command: tuple[str, ...]


def _operation(name: str, kind: str, command: str, *before: str) -> Operation:
    return Operation(
        name=name,
        kind=kind,
        path={"trace": "a.trace", "store": "a.pag", "spark": "app"}[kind],
        before=tuple(tuple(line.split()) for line in before),
        command=tuple(command.split()),
    )


_BUILD = "build IN/grown-3 OUT/a.pag --engine local"
_FIRST = "build IN/grown-2 OUT/a.pag --engine local"
_OTHER = "build IN/other OUT/a.pag --engine local"
_FOLLOW = "follow IN/grown-3 OUT/a.pag"
_NOT_COMPLETE = 10
"""Exit code of a follower whose source has not ended, which leaves what there was."""

OPERATIONS = (
    _operation("convert", "trace", "convert IN/new-tables OUT/a.trace"),
    _operation(
        "convert-replace", "trace", "convert IN/new-tables OUT/a.trace --replace", "convert IN/old-tables OUT/a.trace"
    ),
    _operation("build", "store", _BUILD),
    _operation("build-sliced", "store", f"{_BUILD} --slice-events 4"),
    _operation("append", "store", f"{_BUILD} --append", _FIRST),
    _operation("append-again", "store", f"{_BUILD} --append", _OTHER, f"{_FIRST} --replace"),
    _operation("replace", "store", f"{_BUILD} --replace", _OTHER),
    _operation("follow", "store", _FOLLOW),
    _operation("follow-on", "store", _FOLLOW, "follow IN/grown-2 OUT/a.pag --until idle:0"),
    _operation("follow-keep", "store", f"{_FOLLOW} --keep 1", _FOLLOW),
    _operation("vacuum", "store", "vacuum OUT/a.pag", _OTHER, f"{_FIRST} --replace", f"{_BUILD} --append"),
    _operation("spark", "spark", "spark IN/new-log --out OUT/app"),
    _operation("spark-replace", "spark", "spark IN/new-log --out OUT/app --replace", "spark IN/old-log --out OUT/app"),
)
_SLICED = f"{_BUILD} --slice-events 4 --replace"
ON_SPARK = _operation("build-on-spark", "store", _SLICED.replace("local", "spark"), _OTHER)
WITHOUT_SPARK = _operation("build-without-spark", "store", _SLICED, _OTHER)
"""What gives the same tables as `ON_SPARK`, and takes no ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An operation, ready to be tried often."""

    operation: Operation
    inputs: Path
    template: Path
    """What was there before."""
    old: State
    new: State
    passed: list[Point]
    """Points of a run that nothing stopped."""
    left: list[str]
    """What lies there after such a run."""
    bare: list[str]
    """What lies there after such a run and `pag vacuum`."""

    def words(self, target: Path) -> list[str]:
        """Return the command for a target."""
        return words_of(self.operation, self.inputs, target)


def words_of(operation: Operation, inputs: Path, target: Path) -> list[str]:
    """Return the command of an operation for a target."""
    return _words(operation.command, inputs, target)


def _words(command: tuple[str, ...], inputs: Path, target: Path) -> list[str]:
    return [word.replace("IN/", f"{inputs}/").replace("OUT/", f"{target}/") for word in command]


def prepare(
    zygote: Zygote, operation: Operation, inputs: Path, place: Path, *, library: Path | None = None
) -> Prepared:
    """Make what was there before, and run the operation once without harm; with the shim `library`, by itself."""
    template, whole = place / f"{operation.name}-template", place / f"{operation.name}-whole"
    template.mkdir()
    for command in operation.before:
        outcome = zygote.pag(*_words(command, inputs, template))
        assert outcome.code in {0, _NOT_COMPLETE}, outcome.said
    shutil.copytree(template, whole)
    read = f"tests.attack.states:{operation.kind}_state"
    old = zygote.call(read, str(template / operation.path))
    words, arm = words_of(operation, inputs, whole), Arm(target=whole, mode="list")
    outcome = zygote.pag(*words, arm=arm) if library is None else run_alone(words, arm, library, place)
    assert outcome.code == 0, outcome.said
    new = zygote.call(read, str(whole / operation.path))
    assert new
    assert "error" not in new
    assert (new == old) == (operation.name == "vacuum")
    left = listing(whole, rows=False)
    cleaned = zygote.pag("vacuum", whole / operation.path / ("pag" if operation.kind == "spark" else ""))
    assert cleaned.code == 0, cleaned.said
    return Prepared(
        operation=operation,
        inputs=inputs,
        template=template,
        old=old,
        new=new,
        passed=outcome.passed,
        left=left,
        bare=listing(whole, rows=True),
    )
