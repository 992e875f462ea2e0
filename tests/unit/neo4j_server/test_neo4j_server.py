from __future__ import annotations

import copy
import errno
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import types
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from pag_graph.errors import InvalidParameterError, MissingExtraError, Neo4jError
from pag_graph.neo4j_server import home as server_home
from pag_graph.neo4j_server import jars, java, ports, server
from pag_graph.neo4j_server import process as server_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTENT = b"the jar"
GOOD = jars.Jar("org.example", "good", "1.0", None, hashlib.sha256(CONTENT).hexdigest())


# ---- the lock file


def test_lock_pins_server_browser_and_all_they_need() -> None:
    locked = jars.locked_jars()
    artifacts = {f"{jar.group}:{jar.artifact}" for jar in locked}

    assert {"org.neo4j:neo4j", "org.neo4j.app:neo4j-server", "org.neo4j.client:neo4j-browser"} <= artifacts
    assert len({jar.file_name for jar in locked}) == len(locked)
    assert jars.neo4j_version().startswith("5.26.")


def test_lock_has_nothing_but_coordinates_and_checksums() -> None:
    text = jars.LOCK_FILE.read_text(encoding="utf-8")
    line = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+(:[\w-]+)? [0-9a-f]{64}")

    assert "/" not in text
    assert all(line.fullmatch(found) for found in text.splitlines() if not found.startswith("#"))


# ---- installation


@pytest.fixture
def one_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Pin a single jar; return the folder of its installation."""
    monkeypatch.setattr(jars, "locked_jars", lambda: (GOOD,))
    monkeypatch.setattr(jars, "neo4j_version", lambda: "1.0")
    digest = hashlib.sha256(jars.LOCK_FILE.read_bytes()).hexdigest()[:12]
    folder = tmp_path / f"neo4j-1.0-{digest}"
    folder.mkdir()
    return folder


def fetch_stub(content: bytes | None) -> object:
    def fetch(wanted: list[jars.Jar], staging: Path, _report: object) -> list[str]:
        staging.mkdir(exist_ok=True)
        for jar in wanted if content else ():
            (staging / jar.file_name).write_bytes(content or b"")
        return [] if content else ["good-1.0.jar: Host example not found."]

    return fetch


class FakeMaven:
    """The part of jgo that is used: writes jars into its repository, as long as it is not told to fail."""

    asked: ClassVar[list[tuple[str, ...]]] = []
    fails: ClassVar[Exception | None] = None

    def __init__(self, repo_cache: Path, timeout: int) -> None:
        self.folder, self.timeout, self.name = repo_cache, timeout, ()

    def project(self, group: str, artifact: str) -> FakeMaven:
        return self._named(group, artifact)

    def at_version(self, version: str) -> FakeMaven:
        return self._named(*self.name, version)

    def artifact(self, classifier: str, packaging: str) -> FakeMaven:
        return self._named(*self.name, classifier, packaging)

    def resolve(self) -> Path:
        FakeMaven.asked.append(self.name)
        if FakeMaven.fails:
            raise FakeMaven.fails
        path = self.folder / "-".join(self.name)
        path.write_bytes(CONTENT)
        return path

    def _named(self, *name: str) -> FakeMaven:
        other = copy.copy(self)
        other.name = name
        return other


@pytest.fixture
def fake_maven(monkeypatch: pytest.MonkeyPatch) -> type[FakeMaven]:
    monkeypatch.setattr(FakeMaven, "asked", [])
    monkeypatch.setattr(FakeMaven, "fails", None)
    monkeypatch.setitem(sys.modules, "jgo", types.ModuleType("jgo"))
    module = types.ModuleType("jgo.maven")
    module.MavenContext = FakeMaven  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jgo.maven", module)
    return FakeMaven


def some_jars(count: int) -> list[jars.Jar]:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return [
        jars.Jar("org.example", f"part{number}", "1.0", "linux" if number else None, digest) for number in range(count)
    ]


def test_jars_are_asked_for_by_their_coordinates_and_what_arrived_before_is_not(
    fake_maven: type[FakeMaven], tmp_path: Path
) -> None:
    wanted = some_jars(3)
    staging = tmp_path / "incoming"
    (staging / "repository").mkdir(parents=True)
    (staging / "repository" / "half.jar").write_bytes(b"half")
    (staging / wanted[1].file_name).write_bytes(CONTENT)
    (staging / wanted[2].file_name).write_bytes(b"cut off")
    told: list[tuple[str, int, int]] = []
    assert jars._fetch(wanted, staging, lambda *step: told.append(step)) == []
    assert sorted(fake_maven.asked) == [
        ("org.example", "part0", "1.0", "", "jar"),
        ("org.example", "part2", "1.0", "linux", "jar"),
    ]
    assert [step[1:] for step in told] == [(1, 3), (2, 3), (3, 3)]
    assert all(jar.is_intact(staging / jar.file_name) for jar in wanted)
    assert not list((staging / "repository").iterdir())


@pytest.mark.parametrize("error", [OSError("Host example not found."), RuntimeError("not in any repository")])
def test_without_a_network_not_every_jar_is_waited_for(
    error: Exception, fake_maven: type[FakeMaven], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fake_maven, "fails", error)
    failures = jars._fetch(some_jars(50), tmp_path / "incoming", lambda *_: None)
    # Those that are asked for at the same time fail as well.
    assert jars._FAILURES <= len(failures) == len(fake_maven.asked) <= jars._FAILURES + jars._AT_ONCE
    assert all(str(error) in line for line in failures)


def test_installed_jars_are_not_fetched_again(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one_jar / "good-1.0.jar").write_bytes(CONTENT)
    monkeypatch.setattr(jars, "_fetch", None)

    assert jars.install(one_jar.parent) == one_jar


def test_fetched_jars_are_moved_in(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_fetch", fetch_stub(CONTENT))
    seen: list[tuple[str, int, int]] = []

    jars.install(one_jar.parent, lambda *step: seen.append(step))

    assert {path.name for path in one_jar.iterdir()} == {"good-1.0.jar", "lock", "unsigned"}
    assert seen[-1][1:] == (1, 1)


SIGNED = {
    "META-INF/MANIFEST.MF": "Manifest-Version: 1.0\r\nFits: yes\r\n\r\nName: a/A.class\r\nSHA-256-Digest: x\r\n\r\n",
    "META-INF/MAKER.SF": "Signature-Version: 1.0\r\n\r\n",
    "META-INF/MAKER.RSA": "signature",
    "META-INF/services/a.Service": "a.A\n",
    "a/A.class": "code",
}


def signed_jar() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as jar:
        for name, content in SIGNED.items():
            jar.writestr(name, content)
    return packed.getvalue()


def test_java_loads_a_copy_of_a_signed_jar_without_its_signature(
    one_jar: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = signed_jar()
    signed = jars.Jar("org.example", "good", "1.0", None, hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(jars, "locked_jars", lambda: (signed,))
    monkeypatch.setattr(jars, "_fetch", fetch_stub(content))

    assert jars.install(one_jar.parent) == one_jar

    assert (one_jar / "good-1.0.jar").read_bytes() == content
    (copied,) = jars.unsigned_copies(one_jar).values()
    with zipfile.ZipFile(copied) as jar:
        assert jar.testzip() is None
        found = {name: jar.read(name).decode() for name in jar.namelist()}
    kept = {name: text for name, text in SIGNED.items() if "MAKER" not in name}
    assert found == {**kept, "META-INF/MANIFEST.MF": "Manifest-Version: 1.0\r\nFits: yes\r\n\r\n"}
    used = java.environment(tmp_path / "home", one_jar)["CLASSPATH"].split(os.pathsep)
    assert used == [str(copied), f"{tmp_path / 'home'}/plugins/*"]
    # An archive of classes is of one class path.
    program = Path(sys.executable)
    with_copies = java.archive(one_jar, program)
    shutil.rmtree(one_jar / "unsigned")
    assert java.archive(one_jar, program) != with_copies


def test_without_room_for_copies_the_signed_jars_do(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = signed_jar()
    signed = jars.Jar("org.example", "good", "1.0", None, hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(jars, "locked_jars", lambda: (signed,))
    monkeypatch.setattr(jars, "_fetch", fetch_stub(content))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        jars.install(one_jar.parent)
    assert jars.unsigned_copies(one_jar) == {}
    assert {path.name for path in one_jar.iterdir()} == {"good-1.0.jar", "lock"}
    # The next start tries again.
    jars.install(one_jar.parent)
    assert [*jars.unsigned_copies(one_jar)] == ["good-1.0.jar"]


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_altered_jar_in_the_cache_is_named_and_removed(one_jar: Path) -> None:
    (one_jar / "good-1.0.jar").write_bytes(b"something else")

    with pytest.raises(Neo4jError, match=r"good-1\.0\.jar is not the jar") as caught:
        jars.install(one_jar.parent)

    assert caught.value.context["jar"] == "good-1.0.jar"
    assert not (one_jar / "good-1.0.jar").exists()


def test_altered_download_never_enters_the_installation(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_fetch", fetch_stub(b"something else"))

    with pytest.raises(Neo4jError, match="sha256 differs"):
        jars.install(one_jar.parent)

    assert not list(one_jar.rglob("*.jar"))


def test_missing_download_gives_the_reason(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_fetch", fetch_stub(None))

    with pytest.raises(Neo4jError, match=r"1 of Neo4j's 1 jars could not be fetched:\n.*Host example") as caught:
        jars.install(one_jar.parent)

    assert caught.value.hint is not None
    assert "internet" in caught.value.hint


def test_lock_is_waited_for(tmp_path: Path) -> None:
    waiting, order = threading.Event(), []

    def second() -> None:
        with jars.file_lock(tmp_path / "lock", on_wait=waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with jars.file_lock(tmp_path / "lock"):
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join()

    assert order == ["first", "second"]


def test_fetching_without_the_client_names_the_extra(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)

    with pytest.raises(MissingExtraError, match="neo4j") as caught:
        jars.install(one_jar.parent)

    assert caught.value.hint == "pip install 'pag-graph[neo4j]'"


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return java


def test_java_home_comes_first_and_the_path_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "8", "1.8.0_402"), fake_java(tmp_path / "21", "21.0.2")
    monkeypatch.setenv("PATH", str(new.parent))

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "21"))
    assert jars.find_java() == new
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "8"))
    assert jars.find_java() == new
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(Neo4jError, match=r"needs Java 17 or later; found: .*\(version 8\)"):
        jars.find_java()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Neo4jError, match="found: none"):
        jars.find_java()


# ---- ports


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server((server_home.HOST, 0)) as listener:
        yield listener.getsockname()[1]


def test_taken_port_makes_way_for_a_later_one(taken_port: int) -> None:
    assert ports.free_port(taken_port) > taken_port


def test_fixed_port_that_is_taken_is_refused(taken_port: int) -> None:
    with pytest.raises(Neo4jError, match=f"Port {taken_port} is taken"):
        ports.free_port(taken_port, fixed=True)


@pytest.mark.parametrize("port", [-1, 65536, 70000])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_number_that_is_no_port_is_refused(port: int, *, fixed: bool) -> None:
    with pytest.raises(InvalidParameterError, match=f"{port} is no port: there are 0 to 65535"):
        ports.free_port(port, fixed=fixed)


@pytest.mark.parametrize("host", ["203.0.113.77", "nobody.invalid", "", "[::1]", "2001:db8::1", "ü" * 80, "a\0b"])
@pytest.mark.parametrize("fixed", [False, True])
def test_where_this_machine_cannot_listen_is_named(host: str, *, fixed: bool) -> None:
    """All ports were called taken, after seconds."""
    with pytest.raises(InvalidParameterError, match=f"cannot listen on {re.escape(repr(host))}: .") as caught:
        ports.free_port(7687, fixed=fixed, host=host)
    assert "Name an address of this machine" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("fixed", "said"), [(False, "No port from 80 to 179 can be used"), (True, "Port 80 cannot be")]
)
def test_ports_that_are_not_for_everybody_are_not_called_taken(
    monkeypatch: pytest.MonkeyPatch, *, fixed: bool, said: str
) -> None:
    class Unprivileged(socket.socket):
        def bind(self, address: Any) -> None:
            if 0 < address[1] < 1024:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Unprivileged)
    with pytest.raises(Neo4jError, match=f"{said}.*: Permission denied"):
        ports.free_port(80, fixed=fixed)


def test_http_does_not_get_the_port_of_bolt() -> None:
    free = ports.free_port(0)

    assert ports.free_port(free, besides=free) > free


# ---- processes


def impostor(home: Path, code: str = "import time; print(flush=True); time.sleep(600)") -> subprocess.Popen[bytes]:
    """Start a process that looks like the server of `home`."""
    command = [sys.executable, "-c", code, f"--home-dir={home}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


def record(home: Path, pid: int, start_ticks: int | None) -> None:
    home.mkdir(exist_ok=True)
    entry = {"pid": pid, "start_ticks": start_ticks, "bolt_port": 1, "http_port": 2}
    (home / "server.json").write_text(json.dumps(entry), encoding="utf-8")


def test_server_is_known_by_pid_start_time_and_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with impostor(home) as process:
        ticks = server_process.start_ticks(process.pid)
        assert ticks

        record(home, process.pid, ticks)
        assert server_process.running_in(home) is not None
        record(home, process.pid, ticks + 1)  # the pid was given to another process
        assert server_process.running_in(home) is None
        record(tmp_path / "other", process.pid, ticks)  # the server of another home
        assert server_process.running_in(tmp_path / "other") is None

        process.kill()
        process.wait()
        record(home, process.pid, ticks)
        assert server_process.running_in(home) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_broken_record_is_no_server(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.json").write_text(text, encoding="utf-8")

    assert not server.status(tmp_path).running


def test_stop_ends_the_server_once(tmp_path: Path) -> None:
    with impostor(tmp_path) as process:
        record(tmp_path, process.pid, server_process.start_ticks(process.pid))

        assert server.stop(tmp_path)
        assert not server.stop(tmp_path)
        assert not (tmp_path / "server.json").exists()


@pytest.mark.parametrize("lacking", ["Java", "a folder for archives"])
@pytest.mark.parametrize("end", [server.stop, server.reset])
def test_a_server_ends_without_what_keeps_its_archive_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str, end: Callable[[Path], bool]
) -> None:
    """It had ended, and then the call said that Neo4j needs Java."""
    if lacking == "Java":
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setattr(java, "find_java", lambda: Path(sys.executable))
    monkeypatch.setenv("PAG_CACHE", str(tmp_path / "gone"))
    home = tmp_path / "home"
    with impostor(home) as process:
        record(home, process.pid, server_process.start_ticks(process.pid))
        (home / "version").write_text("5", encoding="utf-8")
        (home / java.WRITTEN).write_bytes(b"archive")

        assert end(home)
        assert server_process.start_ticks(process.pid) is None
    assert not (home / "server.json").exists()
    assert not (home / java.WRITTEN).exists()


def test_stop_kills_a_server_that_does_not_listen(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    with impostor(tmp_path, code) as process:
        record(tmp_path, process.pid, server_process.start_ticks(process.pid))

        assert server.stop(tmp_path, timeout_s=0.5)
        assert server_process.start_ticks(process.pid) is None


def test_stop_leaves_other_processes_alone(tmp_path: Path) -> None:
    with impostor(tmp_path) as process:
        record(tmp_path, process.pid, 1)

        assert not server.stop(tmp_path)
        assert process.poll() is None
        process.kill()


# ---- homes


def test_status_of_a_home_that_never_was(tmp_path: Path) -> None:
    found = server.status(tmp_path / "home")

    assert (found.running, found.responsive, found.pid, found.bolt_uri, found.version) == (False, False, *[None] * 3)
    assert not (tmp_path / "home").exists()
    with pytest.raises(Neo4jError, match="No Neo4j server runs"):
        server.driver(found)


def test_data_of_another_version_are_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("5.1.0\n", encoding="utf-8")

    with pytest.raises(Neo4jError, match=r"made by Neo4j 5\.1\.0; this release runs Neo4j 5\.26") as caught:
        server.start(tmp_path)

    assert caught.value.hint is not None
    assert "pag neo4j load" in caught.value.hint


def test_folder_with_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letter.txt").touch()

    with pytest.raises(Neo4jError, match="is not empty"):
        server.start(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_lost_password_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "data" / "databases" / "system").mkdir(parents=True)

    with pytest.raises(Neo4jError, match="password is gone"):
        server_home.set_password(tmp_path, tmp_path)


def test_a_password_is_set_once_and_again_where_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password, hashed = tmp_path / "password", tmp_path / "data" / "dbms" / "auth.ini"
    hashed.parent.mkdir(parents=True)
    set_passwords: list[str] = []

    def admin_tool(*_: object) -> str:
        set_passwords.append(password.read_text())
        hashed.write_text(set_passwords[-1])
        return ""

    monkeypatch.setattr(server_home, "admin_tool", admin_tool)
    server_home.set_password(tmp_path, tmp_path)
    server_home.set_password(tmp_path, tmp_path)
    assert set_passwords == [password.read_text()]

    def interrupted(*_: object) -> str:
        raise InterruptedError

    password.unlink()
    monkeypatch.setattr(server_home, "admin_tool", interrupted)
    with pytest.raises(InterruptedError):
        server_home.set_password(tmp_path, tmp_path)
    monkeypatch.setattr(server_home, "admin_tool", admin_tool)
    server_home.set_password(tmp_path, tmp_path)
    assert len(set(set_passwords)) == 2
    assert set_passwords[-1] == password.read_text() == hashed.read_text()


def test_reset_removes_the_servers_files_and_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert not server.reset(home)
    (home / "data" / "databases").mkdir(parents=True)
    for name in ("version", "password", "letter.txt"):
        (home / name).write_text("5.1.0\n", encoding="utf-8")
    with impostor(home) as process:
        record(home, process.pid, server_process.start_ticks(process.pid))
        assert server.reset(home)
        assert server_process.start_ticks(process.pid) is None
    assert {path.name for path in home.iterdir()} == {"letter.txt", "lock"}
    assert not (home / "data").exists()


def test_reset_leaves_other_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    with pytest.raises(Neo4jError, match="nothing was removed"):
        server.reset(tmp_path)

    assert (tmp_path / "data").exists()


def test_log_lines_are_the_last_of_what_the_server_said(tmp_path: Path) -> None:
    assert server.log_lines(tmp_path) == []
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "console.log").write_text("no Java\n", encoding="utf-8")
    assert server.log_lines(tmp_path) == ["no Java"]
    (tmp_path / "logs" / "neo4j.log").write_text("one\n\ntwo\nthree\n", encoding="utf-8")
    assert server.log_lines(tmp_path, 2) == ["two", "three"]
    assert server.log_lines(tmp_path, 0) == []


def test_only_who_says_so_listens_beyond_loopback(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    server_home.configure(tmp_path, 1, 2)
    text = (tmp_path / "conf" / "neo4j.conf").read_text(encoding="utf-8")
    assert set(re.findall(r"address=([\w.]+)", text)) == {"127.0.0.1"}
    server_home.configure(tmp_path, 1, 2, "0.0.0.0")
    text = (tmp_path / "conf" / "neo4j.conf").read_text(encoding="utf-8")
    assert "server.bolt.listen_address=0.0.0.0:1\n" in text
    assert "advertised_address=0.0.0.0" not in text
    assert server_process.ServerProcess(1, 1, 1, 2, "0.0.0.0").host == "127.0.0.1"
    assert server_process.ServerProcess(1, 1, 1, 2, "10.0.0.1").host == "10.0.0.1"
    assert server_process.ServerProcess(1, 1, 1, 2).host == "127.0.0.1"


def test_default_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PAG_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert server_home.home_folder() == tmp_path / "pag-graph" / "neo4j"
    monkeypatch.setenv("PAG_HOME", str(tmp_path / "own"))
    assert server_home.home_folder() == tmp_path / "own" / "neo4j"


def test_driver_is_an_optional_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "neo4j", None)

    with pytest.raises(MissingExtraError, match="neo4j"):
        server.start(tmp_path / "home")


def test_module_loads_neither_driver_nor_spark() -> None:
    code = "import sys, pag_graph.neo4j_server.server; assert not {'neo4j', 'pyspark'} & set(sys.modules)"
    root = Path(__file__).parents[3]

    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
