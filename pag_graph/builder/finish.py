"""From what became of all slices to what there is to commit: windows, findings, and the state for the next append."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pag_graph.builder import findings
from pag_graph.builder.append import check_unchanged
from pag_graph.builder.frontier import SETTLE_NS, answered, closed_for_good
from pag_graph.builder.made import SliceResult
from pag_graph.builder.saved import Saved
from pag_graph.builder.state import lives_of
from pag_graph.model.tables import PAG_EPOCHS
from pag_graph.store.contents import SLICED
from pag_graph.store.findings import no_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pag_graph.builder.fold import Folded
    from pag_graph.builder.islands import Islands
    from pag_graph.builder.plan import RunPlan
    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.parts import PartFile

_LOW63 = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What there is to commit."""

    parts: Mapping[str, Sequence[PartFile]]
    """Files of the tables of `SLICED`."""
    epochs: pa.Table
    """New rows of `PAG_EPOCHS` that never change."""
    open_epochs: pa.Table
    """Those that the next append replaces."""
    findings: pa.Table
    """New rows of `PAG_FINDINGS` that stay."""
    open_findings: pa.Table
    """Those that the next append replaces."""
    closed_epochs: int
    """How many epochs are closed."""
    last_closed: int
    """The last of them, or -1."""
    last_answered: int
    """The last epoch that is answered, or -1."""
    fingerprint: int
    """Depends on all rows of closed epochs, and not on their order."""
    dropped: Mapping[str, int]
    """Events that became no vertex, by reason."""
    saved: Callable[[Mapping[str, int], bool], Saved] | None = None
    """Makes what the next append goes on from, of checksums of small tables and of whether the log is complete."""


def finish_islands(islands: Islands) -> Finished:
    """Finish a build by rules to which epochs are islands: all of them are closed.

    Parameters
    ----------
    islands
        What became of all slices.

    Returns
    -------
    Finished
        Without a state: such a run cannot be appended to.
    """
    epochs = islands.epochs
    return Finished(
        parts=islands.result.parts,
        epochs=PAG_EPOCHS.empty_table(),
        open_epochs=epochs,
        findings=no_findings(),
        open_findings=pa.concat_tables([islands.findings, islands.result.findings]),
        closed_epochs=epochs.num_rows,
        last_closed=islands.last_epoch,
        last_answered=islands.last_epoch,
        fingerprint=islands.result.counts.fingerprint(islands.last_epoch) % _LOW63,
        dropped=islands.result.dropped,
    )


def finish(plan: RunPlan, begin: Saved, base: StoreInfo | None, folded: Folded, settle_ns: int = SETTLE_NS) -> Finished:
    """Find the windows of a run, and what of it is closed.

    Parameters
    ----------
    plan
        Of the build.
    begin
        Where it began.
    base
        The state of the store that is appended to.
    folded
        What became of the slices.
    settle_ns
        As for `answered`.

    Returns
    -------
    Finished
        O(epochs that are not closed).

    Raises
    ------
    StoreConflictError
        If an epoch that is committed would look different.
    """
    lives, span = folded.summary.lives, folded.summary.span
    decided, undecided = SliceResult.sum(folded.decided), SliceResult.sum(folded.undecided)
    stays = SliceResult.sum([begin.result, decided])
    everything = SliceResult.sum([stays, undecided])
    epochs = everything.epochs(plan, span, lives)
    closed = closed_for_good(plan, span, folded.frontier, folded.undecided_scans)
    if base is not None:
        last = int(base.run["last_closed_epoch"])
        check_unchanged(base, begin, epochs, (begin.fingerprint + everything.counts.fingerprint(last)) % _LOW63)
    # Of a log that has ended all epochs are closed that every worker has left.
    last_closed, count = closed.last, closed.epochs
    if not plan.tail:
        last_closed, count = span.last_left, begin.closed.epochs + len(span.completed)
    answered_epochs = answered(plan, span, closed, folded.frontier, folded.undecided_scans, begin.answered, settle_ns)
    last_answered = answered_epochs.last if plan.tail else last_closed
    final = int(np.searchsorted(span.epoch, closed.last, side="right")) if folded.resumable else 0
    final_epochs, open_epochs = epochs.slice(0, final), epochs.slice(final)
    final_findings = pa.concat_tables([decided.lost, decided.findings])
    open_findings = no_findings()
    if folded.shown:
        open_findings = pa.concat_tables([undecided.lost, *_of_run(plan, folded), undecided.findings])
    else:
        # Undecided rows are not built, so open epochs cannot be counted.
        open_epochs = open_epochs.slice(0, 0)
    rows = {name: sum(part.rows for part in parts) for name, parts in decided.parts.items()}
    rows |= {"findings": final_findings.num_rows, "epochs": final_epochs.num_rows}

    def saved(tables: Mapping[str, int], complete: bool) -> Saved:  # noqa: FBT001
        return Saved(
            state=folded.frontier,
            closed=closed,
            answered=answered_epochs,
            result=stays,
            fingerprint=(begin.fingerprint + stays.counts.fingerprint(closed.last)) % _LOW63,
            rows={name: count + begin.rows.get(name, 0) for name, count in rows.items()},
            estimate=plan.estimate,
            complete=complete,
            tables=tables,
            files=plan.trace.files,
        )

    return Finished(
        parts={name: [*decided.parts.get(name, ()), *undecided.parts.get(name, ())] for name in SLICED},
        epochs=final_epochs,
        open_epochs=open_epochs,
        findings=final_findings,
        open_findings=open_findings,
        closed_epochs=count,
        last_closed=last_closed,
        last_answered=last_answered,
        fingerprint=(begin.fingerprint + everything.counts.fingerprint(last_closed)) % _LOW63,
        dropped=everything.dropped,
        saved=saved if folded.resumable else None,
    )


def _of_run(plan: RunPlan, folded: Folded) -> list[pa.Table]:
    """Return findings about the run as far as it goes."""
    state, spawns, _, span = folded.summary
    return [
        *findings.without_receive(plan, state.sends.unread(), lives_of(spawns.births, state)),
        *findings.of_lives(plan, state, spawns.births, spawns.odd),
        *findings.unknown_names(plan, state),
        *findings.of_epochs(span),
        *findings.of_log(plan),
    ]
