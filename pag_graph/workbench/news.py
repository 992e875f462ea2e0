"""What a page that stays open is told: commits, epochs that were closed, alerts, and what a followed run is doing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import anyio
import polars as pl

from pag_graph.api import alerts
from pag_graph.builder.ongoing import HOLDING
from pag_graph.errors import PagGraphError, StoreNotFoundError
from pag_graph.store.live import last_timing, read_status
from pag_graph.workbench import facts
from pag_graph.workbench.answers import in_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pag_graph.workbench.library import Library, Opened

LOOK_S = 0.5
"""How often a store is looked at while a page listens."""
MOST_ALERTS = 100
"""Alerts that are told: those that are open, and then the last that were resolved."""
_RUNS = 8
"""Runs of which something is kept."""
_FOR_PAGES = ("id", "event", "rule", "severity", "subject", "first_epoch", "epoch", "observed", "limit", "learned")


@dataclass
class Known:
    """What is kept of a run from commit to commit, so that each costs what is new in it."""

    lock: Lock = field(default_factory=Lock)
    run: str = ""
    version: int = -1
    commit: str = ""
    closed: int = -1
    """The last closed epoch: later ones may be as long as they were, and have another path."""
    epochs: pl.DataFrame | None = None
    """As from `facts.epochs`."""
    alerts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last that was said of each alert, by its id, in the order in which they came."""

    def update(self, opened: Opened) -> None:
        """Take over what a commit brought; nothing is looked at twice."""
        with self.lock:
            run = opened.pag.run
            identity = run.info.run["run_id"]
            is_another = opened.version == self.version and opened.commit != self.commit
            if identity != self.run or opened.version < self.version or is_another:
                self.version, self.alerts, self.epochs = -1, {}, None
            if opened.version == self.version and self.epochs is not None:
                return
            known = None if self.epochs is None else self.epochs.filter(pl.col("epoch") <= self.closed)
            self.epochs = facts.epochs(opened, known)
            for row in alerts(run.info.path, since=self.version).to_pylist():
                if row["commit"] > opened.version:
                    continue
                self.alerts.pop(row["id"], None)
                self.alerts[row["id"]] = {name: row[name] for name in _FOR_PAGES}
            resolved = [key for key, row in self.alerts.items() if row["event"] == "resolved"]
            for key in resolved[: max(len(self.alerts) - MOST_ALERTS, 0)]:
                del self.alerts[key]
            self.run, self.version, self.commit = identity, opened.version, opened.commit
            self.closed = run.info.run["last_closed_epoch"]

    def told_alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that a page shows: open ones first, the newest first."""
        newest = list(self.alerts.values())[::-1]
        unresolved = [row for row in newest if row["event"] != "resolved"]
        return (unresolved + [row for row in newest if row["event"] == "resolved"])[:MOST_ALERTS]


class News:
    """Events for pages that stay open.

    Parameters
    ----------
    library
        The stores.
    work
        Runs what computes when it is its turn.
    """

    def __init__(self, library: Library, work: Callable[..., Any]) -> None:
        self._library = library
        self._work = work
        self._known: dict[str, Known] = {}

    def known(self, name: str) -> Known:
        """Return what is kept of a run."""
        known = self._known.setdefault(name, Known())
        while len(self._known) > _RUNS:
            self._known.pop(next(key for key in self._known if key != name))
        return known

    def epochs(self, name: str, opened: Opened) -> pl.DataFrame:
        """Return what the critical paths of all epochs are made of (see `facts.epochs`).

        Parameters
        ----------
        name
            Of the run in the library; what is known of it is kept under this name.
        opened
            Its present state. Only epochs that are new or have changed since the last one are looked at.

        Returns
        -------
        DataFrame
            One row per epoch and type: ``epoch``, ``type``, ``duration_ns``, and ``start_ns`` and ``end_ns`` of the
            epoch.

        Raises
        ------
        UnsupportedPlanError
            If the run's clocks are not aligned.
        """
        news_of_run = self.known(name)
        news_of_run.update(opened)
        assert news_of_run.epochs is not None  # noqa: S101  (it was made just now)
        return news_of_run.epochs

    async def told(self, name: str, after: int | None, drawn: str | None = None) -> AsyncIterator[bytes]:
        """Tell of a run until nobody listens.

        Parameters
        ----------
        name
            Of the run.
        after
            The last epoch that the page knows; None if it wants to hear of later ones only.
        drawn
            Name of the commit that the page has drawn. Of a run that nobody follows there is nothing to work out then
            before there is another one.

        Yields
        ------
        bytes
            Server-sent events: ``commit`` for each that is seen, first the present one; ``epoch``, one per closed epoch
            in their order, whose id is its number, so that a reconnection goes on behind it; ``alerts`` when they
            changed; ``ongoing`` when a followed run was looked at again; a comment where nothing is new, or where the
            store is gone: perhaps it is being built anew.
        """
        page = _Page(name, after, drawn)
        while True:
            try:
                events = await self._work(partial(self._look, page))
            except (PagGraphError, OSError):
                # A page whose stream ends while there is no store does not ask for another.
                events = []
            # That a client has gone is noticed only when something is sent.
            for event in events or [b":\n\n"]:
                yield event
            await anyio.sleep(LOOK_S)

    def _look(self, page: _Page) -> list[bytes]:
        """Return what is new of a run; what cannot be read is told the next time."""
        opened = self._library.open(page.name)
        after, alerts_told, events = page.after, page.alerts, []
        if opened.commit != page.commit:
            commit = _commit(opened)
            events.append(_event("commit", commit))
            if opened.commit != page.drawn or commit["followed"]:
                rows = self._epochs_told(page.name, opened)
                new_rows = rows.filter(pl.col("epoch") > after) if after is not None else rows.head(0)
                events += [_event("epoch", epoch, epoch["epoch"]) for epoch in _by_epoch(new_rows)]
                after = rows["epoch"].max() if rows.height else after  # type: ignore[assignment]
                if (now := self.known(page.name).told_alerts()) != alerts_told and (now or alerts_told is not None):
                    alerts_told = now
                    events.append(_event("alerts", {"alerts": alerts_told}))
        looked = ongoing(opened)
        if looked is not None and looked.get("looked_ns") != page.status:
            events.append(_event("ongoing", looked))
            page.status = looked["looked_ns"]
        page.commit, page.after, page.alerts = opened.commit, after, alerts_told
        return events

    def _epochs_told(self, name: str, opened: Opened) -> pl.DataFrame:
        """Return the rows of `epochs`; none of a run whose clocks are not aligned, which has no critical paths."""
        return self.epochs(name, opened) if opened.pag.run.aligned else facts.NO_EPOCHS


@dataclass
class _Page:
    """What a page that listens was told."""

    name: str
    """The run."""
    after: int | None
    """The last epoch that it knows."""
    drawn: str | None
    """Name of the commit that it has drawn."""
    commit: str = ""
    alerts: list[dict[str, Any]] | None = None
    status: int | None = None
    """When the follower had looked at what was told of it."""


def ongoing(opened: Opened) -> dict[str, Any] | None:
    """Return what a followed run is doing.

    Parameters
    ----------
    opened
        The run.

    Returns
    -------
    dict or None
        What `pag ongoing` says, besides ``why`` in words, ``closed_ns``, the end of the last closed epoch,
        ``ago_ns``, how long ago the follower looked, and ``lag_ns``, how long the last epoch took from the recorder's
        file to the answer. None where nobody has followed the run.
    """
    path = opened.pag.run.info.path
    try:
        status = read_status(path)
    except StoreNotFoundError:
        return None
    timing = last_timing(path)
    return {
        **status,
        "why": HOLDING[status["holder"]["why"]] if status.get("holder") else None,
        "closed_ns": int(opened.pag.run.epochs["end_ns"].to_numpy().max(initial=0)),
        "ago_ns": max(time.time_ns() - status["looked_ns"], 0),
        "lag_ns": None if timing is None else timing["answered_ns"] - timing["published_ns"],
    }


def _commit(opened: Opened) -> dict[str, Any]:
    run = opened.pag.run
    return {
        "version": opened.version,
        "commit": opened.commit,
        "run": run.info.run["run_id"],
        "epochs": run.epochs.height,
        "end_ns": run.end_ns,
        "followed": run.info.path.joinpath("_live", "status.json").exists(),
        "open": facts.is_open(opened),
    }


def _by_epoch(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one entry per epoch, with the time of each type on its path."""
    epochs: dict[int, dict[str, Any]] = {}
    for row in rows.iter_rows(named=True):
        ends = {"start": row["start_ns"], "end": row["end_ns"]}
        entry = epochs.setdefault(row["epoch"], {"epoch": row["epoch"], **ends, "types": {}})
        if row["type"] is not None:
            entry["types"][row["type"]] = row["duration_ns"]
    return [epochs[epoch] for epoch in sorted(epochs)]


def _event(name: str, value: Any, number: int | None = None) -> bytes:
    """Return a server-sent event; JSON has no line break."""
    head = b"" if number is None else f"id: {number}\n".encode()
    return head + b"event: " + name.encode() + b"\ndata: " + in_bytes(value) + b"\n\n"
