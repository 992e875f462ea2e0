"""Sinks: what is committed goes out, however often somebody is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

import pag_graph
from pag_graph import api
from pag_graph.errors import InvalidParameterError, SinkError
from pag_graph.motif.alerts import Rule
from pag_graph.sinks.delivery import webhook
from pag_graph.sinks.delivery.cursors import Cursor
from pag_graph.sinks.delivery.lines import Callback, JsonLines, standard_output
from pag_graph.sinks.delivery.records import commits
from pag_graph.sinks.delivery.webhook import Webhook, check_address
from pag_graph.store.delta import open_store
from tests.support.skewed_rounds import portions, skewed_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pag_graph.store.delta import StoreInfo

KILLS = 100 if os.environ.get("PAG_PROVE") == "1" else 10
SLOW = Rule(
    name="slow",
    query="invariants:learn=false:message-max-ns=70:some-progress=false",
    where="row.type = 'data_message'",
    subject=("worker", "to_worker"),
)


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[StoreInfo]:
    """Return the states of a store with changes and alerts, commit after commit."""
    place = tmp_path_factory.mktemp("delivery")
    found = []
    for number, part in enumerate(portions(skewed_rounds(20, {2, 8, 9, 10, 15}), [4, 10, 11, 16])):
        written = part.write(place / f"trace-{number}")
        build: Any = api.build
        found.append(
            build(written, place / "s", engine="local", mode="append", queries=["metrics"], alerts=[SLOW]).store
        )
    return found


@pytest.fixture(autouse=True)
def _own_cursors(states: list[StoreInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test begin without cursors."""
    del states
    monkeypatch.setattr("pag_graph.sinks.delivery.cursors.FOLDER", str(tmp_path / "cursors"))


@contextmanager
def killed_at(chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill whoever is about to write a cursor, or has just done so, or is writing a file."""
    left, after = chance.randrange(3), chance.random() < 0.5
    write, sync = Cursor.write, os.fsync

    def cursor(self: Cursor, content: dict[str, Any]) -> None:
        nonlocal left
        left -= 1
        if after or left >= 0:
            write(self, content)
        if left < 0:
            raise Killed

    def synced(file: int) -> None:
        if chance.random() < 0.2:
            # Part of what was written is there.
            os.ftruncate(file, os.fstat(file).st_size - chance.randrange(20))
            raise Killed
        sync(file)

    with monkeypatch.context() as patched:
        patched.setattr(Cursor, "write", cursor)
        patched.setattr(os, "fsync", synced)
        yield


def keys(info: StoreInfo, kinds: tuple[Any, ...] = ("change", "alert")) -> list[str]:
    return [record.key for _, records in commits(info, -1, kinds) for record in records]


def test_a_file_gets_every_line_once(states: list[StoreInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    file = tmp_path / "out.jsonl"
    killed = 0
    for number in range(KILLS):
        info = states[min(number * len(states) // KILLS, len(states) - 1)]
        with killed_at(chance, monkeypatch):
            try:
                JsonLines(info.path, file).deliver(info)
            except Killed:
                killed += 1
    assert killed > KILLS // 3
    JsonLines(states[-1].path, file).deliver(states[-1])
    rows = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [row["key"] for row in rows] == keys(states[-1])
    assert {row["kind"] for row in rows} == {"change", "alert"}
    assert JsonLines(states[-1].path, file).deliver(states[-1]) == 0


def test_a_file_of_somebody_else_is_left_alone(states: list[StoreInfo], tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("mine\n")
    with pytest.raises(SinkError, match="something else"):
        JsonLines(states[-1].path, file).deliver(states[-1])
    assert file.read_text() == "mine\n"
    gone = tmp_path / "gone.jsonl"
    JsonLines(states[-1].path, gone).deliver(states[-1])
    gone.write_bytes(gone.read_bytes()[:-1])
    with pytest.raises(SinkError, match="bytes, not"):
        JsonLines(states[-1].path, gone).deliver(states[-1])


def test_a_function_is_called_until_it_returns(states: list[StoreInfo]) -> None:
    seen: list[str] = []
    fails = [True, False, True, False, False, False, False]

    def take(records: Any) -> None:
        seen.extend(record.key for record in records)
        if fails.pop(0):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            Callback(states[-1].path, "mine", take).deliver(states[-1])
    Callback(states[-1].path, "mine", take).deliver(states[-1])
    counted = Counter(seen)
    assert list(counted) == keys(states[-1])
    assert set(counted.values()) == {1, 2}


def test_standard_output_gets_lines(states: list[StoreInfo], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    standard_output(states[-1].path).deliver(states[-1])
    printed = capfdbinary.readouterr().out.splitlines()
    assert [json.loads(line)["key"] for line in printed] == keys(states[-1])


@contextmanager
def receiver(answers: Any) -> Iterator[tuple[str, list[tuple[int, str, dict[str, Any]]]]]:
    """Serve on this machine; `answers` says with which status."""
    got: list[tuple[int, str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = answers()
            got.append((status, self.headers["Idempotency-Key"], body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alerts", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ids(store: Path) -> list[str]:
    return [f"{row['id']}/{row['event']}" for row in pag_graph.alerts(store).to_pylist()]


def test_a_webhook_that_fails_half_the_time_gets_every_alert(
    states: list[StoreInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(2)
    monkeypatch.setattr(webhook, "_RETRIES", 1)
    killed = 0
    with receiver(lambda: chance.choice([204, 503])) as (url, got):
        for number in range(KILLS):
            info = states[min(number * len(states) // KILLS, len(states) - 1)]
            with killed_at(chance, monkeypatch):
                try:
                    Webhook(info.path, url).send(info)
                except Killed:
                    killed += 1
        while not Webhook(states[-1].path, url).send(states[-1]):
            pass
    assert killed > KILLS // 4
    taken = [key for status, key, _ in got if status == 204]
    # Once each, and in order, but for those that were taken just before somebody was killed.
    assert list(dict.fromkeys(taken)) == ids(states[-1].path)
    assert len(taken) <= len(ids(states[-1].path)) + killed
    assert all(f"{body['id']}/{body['event']}" == key == body["key"] for _, key, body in got)


def test_a_webhook_sends_in_its_own_thread(states: list[StoreInfo]) -> None:
    with receiver(lambda: 200) as (url, got):
        hook = Webhook(states[-1].path, url)
        hook.deliver(states[-1])
        hook.close(30)
        assert hook.error is None
        assert [key for _, key, _ in got] == ids(states[-1].path)


def test_what_nobody_takes_for_a_day_is_given_up(states: list[StoreInfo], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_RETRIES", 0)
    now = [1_000.0]
    info = states[-1]
    with receiver(lambda: 500) as (url, got):
        hook = Webhook(info.path, url, clock=lambda: now[0])
        assert not hook.send(info)
        now[0] += webhook.GIVE_UP_S - 1
        assert not hook.send(info)
        assert not hook.given_up.exists()
        now[0] += 1
        # The next alert is tried for a day of its own.
        assert not hook.send(info)
        [line] = [json.loads(line) for line in hook.given_up.read_text().splitlines()]
        assert line == {"key": ids(info.path)[0], "tried_since_s": 1_000.0, "given_up_s": now[0]}
        assert [key for _, key, _ in got] == [ids(info.path)[0]] * 3 + [ids(info.path)[1]]


@pytest.mark.parametrize(
    "url", ["http://example.org/", "ftp://127.0.0.1/", "https://", "http://10.0.0.1/", "http://[::1"]
)
def test_alerts_do_not_leave_in_the_open(url: str) -> None:
    with pytest.raises(InvalidParameterError, match="cannot be sent"):
        check_address(url)


def test_addresses_of_this_machine_and_https_are_fine() -> None:
    for url in ("http://127.0.0.1:1/", "http://localhost/", "http://[::1]:9/", "https://example.org/a"):
        assert check_address(url) == url


def test_a_damaged_cursor_is_told(states: list[StoreInfo], tmp_path: Path) -> None:
    info = states[-1]
    JsonLines(info.path, tmp_path / "out.jsonl").deliver(info)
    [cursor] = (tmp_path / "cursors").glob("*.json")
    cursor.write_text("{}")
    with pytest.raises(SinkError, match="does not say"):
        JsonLines(info.path, tmp_path / "out.jsonl").deliver(info)


def test_states_go_on(states: list[StoreInfo]) -> None:
    # What the other tests stand on.
    assert len({info.versions["epochs"] for info in states}) == len(states)
    assert len(ids(states[-1].path)) > 4
    assert open_store(states[-1].path).versions == states[-1].versions
