"""What should be less only gets less: long functions and modules, wide kernels, repeated passages, arrows, circles.

Lines of code are measured and not held, for features cost lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.house import LIMITS, ROOT, House, limits
from tests.support.rooms import PICTURE, picture

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def house() -> House:
    return House(ROOT)


@pytest.mark.parametrize("title", limits())
def test_no_measure_rises(house: House, title: str) -> None:
    names = house.faults[title]
    said = f"There are {len(names)} {title}, and {LIMITS.name} allows {limits()[title]}:\n" + "\n".join(sorted(names))
    assert len(names) <= limits()[title], f"{said}\nMend one, or raise the limit by hand and say why in the commit."


def test_every_measure_has_a_limit(house: House) -> None:
    assert set(limits()) == set(house.faults), "run: make house"


def test_no_room_imports_in_a_circle(house: House) -> None:
    assert not [circle for circle in house.circles if "pag_graph" not in circle]


def test_the_picture_of_rooms_is_current(house: House) -> None:
    drawn = (ROOT / PICTURE).read_text(encoding="utf-8")
    assert drawn == picture(house), "run: make rooms"
    assert f"({PICTURE.relative_to('docs')})" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


BODY = "\n".join(f"    x{number} = {number}" for number in range(61))


def test_what_is_counted(tmp_path: Path) -> None:
    files = {
        "__init__": '"""Doc."""\n',
        "errors": f'"""Two\n\nlines."""\n\n# Comment.\nTEXT = """a\n\n# b"""\ndef long():\n    """Doc."""\n{BODY}\n',
        "low/__init__": "",
        "low/ground": "from pag_graph.high import roof\n@kernel\ndef wide(a, b, c, d, e, f): ...\n",
        "high/__init__": "",
        "high/roof": "from pag_graph.low.ground import wide\nfrom pag_graph import errors\n"
        f"def short():\n{BODY[:200]}\n",
        "high/large": "\n" * 501,
        "testing/aside": "import pag_graph.high.roof\n" * 600,
    }
    for name, text in files.items():
        path = tmp_path / "pag_graph" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    house = House(tmp_path)
    assert len(house.modules["pag_graph.errors"].code) == 3 + 1 + 61
    assert house.rooms == {"errors", "low", "high"}
    assert house.long_functions == ["pag_graph.errors.long: 62 lines"]
    assert house.wide_kernels == ["pag_graph.low.ground.wide: 6 arguments"]
    assert house.long_modules == ["pag_graph.high.large: 501 lines"]
    assert house.passages == ["pag_graph.high.roof:4 as pag_graph.errors:11"]
    assert house.arrows == {("low", "high"): 1, ("high", "low"): 1, ("high", "errors"): 1}
    assert house.circles == ["high <-> low", "pag_graph.high.roof <-> pag_graph.low.ground"]


def test_every_room_has_a_place_in_the_table(house: House) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Where things belong")[2].partition("\n\nBeside")[0]
    rows = [
        set(re.findall(r"`([a-z0-9_]+)(?:/|\.py)`", line.split("|")[1])) for line in table.splitlines() if "| `" in line
    ]
    place = {room: row for row, rooms in enumerate(rows) for room in rooms}
    # A generated module stands beside the one that inherits from it.
    assert set(place) == house.rooms - {"methods"}
    upwards = [
        (room, other) for room, other in house.arrows if {room, other} <= set(place) and place[room] >= place[other]
    ]
    assert not upwards
