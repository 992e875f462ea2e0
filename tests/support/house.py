"""Measures of the product's code: how large, how long, how often said twice, and who imports whom.

`python -m tests.support.house` prints them; `--lower` writes those that fell to the file that holds them down; with the
folder of another checkout it measures that one.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
LIMITS = ROOT / "tests" / "meta" / "house.txt"

LONGEST_FUNCTION, LONGEST_MODULE, MOST_ARGUMENTS, PASSAGE = 60, 500, 5, 6

_GENERATED = "methods"
"""A module that a program writes says things as often as there are analyses."""


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    """With dots, such as ``pag_graph.graph.tiling``."""
    text: str

    @property
    def room(self) -> str:
        """The package, or single module, right below ``pag_graph`` that it is in; empty for ``pag_graph`` itself."""
        return f"{self.name}.".split(".")[1]

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @cached_property
    def code(self) -> dict[int, str]:
        """Lines with code by number, without indentation: no blank ones, comments or docstrings."""
        lines = self.text.splitlines()
        docstring_lines: set[int] = set()
        inside_texts: set[int] = set()
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                docstring_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # Inside a text, what looks blank or like a comment is none.
                inside_texts.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
        return {
            number: line.strip()
            for number, line in enumerate(lines, 1)
            if number not in docstring_lines
            and (number in inside_texts or (line.strip() and not line.strip().startswith("#")))
        }

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """Give all functions and methods with their names."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{self.name}.{node.name}", node

    def code_lines(self, node: ast.stmt) -> int:
        """Count the lines of code of a definition."""
        return sum(number in self.code for number in range(node.lineno, (node.end_lineno or 0) + 1))

    def imports(self) -> Iterator[str]:
        """Give the names that it imports when it runs, wherever in it; those that only types need are left out."""
        nodes: list[ast.AST] = [self.tree]
        while nodes:
            node = nodes.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                nodes.extend(node.orelse)
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            nodes.extend(ast.iter_child_nodes(node))


@dataclass(frozen=True)
class House:
    """All modules of a checkout's package but ``testing``, which is no part of the product."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Module]:
        """By name."""
        by_name = {}
        for path in sorted((self.root / "pag_graph").rglob("*.py")):
            parts = path.relative_to(self.root).with_suffix("").parts
            if "testing" not in parts:
                name = ".".join(parts).removesuffix(".__init__")
                by_name[name] = Module(name, path.read_text(encoding="utf-8"))
        return by_name

    @cached_property
    def lines(self) -> int:
        """Lines of code."""
        return sum(len(module.code) for module in self.modules.values())

    @cached_property
    def long_functions(self) -> list[str]:
        """Functions with more lines of code than one should have."""
        return [
            f"{name}: {module.code_lines(node)} lines"
            for module in self.modules.values()
            for name, node in module.functions()
            if module.code_lines(node) > LONGEST_FUNCTION
        ]

    @cached_property
    def long_modules(self) -> list[str]:
        """Modules with more lines than one should have, all lines counted."""
        sizes = {name: len(module.text.splitlines()) for name, module in self.modules.items()}
        return [f"{name}: {size} lines" for name, size in sizes.items() if size > LONGEST_MODULE]

    @cached_property
    def wide_kernels(self) -> list[str]:
        """Compiled functions that take more arguments than one should."""
        wide = []
        for module in self.modules.values():
            for name, node in module.functions():
                arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                marks = {ast.unparse(mark).split("(")[0] for mark in node.decorator_list}
                if "kernel" in marks and len(arguments) > MOST_ARGUMENTS:
                    wide.append(f"{name}: {len(arguments)} arguments")
        return wide

    @cached_property
    def passages(self) -> list[str]:
        """Passages of six lines of code or more that stand elsewhere, too: each after its first place."""
        first: dict[tuple[str, ...], tuple[str, int]] = {}
        repeated = []
        for module in self.modules.values():
            imported = {
                number
                for node in ast.walk(module.tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
            }
            lines = [(number, line) for number, line in module.code.items() if number not in imported]
            if module.name.endswith(f".{_GENERATED}"):
                continue
            last_repeated = -1
            for index in range(len(lines) - PASSAGE + 1):
                window = tuple(line for _, line in lines[index : index + PASSAGE])
                first_place = first.setdefault(window, (module.name, lines[index][0]))
                if first_place == (module.name, lines[index][0]):
                    continue
                if index > last_repeated:
                    repeated.append(f"{module.name}:{lines[index][0]} as {first_place[0]}:{first_place[1]}")
                last_repeated = index + 1
        return repeated

    @cached_property
    def arrows(self) -> dict[tuple[str, str], int]:
        """How often modules of a room import from another room, by both."""
        counted: dict[tuple[str, str], int] = defaultdict(int)
        for name, imported in self.module_arrows:
            ends = self.modules[name].room, self.modules[imported].room
            if ends[0] != ends[1] and all(ends):
                counted[ends] += 1
        return dict(counted)

    @property
    def rooms(self) -> set[str]:
        """Packages and single modules right below ``pag_graph``."""
        return {module.room for module in self.modules.values()} - {""}

    @cached_property
    def module_arrows(self) -> set[tuple[str, str]]:
        """Pairs of modules, of which the first imports from the second."""
        pairs = set()
        for name, module in self.modules.items():
            for target in module.imports():
                known = target if target in self.modules else target.rpartition(".")[0]
                if known in self.modules and known != name:
                    pairs.add((name, known))
        return pairs

    @cached_property
    def circles(self) -> list[str]:
        """Groups of rooms, or of modules, that import each other in a circle."""
        groups = [*_circles(self.arrows), *_circles(self.module_arrows)]
        return [" <-> ".join(sorted(group)) for group in groups]

    @property
    def faults(self) -> dict[str, list[str]]:
        """What should be less: each a list of names."""
        return {
            f"functions over {LONGEST_FUNCTION} lines of code": self.long_functions,
            f"kernels over {MOST_ARGUMENTS} arguments": self.wide_kernels,
            f"modules over {LONGEST_MODULE} lines": self.long_modules,
            f"repeated passages of {PASSAGE} lines or more": self.passages,
            "arrows between rooms": [
                f"{room} -> {imported} ({count})" for (room, imported), count in self.arrows.items()
            ],
            "circles of imports": self.circles,
        }


def _circles(arrows: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Return the groups of names that reach each other."""
    imports: dict[str, set[str]] = defaultdict(set)
    for importer, imported in arrows:
        imports[importer].add(imported)
    reached = {name: _reached(name, imports) for name in imports}
    groups: list[set[str]] = []
    for name, names in reached.items():
        if name in names and not any(name in group for group in groups):
            groups.append({imported for imported in names if name in reached.get(imported, ())})
    return groups


def _reached(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    todo = list(imports[name])
    while todo:
        imported = todo.pop()
        if imported not in reached:
            reached.add(imported)
            todo.extend(imports.get(imported, ()))
    return reached


def limits() -> dict[str, int]:
    """Return how many of each fault there may be."""
    rows = (line.rpartition(": ") for line in LIMITS.read_text(encoding="utf-8").splitlines() if line)
    return {name: int(count) for name, _, count in rows}


def main() -> None:
    """Print the measures of a checkout, and lower the limits where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--lower", action="store_true", help="write the counts that fell")
    parser.add_argument("--names", action="store_true", help="name each of what is counted")
    options = parser.parse_args()
    house = House(options.root)
    report = [f"lines of code: {house.lines}", f"modules: {len(house.modules)}", f"rooms: {len(house.rooms)}"]
    for title, names in house.faults.items():
        report.append(f"{title}: {len(names)}")
        report += [f"  {name}" for name in names] if options.names else []
    sys.stdout.write("\n".join(report) + "\n")
    if options.lower:
        old_counts = limits() if LIMITS.exists() else {}
        counts = {title: min(len(names), old_counts.get(title, len(names))) for title, names in house.faults.items()}
        LIMITS.write_text("".join(f"{title}: {count}\n" for title, count in counts.items()), encoding="utf-8")


if __name__ == "__main__":
    main()
