"""How far a sink has got: a small file in the store, written whole after what it says was done."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from pag_graph.errors import SinkError
from pag_graph.store.in_place import refusals

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "_live/cursors"


@dataclass(frozen=True)
class Cursor:
    """The cursor of a sink.

    Parameters
    ----------
    store
        Directory of the store.
    target
        What tells the sink from others: the file, the address.
    """

    store: Path
    target: str
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        """Name the file: targets are no names of files."""
        name = hashlib.sha256(self.target.encode()).hexdigest()[:32]
        object.__setattr__(self, "file", self.store / FOLDER / f"{name}.json")

    def read(self) -> dict[str, Any]:
        """Return what was written last; nothing at first.

        Raises
        ------
        SinkError
            If the file is damaged.
        """
        try:
            content = orjson.loads(self.file.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            message = f"The cursor {self.file} of {self.target} cannot be read: {error}."
            raise SinkError(message, "Delete it, and what the sink holds, to begin anew.") from error
        if not isinstance(content, dict) or not isinstance(content.get("commit"), int):
            message = f"The cursor {self.file} of {self.target} does not say which commit it stands at."
            raise SinkError(message, "Delete it, and what the sink holds, to begin anew.")
        return content

    def write(self, content: dict[str, Any]) -> None:
        """Replace it, whole or not at all.

        Raises
        ------
        SinkError
            If the file system refuses.
        """
        with refusals(self.file, "The cursor", SinkError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new_file = self.file.with_suffix(f".{os.getpid()}.new")
            # Not the target: an address may hold a secret.
            new_file.write_bytes(orjson.dumps(content))
            new_file.replace(self.file)
