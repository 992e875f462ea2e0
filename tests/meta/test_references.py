"""What docstrings, comments and pages name is there: modules, names, files, and sections of pages."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    *(
        "Cargo.lock",
        "uv.lock",
        "lib.rs",
        "pag.rs",
        "neo4j.conf",
        "saved.zip",
        "trace.json.gz",
    ),  # files of other programs
    *("FILE.svg", "NAME.py", "epoch4.svg", "epoch5.svg", "etl.py", "job.py", "khops.txt", "logs/README.md", "why.html"),
    *("page.html", "epochs.html", "why.md"),
    *("Job.id", "Run.origin_unix_ns"),  # properties of nodes in Neo4j
    *("graph.graph", "taskset", "python3"),  # NetworkX, and programs
    *("session.quick", "Pag.longest_waits", "laps.csv"),  # a parameter of a bench; what examples add
}
"""What is named here and is not this repository's, or is made by an example."""

FOREIGN = re.compile(r"spark\.[a-z]\w*(\.\w+)*")
"""Spark's settings."""

THIS = Path(__file__).relative_to(ROOT).as_posix()
PLAIN = {"NamedTuple", "Protocol", "StrEnum", "IntFlag", "Exception", "object"}
"""Bases that add nothing that pages speak of."""

ENDINGS = {
    "pag",
    "py",
    "md",
    "zip",
    "cypher",
    "rs",
    "svg",
    "txt",
    "toml",
    "lock",
    "json",
    "parquet",
    "html",
    "jar",
    "csv",
}
PATH = re.compile(r"(?<![\w./:-])(?:\.\./)*[\w/.-]*\w\.(?:py|md|cypher|rs|sh|yml|toml|lock|txt|html|svg)\b(?![.(\w])")
DOTTED = re.compile(r"`([A-Za-z]\w*(?:\.\w+)+)(?:\(\))?`")
SINGLE = re.compile(r"(?<!`)`([A-Za-z]\w+)`(?!`)")
MODULE = re.compile(r"\bpag_graph(?:\.[a-z]\w*)+(?:\.\w+)*")
SECTION = re.compile(r"`{1,2}((?:docs/)?[a-z-]+\.md)`{1,2},?\s+section\s+\"([^\"]+)\"")
ANCHOR = re.compile(r"(?:docs/)?([a-z-]+\.md)#([\w-]+)")
IMPORT = re.compile(r"from (pag_graph[.\w]*) import (\w+(?:, \w+)*)")
UNPUBLISHED = re.compile(r"\b(?:contracts?|design) section \d+|\b(?:contracts|house|style)\.md\b")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def listed() -> dict[str, None]:
    """Return the files of the repository, in order, those not yet added included."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no git checkout, so there is no list of its files")
    return dict.fromkeys(name for name in done.stdout.splitlines() if (ROOT / name).is_file())


@cache
def parsed(name: str) -> ast.Module:
    """Return the syntax of a file of Python."""
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a file of Python."""
    return tuple(ast.walk(parsed(name)))


@cache
def words() -> set[str]:
    """Return every word that code uses, its texts included."""
    known: set[str] = set()
    for name in listed():
        if name.endswith((".cypher", ".rs", ".toml", "Makefile")):
            known.update(re.findall(r"\w+", (ROOT / name).read_text(encoding="utf-8")))
        if not name.endswith(".py") or name == THIS:
            continue
        known.add(Path(name).stem)
        docs = {id(node.value) for node in nodes(name) if isinstance(node, ast.Expr)}
        for node in nodes(name):
            for field in ("id", "attr", "name", "arg", "asname", "module"):
                if isinstance(word := getattr(node, field, None), str):
                    known.update(word.split("."))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                known.update(re.findall(r"\w+", node.value))
    return known


@cache
def members() -> dict[str, set[str]]:
    """Return what each module, folder and class has, by its own name; "?" where a class inherits from elsewhere."""
    has: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for name in listed():
        *folders, file = name.split("/")
        if not file.endswith(".py") or "pag_graph" not in folders:
            continue
        module = folders.pop() if file == "__init__.py" else file.removesuffix(".py")
        has[folders[-1] if folders else ""].add(module)
        has[module] |= names_of(name)
        for node in nodes(name):
            if isinstance(node, ast.ClassDef):
                has[node.name] |= own_names(ast.walk(node))
                bases[node.name] |= {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
    for kind, direct in bases.items():
        todo = set(direct)
        while todo:
            base = todo.pop()
            has[kind] |= (has[base] if base in bases else set()) | (set() if base in PLAIN or base in bases else {"?"})
            todo |= bases.get(base, set())
    return has


@cache
def names_of(name: str) -> set[str]:
    """Return `own_names` of a file of Python."""
    return own_names(nodes(name))


def own_names(body: Iterable[ast.AST]) -> set[str]:
    """Return all that a module or class, or a function in it, gives a name; attributes of `self` as well."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).rpartition(".")[2])
    return names


def prose(path: Path) -> Iterator[str]:
    """Give the texts for people: a page without its code, or docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield FENCED.sub("", text)
        return
    for node in nodes(path.relative_to(ROOT).as_posix()):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    comments = [
        token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]
    # A comment of several lines is one text.
    yield "\n".join(token.string.lstrip("# ") for token in comments)


@cache
def headings(page: str) -> frozenset[str]:
    """Return the titles of a page's sections, and their anchors."""
    text = FENCED.sub("", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    titles = [title.strip() for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    anchors = (re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles)
    return frozenset({*titles, *anchors, *(title.replace("`", "") for title in titles)})


@cache
def endings() -> set[str]:
    """Return how files may be named: by their path from any folder above them."""
    return {name.split("/", skipped)[-1] for name in listed() for skipped in range(name.count("/") + 1)}


def dead(text: str, suffix: str) -> Iterator[str]:
    """Give what a text names that is not there."""
    for found in PATH.finditer(text):
        name = found[0].replace("../", "").removeprefix("./")
        if name.startswith("pag_graph."):  # a module
            continue
        if not {name, name.rpartition("/")[2]} & ELSEWHERE and name not in endings():
            yield name
    yield from (found[0] for found in MODULE.finditer(text) if not stands(found[0]))
    for found in DOTTED.finditer(text):
        yield from _missing(found[1])
    if suffix == ".py":
        named = {found[1] for found in SINGLE.finditer(text)}
        yield from named - words() - ELSEWHERE
    for page, title in SECTION.findall(" ".join(text.split())):
        if title not in headings(page.removeprefix("docs/")):
            yield f"{page}, {title}"
    for page, anchor in ANCHOR.findall(text):
        if (ROOT / "docs" / page).is_file() and anchor not in headings(page):
            yield f"{page}#{anchor}"
    yield from UNPUBLISHED.findall(" ".join(text.split()))


def stands(dotted: str) -> bool:
    """Whether a name that begins with the package is a module or folder, or a name in one."""
    parts = dotted.split(".")
    for taken in range(len(parts), 0, -1):
        path = "/".join(parts[:taken])
        module = next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in listed()), None)
        if module is not None:
            rest = parts[taken : taken + 1]
            return not rest or rest[0] in names_of(module) | {"_cypher", "__version__"}
    return False


def _missing(dotted: str) -> Iterator[str]:
    """Give a dotted name if a part of it is nowhere, or is no member of the module or class before it."""
    parts = dotted.split(".")
    if parts[-1] in ENDINGS or dotted in ELSEWHERE or FOREIGN.fullmatch(dotted):
        return
    for owner, member in pairwise(parts):
        known = members().get(owner, {"?"})
        if member not in words() or not known & {"?", member}:
            yield dotted
            return


def test_all_that_docstrings_comments_and_pages_name_is_there() -> None:
    # The changelog tells of what was.
    names = [name for name in listed() if name.endswith((".py", ".md")) and name not in {THIS, "CHANGELOG.md"}]
    gone = {name: sorted({each for text in prose(ROOT / name) for each in dead(text, name[-3:])}) for name in names}
    said = "\n".join(f"{name}: {', '.join(missing)}" for name, missing in gone.items() if missing)
    assert not said, said


def test_programs_within_texts_import_what_is_there() -> None:
    gone = []
    for name in listed():
        if not name.endswith(".py") or name in {THIS, "tests/meta/test_house.py"}:
            continue  # they write packages of their own
        for node in nodes(name):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                gone += [f"{name}: {each}" for each in imports(node.value) if not stands(each)]
    assert not gone


def imports(program: str) -> Iterator[str]:
    """Give the names with dots that a program imports from the package."""
    for module, names in IMPORT.findall(program):
        yield from (f"{module}.{name}" for name in names.split(", "))


@pytest.mark.parametrize(
    "text",
    [
        "see `builder/no_such_file.py`",
        "made by no_such_page.md",
        "`pag_graph.graph.no_such_name`",
        "pag_graph.no_such_room.build",
        "like `Snapshot.no_such_member`",
        "as `tiling.no_such_function` does",
        "takes `no_such_argument`",
        'is in `docs/model.md`, section "No such section".',
        "in [model.md](model.md#no-such-section)",
        "Definition: contracts section 7.",
    ],
)
def test_what_is_not_there_is_found(text: str) -> None:
    assert list(dead(text, ".py"))
