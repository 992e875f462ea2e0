"""Neo4j's jars: pinned in `neo4j.lock`, fetched by the Maven client jgo, checked by sha256.

An installation is one folder, named by version and lock file. A jar enters it only after its checksum held,
by a rename; so an interrupted installation resumes where it was, and a folder is complete when no jar is missing.

Of jars that their makers signed there are copies without signatures, which Java loads instead. Java would check the
signature whenever it opens such a jar, a hundred times while Neo4j starts, which is a third of what a start costs; and
it keeps no classes of such a jar for later starts (`pag_graph.neo4j_server.java`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache as memoised
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from pag_graph.errors import MissingExtraError, Neo4jError
from pag_graph.runtime.folders import cache_folder
from pag_graph.runtime.locks import Lock, lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Progress: TypeAlias = "Callable[[str, int, int], None]"
"""Called with what is being done, how much of it is done, and how much there is."""

LOCK_FILE = Path(__file__).with_name("neo4j.lock")

_JAVA_MINIMUM = 17

_FETCHING = "fetching Neo4j's jars"

_UNSIGNED = "unsigned"
_MANIFEST = "META-INF/MANIFEST.MF"
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)", re.IGNORECASE)

# Most of the time goes to waiting for answers.
_AT_ONCE = 4

_TIMEOUT_S = 30

# Without a network every jar would be waited for in vain: after so many that did not come, no other is asked for.
_FAILURES = 3


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


def installation(cache: Path | None = None) -> Path:
    """Return the folder that Neo4j's jars are in once they are installed.

    Parameters
    ----------
    cache
        Where installations are kept: ``$PAG_CACHE``, else ``pag-graph`` in the user's cache folder.
    """
    digest = hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest()[:12]
    return cache_folder(cache) / f"neo4j-{neo4j_version()}-{digest}"


def install(cache: Path | None = None, progress: Progress | None = None) -> Path:
    """Return the folder with Neo4j's jars, all present and checked; fetch those that lack.

    Parameters
    ----------
    cache
        As for `installation`.
    progress
        Called while jars arrive.

    Raises
    ------
    Neo4jError
        When jars cannot be fetched, or when one has another checksum than the pinned one (it is removed).
    MissingExtraError
        When jars have to be fetched and jgo, which does it, is not installed.
    """
    report = progress or (lambda *_: None)
    jars = locked_jars()
    folder = installation(cache)
    folder.mkdir(parents=True, exist_ok=True)
    waiting = "waiting for another installation of Neo4j"
    with file_lock(folder / "lock", on_wait=lambda: report(waiting, 0, len(jars))):
        missing = [jar for jar in jars if not _is_present(jar, folder)]
        if missing:
            staging = folder / "incoming"
            failures = _fetch(missing, staging, report)
            for jar in missing:
                if _is_present(jar, staging):
                    (staging / jar.file_name).replace(folder / jar.file_name)
            _check_complete(missing, folder, failures)
            shutil.rmtree(staging)
            report(_FETCHING, len(missing), len(missing))
        if not (folder / _UNSIGNED).exists():
            # Without the copies a server starts as well, only later.
            with suppress(OSError):
                _copy_unsigned(folder)
    return folder


def unsigned_copies(jars: Path) -> dict[str, Path]:
    """Return the copies without signatures of an installation, by the name of the jar that each stands for.

    Parameters
    ----------
    jars
        Folder of Neo4j's jars.
    """
    return {path.name: path for path in (jars / _UNSIGNED).glob("*.jar")}


def _copy_unsigned(folder: Path) -> None:
    """Copy the signed jars of an installation without what signs them; all copies are there at once.

    Raises
    ------
    OSError
        When they cannot be written.
    """
    arriving = folder / f"{_UNSIGNED}.new"
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir()
    try:
        for jar in locked_jars():
            if _is_signed(folder / jar.file_name):
                with zipfile.ZipFile(folder / jar.file_name) as signed, (arriving / jar.file_name).open("wb") as file:
                    _write_unsigned(signed, file)
                    os.fsync(file.fileno())
        arriving.rename(folder / _UNSIGNED)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def _is_signed(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as jar:
        return any(_SIGNATURE.fullmatch(name) for name in jar.namelist())


def _write_unsigned(signed: zipfile.ZipFile, file: IO[bytes]) -> None:
    """Write a jar without its signatures; of its manifest the first section stays, the others hold checksums."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as copy:
        for entry in signed.infolist():
            if not _SIGNATURE.fullmatch(entry.filename):
                content = signed.read(entry)
                if entry.filename == _MANIFEST:
                    content = re.split(rb"\r?\n\r?\n", content)[0] + b"\r\n\r\n"
                copy.writestr(entry, content)


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


def _fetch(jars: Sequence[Jar], staging: Path, report: Progress) -> list[str]:
    """Download `jars` into `staging`, where those of an interrupted run are kept if they are intact.

    Returns
    -------
    list of str
        What went wrong, a line per jar that did not come.

    Raises
    ------
    MissingExtraError
        When jgo is not installed.
    """
    try:
        from jgo.maven import MavenContext
    except ImportError as absent:
        error = MissingExtraError.from_extra(what="Fetching Neo4j", extra="neo4j")
        raise error from absent
    repository = staging / "repository"
    # Files left there arrived in part: complete jars are moved out of it.
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    for jar in jars:
        path = staging / jar.file_name
        if path.exists() and not jar.is_intact(path):
            path.unlink()
    missing = [jar for jar in jars if not (staging / jar.file_name).exists()]
    maven = MavenContext(repo_cache=repository, timeout=_TIMEOUT_S)
    failures: list[str] = []
    report(_FETCHING, len(jars) - len(missing), len(jars))

    def fetch(jar: Jar) -> None:
        if len(failures) < _FAILURES:
            component = maven.project(jar.group, jar.artifact).at_version(jar.version)
            try:
                Path(component.artifact(jar.classifier or "", "jar").resolve()).replace(staging / jar.file_name)
            except (OSError, RuntimeError) as error:
                # Of its errors those of the network are OSErrors, and a jar that is not there is a RuntimeError.
                failures.append(f"{jar.file_name}: {error}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for arrived, _ in enumerate(pool.map(fetch, missing), len(jars) - len(missing) + 1):
            report(_FETCHING, arrived - len(failures), len(jars))
    return failures


def _check_complete(missing: Sequence[Jar], folder: Path, failures: Sequence[str]) -> None:
    """Check that all jars have arrived.

    Raises
    ------
    Neo4jError
        When some have not, with the reasons.
    """
    lacking = [jar.file_name for jar in missing if not (folder / jar.file_name).exists()]
    if not lacking:
        return
    reasons = "".join(f"\n    {line}" for line in failures[:_FAILURES])
    message = f"{len(lacking)} of Neo4j's {len(locked_jars())} jars could not be fetched:{reasons}"
    hint = (
        "Connect this computer to the internet and try again: the jars that arrived are kept. "
        "Behind a proxy, set HTTPS_PROXY."
    )
    raise Neo4jError(message, hint, {"jars": lacking})


def find_java() -> Path:
    """Return a Java of version 17 or later: ``$JAVA_HOME``'s, else the first on the path.

    Raises
    ------
    Neo4jError
        When there is none; the message lists what was found instead.
    """
    candidates = [str(Path(home, "bin", "java"))] if (home := os.environ.get("JAVA_HOME")) else []
    candidates += [on_path] if (on_path := shutil.which("java")) else []
    too_old = []
    for java in candidates:
        version = _java_version(java)
        if version >= _JAVA_MINIMUM:
            return Path(java)
        too_old.append(f"{java} ({f'version {version}' if version else 'does not run'})")
    message = f"Neo4j needs Java {_JAVA_MINIMUM} or later; found: {', '.join(too_old) or 'none'}."
    hint = f"Install a Java {_JAVA_MINIMUM} or 21 runtime, or let JAVA_HOME name the folder of one."
    raise Neo4jError(message, hint, {"found": too_old})


def _java_version(java: str) -> int:
    """Return the feature version of a Java, 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else 0


@contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of a file; a process that ends, however, has let go of it.

    Parameters
    ----------
    path
        The file, made if need be, in a folder that is there; what is in it stays.
    on_wait
        Called once if another process holds it; it is waited for without a limit.

    Yields
    ------
    None
        While the lock is held. The file stays.

    Raises
    ------
    Neo4jError
        Where the file system has no locks.
    """
    with path.open("ab") as file:
        locked = lock(file.fileno())
        if locked is Lock.OTHERS:
            if on_wait:
                on_wait()
            locked = lock(file.fileno(), wait=True)
        if locked is not Lock.OURS:
            message = f"{path} cannot be locked: its file system has no locks."
            raise Neo4jError(message, "Name a folder on a local disk.", {"path": str(path)})
        yield


def tail(path: Path, count: int) -> list[str]:
    """Return the last lines of a log that say something: neither empty ones nor frames of Java's stacks.

    Parameters
    ----------
    path
        A text file, which is read whole; bytes that are no UTF-8 are replaced.
    count
        How many lines.

    Returns
    -------
    list of str
        Oldest first; none if there is no file, or `count` is not positive.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    silent = re.compile(r"\s*$|(.* (WARN|ERROR) )?\s*(at \S+\(|\.\.\. \d+ more)")  # empty, or a frame of a Java stack
    telling = [line.rstrip() for line in lines if not silent.match(line)]
    return telling[-count:] if count > 0 else []
