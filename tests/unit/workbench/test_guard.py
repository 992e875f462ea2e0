"""Who may ask: every request brings the cookie, names this server, only reads, and comes from its own page."""

from __future__ import annotations

from string import punctuation
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse

from pag_graph.errors import InvalidParameterError, SinkError
from pag_graph.store import access
from pag_graph.workbench import server
from pag_graph.workbench.guard import POLICY, Guard
from pag_graph.workbench.library import Library
from tests.support.asgi import get

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

TOKEN = "a-token-of-this-test"
GUARD = Guard(PlainTextResponse("inside"), hosts=["127.0.0.1:1"], token=TOKEN, cookie="pag-1")
GOOD = {"Host": "127.0.0.1:1", "Cookie": f"pag-1={TOKEN}"}


def test_the_link_becomes_a_cookie() -> None:
    answer = get(GUARD, f"/?token={TOKEN}", {"Host": "127.0.0.1:1"})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"pag-1={TOKEN};")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert get(GUARD, "/api/runs", GOOD).body == b"inside"


@pytest.mark.parametrize("token", [f"all-the-signs{punctuation}", "o2Ki/8+rcGFn+Zz0Qw=="])
def test_a_link_and_its_cookie_hold_a_token_with_any_sign(token: str) -> None:
    guard = Guard(PlainTextResponse("inside"), hosts=["127.0.0.1:1"], token=token, cookie="pag-1")
    link = server.Place(host="127.0.0.1", port=1, token=token).link
    answer = get(guard, link.removeprefix("http://127.0.0.1:1"), {"Host": "127.0.0.1:1"})
    assert answer.status == 303
    cookie = answer.headers["set-cookie"].partition("; ")[0]
    assert get(guard, "/", {"Host": "127.0.0.1:1", "Cookie": cookie}).body == b"inside"


@pytest.mark.parametrize(
    "other", ["a/b=1", "a[0]=1", 'seen={"a": 1}', "name=two words", "a@b:c=1", "without", "\xe9=1"]
)
def test_cookies_of_other_pages_of_this_machine_do_not_matter(other: str) -> None:
    for cookies in (f"{other}; pag-1={TOKEN}", f"pag-1={TOKEN}; {other}"):
        assert get(GUARD, "/api/runs", {**GOOD, "Cookie": cookies}).body == b"inside"
    assert get(GUARD, "/api/runs", {**GOOD, "Cookie": other}).status == 403


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1:2"}, 421),
        ({"Host": ""}, 421),
        ({"Cookie": ""}, 403),
        ({"Cookie": "pag-1=another"}, 403),
        ({"Cookie": f"pag-2={TOKEN}"}, 403),
        ({"Cookie": "pag-1=\xff"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_others_are_refused(changed: dict[str, str], status: int) -> None:
    answer = get(GUARD, "/api/runs", {**GOOD, **changed})
    assert answer.status == status
    assert answer.headers["content-security-policy"] == POLICY
    assert (answer.body == b"inside") is (status == 200)


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Guard, server.Place]]:
    """Serve at a place, but for listening there: return who guards it, and what is known of the place."""

    def serve(host: str, port: int, aliases: Sequence[str] = ()) -> tuple[Guard, server.Place]:
        guards: list[Guard] = []
        places: list[server.Place] = []

        class Listening:
            def getsockname(self) -> tuple[str, int]:
                return host, port

        class Server:
            def __init__(self, config: Any) -> None:
                guards.append(config.app)

            def run(self, **_: Any) -> None:
                """Serve nothing."""

        monkeypatch.setattr(server, "_listen", lambda *_: Listening())
        monkeypatch.setattr(server, "warm_up", lambda *_: None)
        monkeypatch.setattr(server.uvicorn, "Server", Server)
        options = {"host": host, "port": port, "token": TOKEN, "aliases": aliases}
        server.serve(Library([tmp_path]), **options, ready=places.append)
        return guards[0], places[0]

    return serve


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "::1", "machine"])
@pytest.mark.parametrize("port", [80, 8765])
def test_a_link_leads_to_the_server_that_printed_it(
    serving: Callable[..., tuple[Guard, server.Place]], host: str, port: int
) -> None:
    """Browsers leave out the port 80; whoever opened the link was told that the server has another name."""
    guard, place = serving(host, port)
    name = urlsplit(place.link).netloc
    for known in {name, name.removesuffix(":80")}:
        assert get(guard, f"/?token={TOKEN}", {"Host": known}).status == 303, known
    for other in {name.rpartition(":")[0], f"{name}0", "example.org"} - {name, name.removesuffix(":80")}:
        assert get(guard, f"/?token={TOKEN}", {"Host": other}).status == 421, other


def test_others_reach_it_by_the_names_that_it_was_told(serving: Callable[..., tuple[Guard, server.Place]]) -> None:
    guard, _ = serving("0.0.0.0", 8765, ["runs.example.org", "box:80", "[2001:db8::1]"])
    for known in ("runs.example.org", "RUNS.example.org:8765", "box:80", "[2001:db8::1]:8765", "127.0.0.1:8765"):
        assert get(guard, f"/?token={TOKEN}", {"Host": known}).status == 303, known
    for other in ("example.org", "runs.example.org:80", "box", "xbox:80", "evil.example"):
        assert get(guard, f"/?token={TOKEN}", {"Host": other}).status == 421, other
    for wrong in ("", "http://box", "box/", "a b", "box:", "*"):
        with pytest.raises(InvalidParameterError, match="is no name of a host"):
            serving("0.0.0.0", 8765, [wrong])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_is_written(method: str) -> None:
    assert get(GUARD, "/api/runs", GOOD, method).status == 405


def test_a_wrong_token_in_the_link_is_no_token() -> None:
    assert get(GUARD, "/?token=wrong", {"Host": "127.0.0.1:1"}).status == 403
    assert get(GUARD, f"/api/runs?token={TOKEN}", {"Host": "127.0.0.1:1"}).status == 403


def test_a_policy_without_scripts_in_pages() -> None:
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY


def test_other_machines_need_a_token(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"0\.0\.0\.0"):
        server.serve(Library([tmp_path]), host="0.0.0.0", ready=lambda _: None)
    assert [access.is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "example.org")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_token_is_in_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(SinkError, match="cannot be read"):
        access.read_token(file)
    file.write_text("0123456789abcdef\n", encoding="utf-8")
    file.chmod(0o644)
    with pytest.raises(InvalidParameterError, match="Other users can read"):
        access.read_token(file)
    file.chmod(0o600)
    assert access.read_token(file) == "0123456789abcdef"
    file.write_text("short", encoding="utf-8")
    with pytest.raises(InvalidParameterError, match="16 or more"):
        access.read_token(file)


def test_a_port_that_is_taken_is_said() -> None:
    taken = server._listen("127.0.0.1", 0)
    with pytest.raises(SinkError, match="no free port"):
        server._listen("127.0.0.1", taken.getsockname()[1])
    taken.close()
