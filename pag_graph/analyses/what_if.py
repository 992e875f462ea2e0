"""What if something took longer, shorter, or no time at all: replay of a window with other durations.

Definition: `docs/model.md`, section "Replay and slack"; asked for in CPA (Sager 2016) 2.3 and 8.2.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl

from pag_graph.analyses.constraints import ArrivalParameter, ConstraintGraph, LoopParameter, constraint_graph
from pag_graph.analyses.definition import Chart, ReportAnalysis
from pag_graph.analyses.expressions import worker_of
from pag_graph.analyses.operator_choice import operators_called, some_of
from pag_graph.analyses.parameters import make_parameters, parameters_of
from pag_graph.analyses.reports import Report
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.kernels.replay import NEVER
from pag_graph.model.enums import LOCAL_TYPES, MESSAGE_TYPES, ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import CRITICAL_PATH, WHAT_IF, WHAT_IF_TIMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

WORK = tuple(
    kind
    for kind in LOCAL_TYPES
    if kind
    not in {
        ActivityType.WAITING,
        ActivityType.INPUT_WAIT,
        ActivityType.IDLE,
        ActivityType.WAKE_UP,
        ActivityType.UNKNOWN,
    }
)
"""What a worker does itself: not the time in which it waits, sleeps or is woken, nor what nobody knows."""

_LONGEST = float(1 << 60)
_EXAMPLE = "pag what-if run.pag --operator 12 --factor 0.5"
_SHORT = {"from": "from_worker", "to": "to_worker", "duration": "duration_ns", "record": "record_ns"}
"""Short spellings of fields in a change that is a text."""
_NUMBERS = ("factor", "duration_ns", "record_ns")
_OF_CHANGE = ("operator", "worker", "from_worker", "to_worker", "channel", "type", *_NUMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfParameters:
    """Parameters of `what_if`: one change, to all activities that every selection given includes; and others."""

    operator: Annotated[
        tuple[int | str, ...],
        "Change the own time of these operators: numbers, addresses, or names (all operators of that name).",
    ] = ()
    worker: Annotated[tuple[int, ...], "Change the work of these workers."] = ()
    from_worker: Annotated[tuple[int, ...], "Change messages that these workers send."] = ()
    to_worker: Annotated[tuple[int, ...], "Change messages to these workers."] = ()
    channel: Annotated[tuple[int, ...], "Change messages on these channels."] = ()
    type: Annotated[tuple[ActivityType, ...], "Change activities of these types; waiting is possible too."] = ()
    factor: Annotated[float | None, "Multiply durations by this; 0.5 is twice as fast."] = None
    duration_ns: Annotated[int | None, "Let each activation, message or wait take this long instead."] = None
    record_ns: Annotated[
        float | None, "Let each activation take this much longer for every record that it reads; negative: shorter."
    ] = None
    change: Annotated[
        tuple[str, ...], "Another change, as FIELD=VALUE words: 'operator=Map factor=0.5', 'from=1 to=0 factor=0'."
    ] = ()
    loop: LoopParameter = "closed"
    arrival: ArrivalParameter = "shortest"

    def check(self) -> None:
        """Refuse parameters that contradict each other.

        Raises
        ------
        InvalidParameterError
            With what is wrong.
        """
        ends = bool(self.from_worker or self.to_worker or self.channel)
        of_activities = bool(self.operator or self.worker)
        types = {kind in MESSAGE_TYPES for kind in self.type}
        message = ""
        values = sum(value is not None for value in (self.factor, self.duration_ns, self.record_ns))
        if values != int(ends or of_activities or bool(types)):
            message = (
                "Say what to change (operators, workers, messages or types),"
                " and give a factor, a duration, or a time for each record."
            )
        elif self.factor is not None and not 0 <= self.factor < _LONGEST:
            message = f"The factor is {self.factor}, and {_limit(self.factor)}."
        elif self.duration_ns is not None and not 0 <= self.duration_ns < _LONGEST:
            message = f"The duration is {self.duration_ns} ns, and {_limit(self.duration_ns)}."
        elif self.record_ns is not None and not -_LONGEST < self.record_ns < _LONGEST:
            message = f"The time for each record is {self.record_ns} ns; that is too long."
        elif self.record_ns is not None and (ends or True in types or ActivityType.WAITING in self.type):
            message = "Only activations read records: choose operators, workers or types of local activities."
        elif of_activities and (ends or True in types):
            message = "Messages have a sender and a receiver, and neither operator nor worker: change them separately."
        elif ends and False in types:
            message = f"Only messages have a sender and a receiver: {', '.join(MESSAGE_TYPES)}."
        if message:
            raise InvalidParameterError(message, _EXAMPLE)


def _limit(value: float) -> str:
    return f"must be less than {_LONGEST:.3g}" if value >= _LONGEST else "must not be negative"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf(Report):
    """A window as it would have been."""

    window: Window
    """The window as it was."""
    table: pa.Table
    """Rows of `WHAT_IF`: the critical path as it was and as it would be."""
    steps: pa.Table
    """Rows of `CRITICAL_PATH`: the new critical path, in its own times. A step of type `waiting` is a wait that was
    changed, or, with no duration, one that what it waited for no longer explains."""
    times: pa.Table
    """Rows of `WHAT_IF_TIMES`."""
    changed: int
    """Activities and messages that were selected."""
    changed_ns: int
    """What they took."""

    @property
    def span_ns(self) -> int:
        """Length of the window as it would be."""
        return int(np.sum(self.steps["duration_ns"].to_numpy()))

    @property
    def saved_ns(self) -> int:
        """By how much it would be shorter; negative where it would be longer."""
        return self.window.span_ns - self.span_ns

    @property
    def speedup(self) -> float | None:
        """How many times as fast it would be; None where no time would be left."""
        return self.window.span_ns / self.span_ns if self.span_ns else None

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        times = "no time at all" if self.speedup is None else f"{self.speedup:.2f} x as fast"
        return (
            f"{self.window.name.capitalize()}: {self.window.span_ns:,} ns would be {self.span_ns:,} ns ({times});"
            f" {self.changed:,} activities of {self.changed_ns:,} ns changed"
        )

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {
            "span_ns": self.window.span_ns,
            "new_span_ns": self.span_ns,
            "saved_ns": self.saved_ns,
            "speedup": self.speedup,
            "changed": self.changed,
            "changed_ns": self.changed_ns,
        }


def what_if(snapshot: Snapshot, parameters: WhatIfParameters | Sequence[WhatIfParameters] | None = None) -> WhatIf:
    """Predict how long the window would be if something took more or less time.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        A change, or several: each works on the durations that the one before left. Where there are no parameters, the
        recording itself is replayed.

    Returns
    -------
    WhatIf
        With a factor of 1 exactly the recording.

    Raises
    ------
    InvalidParameterError
        If nothing is to be changed, a change is not defined or names what the run does not have, or durations become
        too long to be added.
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the recording contradicts itself; names the vertex.
    CycleError
        If events at one instant wait for each other; names the vertex.

    Notes
    -----
    The window is replayed with the changes. Everything that is not changed takes as long as it did, and comes in the
    same order: reads are not reordered, batches do not change, and workers do not compete for cores. O(edges log
    edges) for sorting, O(vertices + edges) for the replay.
    """
    change_list = [parameters] if isinstance(parameters, WhatIfParameters) else list(parameters or [])
    changes = [part for change_ in change_list for part in (change_, *map(partial(_read, change_), change_.change))]
    if changes and not any(_has_change(change) for change in changes):
        message = "Nothing is to be changed: say what (operators, workers, messages or types), and by how much."
        raise InvalidParameterError(message, _EXAMPLE)
    for change in changes:
        change.check()
    changes = [_resolved(snapshot.run, change) for change in changes]
    if len({(change.loop, change.arrival) for change in changes}) > 1:
        message = "All changes must have the same loop and arrival."
        raise InvalidParameterError(message)
    snapshot.run.require_aligned("What-if replays need aligned clocks")
    window = snapshot.window
    if window.span_ns <= 0:
        return WhatIf(
            window=window,
            table=WHAT_IF.empty_table(),
            steps=CRITICAL_PATH.empty_table(),
            times=WHAT_IF_TIMES.empty_table(),
            changed=0,
            changed_ns=0,
        )
    first = changes[0] if changes else WhatIfParameters()
    graph = constraint_graph(snapshot, loop=first.loop, arrival=first.arrival)
    duration = graph.duration
    selected = np.zeros(len(duration), np.bool_)
    for change in changes:
        rows = _selected(graph, change)
        duration = _changed(graph, duration, rows, change)
        selected |= rows
    if float(np.sum(duration.astype(np.float64))) > _LONGEST:
        message = f"The new durations add up to {np.sum(duration.astype(np.float64)):.3g} ns; that is too long."
        raise InvalidParameterError(message, "Choose a smaller factor or duration.")
    weight = _weights(graph, duration)
    time = graph.replay(weight)
    steps = _steps(graph, weight, time)
    real = graph.ids >= 0
    order = np.argsort(graph.ids[real], kind="stable")
    columns = (graph.ids, graph.t, time)
    return WhatIf(
        window=window,
        table=_profile(_steps(graph, graph.weight, graph.t), steps),
        steps=steps.select(CRITICAL_PATH.names).to_arrow().cast(CRITICAL_PATH),
        times=pl.DataFrame(
            {name: column[real][order] for name, column in zip(WHAT_IF_TIMES.names, columns, strict=True)}
        )
        .to_arrow()
        .cast(WHAT_IF_TIMES),
        changed=int(np.sum(selected)),
        changed_ns=int(np.sum(graph.duration[selected])),
    )


def _has_change(change: WhatIfParameters) -> bool:
    """Say whether parameters choose anything to change, or give a number to change it by."""
    return any(getattr(change, name) not in {(), None} for name in _OF_CHANGE)


def _read(base: WhatIfParameters, text: str) -> WhatIfParameters:
    """Return the change that a text says, with the loop and arrival of the parameters that it stands in."""
    hint = "pag what-if run.pag --change 'operator=Map factor=0.5' --change 'from=1 to=0 factor=0'"
    values: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        message = f"The change {text!r} cannot be read: {error}."
        raise InvalidParameterError(message, hint) from None
    for word in words:
        name, equals, value = word.partition("=")
        field = _SHORT.get(name, name.replace("-", "_"))
        if not equals or field not in _OF_CHANGE:
            names = ", ".join(
                [*_SHORT, *(change_name for change_name in _OF_CHANGE if change_name not in _SHORT.values())]
            )
            message = f"The change {text!r} has {word!r}, and must be made of FIELD=VALUE with {names}."
            raise InvalidParameterError(message, hint)
        if field in _NUMBERS and field in values:
            message = f"The change {text!r} gives {name} twice."
            raise InvalidParameterError(message, hint)
        values[field] = value if field in _NUMBERS else [*values.get(field, []), value]
    if not values:
        message = "A change is empty."
        raise InvalidParameterError(message, hint)
    return replace(
        WhatIfParameters(**make_parameters("what-if", parameters_of(WhatIfParameters), values)),
        loop=base.loop,
        arrival=base.arrival,
    )


def _resolved(run: Run, change: WhatIfParameters) -> WhatIfParameters:
    """Return a change with numbers of operators only; refuse what the run does not have."""
    workers = run.workers
    for name in ("worker", "from_worker", "to_worker"):
        for worker in getattr(change, name):
            if worker not in workers:
                message = f"There is no worker {worker}; there are {', '.join(map(str, workers))}."
                raise InvalidParameterError(message, None, {"worker": worker})
    if change.channel:
        channels = run.channels["channel"].to_list()
        for channel in change.channel:
            if channel not in channels:
                message = f"There is no channel {channel}; there are {some_of(sorted(set(channels)))}."
                raise InvalidParameterError(message, None, {"channel": channel})
    if not change.operator:
        return change
    return replace(change, operator=tuple(operators_called(run, change.operator)))


def _selected(graph: ConstraintGraph, change: WhatIfParameters) -> Bools:
    """Return per row whether the change applies to it."""
    base = graph.base
    chosen: Bools = graph.movable | (base.is_type(ActivityType.WAITING) & ~base.to_after)
    if change.type:
        chosen &= base.is_type(*change.type)
    elif change.worker and not change.operator:
        chosen &= base.is_type(*WORK)
    source = base.number("src") >> POSITION_BITS
    if change.operator or change.worker:
        chosen &= (
            base.is_local & _is_chosen(base.number("operator"), change.operator) & _is_chosen(source, change.worker)
        )
    elif change.from_worker or change.to_worker or change.channel:
        target = base.number("dst") >> POSITION_BITS
        chosen &= ~base.is_local & _is_chosen(source, change.from_worker) & _is_chosen(target, change.to_worker)
        chosen &= _is_chosen(base.number("channel"), change.channel)
    elif not change.type:
        chosen[:] = False
    return chosen


def _is_chosen(column: I64, numbers: tuple[int | str, ...]) -> Bools:
    return np.isin(column, [int(number) for number in numbers]) if numbers else np.ones(len(column), np.bool_)


def _changed(graph: ConstraintGraph, duration: I64, rows: Bools, change: WhatIfParameters) -> I64:
    """Return new durations of all rows."""
    if change.factor is not None:
        return np.where(rows, np.rint(np.minimum(duration * change.factor, _LONGEST)).astype(np.int64), duration)
    if change.duration_ns is None and change.record_ns is None:
        return duration
    # Messages and waits are one edge each. The edges of an activation take the new time together, in proportion.
    base = graph.base
    activation = base.number("activation")
    split = np.flatnonzero(rows & (activation >= 0))
    split = split[np.argsort(activation[split], kind="stable")]
    _, begins, group, counts = np.unique(activation[split], return_index=True, return_inverse=True, return_counts=True)
    time_until = np.cumsum(duration[split])
    before = time_until[begins] - duration[split][begins]
    activation_ns = time_until[begins + counts - 1] - before
    if change.duration_ns is not None:
        result = np.where(rows, change.duration_ns, duration)
        goal = np.full(len(begins), change.duration_ns, np.int64)
    else:
        # Records count where they are read; of an edge that the window cuts, as many as its part inside is of it.
        took = np.maximum(base.number("end_ns") - base.number("start_ns"), 1)
        added_ns = np.maximum(base.number("records"), 0) * (base.inside / took) * change.record_ns
        result = np.where(rows, _lengthened(duration, added_ns), duration)
        goal = _lengthened(activation_ns, np.bincount(group, added_ns[split], len(begins)).astype(np.float64))
    share = np.ones(len(split))
    np.divide(time_until - before[group], activation_ns[group], out=share, where=activation_ns[group] > 0)
    up_to = np.rint(share * goal[group]).astype(np.int64)
    result[split] = np.diff(up_to, prepend=0)
    result[split[begins]] = up_to[begins]
    return result


def _lengthened(duration: I64, added_ns: NDArray[np.float64]) -> I64:
    return np.rint(np.clip(duration + added_ns, 0, _LONGEST)).astype(np.int64)


def _weights(graph: ConstraintGraph, duration: I64) -> I64:
    """Return the arcs' weights; a wait that was changed lasts as long as told, whatever it waited for."""
    weight = graph.weights(duration)
    is_changed_wait = graph.base.is_type(ActivityType.WAITING) & (duration != graph.duration)
    arc = np.flatnonzero(is_changed_wait[graph.edge] & (graph.edge >= 0))
    if len(arc):
        ended = np.zeros(len(graph.ids), np.bool_)
        ended[graph.dst[arc]] = True
        weight[ended[graph.dst]] = NEVER
        weight[arc] = duration[graph.edge[arc]]
    return weight


def _steps(graph: ConstraintGraph, weight: I64, time: I64) -> pl.DataFrame:
    """Return the critical path of a replay, with the columns of `CRITICAL_PATH`."""
    arc = graph.path(weight, time)
    arc = arc[graph.edge[arc] >= 0]
    src, dst = graph.src[arc], graph.dst[arc]
    return (
        graph.base.rows[graph.edge[arc]]
        .with_row_index("step")
        .with_columns(
            pl.col("type").cast(pl.String),
            edge_src="src",
            edge_dst="dst",
            src=pl.Series(graph.ids[src]),
            dst=pl.Series(graph.ids[dst]),
            worker=worker_of("src"),
            to_worker=worker_of("dst"),
            start_ns=pl.Series(time[src]),
            duration_ns=pl.Series(time[dst] - time[src]),
        )
        .select(CRITICAL_PATH.names)
    )


def _profile(recorded: pl.DataFrame, assumed: pl.DataFrame) -> pa.Table:
    """Sum two paths by type, worker and operator."""
    keys = ["type", "worker", "operator"]
    parts = [
        steps.select(*keys, pl.col("duration_ns").alias(name))
        for name, steps in (("recorded_ns", recorded), ("new_ns", assumed))
    ]
    summed = (
        pl.concat(parts, how="diagonal")
        .group_by(keys)
        .agg(pl.col("recorded_ns").sum(), pl.col("new_ns").sum())
        .with_columns(change_ns=pl.col("new_ns") - pl.col("recorded_ns"))
        .sort("new_ns", "recorded_ns", *keys, descending=[True, True, False, False, False])
    )
    return summed.select(WHAT_IF.names).to_arrow().cast(WHAT_IF)


ANALYSIS = ReportAnalysis(
    name="what-if",
    function=what_if,
    parameters=WhatIfParameters,
    schema=WHAT_IF,
    output="WHAT_IF",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5 --operator FlatMap --factor 0.5",
    example_values=(("worker", [0]), ("factor", 0.5)),
    chart=Chart(kind="bars", x=("type", "worker", "operator"), y=("recorded_ns", "new_ns")),
)
