"""Text files that an export writes."""

from __future__ import annotations

import gzip
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from pag_graph.store.in_place import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def text_file(target: Path) -> Iterator[TextIO]:
    """Open a file that is to be written whole or not at all; one whose name ends in ``.gz`` is compressed."""
    with whole_file(target) as place, place.open("wb") as raw:
        if target.suffix == ".gz":
            with (
                gzip.GzipFile(filename=target.name, mode="wb", compresslevel=6, fileobj=raw) as packed,
                io.TextIOWrapper(packed, encoding="utf-8") as file,
            ):
                yield file
        else:
            with io.TextIOWrapper(raw, encoding="utf-8") as file:
                yield file
