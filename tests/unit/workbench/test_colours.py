"""Colours of activities can be told apart, by those too who see no red, or no green."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from pag_graph.model.enums import LOCAL_TYPES
from pag_graph.workbench.bundle import static
from pag_graph.workbench.facts import COLOURS

F64 = NDArray[np.float64]
# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency" (2009),
# severity 1.0; for linear RGB.
SEEN = {
    "all colours": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
_WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(colour: str, seen: F64) -> F64:
    """Return where a colour lies in CIE Lab, in which distances are about as large as they seem."""
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = (_TO_XYZ @ np.clip(seen @ linear, 0, 1)) / _WHITE
    x, y, z = (np.cbrt(part) if part > 216 / 24389 else (24389 / 27 * part + 16) / 116 for part in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SEEN)
def test_types_of_activities_differ(sight: str) -> None:
    shown = {kind: lab(COLOURS[kind], SEEN[sight]) for kind in LOCAL_TYPES}
    distances = {pair: float(np.linalg.norm(shown[pair[0]] - shown[pair[1]])) for pair in combinations(shown, 2)}
    assert {pair: distance for pair, distance in distances.items() if distance < 10} == {}


@pytest.mark.parametrize("sight", SEEN)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_path_differs_from_what_it_runs_beside(sight: str, theme: str) -> None:
    style = static("style.css").partition("}")[theme == "dark" and 2 or 0]
    path = lab(style.partition("--path: ")[2][:7], SEEN[sight])
    for kind in LOCAL_TYPES:
        assert np.linalg.norm(path - lab(COLOURS[kind], SEEN[sight])) > 10, kind
