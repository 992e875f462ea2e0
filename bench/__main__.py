"""Command line of the measurements; see ``bench/README.md``."""

from __future__ import annotations

import argparse
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import bench as package
from bench import harness
from pag_graph.runtime import memory

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = harness.ROOT / "bench" / "results"
PAGE = harness.ROOT / "docs" / "performance.md"
SCRATCH = harness.ROOT / ".pag" / "bench"


def benches() -> dict[str, harness.Bench]:
    """Return all benches, by name: every module of the package that has one in ``BENCH``."""
    modules = (info.name for info in pkgutil.iter_modules(package.__path__) if info.name not in {"harness", "__main__"})
    candidates = (getattr(import_module(f"bench.{name}"), "BENCH", None) for name in sorted(modules))
    return {bench.name: bench for bench in candidates if isinstance(bench, harness.Bench)}


def write_page(results: Path, page: Path) -> None:
    """Replace the generated sections of a page by those of the results; a result without a section gets one."""
    text = page.read_text(encoding="utf-8")
    for file in sorted(results.glob("*.json")):
        result = harness.load(file)
        if "figures" not in result:
            # It has a page of its own.
            continue
        text = harness.with_section(text, result["bench"], harness.markdown(result))
    page.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    # As `pag build` does.
    memory.keep()
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, compare, write the page.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="make measurements")
    run.add_argument("names", nargs="*", help="benches; all that can run here where absent")
    run.add_argument("--quick", action="store_true", help="small inputs and few runs; the page is not touched")
    run.add_argument("--repeat", type=int, help="runs of each measurement")
    run.add_argument("--results", type=Path, help="where to write results instead; the page is not touched then")
    run.add_argument("--scratch", type=Path, default=SCRATCH, help="where inputs are kept [.pag/bench]")
    commands.add_parser("list", help="list the benches, and what they lack here")
    commands.add_parser("page", help="write docs/performance.md anew from the results")
    compare = commands.add_parser("compare", help="compare two results, as of two commits")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "compare":
        print(harness.compare(harness.load(options.before), harness.load(options.after)), end="")
    elif options.command == "page":
        write_page(RESULTS, PAGE)
    elif options.command == "list":
        for bench in benches().values():
            print(f"{bench.name}: {bench.title}" + (f" (needs {lack})" if (lack := bench.needs()) else ""))
    else:
        return _run(options)
    return 0


def _run(options: argparse.Namespace) -> int:
    known = benches()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"There is no bench {unknown[0]!r}; there are {', '.join(known)}.")
        return 2
    writes_page = options.results is None and not options.quick
    results = options.results or (options.scratch / "results" if options.quick else RESULTS)
    results.mkdir(parents=True, exist_ok=True)
    code = 0
    for name in options.names or known:
        bench = known[name]
        lack = bench.needs()
        if lack:
            print(f"{name} is left out: it needs {lack}.")
            code = code or (3 if options.names else 0)
            continue
        session = harness.Session(options.scratch, quick=options.quick, repeat=options.repeat)
        result = harness.run(bench, session)
        harness.save(result, results / f"{name}.json")
        print(harness.markdown(result))
    if writes_page:
        write_page(RESULTS, PAGE)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
