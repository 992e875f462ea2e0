"""The modules of the page as one script, for a page in one file: the same modules, one of them exchanged."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

ENTRY = "main.js"
EXCHANGED = {"transport.js": "held.js"}
"""Where a page that is served asks its server, a page in one file looks into itself."""
_NAMES = r"\{([^}]*)\}"
_IMPORT = re.compile(rf'^import {_NAMES} from "\./([\w-]+\.js)";$', re.MULTILINE)
_LATER = re.compile(r'import\("\./([\w-]+\.js)"\)')
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_WHOLE = """"use strict";
const made = {};
const need = (name) => (made[name] ??= modules[name]());
const modules = {
MODULES
};
need("ENTRY");
"""
_LEFT = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


@cache
def static(name: str) -> str:
    """Return the text of a file of the page."""
    return resources.files("pag_graph.workbench").joinpath("static", name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return one script that does what the page's modules do.

    Returns
    -------
    str
        Each module is a function that is called when it is first needed and returns what it exports. Names of modules
        cannot meet, and a module that nobody needs is absent.

    Notes
    -----
    Modules import names with ``import { a, b as c } from "./x.js";`` or ``import("./x.js")``, and export what they
    declare: a test holds them to that.
    """
    functions: dict[str, str] = {}
    todo = [ENTRY]
    while todo:
        name = todo.pop()
        if name in functions:
            continue
        text = static(EXCHANGED.get(name, name))
        functions[name] = _as_function(text)
        todo += [module for _, module in _IMPORT.findall(text)] + _LATER.findall(text)
    modules = ",\n".join(f'"{name}": () => {{\n{text}}}' for name, text in sorted(functions.items()))
    return _WHOLE.replace("ENTRY", ENTRY).replace("MODULES", modules)


def _as_function(text: str) -> str:
    """Return the body of a function that does what a module does."""
    names = ", ".join(name for _, name in _EXPORT.findall(text))
    body = _IMPORT.sub(lambda match: f'const {{{match[1].replace(" as ", ": ")}}} = need("{match[2]}");', text)
    body = _LATER.sub(r'Promise.resolve().then(() => need("\1"))', body)
    body = _EXPORT.sub(r"\1 \2", body)
    unresolved = _LEFT.search(body)
    assert unresolved is None, unresolved  # noqa: S101  (the modules are ours)
    return f"{body}return {{ {names} }};\n"
