"""What is said where a log needs more memory than there is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pag_graph.errors import TraceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spark.logfiles import LogFiles


@contextmanager
def enough_memory(log: LogFiles) -> Iterator[None]:
    """Say of which log it is, if memory runs out.

    Raises
    ------
    TraceFormatError
        Instead of `MemoryError`.
    """
    try:
        yield
    except MemoryError as error:
        message = f"{log.name} needs more memory than there is."
        hint = "Run it with more memory. It grows with tasks, stages and plans, and with lines of up to 64 MiB."
        raise TraceFormatError(message, hint, {"file": log.name}) from error
