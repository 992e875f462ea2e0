"""What is asked of runs whose workers joined or left while they went on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pag_graph.api.questions import Pag
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.window import whole_number
from pag_graph.model.given import listed, path_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    from pag_graph.analyses.rescaling.latencies import DueTimes
    from pag_graph.analyses.rescaling.overhead import Overhead
    from pag_graph.analyses.rescaling.report import Rescaling
    from pag_graph.graph.run import Run


def rescale(
    store: str | os.PathLike[str] | Pag,
    *,
    period_ns: int | None = None,
    first_ns: int | None = None,
    inputs: str | os.PathLike[str] | None = None,
    cores: int | None = None,
    weight: Literal["epochs", "records"] = "epochs",
    routing: str | os.PathLike[str] | None = None,
) -> Rescaling:
    """Say what it brought, and what it cost, that workers joined or left a run.

    Parameters
    ----------
    store
        A store, or a graph that is open.
    period_ns, first_ns
        When input was due: that of epoch 0 at `first_ns` from the run's origin, and then every `period_ns`. Without
        them latencies are service times.
    inputs
        Or the trace of this run, whose program said when input was due, in an open loop (`docs/latency.md`): input n
        is that of epoch n.
    cores
        Cores of each host, to say where workers outnumber them.
    weight
        What percentiles count.
    routing
        A file of moves, for the table `routing` (`pag_graph.analyses.rescaling.routing.read_moves`).

    Returns
    -------
    Rescaling
        Its tables by name, such as ``named("phases")``; its headline says the most important of it, and
        `pag_graph.sinks.rescaling.rescaling_picture` draws it.

    Raises
    ------
    UnsupportedPlanError
        If the run has no operation, or its clocks are not aligned.
    InvalidParameterError
        If only one of `period_ns` and `first_ns` is given, or these and `inputs`; if a number is out of range; or if
        the trace is of another run, of a closed loop, or does not know of an epoch.
    TraceFormatError
        If the trace does not say when input was due.

    Examples
    --------
    >>> pag_graph.api.rescale("run.pag", period_ns=10_000_000, first_ns=0)  # doctest: +SKIP
    """
    from pag_graph.analyses.rescaling.latencies import Period
    from pag_graph.analyses.rescaling.report import Setting
    from pag_graph.analyses.rescaling.report import rescale as ask

    if (period_ns is None) != (first_ns is None):
        message = "Due times need both the period and the time at which the input of epoch 0 was due."
        raise InvalidParameterError(message, "Give both `--period` and `--first`, or neither for service times.")
    if not isinstance(weight, str) or weight not in {"epochs", "records"}:
        message = f"weight is {weight!r}; it must be 'epochs' or 'records'."
        raise InvalidParameterError(message)
    moves = None if routing is None else path_of(routing, "routing")
    pag = store if isinstance(store, Pag) else Pag(path_of(store, "store"))
    schedule: Period | DueTimes | None = None
    if period_ns is not None and first_ns is not None:
        schedule = Period(whole_number(period_ns, "period_ns"), whole_number(first_ns, "first_ns"))
    if inputs is not None:
        if schedule is not None:
            message = "Due times come from a trace or from a period, not from both."
            raise InvalidParameterError(message, "Give `--inputs`, or `--period` and `--first`.")
        schedule = _due_times(pag.run, path_of(inputs, "inputs"))
    return ask(
        pag.run,
        Setting(
            schedule=schedule, cores=None if cores is None else whole_number(cores, "cores"), weight=weight, moves=moves
        ),
    )


def _due_times(run: Run, trace: Path) -> DueTimes:
    """Read when the input of a run's epochs was due."""
    from pag_graph.analyses.rescaling.latencies import DueTimes
    from pag_graph.api.latency import check_trace_of, latency

    check_trace_of(run, trace)
    report = latency(trace)
    if report.loop == "closed":
        message = f"{trace} is of a closed loop: input was due when it was given, so latencies would be service times."
        raise InvalidParameterError(message, "Leave out `--inputs`.", {"trace": str(trace)})
    origin = run.info.run["origin_unix_ns"]
    return DueTimes({number: due_ns - origin for number, due_ns in report.first_due().items()})


def rescale_overhead(
    base: Iterable[str | os.PathLike[str] | Pag], fork: Iterable[str | os.PathLike[str] | Pag]
) -> Overhead:
    """Say what it costs a program to be able to rescale, while nobody joins or leaves.

    Parameters
    ----------
    base, fork
        Runs of the program without and with it, on the same input.

    Returns
    -------
    Overhead
        Its `table` has rows of `RESCALE_OVERHEAD`.

    Raises
    ------
    InvalidParameterError
        If there is no run on a side, or no round that all runs have.
    UnsupportedPlanError
        If the clocks of a run are not aligned.
    """
    from pag_graph.analyses.rescaling.overhead import overhead

    sides = (
        [
            opened_or_path if isinstance(opened_or_path, Pag) else Pag(path_of(opened_or_path, "store"))
            for opened_or_path in listed(side, "runs", "stores")
        ]
        for side in (base, fork)
    )
    opened = [[pag.run for pag in side] for side in sides]
    return overhead(*opened)
