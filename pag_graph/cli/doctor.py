"""What is installed, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pag_graph.errors import PagGraphError


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked for."""

    name: str
    ok: bool
    found: str
    needed_for: str
    advice: str = ""


_MIN_MEMORY_GB = 4


def checks() -> list[Check]:
    """Look for everything that some command needs."""
    return [
        _python(),
        _java(),
        _cores(),
        _memory(),
        _disk(),
        *map(_package, _PACKAGES),
        _graphframes_jar(),
        _neo4j_jars(),
        _recorder(),
    ]


def _python() -> Check:
    return Check(name="Python", ok=True, found=sys.version.split()[0], needed_for="everything")


def _java() -> Check:
    from pag_graph.neo4j_server.jars import find_java

    needed = "Spark (build, jobs) and Neo4j"
    try:
        return Check(name="Java", ok=True, found=str(find_java()), needed_for=needed)
    except PagGraphError as error:
        return Check(name="Java", ok=False, found=error.message, needed_for=needed, advice=error.hint or "")


def _cores() -> Check:
    from pag_graph.runtime.threads import CORES

    return Check(name="cores", ok=True, found=str(CORES), needed_for="speed: one slice of a trace is built per core")


def _memory() -> Check:
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Check(
        name="memory",
        ok=available >= _MIN_MEMORY_GB,
        found=f"{available:.1f} GiB",
        needed_for=f"Spark and Neo4j side by side ({_MIN_MEMORY_GB} GiB)",
        advice="Use --engine local, or smaller slices (--slice-events).",
    )


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return Check(name="disk", ok=free > 1, found=f"{free:.1f} GiB free here", needed_for="stores", advice="Free some.")


_PACKAGES = (
    ("scipy", "clocks", "traces whose clocks run at different speeds"),
    ("pyspark", "spark", "--engine spark and spark_jobs/"),
    ("graphframes", "graphframes", "Pag.graphframe()"),
    ("neo4j", "neo4j", "pag neo4j"),
    ("networkx", "graph", "exports to networkx"),
    ("starlette", "serve", "pag serve"),
    ("anywidget", "notebook", "Pag.view() in notebooks"),
    ("mcp", "mcp", "pag mcp"),
)


def _package(entry: tuple[str, str, str]) -> Check:
    name, extra, needed = entry
    present = importlib.util.find_spec(name) is not None
    state = "installed" if present else "not installed"
    for distribution in (name, f"{name}-py"):
        try:
            state = version(distribution) if present else state
            break
        except PackageNotFoundError:
            continue
    return Check(name=name, ok=present, found=state, needed_for=needed, advice=f"pip install 'pag-graph[{extra}]'")


def _recorder() -> Check:
    """Look for what `pag record` needs: the Rust sources, which an installed package does not bring, and cargo."""
    from pag_graph.sources.record import adapter_folder

    cargo, needed = shutil.which("cargo"), "pag record; nothing else"
    try:
        adapter_folder()
    except PagGraphError as error:
        return Check(name="Rust adapter", ok=False, found=error.message, needed_for=needed, advice=error.hint or "")
    path = cargo or "not on the path"
    return Check(name="cargo", ok=bool(cargo), found=path, needed_for=needed, advice="Install Rust, 1.89 or later.")


def _graphframes_jar() -> Check:
    from pag_graph.engines.session import (
        GRAPHFRAMES_COORDINATE,
        GRAPHFRAMES_JAR_VARIABLE,
        graphframes_jar_at_hand,
    )

    present, state = graphframes_jar_at_hand()
    return Check(
        name="GraphFrames' jar",
        ok=present,
        found=state,
        needed_for="Pag.graphframe(); nothing else",
        advice=f"Start Spark with --packages {GRAPHFRAMES_COORDINATE}, or set {GRAPHFRAMES_JAR_VARIABLE} to a copy.",
    )


def _neo4j_jars() -> Check:
    from pag_graph.neo4j_server.jars import locked_jars, neo4j_version

    return Check(
        name="Neo4j",
        ok=True,
        found=f"{neo4j_version()}, {len(locked_jars())} jars, fetched at the first `pag neo4j start`",
        needed_for="pag neo4j",
    )
