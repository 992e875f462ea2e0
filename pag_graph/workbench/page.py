"""A page in one file: the workbench of some windows, with its answers in it. Nothing is asked of anybody."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from pag_graph.model.units import in_html
from pag_graph.workbench.bundle import script, static
from pag_graph.workbench.recording import MOST_BYTES, Recording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.api import Pag

_CHARACTERS_PER_BYTE = 4 / 3
"""Of base64."""


def page(pag: Pag, epochs: Sequence[int] = (), panels: Sequence[str] = (), *, most_bytes: int = MOST_BYTES) -> str:
    """Return a page that shows windows of a run: lanes, `why` and panels.

    Parameters
    ----------
    pag
        A run with aligned clocks.
    epochs
        Whose windows it shows, the first one at first; the slowest round where there are none.
    panels
        Names of analyses; those of `PANELS` that have a meaning for the run where there are none.
    most_bytes
        How large it may be. Lanes become coarser, and fewer activities can be clicked, where there is less room.

    Returns
    -------
    str
        HTML. It may run the one script that stands in it, whose hash its policy names, and load nothing at all.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch or analysis, or the answers do not fit.
    UnsupportedPlanError
        If the workers' clocks are not aligned, or a chosen analysis has no meaning for this run.
    """
    title = in_html(f"pag: {pag.run.info.path.name[:100]}")
    script_text, style = script(), static("style.css")
    body = static("index.html").partition("</head>")[2]
    policy = (
        f"default-src 'none'; script-src '{_hash(script_text)}'; style-src '{_hash(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    frame = len(script_text) + len(style) + len(body) + len(policy) + 2_000
    packed = Recording(pag, epochs, panels, int((most_bytes - frame) / _CHARACTERS_PER_BYTE)).packed()
    answers_text = base64.b64encode(packed).decode()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>"
        + body.replace(
            "</body>",
            f'<script type="application/gzip" id="answers">{answers_text}</script>\n'
            f'<script type="module">{script_text}</script>\n</body>',
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
