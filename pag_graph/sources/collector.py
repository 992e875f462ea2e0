"""Python's collector of circular garbage, out of the way where there is none."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["without_collector"]


@contextmanager
def without_collector() -> Iterator[None]:
    """Let nothing be searched for circles in the block: parsed JSON has none, and is a third faster to go through.

    Memory is given back as ever, when the last reference goes. The collector runs again behind the block if it did
    before.
    """
    ran = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ran:
            gc.enable()
