"""`invariants` as a standing query: the rounds that are new, and what is remembered of the ones before.

A learned limit looks at the latest values of a key, and a gap begins with a worker's last progress message. Both are
remembered as of every epoch of the last ones, because a message that is read late makes some of them look different. If
one further back does, all is made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from pag_graph.analyses.definition import Resumed
from pag_graph.analyses.expressions import certain_rounds, worker_of
from pag_graph.analyses.invariants import ANALYSIS, listed, progress_sends, violations
from pag_graph.analyses.observations import KEY, SEEN
from pag_graph.analyses.runner import with_epochs
from pag_graph.analyses.view import View
from pag_graph.graph.membership import first_label
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.live_tables import FROM

if TYPE_CHECKING:
    from pag_graph.analyses.invariants import InvariantsParameters
    from pag_graph.graph.run import Run

_OBSERVED, _SENT = "observed", "sent"
_EPOCHS = 20
"""Epochs as of which it can go on."""
_NEVER = np.iinfo(np.int64).min + 1
_SENDS = {"src": pl.Int64, "dst": pl.Int64, "src_epoch": pl.Int64, "start_ns": pl.Int64}
_SCHEMA = {"part": pl.String, "epoch": pl.Int64, "key": pl.String, "value": pl.String}
_KEYS = {name: pl.String if SEEN[name] == SEEN["type"] else SEEN[name] for name in KEY}


def resume(
    run: Run,
    last: int,
    parameters: InvariantsParameters,
    since: int,
    memory: pl.DataFrame,
    warm: dict[str, pl.DataFrame],
) -> Resumed:
    """Answer `invariants` of the rounds from an epoch on.

    Parameters
    ----------
    run
        Any run.
    last
        Its last answered epoch.
    parameters
        As for `invariants`.
    since
        The first epoch whose answer can be another one.
    memory
        What the last call said to remember; nothing at first.
    warm
        What the last call of this process has of that as columns, if there was one; goes on.

    Returns
    -------
    Resumed
        Also about earlier rounds, where these can look different now: the one that was the last, whose workers' last
        gaps were still open, and all where what is remembered does not go back so far.
    """
    run_until = run.until(last)
    known_rounds = certain_rounds(run_until)
    begin = memory.filter(pl.col("part") == FROM).to_dicts()
    since = min(since, int(begin[0]["value"])) if begin else since
    # The startup counts as a round if it is alone when the log ends.
    anew = not begin or begin[0]["key"] == "alone" or since < begin[0]["epoch"]
    if anew or not known_rounds.height:
        since, memory = -(2**63), pl.DataFrame(schema=_SCHEMA)
        warm.clear()
        run, run_until, known_rounds = run.whole, run.whole.until(last), certain_rounds(run.whole.until(last))
    first_sent = first_label(run, since)
    observed = (warm[_OBSERVED] if warm else _observed(memory)).filter(pl.col("epoch") < since)
    sent = (warm[_SENT] if warm else _sent(memory)).filter(pl.col("src_epoch") < first_sent)
    later = progress_sends(run, first_sent)
    if _epochs_overlap(sent, later):
        return resume(run.whole, last, parameters, since, pl.DataFrame(schema=_SCHEMA), warm)
    windows = known_rounds.filter(pl.col("epoch") >= since)
    if not windows.height:
        return Resumed(since, ANALYSIS.schema.empty_table(), memory)
    chosen = set(windows["epoch"].to_list())
    stretches = run.stretches(run.windows(chosen))
    parts = [with_epochs(ANALYSIS.table(View(run=run, windows=part), parameters), part) for part in stretches]
    rows, new = violations(
        run_until,
        parameters,
        parts=pa.concat_tables(parts),
        windows=windows,
        sends=pl.concat([_latest(sent), later]),
        past=observed,
    )
    first = int(known_rounds["epoch"].tail(_EPOCHS)[0])
    values = _latest_values(pl.concat([observed, new]), first, parameters.over)
    sends = pl.concat([sent, later]).filter(pl.col("src_epoch") <= known_rounds["epoch"][-1])
    warm.update({_OBSERVED: values, _SENT: _latest_sends(run_until, sends, first)})
    return Resumed(since, listed(rows), _memory(known_rounds, first, **warm))


def _epochs_overlap(before: pl.DataFrame, later: pl.DataFrame) -> bool:
    """Say whether a worker sent something in an earlier epoch after what it sent in a later one."""
    of_before, of_later = (frame["src"].to_numpy() >> POSITION_BITS for frame in (before, later))
    workers, place = np.unique(np.append(of_before, of_later), return_inverse=True)
    ends, begins = np.full(len(workers), _NEVER), np.full(len(workers), -_NEVER)
    np.maximum.at(ends, place[: len(of_before)], before["start_ns"].to_numpy())
    np.minimum.at(begins, place[len(of_before) :], later["start_ns"].to_numpy())
    return bool(np.any(ends > begins))


def _latest(sends: pl.DataFrame) -> pl.DataFrame:
    """Return the last one of each worker."""
    src = sends["src"].to_numpy()
    order = np.lexsort((src, sends["start_ns"].to_numpy(), src >> POSITION_BITS))
    latest: pl.DataFrame = sends[order[np.diff(src[order] >> POSITION_BITS, append=-1) != 0]]
    return latest


def _observed(memory: pl.DataFrame) -> pl.DataFrame:
    """Return what was observed, with the columns that limits are learned from; others are null."""
    rows = memory.filter(pl.col("part") == _OBSERVED)
    if not rows.height:
        return SEEN.to_frame().with_columns(epoch=pl.lit(0, pl.Int64)).clear()
    keys = rows["key"].str.json_decode(pl.Struct(_KEYS)).struct.unnest()
    absent = [pl.lit(None, kind).alias(name) for name, kind in SEEN.items() if name not in _KEYS]
    observed_rows = keys.with_columns(absent).with_columns(observed=rows["value"].cast(pl.Int64), epoch=rows["epoch"])
    return observed_rows.select(*SEEN, "epoch").cast(dict(SEEN))  # type: ignore[arg-type]


def _sent(memory: pl.DataFrame) -> pl.DataFrame:
    """Return the last progress messages of each worker in each of some epochs."""
    rows = memory.filter(pl.col("part") == _SENT)
    if not rows.height:
        return pl.DataFrame(schema=_SENDS)
    return rows["value"].str.json_decode(pl.Struct(_SENDS)).struct.unnest()


def _latest_values(observed: pl.DataFrame, first: int, over: int) -> pl.DataFrame:
    """Return what was observed from an epoch on, and per key as many earlier values as limits look at."""
    rows = observed.lazy()
    earlier = rows.filter(pl.col("epoch") < first).sort("epoch").group_by(KEY, maintain_order=True).tail(over)
    return pl.concat([earlier.select(observed.columns), rows.filter(pl.col("epoch") >= first)]).collect()


def _latest_sends(run: Run, sends: pl.DataFrame, first: int) -> pl.DataFrame:
    """Return the last progress message of each worker in each epoch from one on, and the last one before."""
    # Epochs without a row of their own count with the next row.
    earlier = pl.col("src_epoch") < first_label(run, first)
    of_epoch = (
        sends.lazy()
        .sort("start_ns", "src")
        .with_columns(worker=worker_of("src"), of=pl.when(~earlier).then("src_epoch"))
    )
    return of_epoch.unique(["worker", "of"], keep="last", maintain_order=True).select(*_SENDS).collect()


def _memory(known_rounds: pl.DataFrame, first: int, *, observed: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Return what is needed to go on as of any of the last epochs, as texts."""
    values = observed.lazy().select(
        part=pl.lit(_OBSERVED),
        epoch="epoch",
        key=pl.struct(pl.col(name).cast(kind) for name, kind in _KEYS.items()).struct.json_encode(),
        value=pl.col("observed").cast(pl.String),
    )
    sends = sent.lazy().select(
        part=pl.lit(_SENT),
        epoch="src_epoch",
        key=worker_of("src").cast(pl.String),
        value=pl.struct(*_SENDS).struct.json_encode(),
    )
    alone = "alone" if known_rounds["role"].to_list() == ["startup"] else "rounds"
    last = str(known_rounds["epoch"][-1])
    begin = pl.LazyFrame({"part": [FROM], "epoch": [first], "key": [alone], "value": [last]}, schema=_SCHEMA)
    return pl.concat([values, sends, begin]).select(*_SCHEMA).collect()
