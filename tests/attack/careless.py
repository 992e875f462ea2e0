"""A writer as it should not be: what the attack finds in it shows that the attack can find something."""

from __future__ import annotations

import os
from pathlib import Path


def write(folder: str) -> None:
    """Do everything once that the shim counts, and replace a file in place."""
    place = Path(folder)
    (place / "kept").mkdir()
    (place / "kept" / "a").write_bytes(b"0123456789")
    os.link(place / "kept" / "a", place / "b")
    (place / "c").symlink_to("b")
    (place / "b").rename(place / "d")
    with (place / "kept" / "a").open("r+b") as file:
        file.truncate(4)
    os.chdir(place)
    Path("c").unlink()
    descriptor = os.open("kept", os.O_RDONLY)
    os.unlink("a", dir_fd=descriptor)
    os.close(descriptor)
    Path("kept").rmdir()


def write_in_place(folder: str, content: str) -> None:
    """Put a content in the place of another one, in two writes."""
    with (Path(folder) / "file").open("wb", buffering=0) as file:
        half = len(content) // 2
        file.write(content[:half].encode())
        file.write(content[half:].encode())
