"""Builds, appends, replaces, clean-ups and readers at one store, or conversions and readers at one trace, all at once.

A round is one race: some processes write, each a run that can be told from all others, while others open and read again
and again. What an open finds must be one of those runs, whole.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph import api
from pag_graph.errors import PagGraphError, StoreConflictError, StoreExistsError
from pag_graph.sources import convert
from pag_graph.store.delta import open_store
from pag_graph.store.history import commits
from pag_graph.store.leftovers import vacuum
from pag_graph.testing.traces import draw
from tests.attack import states
from tests.attack.operations import growing, write_tables

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from pag_graph.testing.traces import SmallTrace
    from tests.attack.states import State

WRITERS, READERS = 3, 2
_NUMBERS = range(1, WRITERS + 2)
_PATIENCE_S = 120
_ROUNDS_OF_A_STORE = 12
"""After so many a store is begun anew: its whole history is read in every round."""
_STORE, _TRACE = "race.pag", "race.trace"


def run_of(number: int) -> SmallTrace:
    """Return a run whose tables all differ from those of every other number."""
    rounds = range(1, 2 + number)
    starts = (f"{10 * k} start {number} | {10 * k + 1} send 3>1 #{k} *{number}" for k in rounds)
    stops = (f"{10 * k + 5} stop {number} | {10 * k + 9} end" for k in rounds)
    sends = " | ".join(f"{start} | {stop}" for start, stop in zip(starts, stops, strict=True))
    reads = " | ".join(f"{10 * k + 4} recv 3<0 #{k} *{number} | {10 * k + 9} end" for k in rounds)
    # Receives that nobody sent make findings of the run's own.
    odd = " | ".join(f"8 recv {20 + k}<0" for k in range(number))
    return draw(sends, f"{odd} | {reads}")


def lay_out(folder: str) -> dict[str, Any]:
    """Write the inputs of the races and find out what each gives; runs in a fork."""
    place = Path(folder)
    traces = {f"run-{number}": run_of(number) for number in _NUMBERS}
    traces |= {f"grown-{epochs}": growing(epochs) for epochs in (2, 3)}
    runs, found = {}, {}
    for name, small in traces.items():
        small.write(place / name, trace_id="grown" if name.startswith("grown") else name)
        report = api.build(place / name, place / "one.pag", engine="local")
        runs[name] = report.store.run["run_id"]
        found[name] = states.store_state(str(place / "one.pag"))
        shutil.rmtree(place / "one.pag")
    for number in _NUMBERS:
        name = f"tables-{number}"
        write_tables(place / name, (number, 10 + number, 30 + 2 * number))
        convert(place / name, place / "one.trace")
        found[name] = states.trace_state(str(place / "one.trace"))
        shutil.rmtree(place / "one.trace")
    return {"folder": folder, "runs": runs, "states": found}


def _write(course: dict[str, Any], action: tuple[str, str]) -> dict[str, Any]:
    """Do one thing to the store or trace, and say what came of it."""
    mode, name = action
    folder = Path(course["folder"])
    try:
        if mode == "convert":
            convert(folder / name, folder / _TRACE, replace=True)
            return {"action": action, "done": name, "committed": False}
        if mode == "vacuum":
            vacuum(folder / _STORE)
            return {"action": action, "done": name, "committed": False}
        report = api.build(folder / name, folder / _STORE, engine="local", mode=mode)  # type: ignore[arg-type]
    except (StoreConflictError, StoreExistsError) as error:
        return {"action": action, "refused": type(error).__name__}
    except PagGraphError as error:
        return {"action": action, "failed": f"{type(error).__name__}: {error.message}"}
    except Exception:  # noqa: BLE001  (there must be none)
        return {"action": action, "failed": f"untyped: {traceback.format_exc()[-600:]}"}
    return {"action": action, "done": report.store.run["run_id"], "committed": report.committed}


def _plan(course_seed: int, number: int) -> tuple[str, str, list[tuple[str, str]]]:
    """Return what a round is called, what is there before it, and what its writers do."""
    chance = random.Random(f"{course_seed}-{number}")
    names = chance.sample([f"run-{k}" for k in _NUMBERS], WRITERS)
    match chance.randrange(6):
        case 0:
            return "builds", "nothing", [("error", name) for name in names]
        case 1:
            return "replaces", "run", [("replace", name) for name in names]
        case 2:
            return "appends", "grown-2", [("append", "grown-3")] * WRITERS
        case 3:
            actions = [("append", "grown-3"), ("replace", names[0]), ("replace", "grown-3")]
            return "appends and replaces", "grown-2", actions
        case 4:
            actions = [("vacuum", "grown-2"), ("replace", names[0]), ("append", "grown-3")]
            return "builds and clean-ups", "grown-2", actions
        case _:
            tables = chance.sample([f"tables-{k}" for k in _NUMBERS], WRITERS)
            return "conversions", "trace", [("convert", name) for name in tables]


def _before(course: dict[str, Any], number: int, there: str) -> None:
    """Make what is there before a round."""
    folder = Path(course["folder"])
    store, trace = folder / _STORE, folder / _TRACE
    if there == "nothing" or number % _ROUNDS_OF_A_STORE == 0:
        shutil.rmtree(store, ignore_errors=True)
    if there == "run" and not store.exists():
        api.build(folder / "run-1", store, engine="local")
    elif there == "grown-2":
        api.build(folder / "grown-2", store, engine="local", mode="replace")
    elif there == "trace" and not trace.exists():
        convert(folder / "tables-1", trace)


def _read(course: dict[str, Any], kind: str) -> State:
    folder = Path(course["folder"])
    if kind != "trace":
        return states.store_state(str(folder / _STORE))
    while "was replaced while it was read" in str((found := states.trace_state(str(folder / _TRACE))).get("error")):
        # Who is told so reads again.
        pass
    return found


def _history(course: dict[str, Any]) -> list[tuple[str, str]]:
    store = Path(course["folder"]) / _STORE
    if not (store / "epochs" / "_delta_log").is_dir():
        return []
    return [(one.id, str(one.run["run_id"])) for one in commits(open_store(store))]


def _named(course: dict[str, Any], found: State) -> str:
    """Name the run that a reader found; what it found instead, where it is none."""
    if not found:
        return "nothing"
    for name, state in course["states"].items():
        if found == state:
            return str(name)
    if "error" in found:
        return f"error {found['error']}"
    mixed = {
        part: sorted(name for name, state in course["states"].items() if state.get(part) == value)
        for part, value in found.items()
    }
    return f"mixed {json.dumps(mixed)}"


def _take_part(
    course: dict[str, Any], seed: int, rounds: range, place: int, barrier: Barrier, ended: Any, report: Path
) -> None:
    """Be one of the racers, in all rounds: the first ones write, the others read."""
    with report.open("w", encoding="utf-8") as out:
        for number in rounds:
            kind, there, actions = _plan(seed, number)
            chance = random.Random(f"{seed}-{number}-{place}")
            told: dict[str, Any] = {"round": number, "kind": kind}
            if place == 0:
                _before(course, number, there)
                told["history"] = _history(course)
                told["before"] = _named(course, _read(course, there))
                ended.value = 0
            barrier.wait(_PATIENCE_S)
            if place < WRITERS:
                time.sleep(chance.choice((0, 0, 0.002, 0.01, 0.03)))
                told |= _write(course, actions[place])
                with ended.get_lock():
                    ended.value += 1
            else:
                seen: list[str] = []
                while ended.value < WRITERS:
                    seen.append(_named(course, _read(course, there)))
                    time.sleep(chance.choice((0, 0, 0.003)))
                told["seen"] = seen
            barrier.wait(_PATIENCE_S)
            if place == 0:
                told["after"] = _named(course, _read(course, there))
                told["then"] = _history(course)
            out.write(json.dumps(told) + "\n")
            out.flush()


def run_rounds(course: dict[str, Any], seed: int, first: int, last: int) -> dict[str, Any]:
    """Run rounds ``first`` to ``last``; runs in a fork, which forks the racers before it does anything itself."""
    context = multiprocessing.get_context("fork")
    barrier, ended = context.Barrier(WRITERS + READERS), context.Value("i", 0)
    folder = Path(course["folder"])
    reports = [folder / f"report-{place}" for place in range(WRITERS + READERS)]
    racers = []
    for place, report in enumerate(reports):
        child = os.fork()
        if not child:
            code = 1
            try:
                _take_part(course, seed, range(first, last), place, barrier, ended, report)
                code = 0
            except threading.BrokenBarrierError:
                code = 3
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                barrier.abort()
            finally:
                os._exit(code)
        racers.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in racers]
    told = [[json.loads(line) for line in report.read_text().splitlines()] for report in reports]
    return {"codes": codes, "rounds": [list(one) for one in zip(*told, strict=False)]}


def problems(told: list[dict[str, Any]]) -> list[str]:
    """Say what is wrong with a round, by what its racers tell."""
    leader, writers, readers = told[0], told[:WRITERS], told[WRITERS:]
    kind = leader["kind"]
    found = [one["failed"] for one in writers if "failed" in one]
    may = {leader["before"]} | {one["action"][1] for one in writers}
    for place, reader in enumerate(readers):
        found += [f"reader {place} saw {name}" for name in sorted(set(reader["seen"]) - may)]
        later = reader["seen"][reader["seen"].count("nothing") :]
        if "nothing" in later:
            found.append(f"reader {place} lost what had been there")
    done = [one for one in writers if "done" in one]
    if not done:
        found.append("nobody got through")
    if leader["after"] not in may - {"nothing"}:
        found.append(f"at the end there is {leader['after']}")
    if kind == "conversions":
        return [f"round {leader['round']}, {kind}: {one}" for one in found]
    known = {tuple(one) for one in leader["history"]}
    new = Counter(run for key, run in map(tuple, leader["then"]) if (key, run) not in known)
    built = Counter(one["done"] for one in done if one["committed"])
    if new != built:
        found.append(f"built {dict(built)}, but committed {dict(new)}")
    if not known <= {tuple(one) for one in leader["then"]}:
        found.append("the history lost commits")
    return [f"round {leader['round']}, {kind}: {one}" for one in found]
