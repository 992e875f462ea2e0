"""Drawn traces whose operators have names and channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph import api
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pag_graph.api import Pag
    from pag_graph.testing.traces import SmallTrace


def built(
    trace: SmallTrace,
    place: Path,
    *,
    name: str = "drawn",
    operators: Iterable[int] = (),
    links: Mapping[int, tuple[int, int]] | None = None,
    types: Mapping[int, str] | None = None,
) -> Pag:
    """Build a drawn trace.

    Parameters
    ----------
    trace, place, name
        What to write where, and what to call it.
    operators
        Numbers of operators that get a name and an address, beside those of the links.
    links
        Per channel: the operators that it leads from and to, all in one scope.
    types
        Per channel: the type of its data.
    """
    folder = trace.write(place / f"{name}.trace", trace_id=name)
    numbers = sorted({*operators, *(number for ends in (links or {}).values() for number in ends)})
    operator_rows = [{"operator": number, "address": f"0.{number}", "name": f"Op{number}"} for number in numbers]
    channels = [
        {
            "channel": channel,
            "scope": "0",
            "source_operator": source,
            "source_port": 0,
            "target_operator": target,
            "target_port": 0,
            "type": (types or {}).get(channel, "alloc::vec::Vec<u64>"),
        }
        for channel, (source, target) in (links or {}).items()
    ]
    dataflow = [{"operator": 1_000, "address": "0", "name": "Dataflow"}] if links else []
    pq.write_table(pa.Table.from_pylist([*dataflow, *operator_rows], TRACE_OPERATORS), folder / "operators.parquet")
    pq.write_table(pa.Table.from_pylist(channels, TRACE_CHANNELS), folder / "channels.parquet")
    api.build(folder, place / f"{name}.pag", engine="local")
    return api.open(place / f"{name}.pag")
