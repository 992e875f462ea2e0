"""What a database keeps of a run that goes on for ever: much of the latest epochs, less of earlier ones.

An epoch that loses detail says so first (``detail``), and what is to be removed is found from what it had (``trims``),
which goes with the last transaction; so it is done again, all of it, where somebody was killed in between. Until then
it shows more than it says, and at no time less.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import count_of
from pag_graph.sinks.neo4j.content import Reader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.trimming import trimmed
from pag_graph.sinks.neo4j.writer import execute, patiently

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pag_graph.graph.run import Run
    from pag_graph.sinks.neo4j.loader import LoadOptions
    from pag_graph.sinks.neo4j.writer import Writer

_ALL = 2**62
"""No database has as many epochs."""
_SLACK = 4
"""A part of what has a detail may have it beside that before any is removed: one such part."""


class KeepDetail(NamedTuple):
    """How much detail the latest epochs have at most; the others have none of it."""

    steps: tuple[tuple[Detail, int | None], ...] = ()
    """From much to little: a detail, and how many of the latest epochs may have it; None: all. None at all: any."""

    @classmethod
    def of(cls, text: str) -> KeepDetail:
        """Read what `pag neo4j follow --keep` takes.

        Parameters
        ----------
        text
            ``all``; or details with numbers of epochs, from much to little, such as ``full:20,waits:2000,summary:all``.
            Epochs behind the last number are removed.

        Returns
        -------
        KeepDetail
            What it says.

        Raises
        ------
        InvalidParameterError
            If it says nothing of that.

        Examples
        --------
        >>> KeepDetail.of("waits:200,summary:all").most(200)
        <Detail.SUMMARY: 'summary'>
        """
        if text == "all":
            return cls()
        steps = []
        for part in text.split(","):
            name, _, count = part.partition(":")
            number = count_of(count)
            if name not in set(map(str, Detail)) or not (number or count == "all"):
                message = f"{part!r} does not say how many epochs keep which detail."
                hint = f"Give a detail ({', '.join(Detail)}) and a number or all: full:20,critical:200,summary:all."
                raise InvalidParameterError(message, hint)
            steps.append((Detail(name), number))
        order = [(-list(Detail).index(detail), float("inf") if count is None else count) for detail, count in steps]
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(order)):
            message = f"{text!r} must go from much detail for few epochs to little detail for many."
            raise InvalidParameterError(message, "Such as full:20,critical:200,waits:2000,summary:all.")
        return cls(tuple(steps))

    def most(self, place: int) -> Detail | None:
        """Return the most detail of an epoch, from how many later ones there are; None where it goes altogether."""
        if not self.steps:
            return list(Detail)[-1]
        return next((detail for detail, count in self.steps if count is None or place < count), None)

    @property
    def epochs(self) -> int | None:
        """How many of the latest epochs are there in any detail; None: all."""
        return self.steps[-1][1] if self.steps else None

    def looks_at(self) -> dict[str, Any]:
        """Return which epochs of a database have to be looked at to know what is due, as parameters of `load/details`.

        Returns
        -------
        dict
            ``latest`` and ``more``. Where earlier epochs are kept as summaries, however many, summaries are none of
            them, as they show nothing that others may share; but for the latest, which say what place the others have.
        """
        if self.steps[-1:] != ((Detail.SUMMARY, None),):
            return {"latest": _ALL, "more": []}
        more = [str(detail) for detail in Detail if detail is not Detail.SUMMARY]
        return {"latest": max(self._counts, default=0), "more": more}

    def due(self, details: Mapping[int, Detail], *, exactly: bool) -> dict[int, Detail | None]:
        """Return the epochs that have more than they shall, and what they shall have.

        Parameters
        ----------
        details
            Per epoch of the database that `looks_at` means, what it has.
        exactly
            Whether also where these are few.

        Returns
        -------
        dict
            Empty where fewer are due than a quarter of those that may have their detail.
        """
        latest = sorted(details, reverse=True)
        shall = {epoch: self.most(place) for place, epoch in enumerate(latest)}
        too_detailed = {
            epoch: most_detail
            for epoch, most_detail in shall.items()
            if most_detail is None or not most_detail.covers(details[epoch])
        }
        places = [place for place, epoch in enumerate(latest) if epoch in too_detailed]
        is_worthwhile = any(self._many(sum(place >= count for place in places), count) for count in self._counts)
        return too_detailed if exactly or is_worthwhile else {}

    def many(self, epochs: int) -> bool:
        """Say whether after so many new epochs enough others may be due: a quarter of those that keep a detail."""
        return any(self._many(epochs, count) for count in self._counts)

    @property
    def _counts(self) -> set[int]:
        return {count for _, count in self.steps if count is not None}

    @staticmethod
    def _many(epochs: int, count: int) -> bool:
        return epochs * _SLACK >= count


def trim(
    run: Run, writer: Writer, keep: KeepDetail, options: LoadOptions, *, exactly: bool = False
) -> dict[int, Detail | None]:
    """Take detail from epochs that have more than they shall, and end what somebody else has begun of that.

    Parameters
    ----------
    run
        As the database holds it. Epochs that its store no longer has stay as they are, and so do later ones that may
        share something with them.
    writer
        Writes it.
    keep
        What is to be kept.
    options
        How to load.
    exactly
        Whether also where little is to go.

    Returns
    -------
    dict
        Per epoch that has less now: what it has; None where it has gone. O(what these and their neighbours show).
    """
    reader = Reader(run, options.labels)
    rows = execute(writer.driver, load_query("load/details").text, {"run": writer.run_id, **keep.looks_at()})
    begun_trims = {row["epoch"]: row for row in rows if row["trims"] is not None}
    details = {row["epoch"]: Detail(row["detail"]) for row in rows if row["published"] and row["detail"]}
    details_now: dict[int, Detail | None] = {
        epoch: Detail(row["detail"]) if row["published"] else None for epoch, row in begun_trims.items()
    }
    if begun_trims:
        _trim(
            reader,
            writer,
            {epoch: Detail(row["trims"]) for epoch, row in begun_trims.items()},
            details_now,
            details,
            options,
        )
    for part in _portions(run, keep.due(details, exactly=exactly), details, options.group_edges):
        _trim(reader, writer, {epoch: details[epoch] for epoch in part}, part, details, options)
        details = {epoch: now for epoch, before in details.items() if (now := part.get(epoch, before)) is not None}
        details_now.update(part)
    return details_now


def _portions(
    run: Run, due: Mapping[int, Detail | None], details: Mapping[int, Detail], group_edges: int
) -> Iterator[dict[int, Detail | None]]:
    """Put epochs together whose content fits into memory, the earliest first."""
    edges = dict(run.epochs.select("epoch", "edges").iter_rows())
    stuck = [epoch for epoch, detail in details.items() if epoch not in edges and detail is not Detail.SUMMARY]
    # The store has these epochs no longer, so nothing says which nodes the last of them shares with the next.
    first = max(stuck, default=-1) + (1 if stuck else 0)
    part: dict[int, Detail | None] = {}
    room = group_edges
    for epoch in sorted(due):
        if epoch not in edges or epoch <= first:
            continue
        if part and room < edges[epoch]:
            yield part
            part, room = {}, group_edges
        part[epoch] = due[epoch]
        room -= edges[epoch]
    if part:
        yield part


def _trim(
    reader: Reader,
    writer: Writer,
    details_before: Mapping[int, Detail],
    details_after: Mapping[int, Detail | None],
    details: Mapping[int, Detail],
    options: LoadOptions,
) -> None:
    epochs: Sequence[int] = sorted(details_before)
    values: dict[str, Any] = {
        "run": writer.run_id,
        "epoch": epochs,
        "detail": [None if (detail_kept := details_after[epoch]) is None else str(detail_kept) for epoch in epochs],
    }

    def remove() -> None:
        writer.write(load_query("load/trim_begin").text, values)
        other_details = {epoch: detail for epoch, detail in details.items() if epoch not in details_before}
        trimmed_content = trimmed(
            reader, {epoch: (details_before[epoch], details_after[epoch]) for epoch in epochs}, other_details
        )
        for work in trimmed_content.work(writer.run_id, options.batch_rows):
            writer.write(work.text, work.parameters)
        writer.write(load_query("load/trim_end").text, values)

    patiently(remove, options.patience_s, writer)
