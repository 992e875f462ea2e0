"""Causes of lost time in training steps, and what the steps would take without them.

Definitions stand in `docs/torch.md`, "The answers".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pag_graph.analyses.what_if import WhatIfParameters, what_if
from pag_graph.diagnosis.torch.look import COPIES, KERNELS, LOADING, ON_CPU, TRANSFER
from pag_graph.model.enums import ActivityType
from pag_graph.sources.kineto import operators as classes
from pag_graph.sources.kineto.spans import LAUNCH
from pag_graph.sources.kineto.threads import LAUNCHES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.torch.look import Look, RankSkew

__all__ = ["Cause", "Limits", "Prediction", "causes_of", "predictions"]

ADVICE: Final = {
    "data_loading": "More loader workers (num_workers), prefetch_factor, pin_memory, or cheaper transforms.",
    "late_rank": "Give ranks equal work (batch sizes, sequence lengths), and look at what only this rank does.",
    "collectives": "Fewer or larger buckets, overlap with the backward pass, a faster link, or less precision.",
    "kernel": "A fused or tuned kernel, other shapes or precision, torch.compile.",
    "launch_bound": "CUDA graphs, torch.compile, larger batches or fused optimisers: fewer launches.",
    "sync_stalls": "No .item(), .cpu(), nonzero() or printing of tensors between kernels; non_blocking copies.",
    "copies": "Pinned memory and non_blocking copies on a stream of their own; keep tensors on the device.",
}
"""What usually helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on something is a cause, as shares of the window."""

    data_loading: float = 0.1
    late_rank: float = 0.1
    collectives: float = 0.25
    kernel: float = 0.3
    kernel_ratio: float = 1.5
    """A kernel stands out if the path spends so many times as long in it as in any other."""
    launch_bound: float = 0.3
    """Least rest of the least affected rank's stream until launches came, and of the path on threads."""
    sync_stalls: float = 0.1
    syncs_per_step: int = 2
    """To read the loss once a step is no cause."""
    copies: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason for lost time."""

    cause: str
    lost_ns: int
    """Time of the window in which it shows."""
    share: float
    """The same as a share of the window."""
    text: str
    signal: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "cause": self.cause,
            "lost_ns": self.lost_ns,
            "share": self.share,
            "text": self.text,
            "advice": ADVICE[self.cause],
            "signal": self.signal,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a change would save."""

    change: str
    saved_ns: int
    share: float

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"change": self.change, "saved_ns": self.saved_ns, "share": self.share}


def causes_of(look: Look, limits: Limits | None = None) -> list[Cause]:
    """Name the causes of lost time in a window, greatest first.

    Parameters
    ----------
    look
        The window.
    limits
        From where on something is a cause.

    Returns
    -------
    list of Cause
        None where nothing stands out.
    """
    bounds = limits or Limits()
    span = max(look.span_ns, 1)
    causes: list[Cause] = []

    def name(cause: str, lost: int, limit: float, text: str, **signal: Any) -> None:
        if lost / span >= limit:
            causes.append(Cause(cause=cause, lost_ns=lost, share=lost / span, text=text, signal=signal))

    loading = look.path_ns(LOADING)
    name("data_loading", loading, bounds.data_loading, f"{loading / span:.0%} of the path waits for the next batch")
    if late := _late(look.skews):
        worst, lost = late
        text = f"rank {worst.rank} comes last to {worst.last} of {worst.collectives} collectives; others wait for it"
        name("late_rank", lost, bounds.late_rank, text, rank=worst.rank, blamed_ns=worst.blamed_ns)
    transfer = look.path_ns(TRANSFER)
    text = f"{transfer / span:.0%} of the path is transfer of collectives, when all ranks are there"
    name("collectives", transfer, bounds.collectives, text)
    kernels = look.shares("name", KERNELS)
    if kernels and (len(kernels) == 1 or kernels[0]["path_ns"] >= bounds.kernel_ratio * kernels[1]["path_ns"]):
        longest = kernels[0]
        text = f"{longest['share']:.0%} of the path is the kernel {longest['key'][:120]}"
        name("kernel", longest["path_ns"], bounds.kernel, text, kernel=longest["key"])
    _name_stalls(look, bounds, name)
    copies = look.path_ns(COPIES)
    name("copies", copies, bounds.copies, f"{copies / span:.0%} of the path copies between host and device")
    return sorted(causes, key=lambda cause: -cause.lost_ns)


def _name_stalls(look: Look, bounds: Limits, name: Any) -> None:
    if not look.stalls:
        return
    least = min(look.stalls, key=lambda stalls: stalls.launch_ns)
    threads = look.path_ns(*ON_CPU)
    if min(least.launch_ns, threads) / max(look.span_ns, 1) >= bounds.launch_bound:
        text = f"streams rest {least.launch_ns / look.span_ns:.0%} of the time until a launch comes"
        name("launch_bound", least.launch_ns, bounds.launch_bound, text, cpu_path_ns=threads)
    worst = max(look.stalls, key=lambda stalls: stalls.sync_ns)
    if worst.syncs > bounds.syncs_per_step * max(_steps_in(look), 1):
        text = f"{worst.syncs:,} times rank {worst.rank} waited for its device, which then rested until it went on"
        name("sync_stalls", worst.sync_ns, bounds.sync_stalls, text, rank=worst.rank, stalls=worst.syncs)


def _late(skews: Sequence[RankSkew]) -> tuple[RankSkew, int] | None:
    """Return the rank that others wait for most, and how much more than for the next one, loading aside."""
    if len(skews) < 2:  # noqa: PLR2004 nobody to be compared with
        return None
    late = sorted(((skew.blamed_aside_ns, skew.rank, skew) for skew in skews), reverse=True)
    return late[0][2], late[0][0] - late[1][0]


def _steps_in(look: Look) -> int:
    ends = look.run.epochs.filter(
        (look.run.epochs["end_ns"] > look.window.start_ns) & (look.run.epochs["end_ns"] <= look.window.end_ns)
    )
    return ends.height


def predictions(look: Look) -> list[Prediction]:
    """Replay a window with what usually helps, greatest saving first.

    Parameters
    ----------
    look
        The window.

    Returns
    -------
    list of Prediction
        Those that save something.
    """
    changes = [*_kernel_changes(look), _free_launches(look), _loading(look), _balanced(look), _transfers(look)]
    snapshot = look.run.snapshot(look.window)
    predicted = []
    for text, parameters in changes:
        if parameters:
            saved = what_if(snapshot, parameters).saved_ns
            predicted.append(Prediction(change=text, saved_ns=saved, share=saved / max(look.span_ns, 1)))
    return sorted(
        (prediction for prediction in predicted if prediction.saved_ns > 0), key=lambda prediction: -prediction.saved_ns
    )


Change = tuple[str, list[WhatIfParameters]]


def _operators(look: Look, *kinds: int, launches: bool = False) -> tuple[int, ...]:
    return tuple(
        operator["operator"]
        for operator in look.mapped.operators.rows()
        if classes.class_of(operator["address"]) in kinds and (not launches or LAUNCHES.match(operator["name"]))
    )


def _kernel_changes(look: Look) -> list[Change]:
    kernels = look.shares("operator", KERNELS)[:2]
    names = classes.names_of(look.mapped.operators.rows())
    return [
        (f"{names[kernel['key']][1][:80]} twice as fast", [WhatIfParameters(operator=(kernel["key"],), factor=0.5)])
        for kernel in kernels
    ]


def _free_launches(look: Look) -> Change:
    calls = _operators(look, classes.CALL, launches=True)
    free = [WhatIfParameters(channel=(LAUNCH,), factor=0.0)]
    free += [WhatIfParameters(operator=calls, factor=0.0)] if calls else []
    has_streams = any(rank.streams for rank in look.mapped.ranks)
    return "launches for nothing (as with CUDA graphs)", free if has_streams else []


def _loading(look: Look) -> Change:
    loaders = _operators(look, classes.LOADING)
    return "batches there when they are asked for", [WhatIfParameters(operator=loaders, factor=0.0)] if loaders else []


def _transfers(look: Look) -> Change:
    collectives = _operators(look, classes.COLLECTIVE)
    faster = [WhatIfParameters(operator=collectives, type=(ActivityType.IO,), factor=0.5)] if collectives else []
    return "collectives twice as fast", faster


def _balanced(look: Look) -> Change:
    """Return what gives all ranks the mean of their own work."""
    text = "ranks with equal work"
    if len(look.mapped.ranks) < 2:  # noqa: PLR2004 nobody to be compared with
        return text, []
    work_of, workers = {}, {}
    work = _work_of_workers(look)
    for rank in look.mapped.ranks:
        computing = [
            stream.worker
            for stream in rank.streams.values()
            if any(not rank.log.names[activity.name].startswith("nccl") for activity in stream.activities)
        ]
        main = rank.thread_workers.get(rank.main)
        workers[rank.number] = (*computing, *([] if main is None else [main]))
        work_of[rank.number] = sum(work.get(worker, 0) for worker in workers[rank.number])
    mean = sum(work_of.values()) / len(work_of)
    return text, [
        WhatIfParameters(worker=workers[rank], factor=mean / work_of[rank])
        for rank in work_of
        if work_of[rank] and workers[rank]
    ]


def _work_of_workers(look: Look) -> dict[int, int]:
    import polars as pl

    from pag_graph.analyses.what_if import WORK
    from pag_graph.model.ids import POSITION_BITS

    low, high = look.window.start_ns, look.window.end_ns
    inside = pl.min_horizontal(pl.col("start_ns") + pl.col("duration_ns"), high) - pl.max_horizontal("start_ns", low)
    rows = (
        look.run.scan("edges")
        .filter(pl.col("type").cast(pl.String).is_in([str(kind) for kind in WORK]), inside > 0)
        .group_by(worker=pl.col("dst") // (1 << POSITION_BITS))
        .agg(inside.sum().alias("ns"))
        .collect()
    )
    return dict(rows.iter_rows())
