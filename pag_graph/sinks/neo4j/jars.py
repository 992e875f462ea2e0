"""Neo4j's jars: pinned in `neo4j.lock`, fetched by the Ivy that pyspark ships, checked by sha256.

An installation is one folder, named by version and lock file. A jar enters it only after its checksum held,
by a rename; so an interrupted installation goes on where it was, and a folder is complete when no jar lacks.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache as memoised
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pag_graph.errors import MissingExtraError, Neo4jError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Progress: TypeAlias = "Callable[[str, int, int], None]"
"""Called with what is being done, how much of it is done, and how much there is."""

LOCK_FILE = Path(__file__).with_name("neo4j.lock")

_JAVA_MINIMUM = 17

# Ivy asks for one file after the other and mostly waits: four at once take half the time of one.
_IVY_PROCESSES = 4

# Without a network, Ivy would wait for every single jar; when none arrives for this long, it is stopped.
_STALLED_S = 180.0

# Checksums of the repository are not asked for, being weaker than ours; POMs are not needed, the list being flat.
# The cache pattern makes Ivy's own cache the flat folder that is wanted, so nothing is copied afterwards.
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="20000" readTimeout="60000"/>
  </timeout-constraints>
  <caches defaultCacheDir="${ivy.settings.dir}" artifactPattern="[artifact]-[revision](-[classifier]).[ext]"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false" checksums=""
             timeoutConstraint="patient"/>
  </resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar: Maven coordinates and checksum."""

    group: str
    artifact: str
    version: str
    classifier: str | None
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name in a flat folder, as Maven and Ivy form it."""
        return f"{self.artifact}-{self.version}{f'-{self.classifier}' if self.classifier else ''}.jar"

    def is_intact(self, path: Path) -> bool:
        """Tell whether the file at `path` has this jar's checksum."""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


@memoised
def locked_jars() -> tuple[Jar, ...]:
    """Return the pinned jars, in the order of the lock file."""
    jars = []
    for line in LOCK_FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, artifact, version, classifier = (*coordinates.split(":"), None)[:4]
            jars.append(Jar(str(group), str(artifact), str(version), classifier, sha256))
    return tuple(jars)


def neo4j_version() -> str:
    """Return the version of the pinned server, such as ``5.26.30``."""
    return next(jar.version for jar in locked_jars() if (jar.group, jar.artifact) == ("org.neo4j", "neo4j"))


def install(cache: Path | None = None, progress: Progress | None = None) -> Path:
    """Return the folder with Neo4j's jars, all present and checked; fetch those that lack.

    Parameters
    ----------
    cache
        Where installations are kept: ``$PAG_CACHE``, else ``pag-graph`` in the user's cache folder.
    progress
        Called while jars arrive.

    Raises
    ------
    Neo4jError
        When jars cannot be fetched, when one has another checksum than the pinned one (it is removed), or
        when there is no Java to fetch them with.
    MissingExtraError
        When jars have to be fetched and pyspark, whose Ivy does it, is not installed.
    """
    report = progress or (lambda *_: None)
    jars = locked_jars()
    digest = hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest()[:12]
    folder = user_folder(cache, "PAG_CACHE", "XDG_CACHE_HOME", ".cache") / f"neo4j-{neo4j_version()}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    waiting = "waiting for another installation of Neo4j"
    with file_lock(folder / "lock", on_wait=lambda: report(waiting, 0, len(jars))):
        missing = [jar for jar in jars if not _is_present(jar, folder)]
        if missing:
            staging = folder / "incoming"
            _fetch(missing, staging, report)
            for jar in missing:
                if _is_present(jar, staging):
                    (staging / jar.file_name).replace(folder / jar.file_name)
            _check_complete(missing, folder, staging)
            shutil.rmtree(staging)
            report("fetching Neo4j's jars", len(missing), len(missing))
    return folder


def _is_present(jar: Jar, folder: Path) -> bool:
    """Tell whether the jar is in `folder`.

    Raises
    ------
    Neo4jError
        When it is there with another checksum; it is removed.
    """
    path = folder / jar.file_name
    if not path.exists():
        return False
    if jar.is_intact(path):
        return True
    path.unlink()
    message = f"{path} is not the jar that this release is pinned to: its sha256 differs. It was removed."
    hint = "Try again to fetch it anew. If that gives the same error, something alters the download on its way."
    raise Neo4jError(message, hint, {"file": str(path), "jar": jar.file_name, "expected_sha256": jar.sha256})


def _fetch(jars: Sequence[Jar], staging: Path, report: Progress) -> None:
    """Let Ivy download `jars` into `staging`, where those of an interrupted run are kept if they are intact."""
    staging.mkdir(exist_ok=True)
    for jar in jars:
        path = staging / jar.file_name
        if path.exists() and not jar.is_intact(path):
            path.unlink()
    (staging / "settings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
    wanted = [jar for jar in jars if not (staging / jar.file_name).exists()]
    command = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(_ivy_jar())]
    command += ["-novalidate", "-warn", "-confs", "default", "-settings", str(staging / "settings.xml")]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(_IVY_PROCESSES):
            ivy_file = staging / f"ivy-{number}.xml"
            ivy_file.write_text(_ivy_module(wanted, number), encoding="utf-8")
            with (staging / f"ivy-{number}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [*command, "-ivy", str(ivy_file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )
                )
        arrived, last_arrival = -1, time.monotonic()
        while any(process.poll() is None for process in processes) and time.monotonic() < last_arrival + _STALLED_S:
            before, arrived = arrived, sum((staging / jar.file_name).exists() for jar in jars)
            if arrived > before:
                last_arrival = time.monotonic()
                report("fetching Neo4j's jars", arrived, len(jars))
            time.sleep(0.2)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _ivy_module(jars: Sequence[Jar], number: int) -> str:
    """Write the Ivy file with the share of `jars` that process `number` fetches."""
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.group, jar.artifact, jar.version), []).append(jar)
    lines = []
    for (group, artifact, version), parts in list(modules.items())[number::_IVY_PROCESSES]:
        lines.append(f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false">')
        for jar in parts:
            classifier = f' classifier="{jar.classifier}"' if jar.classifier else ""
            lines.append(f'  <artifact name="{artifact}" type="jar" ext="jar"{classifier}/>')
        lines.append("</dependency>")
    return "\n".join(
        (
            '<ivy-module version="2.0">',
            f'<info organisation="pag-graph" module="neo4j-{number}" revision="1"/>',
            '<configurations defaultconfmapping="default->default"><conf name="default"/></configurations>',
            "<dependencies>",
            *lines,
            "</dependencies></ivy-module>",
        )
    )


def _check_complete(missing: Sequence[Jar], folder: Path, staging: Path) -> None:
    """Check that all jars have arrived.

    Raises
    ------
    Neo4jError
        When some have not, with what Ivy said about it.
    """
    lacking = [jar.file_name for jar in missing if not (folder / jar.file_name).exists()]
    if not lacking:
        return
    # Ivy ends with a long list of all that lacks; the reasons stand before it.
    log = [line.strip() for file in sorted(staging.glob("ivy-*.log")) for line in tail(file, 1000)]
    reasons = [line for line in log if re.search(r"host|rror|xception|timed? ?out", line, re.IGNORECASE)]
    said = "".join(f"\n    {line}" for line in reasons[:3] or log[-3:])
    message = f"{len(lacking)} of Neo4j's {len(locked_jars())} jars could not be fetched. Ivy said:{said}"
    hint = (
        "Connect this computer to the internet and try again: the jars that arrived are kept. "
        "Behind a proxy, set JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=... -Dhttps.proxyPort=...'."
    )
    raise Neo4jError(message, hint, {"jars": lacking})


def _ivy_jar() -> Path:
    """Find the Ivy jar among pyspark's, without importing pyspark.

    Raises
    ------
    MissingExtraError
        When pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    error = MissingExtraError.from_extra(what="Fetching Neo4j", extra="neo4j")
    raise error


def find_java() -> Path:
    """Return a Java of version 17 or later: ``$JAVA_HOME``'s, else the first on the path.

    Raises
    ------
    Neo4jError
        When there is none; the message lists what was found instead.
    """
    candidates = [str(Path(home, "bin", "java"))] if (home := os.environ.get("JAVA_HOME")) else []
    candidates += [found] if (found := shutil.which("java")) else []
    seen = []
    for java in candidates:
        version = _java_version(java)
        if version >= _JAVA_MINIMUM:
            return Path(java)
        seen.append(f"{java} ({f'version {version}' if version else 'does not run'})")
    message = f"Neo4j needs Java {_JAVA_MINIMUM} or later; found: {', '.join(seen) or 'none'}."
    hint = f"Install a Java {_JAVA_MINIMUM} or 21 runtime, or let JAVA_HOME name the folder of one."
    raise Neo4jError(message, hint, {"found": seen})


def _java_version(java: str) -> int:
    """Return the feature version of a Java, 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0


def user_folder(given: Path | None, variable: str, xdg_variable: str, fallback: str) -> Path:
    """Return `given`, else the folder that the environment names, else the one of the XDG standard; absolute."""
    if given is not None:
        return given.expanduser().resolve()
    if own := os.environ.get(variable):
        return Path(own).expanduser().resolve()
    return Path(os.environ.get(xdg_variable) or Path.home() / fallback).resolve() / "pag-graph"


@contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of the file at `path`; a process that ends, however, has let go of it.

    `on_wait` is called once if another process holds it.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tail(path: Path, count: int) -> list[str]:
    """Return the last `count` lines of a text file that say something; none if there is no file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    silent = re.compile(r"\s*$|(.* (WARN|ERROR) )?\s*(at \S+\(|\.\.\. \d+ more)")  # empty, or a frame of a Java stack
    return [line.rstrip() for line in lines if not silent.match(line)][-count:]
