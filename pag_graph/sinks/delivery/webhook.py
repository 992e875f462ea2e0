"""Alerts to an address: one request per alert that opens or is resolved, until the other side takes it.

Every request carries ``Idempotency-Key: ID/EVENT``, so that a receiver can tell one that it has seen: where an answer
is lost, the request is sent again. What nobody takes for a day is given up, and recorded beside the cursor.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import orjson

from pag_graph.errors import InvalidParameterError, PagGraphError, SinkError
from pag_graph.sinks.delivery.cursors import Cursor
from pag_graph.sinks.delivery.records import commits
from pag_graph.store.access import address_parts, is_loopback
from pag_graph.store.delta import open_store
from pag_graph.store.in_place import refusals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from urllib3 import PoolManager

    from pag_graph.sinks.delivery.records import Record
    from pag_graph.store.delta import StoreInfo

GIVE_UP_S = 24 * 3600
"""Seconds after which an alert that nobody takes is given up."""
_TIMEOUT_S = 10
_RETRIES = 4
_PAUSE_S = 5.0
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which a request may be taken later."""
_TAKEN = range(200, 300)


def check_address(url: str) -> str:
    """Return an address to which alerts may be sent.

    Raises
    ------
    InvalidParameterError
        If it is neither of https, nor of this machine.
    """
    parts = address_parts(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return url
    if parts.scheme == "http" and is_loopback(host):
        return url
    message = f"Alerts cannot be sent to {url}: use https, or http on this machine, so that others cannot read them."
    raise InvalidParameterError(message, "Such as https://example.org/alerts, or http://127.0.0.1:8080/.")


class Webhook:
    """Sends alerts in a thread of its own, from the store: who commits only says that there is something new.

    Parameters
    ----------
    store
        Directory of the store.
    url
        Where to send them; see `check_address`.
    pause_s
        Time between attempts, when the retries of one are used up.
    clock
        Says what time it is, in seconds since 1970.
    """

    def __init__(
        self, store: Path, url: str, *, pause_s: float = _PAUSE_S, clock: Callable[[], float] = time.time
    ) -> None:
        self._store, self._url, self._pause_s, self._clock = store, check_address(url), pause_s, clock
        self._cursor = Cursor(store, f"webhook {url}")
        self._news, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._pool: PoolManager | None = None
        self.error: PagGraphError | None = None
        """What ended the thread, if anything did."""

    @property
    def given_up(self) -> Path:
        """File with a line for each alert that was given up."""
        return self._cursor.file.with_suffix(".given-up.jsonl")

    def deliver(self, info: StoreInfo) -> int:
        """Wake the thread up (`Sink.deliver`); nothing is sent meanwhile."""
        del info
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
            self._thread.start()
        self._news.set()
        return 0

    def close(self, wait_s: float = 5.0) -> None:
        """End the thread; what is not sent by then is sent by the next one on this store."""
        if self._thread is not None:
            self._ended.set()
            self._news.set()
            self._thread.join(wait_s)
        if self._pool is not None:
            self._pool.clear()

    def _run(self) -> None:
        try:
            while True:
                self._news.wait()
                self._news.clear()
                while not self.send(open_store(self._store)) and not self._ended.wait(self._pause_s):
                    pass
                if self._ended.is_set():
                    return
        except PagGraphError as error:
            self.error = error

    def send(self, info: StoreInfo) -> bool:
        """Send what a state of the store has and was not sent yet.

        Parameters
        ----------
        info
            The state.

        Returns
        -------
        bool
            Whether nothing is left to be sent.

        Raises
        ------
        SinkError
            If the cursor cannot be read or written.
        """
        cursor = self._cursor.read()
        for number, records in commits(info, int(cursor.get("commit", -1)), ("alert",)):
            first = int(cursor.get("sent", 0)) if cursor.get("within") == number else 0
            for place, record in enumerate(records[first:], start=first):
                position = {"commit": number - 1, "within": number, "sent": place}
                tried_since_s = float(cursor.get("since", 0)) if cursor.get("key") == record.key else self._clock()
                if not self._is_accepted(record):
                    if self._clock() - tried_since_s < GIVE_UP_S:
                        self._cursor.write({**position, "key": record.key, "since": tried_since_s})
                        return False
                    self._give_up(record, tried_since_s)
                cursor = {**position, "sent": place + 1}
                self._cursor.write(cursor)
            self._cursor.write({"commit": number})
        return True

    def _is_accepted(self, record: Record) -> bool:
        """Send one alert, with a few retries; return whether the receiver accepted it."""
        from urllib3 import PoolManager, Retry
        from urllib3.exceptions import HTTPError

        if self._pool is None:
            self._pool = PoolManager(timeout=_TIMEOUT_S)
        retries = Retry(_RETRIES, backoff_factor=0.1, status_forcelist=_AGAIN, allowed_methods=None, redirect=0)
        headers = {"Content-Type": "application/json", "Idempotency-Key": record.key}
        try:
            answer = self._pool.request("POST", self._url, body=record.line(), headers=headers, retries=retries)
        except HTTPError:
            return False
        return answer.status in _TAKEN

    def _give_up(self, record: Record, tried_since_s: float) -> None:
        content: dict[str, Any] = {"key": record.key, "tried_since_s": tried_since_s, "given_up_s": self._clock()}
        with refusals(self.given_up, "", SinkError), self.given_up.open("ab") as file:
            file.write(orjson.dumps(content) + b"\n")
