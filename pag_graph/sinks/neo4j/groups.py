"""Groups of epochs that are loaded together, and their content, read ahead."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.sinks.neo4j.content import Content, Reader
    from pag_graph.sinks.neo4j.detail import Detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Epochs that are loaded and published together."""

    windows: tuple[Window, ...]
    detail: Detail


def grouped(
    run: Run, windows: Sequence[Window], details: Mapping[int, Detail], detail: Detail, group_edges: int
) -> list[Group]:
    """Put epochs together that follow each other and are loaded in the same detail, up to a number of edges.

    Parameters
    ----------
    run
        Whose epochs they are.
    windows
        Of epochs, in time order.
    details
        By epoch, the detail that it is loaded with already; it keeps more than `detail`.
    detail
        How much to load.
    group_edges
        A group has no more edges, unless its only epoch has.

    Returns
    -------
    list of Group
        One group per epoch where epochs are islands.
    """
    edges = dict(run.epochs.select("epoch", "edges").iter_rows())
    order = {epoch: place for place, epoch in enumerate(run.epochs["epoch"].to_list())}
    groups: list[Group] = []
    room = 0
    for window in windows:
        epoch = window.epoch
        assert epoch is not None  # noqa: S101  (windows of epochs have a number)
        detail_there = details.get(epoch, detail)
        own_detail = detail_there if detail_there.covers(detail) else detail
        last = groups[-1].windows[-1].epoch if groups else None
        fits = (
            last is not None
            and groups[-1].detail is own_detail
            and order[epoch] == order[last] + 1
            and room >= edges[epoch]
            and not run.epochs_are_islands
        )
        if fits:
            groups[-1] = Group(windows=(*groups[-1].windows, window), detail=own_detail)
            room -= edges[epoch]
        else:
            groups.append(Group(windows=(window,), detail=own_detail))
            room = group_edges - edges[epoch]
    return groups


def read_ahead(reader: Reader, groups: Sequence[Group]) -> Iterator[tuple[Group, Content]]:
    """Read the content of group after group, the next one while this one is written.

    Parameters
    ----------
    reader
        Of the run.
    groups
        As from `grouped`.

    Yields
    ------
    tuple
        A group and its content; memory holds two of these.
    """
    with ThreadPoolExecutor(1) as pool:
        contents = deque(pool.submit(reader.read, group.windows, group.detail) for group in groups[:1])
        for group, following in zip_longest(groups, groups[1:]):
            content = contents.popleft().result()
            if following is not None:
                contents.append(pool.submit(reader.read, following.windows, following.detail))
            yield group, content
