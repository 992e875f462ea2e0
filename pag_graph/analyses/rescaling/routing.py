"""Which worker reads the records of a channel before and after an operation, and how much moved at least."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.rescaling.data import PREFIX, data_traffic
from pag_graph.analyses.rescaling.latencies import AFTER, BEFORE
from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.analyses.rescaling.latencies import Course, Epochs
    from pag_graph.graph.run import Run

    Row = dict[str, Any]

_COLUMNS = ("t", "bin", "from", "to")
_TIME = re.compile(r"[0-9]{1,18}")
"""More digits than any run has nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A bin of keys gets another owner."""

    t_ns: int
    """Nanoseconds since the run's origin."""
    bin: str
    """Name of the bin."""
    owner: str | None
    """Who had it; None where it had none yet."""
    to: str
    """Who has it from then on."""


def read_moves(file: Path) -> list[Move]:
    """Read a file of moves: CSV with the columns ``t`` (nanoseconds from the run's origin), ``bin``, ``from``, ``to``.

    Parameters
    ----------
    file
        A row with an empty ``from`` says who owns a bin from the beginning on; all bins must be named.

    Returns
    -------
    list of Move
        In time order; those of one instant in the order of the file.

    Raises
    ------
    InvalidParameterError
        If it cannot be read; names the line.
    """
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            if tuple(reader.fieldnames or ()) != _COLUMNS:
                message = f"{file} has the columns {', '.join(reader.fieldnames or ()) or 'none'}."
                raise InvalidParameterError(message, f"Its first line must be `{','.join(_COLUMNS)}`.")
            moves = []
            for line, row in enumerate(reader, start=2):
                if not _TIME.fullmatch(row["t"] or "") or not row["bin"] or not row["to"]:
                    message = f"{file}, line {line}: t must be a whole number, and bin and to must be there."
                    raise InvalidParameterError(message, "Write nanoseconds from the run's origin: `0,7,,1`.")
                moves.append(Move(t_ns=int(row["t"]), bin=row["bin"], owner=row["from"] or None, to=row["to"]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        message = f"{file} cannot be read: {error}."
        raise InvalidParameterError(message, "Give a CSV file of moves.") from error
    return sorted(moves, key=lambda move: move.t_ns)


def moved_share(moves: list[Move], course: Course) -> float | None:
    """Return the share of bins that changed their owner from a request until latencies settled.

    Parameters
    ----------
    moves
        In time order.
    course
        The operation.

    Returns
    -------
    float or None
        Of the bins whose owners before and after are known; None where there are none.
    """
    start = course.operation.request_ns
    end = course.until_ns if course.settled_ns is None else course.settled_ns
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for move in moves:
        if move.t_ns <= end:
            after[move.bin] = move.to
            if move.t_ns <= start:
                before[move.bin] = move.to
            elif move.owner is not None:
                before.setdefault(move.bin, move.owner)
    common_bins = before.keys() & after.keys()
    return sum(before[name] != after[name] for name in common_bins) / len(common_bins) if common_bins else None


def routing(run: Run, number: int, course: Course, epochs: Epochs, moves: list[Move] | None) -> list[Row]:
    """Compare which worker read the records of each channel before and after an operation.

    Parameters
    ----------
    run
        The run.
    number
        Number of the operation.
    course
        The operation.
    epochs
        The rounds of the run.
    moves
        As from `read_moves`; None where nobody says what moved.

    Returns
    -------
    list of dict
        Rows of `RESCALE_ROUTING`, for channels on which a record ever changed the worker, and that carried some before
        and after; none where latencies did not settle. What a worker sends to itself is counted. O(rows of the table
        `traffic`).
    """
    parts = {}
    for name, phase in (("before_records", BEFORE), ("after_records", AFTER)):
        chosen = epochs.epoch[course.places(epochs, phase)].tolist()
        parts[name] = _read(run, chosen).rename({"records": name})
    # A channel that nobody read on one of the sides has no shares there.
    before, after = parts.values()
    parts = {
        name: part.join(other.select("channel").unique(), on="channel", how="semi", nulls_equal=True)
        for (name, part), other in zip(parts.items(), (after, before), strict=True)
    }
    joined = parts["before_records"].join(
        parts["after_records"], on=["channel", "to_worker"], how="full", coalesce=True, nulls_equal=True
    )
    shares = joined.with_columns(pl.col(*parts).fill_null(0)).with_columns(
        (pl.col(name) / pl.col(name).sum().over("channel")).alias(name.replace("records", "share")) for name in parts
    )
    moved = (pl.col("after_share") - pl.col("before_share")).abs().sum().over("channel") / 2
    exact = None if moves is None else moved_share(moves, course)
    rows = shares.with_columns(moved_low=moved, worker="to_worker").sort("channel", "worker")
    return [{"operation": number, "moved": exact, **row} for row in rows.drop("to_worker").to_dicts()]


def _read(run: Run, epochs: list[int]) -> pl.DataFrame:
    """Return the records that each worker read in some epochs, per channel that leads to another worker."""
    if not epochs:
        return pl.DataFrame(schema={"channel": pl.Int64, "to_worker": pl.Int32, "records": pl.Int64})
    data = data_traffic(run)
    exchanges = data.filter(pl.col("from_worker") != pl.col("to_worker")).select("channel").unique()
    return (
        data.filter(pl.col("epoch").is_in(epochs))
        .join(exchanges, on="channel", how="semi", nulls_equal=True)
        # A sum that lacks some records would look like a change.
        .filter(pl.col("records").is_not_null().all().over("channel"))
        .group_by("channel", "to_worker")
        .agg(pl.col("records").sum())
        .filter(pl.col("records").sum().over("channel") > 0)
        .collect()
    )


def state_sizes(run: Run) -> pl.DataFrame:
    """Return the sizes of the progress state, as workers measured it.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    DataFrame
        Columns of `RESCALE_STATE`, by epoch and worker.
    """
    channels = run.channels.filter(pl.col("type") == f"{PREFIX}state")["channel"]
    to_itself = pl.col("from_worker") == pl.col("to_worker")
    rows = run.scan("traffic").filter(to_itself, pl.col("channel").is_in(channels.implode()))
    return rows.select("epoch", "bytes", worker="to_worker", updates="records").sort("epoch", "worker").collect()
