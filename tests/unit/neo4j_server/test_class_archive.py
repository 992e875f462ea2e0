"""The archive of classes: written once, found by later programs, never with what a plugin brings."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from pag_graph.errors import Neo4jError
from pag_graph.neo4j_server import browser, java
from pag_graph.neo4j_server.jars import find_java, install

if TYPE_CHECKING:
    from pathlib import Path

HELP = "Usage: neo4j-admin"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """The installed jars, seen from a cache that has no archive yet."""
    try:
        find_java()
    except Neo4jError as error:
        pytest.skip(error.message)
    installed = install()
    here = tmp_path / "cache" / installed.name
    here.parent.mkdir()
    here.symlink_to(installed)
    return here


def said(command: list[str], home: Path, jars: Path) -> str:
    environment = java.environment(home, jars)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_one_program_writes_others_use(jars: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for home in (first, second):
        (home / "plugins").mkdir(parents=True)
        browser.install(home, jars)
    writing = java.server_command(first, jars, "128m")
    begin = writing[: writing.index("org.neo4j.server.CommunityEntryPoint")]
    assert f"-XX:ArchiveClassesAtExit={first / java.WRITTEN}" in begin
    assert HELP in said([*begin, "org.neo4j.cli.AdminTool", "--help"], first, jars)
    java.keep_archive(first, jars)
    kept = java.archive(jars, find_java())
    assert kept.exists()
    assert not (first / java.WRITTEN).exists()
    for command in (java.server_command(second, jars, "128m"), java.admin_command(jars, "128m")):
        assert f"-XX:SharedArchiveFile={kept}" in command
        assert not any("ArchiveClassesAtExit" in word for word in command)
    # Java ends with an error here where it cannot use the archive.
    using = java.admin_command(jars, "128m")
    assert HELP in said([using[0], "-Xshare:on", *using[1:], "--help"], second, jars)
    # An archive that is none is done without.
    kept.chmod(0o600)
    kept.write_bytes(b"none")
    assert HELP in said([*using, "--help"], second, jars)


def test_nothing_is_kept_of_a_server_that_wrote_nothing(jars: Path, tmp_path: Path) -> None:
    java.keep_archive(tmp_path, jars)
    assert not java.archive(jars, find_java()).exists()


def test_classes_of_plugins_are_not_archived(jars: Path, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "procedures.jar").touch()
    command = java.server_command(tmp_path, jars, "128m")
    assert not any("Archive" in word for word in command)
    assert f"{tmp_path}/plugins/*" in java.environment(tmp_path, jars)["CLASSPATH"].split(":")


def test_archives_that_nobody_uses_any_more_go(jars: Path, tmp_path: Path) -> None:
    def put(name: str, days: float) -> Path:
        path = jars.parent / name
        path.write_bytes(b"archive")
        os.utime(path, (time.time() - days * 86_400,) * 2)
        return path

    old, used = put("neo4j-5.0.0-java-0123.jsa", 31), put("neo4j-5.1.0-java-4567.jsa", 29)
    own = put(java.archive(jars, find_java()).name, 40)
    # It is used now.
    java.admin_command(jars, "128m")
    (tmp_path / java.WRITTEN).write_bytes(b"archive")
    java.keep_archive(tmp_path, jars)
    assert not old.exists()
    assert used.exists()
    assert own.exists()
    # Whoever starts a program with it keeps it: a time that is long ago counts no more.
    os.utime(own, (0, 0))
    java.server_command(tmp_path, jars, "128m")
    assert time.time() - own.stat().st_mtime < 3_600
