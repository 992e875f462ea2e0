"""The picture of rooms in `docs/architecture.md`, drawn from the imports of the code.

``python -m tests.support.rooms`` draws it; a test draws it again and compares.
"""

from __future__ import annotations

import ast
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.formats import svg
from tests.support.house import ROOT, House

if TYPE_CHECKING:
    from collections.abc import Iterable

PICTURE = Path("docs") / "pictures" / "rooms.svg"

_WIDTH, _FLOOR, _BOX, _TALL, _GAP, _TOP = 1080, 112, 250, 72, 22, 20
_LINE = "#5c7f99"
_HEAD = svg.arrow_head("head", _LINE)
_LETTERS = 42
"""How many letters of a caption fit in a line of a box."""


class Plan:
    """Rooms by floors: each stands above all that it imports from.

    Parameters
    ----------
    house
        The measured package.
    """

    def __init__(self, house: House) -> None:
        self.house = house
        self.below: dict[str, set[str]] = {room: set() for room in house.rooms}
        for room, imported in house.arrows:
            self.below[room].add(imported)
        self.reach = cache(self._reach)
        self.floor = cache(self._floor)

    def _reach(self, room: str) -> frozenset[str]:
        """Return all rooms that a room imports from, straight or through others."""
        return frozenset({*self.below[room]}.union(*(self.reach(imported) for imported in self.below[room])))

    def _floor(self, room: str) -> int:
        """Return how many rooms stand on each other below it, at most."""
        return 1 + max(map(self.floor, self.below[room]), default=-1)

    def arrows(self) -> list[tuple[str, str]]:
        """Return the arrows to draw: those that no way through other rooms tells already."""
        return sorted(
            (room, imported)
            for room, all_imported in self.below.items()
            for imported in all_imported
            if not any(imported in self.reach(between) for between in all_imported - {imported})
        )

    def floors(self) -> list[list[str]]:
        """Return the rooms of each floor, the highest first; rooms stand below those that need them."""
        highest = max(map(self.floor, self.below))
        placed: dict[str, float] = {}
        floors = []
        for number in range(highest, -1, -1):
            rooms = [room for room in sorted(self.below) if self.floor(room) == number]
            rooms.sort(key=lambda room: (_mean(placed[up] for up, down in self.arrows() if down == room), room))
            floors.append(rooms)
            placed |= dict(zip(rooms, places(len(rooms)), strict=True))
        return floors

    def caption(self, room: str) -> str:
        """Return the first sentence of a room's docstring."""
        tree = self.house.modules[f"pag_graph.{room}"].tree
        return (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ").replace("`", "").rstrip(".")


def _mean(places_above: Iterable[float]) -> float:
    place_list = list(places_above)
    return sum(place_list) / len(place_list) if place_list else _WIDTH / 2


def places(count: int) -> list[float]:
    """Return the middles of boxes that stand side by side in the middle of the picture."""
    step = min(_BOX + _GAP, (_WIDTH - _BOX - 2 * _GAP) / max(count - 1, 1))
    return [_WIDTH / 2 + (place - (count - 1) / 2) * step for place in range(count)]


def picture(house: House) -> str:
    """Draw the rooms: a box each with what it is, floor above floor, and an arrow to what it imports.

    Parameters
    ----------
    house
        The measured package.

    Returns
    -------
    str
        An SVG document; the same for the same imports and docstrings.
    """
    plan = Plan(house)
    floors = plan.floors()
    middle = {room: x for rooms in floors for room, x in zip(rooms, places(len(rooms)), strict=True)}
    top = {room: _TOP + number * _FLOOR for number, rooms in enumerate(floors) for room in rooms}
    body = [
        _arrow(middle[importer], top[importer] + _TALL, middle[imported], top[imported])
        for importer, imported in plan.arrows()
    ]
    for room, x in middle.items():
        wide = min([_BOX, *(abs(middle[imported] - x) - 10 for imported in _same_floor(room, floors))])
        body.append(_room(room, plan.caption(room), x, top[room], wide))
    height = _TOP + len(floors) * _FLOOR - (_FLOOR - _TALL) + _TOP
    shapes = [_HEAD, *body]
    return svg.document(shapes, _WIDTH, height, title="Rooms of pag_graph, and who imports whom")


def _same_floor(room: str, floors: list[list[str]]) -> list[str]:
    rooms = next(rooms for rooms in floors if room in rooms)
    return [neighbour for neighbour in rooms if neighbour != room]


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    bend = (to_y - y) / 2
    curve = (x, y + bend, to_x, to_y - bend, to_x, to_y)
    return svg.path([("M", (x, y)), ("C", curve)], _LINE, stroke_width=1.4, marker_end="url(#head)")


def _room(name: str, caption: str, x: float, y: float, wide: float) -> str:
    lines = textwrap.wrap(caption, int(_LETTERS * wide / _BOX), max_lines=3, placeholder=" …")
    box = svg.rect(x - wide / 2, y, wide, _TALL, "#eef4f7", rx=5, stroke=_LINE)
    texts = [svg.text(x, y + 20, name, font_size=14, font_weight=600, text_anchor="middle")]
    for place, words in enumerate(lines):
        texts.append(svg.text(x, y + 36 + 13 * place, words, font_size=11, fill="#444444", text_anchor="middle"))
    return "\n".join([box, *texts])


if __name__ == "__main__":
    (ROOT / PICTURE).write_text(picture(House(ROOT)), encoding="utf-8")
