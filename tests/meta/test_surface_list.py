"""Nothing that users hold in their hands vanishes or changes unseen: `surfaces.txt` lists it, line by line."""

from __future__ import annotations

from tests.support.surfaces import LIST, surfaces


def test_no_surface_vanishes_and_every_new_one_is_listed() -> None:
    listed, today = LIST.read_text(encoding="utf-8").splitlines(), surfaces()
    gone, new = sorted({*listed} - {*today}), sorted({*today} - {*listed})
    assert not gone, f"Users still call these. If that is meant, delete their lines from {LIST.name}:\n" + "\n".join(
        gone
    )
    assert not new, "Run: make surfaces. It adds:\n" + "\n".join(new)
    assert listed == sorted({*listed})
