"""Samples of spans and of PyTorch traces that every surface is tried on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pag_graph import api
from pag_graph.cli.demo import SAMPLES

SOURCES: Final = {
    "spans": SAMPLES / "spans" / "traces.json",
    "torch": Path(__file__).parents[2] / "docs" / "examples" / "torch",
}


def build_sample(name: str, folder: Path) -> Path:
    """Convert and build a sample; returns its store, which is alone in its folder."""
    api.convert(SOURCES[name], folder / "trace")
    api.build(folder / "trace", folder / "stores" / "run.pag", engine="local")
    return folder / "stores" / "run.pag"
