"""How Neo4j's programs are called, and the archive of classes that lets them start sooner.

Reading and checking its classes is a third of what a start of Neo4j costs. Java keeps that for later in an archive
(class data sharing): the first server that is started on a machine writes one when it ends, and later ones use it.
Java itself checks that an archive fits the jars and the virtual machine, and does without where it does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pag_graph.errors import Neo4jError
from pag_graph.neo4j_server import browser
from pag_graph.neo4j_server.jars import find_java, unsigned_copies

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN = "classes.jsa"
"""In the server's folder: the archive that Java writes when the server ends."""
_UNUSED_S = 30 * 24 * 3600.0
"""An archive, of 150 MB, that no program was started with for so long is removed."""
# Java says for each of a few hundred classes why it cannot be in an archive.
_SILENT = "-Xlog:cds*=off"


def archive(jars: Path, java: Path) -> Path:
    """Return where the archive of classes lies for an installation of Neo4j and one of Java.

    Parameters
    ----------
    jars
        Folder of Neo4j's jars.
    java
        The program.
    """
    real = java.resolve()
    known = real.stat()
    # An archive is of one class path: where copies without signatures come or go, it is another one.
    copies = " ".join(sorted(unsigned_copies(jars)))
    digest = hashlib.sha256(f"{real} {known.st_size} {known.st_mtime_ns} {copies}".encode()).hexdigest()[:12]
    return jars.with_name(f"{jars.name}-java-{digest}.jsa")


def server_command(home: Path, jars: Path, heap: str) -> list[str]:
    """Return the words that start a server, which writes the archive of classes if there is none.

    Parameters
    ----------
    home
        Folder of the server.
    jars
        Folder of Neo4j's jars.
    heap
        Its memory, in Java's notation.
    """
    java = find_java()
    shared = archive(jars, java)
    options = _using(shared)
    # What a plugin brings is no part of an archive that other servers use as well; Browser's pages are no classes.
    if not options and {path.name for path in (home / "plugins").glob("*.jar")} <= {browser.JAR}:
        options = [f"-XX:ArchiveClassesAtExit={home / WRITTEN}", _SILENT]
    words = ["org.neo4j.server.CommunityEntryPoint", f"--home-dir={home}", f"--config-dir={home}/conf"]
    return [str(java), f"-Xmx{heap}", *options, *words]


def admin_command(jars: Path, heap: str) -> list[str]:
    """Return the words that ``neo4j-admin`` begins with.

    Parameters
    ----------
    jars, heap
        As for `server_command`.
    """
    java = find_java()
    # Nobody minds that an import pauses, and the collector that pauses takes less of the processor.
    options = [f"-Xmx{heap}", "-XX:+UseParallelGC", *_using(archive(jars, java))]
    return [str(java), *options, "org.neo4j.cli.AdminTool"]


def environment(home: Path, jars: Path) -> dict[str, str]:
    """Return the environment of Neo4j's programs, with their class path.

    Parameters
    ----------
    home, jars
        As for `server_command`.
    """
    # Of Browser there is one with our pages among the plugins.
    replaced = set(jars.glob("neo4j-browser-*.jar")) if (home / "plugins" / browser.JAR).exists() else set()
    # Always in the same order: an archive fits where the class path begins as it did when the archive was written.
    copies = unsigned_copies(jars)
    own = sorted(str(copies.get(path.name, path)) for path in set(jars.glob("*.jar")) - replaced)
    paths = {"NEO4J_HOME": str(home), "NEO4J_CONF": str(home / "conf")}
    return {**os.environ, **paths, "CLASSPATH": os.pathsep.join([*own, f"{home}/plugins/*"])}


def keep_archive(home: Path, jars: Path) -> None:
    """Put the archive that a server has written where later ones find it; a server that was killed has written none.

    Parameters
    ----------
    home, jars
        As for `server_command`.

    Notes
    -----
    Where it cannot be kept it goes, and nothing is raised: without it later servers start as well, only more slowly,
    and who calls has stopped a server.
    """
    written = home / WRITTEN
    if not written.exists():
        return
    # There may be no Java any more, or no room.
    with suppress(Neo4jError, OSError):
        target = archive(jars, find_java())
        # Beside its place first: home may be on another file system.
        arriving = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            shutil.move(written, arriving)
            arriving.replace(target)
        finally:
            arriving.unlink(missing_ok=True)
        for other in jars.parent.glob("*-java-*.jsa"):
            with suppress(FileNotFoundError):
                if time.time() - other.stat().st_mtime > _UNUSED_S:
                    other.unlink()
    with suppress(OSError):
        written.unlink(missing_ok=True)


def _using(shared: Path) -> list[str]:
    if not shared.exists():
        return []
    # That it is used, for those who remove what is not. It may be another user's.
    with suppress(PermissionError, FileNotFoundError):
        os.utime(shared)
    return [f"-XX:SharedArchiveFile={shared}", _SILENT]
