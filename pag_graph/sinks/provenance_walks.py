"""Provenance, walked: back from a critical path to the rows of its log, forward from a clock to what depends on it.

A log's events are known by the numbers that it gives them; a store remembers which rows of which file of the trace hold
which numbers, so that a walk needs no trace. Queries of the same names walk in Neo4j (`provenance/log_rows`,
`provenance/touched_by_clock`).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import WAITING, worker_of
from pag_graph.analyses.waits import last_sent
from pag_graph.builder import saved
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import EpochRole
from pag_graph.store.history import commits, latest_commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.store.history import Commit

_STRETCHES: dict[str, Any] = {
    "worker": pl.Int32,
    "log_file": pl.String,
    "log_from_row": pl.Int64,
    "log_rows": pl.Int64,
    "log_from_seq": pl.Int64,
    "log_to_seq": pl.Int64,
}
LOG_ROWS = ("step", "type", "worker", "from_seq", "to_seq", "file", "from_row", "to_row", "bytes", "crc32")
"""Columns of `log_rows`."""


class FinalCommits:
    """Which commit made an epoch what it is.

    Parameters
    ----------
    finals
        Per commit, oldest first: the last epoch that it made final, and its id.
    """

    def __init__(self, finals: Sequence[tuple[int, str]]) -> None:
        self._ids = [commit_id for _, commit_id in finals]
        # A commit of a log that went back makes nothing final that was so before.
        self._last = list(accumulate((last for last, _ in finals), max))

    def commit_of(self, epoch: int) -> str:
        """Return the commit since which nothing of this or of a lower epoch has changed, or the latest one."""
        place = bisect_left(self._last, epoch)
        return self._ids[min(place, len(self._ids) - 1)]


def own_commits(run: Run, after: int = -1) -> list[Commit]:
    """Return the commits that made a run, oldest first: those of versions behind `after`."""
    run_id = run.info.run["run_id"]
    return [commit for commit in commits(run.info, after) if commit.run["run_id"] == run_id]


def log_stretches(run: Run) -> pl.DataFrame:
    """Return which rows of the trace's files hold which events.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    polars.DataFrame
        One row per row group of a file of events: ``worker``, ``log_file`` (its path inside the trace),
        ``log_from_row`` (from 0), ``log_rows``, ``log_from_seq`` and ``log_to_seq`` (numbers of its first and last
        event). None where the store kept nothing to append to, or the files do not tell.
    """
    saved_state = saved.load(run.info)
    rows: list[tuple[Any, ...]] = []
    for file in saved_state.files if saved_state is not None else ():
        first = 0
        for group, numbers in zip(file.groups, file.numbers, strict=True):
            if group is not None and numbers is not None:
                rows.append((group.worker, file.name, first, group.rows, numbers.low, numbers.high))
            first += 0 if group is None else group.rows
    return pl.DataFrame(rows, schema=_STRETCHES, orient="row").sort("worker", "log_from_seq", "log_file")


def log_rows(run: Run, epoch: int, step: int | None = None) -> pl.DataFrame:
    """Return the events of the log that an epoch's critical path was made of.

    Parameters
    ----------
    run
        A committed run whose rules know a critical path.
    epoch
        Number of the epoch.
    step
        Number of a step of the path; all where absent.

    Returns
    -------
    polars.DataFrame
        One row per step, log of a worker that it was read from, and row group of that log's files, in this order:
        ``step``, ``type``, ``worker``, ``from_seq`` and ``to_seq`` (numbers of the first and the last event, which are
        the last one up to the step's beginning and the first one from its end on; a message has one event in the
        sender's log and one in the reader's), ``file``, ``from_row`` and ``to_row`` (rows of the file, from 0; of the
        whole row group where its numbers have gaps), ``bytes`` and ``crc32`` of the file. What nobody knows is null.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch or no critical path.
    """
    path = pl.DataFrame(pl.from_arrow(critical_path(run.snapshot(run.window(epoch=epoch))).steps))
    if step is not None:
        path = path.filter(pl.col("step") == step)
    return rows_of_steps(run, path)


def rows_of_steps(run: Run, path: pl.DataFrame) -> pl.DataFrame:
    """Return the events of the log that some edges were made of.

    Parameters
    ----------
    run
        A committed run.
    path
        One row per edge: ``step``, ``type``, ``worker``, ``to_worker``, ``edge_src`` and ``edge_dst``, as
        `critical_path` has them.

    Returns
    -------
    polars.DataFrame
        As from `log_rows`.
    """
    sent = pl.col("worker") != pl.col("to_worker")
    ends = [
        path.filter(~sent).select("step", "type", "worker", end=pl.lit(0), first="edge_src", last="edge_dst"),
        path.filter(sent).select("step", "type", "worker", end=pl.lit(0), first="edge_src", last="edge_src"),
        path.filter(sent).select("step", "type", worker="to_worker", end=pl.lit(1), first="edge_dst", last="edge_dst"),
    ]
    return _placed(run, _numbered(run, pl.concat(ends))).sort("step", "end", "file", "from_row").select(LOG_ROWS)


def _numbered(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``from_seq`` and ``to_seq``: of the last event up to ``first``, and of the first one from ``last`` on.

    Inserted vertices have no number. Where a log has none on one side, that of the other side is taken.
    """
    logged = (
        run.scan("vertices")
        .filter(pl.col("worker").is_in(rows["worker"].unique().implode()), pl.col("seq").is_not_null())
        .select("id", "worker", "seq")
        .collect()
        .sort("id")
    )
    ids, seqs = logged["id"], logged["seq"]
    # One place more on either side, of no worker.
    workers = pl.concat([pl.Series([None], dtype=pl.Int32), logged["worker"], pl.Series([None], dtype=pl.Int32)])
    numbers = pl.concat([pl.Series([None], dtype=pl.Int64), seqs, pl.Series([None], dtype=pl.Int64)])

    def number_at(places: pl.Series) -> pl.Series:
        same_worker = workers.gather(places).eq_missing(rows["worker"])
        return pl.select(pl.when(same_worker).then(numbers.gather(places))).to_series()

    before = number_at(ids.search_sorted(rows["first"], side="right"))
    after = number_at(ids.search_sorted(rows["last"], side="left") + 1)
    numbered_rows = rows.with_columns(before=before, after=after)
    is_sent = (pl.col("first") == pl.col("last")) & (pl.col("end") == 0)
    return numbered_rows.with_columns(
        from_seq=pl.when(pl.col("end") == 1)
        .then(pl.coalesce("after", "before"))
        .otherwise(pl.coalesce("before", "after")),
        to_seq=pl.when(is_sent).then(pl.coalesce("before", "after")).otherwise(pl.coalesce("after", "before")),
    )


def _placed(run: Run, logs: pl.DataFrame) -> pl.DataFrame:
    """Add the rows of the files that hold the events."""
    sums = latest_commit(run.info).made.get("files", {})
    files = pl.DataFrame(
        [(name, sums_of_file["bytes"], sums_of_file["crc32"]) for name, sums_of_file in sums.items()],
        schema={"file": pl.String, "bytes": pl.Int64, "crc32": pl.Int64},
        orient="row",
    )
    numbered = logs.with_row_index("place")
    stretches = numbered.join(log_stretches(run), on="worker").filter(
        pl.col("log_from_seq") <= pl.col("to_seq"), pl.col("log_to_seq") >= pl.col("from_seq")
    )
    dense = pl.col("log_to_seq") - pl.col("log_from_seq") + 1 == pl.col("log_rows")
    low = pl.max_horizontal("from_seq", "log_from_seq") - pl.col("log_from_seq")
    high = pl.min_horizontal("to_seq", "log_to_seq") - pl.col("log_from_seq")
    file_rows = stretches.select(
        "place",
        file="log_file",
        from_row=pl.col("log_from_row") + pl.when(dense).then(low).otherwise(0),
        to_row=pl.col("log_from_row") + pl.when(dense).then(high).otherwise(pl.col("log_rows") - 1),
    )
    return numbered.join(file_rows, on="place", how="left").join(files, on="file", how="left")


def touched_by_clock(run: Run, worker: int, *, domain: bool = False) -> pl.DataFrame:
    """Return what a wrong clock has touched: what crosses, in each round, between it and the others.

    Parameters
    ----------
    run
        A committed run whose rules know a critical path.
    worker
        A worker whose times are off.
    domain
        Whether so are those of all workers that read the same physical clock.

    Returns
    -------
    polars.DataFrame
        One row per round, the most waiting first: ``epoch``, ``job`` (commit that made it what it is), ``waits`` and
        ``waited_ns`` (whole waits that ended in the round, by a message between these workers and others: their ends
        and their causes depend on how the clocks are aligned), ``path_ns`` (of the critical path: steps that begin or
        end on these workers) and ``crossings`` (messages on the path between these workers and others).

    Raises
    ------
    InvalidParameterError
        If there is no such worker, or no critical path.
    """
    workers = run.scan("workers").select("worker", "clock_domain").collect()
    worker_row = workers.filter(pl.col("worker") == worker)
    if not worker_row.height:
        message = f"There is no worker {worker}; the run has {', '.join(map(str, workers['worker']))}."
        raise InvalidParameterError(message, None, {"worker": worker})
    same_domain = workers.join(worker_row.select("clock_domain"), on="clock_domain", how="semi")["worker"].to_list()
    clock_workers = same_domain if domain else [worker]
    finals = FinalCommits([(int(commit.run["last_closed_epoch"]), commit.id) for commit in own_commits(run)])
    rounds = run.epochs.filter(pl.col("role") == str(EpochRole.ROUND))["epoch"].sort().to_list()
    rows = [
        {"epoch": part.window.epoch, "job": finals.commit_of(highest_epoch(part)), **_crossing(part, clock_workers)}
        for part in run.snapshots([run.window(epoch=epoch) for epoch in rounds])
    ]
    schema: dict[str, Any] = {"epoch": pl.Int64, "job": pl.String}
    schema |= dict.fromkeys(("waits", "waited_ns", "path_ns", "crossings"), pl.Int64)
    return pl.DataFrame(rows, schema=schema).sort("waited_ns", "path_ns", "epoch", descending=[True, True, False])


def highest_epoch(part: Snapshot) -> int:
    """Return the highest epoch of an event that a window shows."""
    labels = [frame[name].max() for frame in (part.edges, part.enders) for name in ("epoch", "src_epoch")]
    return max((int(label) for label in labels if isinstance(label, int)), default=part.window.epoch or 0)


def _crossing(part: Snapshot, clock_workers: Sequence[int]) -> dict[str, int]:
    """Sum what crosses, in one window, between workers of a clock and the others."""
    window = part.window
    last = last_sent(nw.from_native(part.enders), "dst").to_native()
    messages = last.select("dst", sender=worker_of("src"))
    ended = part.local.filter(
        pl.col("type") == WAITING, pl.col("end_ns") > window.after_ns, pl.col("end_ns") <= window.end_ns
    ).select("dst", "duration_ns", worker=worker_of("dst"))
    crosses = pl.col("sender").is_in(clock_workers) != pl.col("worker").is_in(clock_workers)
    crossed = ended.join(messages, on="dst").filter(crosses)
    steps = pl.DataFrame(pl.from_arrow(critical_path(part).steps))
    begins, ends = pl.col("worker").is_in(clock_workers), pl.col("to_worker").is_in(clock_workers)
    return {
        "waits": crossed.height,
        "waited_ns": int(crossed["duration_ns"].sum()),
        "path_ns": int(steps.filter(begins | ends)["duration_ns"].sum()),
        "crossings": steps.filter(begins != ends).height,
    }


def touched_by_parameter(run: Run, name: str) -> list[dict[str, Any]]:
    """Return what each value of a parameter has touched, in the history of a store.

    Parameters
    ----------
    run
        The latest run of a store.
    name
        Name of a parameter of its rules, such as ``busy_below_ns``.

    Returns
    -------
    list of dict
        One row per run and value, oldest first: ``value``, ``run``, ``is_current``, ``rules``, ``jobs`` (commits),
        ``first_version`` and ``last_version`` of the store, ``epochs`` (final after the last of them), ``answers``
        (standing queries whose answers are made of it; null for a run that was replaced).

    Raises
    ------
    InvalidParameterError
        If no run of the store has such a parameter.
    """
    rows: dict[str, dict[str, Any]] = {}
    names: set[str] = set()
    for commit in commits(run.info):
        names |= commit.run["parameters"].keys()
        if name not in commit.run["parameters"]:
            continue
        is_current = commit.run["run_id"] == run.info.run["run_id"]
        answers = [] if run.info.live is None else list(run.info.live["queries"])
        row = rows.setdefault(
            commit.run["run_id"],
            {
                "value": commit.run["parameters"][name],
                "run": commit.run["run_id"],
                "is_current": is_current,
                "rules": commit.run["rules"],
                "jobs": 0,
                "first_version": commit.version,
                "last_version": commit.version,
                "epochs": 0,
                "answers": answers if is_current else None,
            },
        )
        row |= {"jobs": row["jobs"] + 1, "last_version": commit.version, "epochs": commit.closed_epochs}
    if not rows:
        message = f"There is no parameter {name}; there are {', '.join(sorted(names))}."
        raise InvalidParameterError(message, None, {"name": name})
    return list(rows.values())
