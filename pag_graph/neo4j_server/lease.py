"""The right to write a run in the database: one loader at a time, even if one is killed, or slow and thought dead.

The right is kept in the database, as nodes ``(:Lease {run, lane, holder, expires_ms})``. Every transaction that writes
locks the node of its lane first and looks whether the right is still held; whoever takes the right over locks all of
them. So a loader that was overtaken cannot write any more, and lanes do not wait for each other.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.cypher import load_query
from pag_graph.errors import Neo4jError
from pag_graph.neo4j_server.process import start_ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import neo4j

LEASE_S = 60.0
"""How long a loader that says nothing keeps the right; one that was killed on this machine loses it at once."""

_WAIT_S = 3600.0
"""How long to wait for the right that another loader holds."""
_POLL_S = 0.5
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A right to write a run that is held; travels to tasks."""

    run: str
    holder: str
    lanes: int
    lease_ms: int
    attempt: str = ""
    """Which attempt at a task uses it."""

    def hold(self, transaction: neo4j.ManagedTransaction, lane: int) -> None:
        """Check in a transaction that the right is still held, and hold it for `lease_ms` from now.

        Parameters
        ----------
        transaction
            One that writes the run, before it writes anything: the lane's node is locked until it ends.
        lane
            Any number, taken modulo `lanes`. Transactions of one lane wait for each other.

        Raises
        ------
        Neo4jError
            If another loader has taken it over, or another attempt at the same task (`Lease.attempt`).
        """
        values = {
            "run": self.run,
            "lane": lane % self.lanes,
            "holder": self.holder,
            "attempt": self.attempt,
            "lease_ms": self.lease_ms,
        }
        if transaction.run(load_query("load/lease_hold").text, values).single() is None:
            error = overtaken(self.run)
            raise error


def overtaken(run: str) -> Neo4jError:
    """Return the error for a load that took so long that another one went on in its place."""
    message = f"Another load of run {run} has taken over, because this one had not reported for too long."
    return Neo4jError(message, "Nothing is lost: wait for the other one, or load again.", {"run": run})


@contextmanager
def held(
    driver: neo4j.Driver,
    run: str,
    *,
    lanes: int,
    lease_s: float = LEASE_S,
    on_wait: Callable[[float], None] | None = None,
) -> Iterator[Lease]:
    """Hold the right to write a run; wait for another loader that holds it.

    Parameters
    ----------
    driver
        Of the database.
    run
        Id of the run.
    lanes
        How many transactions may be under way at once.
    lease_s
        How long the right is kept without a transaction.
    on_wait
        Called, while waiting, with the seconds for which the other one holds it at most.

    Yields
    ------
    Lease
        The right; given up in the end.

    Raises
    ------
    Neo4jError
        If another loader holds it all the time.
    """
    lease = Lease(
        run=run, holder=f"{_process(os.getpid())}/{uuid.uuid4().hex}", lanes=lanes, lease_ms=int(lease_s * 1000)
    )
    ended_holders: set[str] = set()
    deadline = time.monotonic() + _WAIT_S
    while True:
        values = {
            "run": run,
            "lanes": list(range(lanes)),
            "holder": lease.holder,
            "gone": sorted(ended_holders),
            "lease_ms": lease.lease_ms,
        }
        row = driver.execute_query(load_query("load/lease_take").text, values).records[0]
        holder, left_s = str(row["holder"]), row["left_ms"] / 1000
        if holder == lease.holder:
            break
        if has_ended(holder):
            ended_holders.add(holder)
            continue
        if time.monotonic() > deadline:
            message = f"Another load of run {run} is under way, and has been for {_WAIT_S:g} s."
            raise Neo4jError(message, "Wait for it to end, then load again.", {"run": run, "holder": holder})
        if on_wait is not None:
            on_wait(left_s)
        time.sleep(max(min(left_s, _POLL_S), 0.05))
    try:
        yield lease
    finally:
        # If the server is gone, the right runs out by itself.
        with suppress(*_driver_errors()):
            driver.execute_query(load_query("load/lease_release").text, {"run": run, "holder": lease.holder})


def has_ended(holder: str) -> bool:
    """Tell whether a holder was a process of this machine that has ended."""
    machine, _, process_id = holder.partition(":")
    pid, _, ticks = process_id.partition("/")[0].partition(":")
    if machine == _UNKNOWN:
        return False
    return machine == _machine() and pid.isdigit() and str(start_ticks(int(pid)) or 0) != ticks


def _process(pid: int) -> str:
    """Name a process so that no other one, here or elsewhere, has the same name."""
    return f"{_machine()}:{pid}:{start_ticks(pid) or 0}"


def _machine() -> str:
    """Name what a process id is unique in: a boot of a machine, and a container on it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return _UNKNOWN
    return f"{boot}-{space}"


def _driver_errors() -> tuple[type[Exception], ...]:
    import neo4j.exceptions as driver_errors

    return (driver_errors.DriverError, driver_errors.Neo4jError)
