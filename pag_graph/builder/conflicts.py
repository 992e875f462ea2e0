"""The error of an append to which what is committed would look different."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.errors import StoreConflictError

if TYPE_CHECKING:
    from collections.abc import Collection


def another_story(epochs: Collection[int]) -> StoreConflictError:
    """Return the error for a trace that contradicts epochs that are committed.

    Parameters
    ----------
    epochs
        Their numbers, ascending; the message names the first five.

    Returns
    -------
    StoreConflictError
        To be raised by the caller.
    """
    changed = list(epochs)
    message = f"The trace now contradicts what is committed about epochs {changed[:5]}."
    return StoreConflictError(
        message, "Late events cannot be appended; build with `--replace`.", {"epochs": changed[:100]}
    )
