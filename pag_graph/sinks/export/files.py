"""Text files that an export writes."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def text_file(target: Path) -> Iterator[TextIO]:
    """Open a file for writing; one whose name ends in ``.gz`` is compressed."""
    if target.suffix == ".gz":
        with gzip.open(target, "wt", encoding="utf-8", compresslevel=6) as file:
            yield file
    else:
        with target.open("w", encoding="utf-8") as file:
            yield file
