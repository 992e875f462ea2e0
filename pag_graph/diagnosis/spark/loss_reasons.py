"""Why executors went, as far as Spark and its cluster manager say, and what helps against it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.diagnosis.spark.changes import Change, bytes_of, of_setting, size_of
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.sources.spark.log_tables import SparkLog

__all__ = ["OTHER_LOSS", "Loss", "loss_of", "most_common_loss", "proposed_for"]

_MEMORY, _OVERHEAD, _FACTOR = (
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
)
_LEAST_OVERHEAD = 384 << 20
"""What Spark asks of the cluster beside the heap, at least (its documentation, `spark.executor.memoryOverhead`)."""
_USUAL_FACTOR = 0.1
_SHARE = re.compile(r"\d{0,2}(?:\.\d{1,9})?", re.ASCII)


class Loss(NamedTuple):
    """A kind of reason for which executors go."""

    name: str
    """For programs."""
    pattern: str
    """What is said of it."""
    advice: str
    """What helps; empty where nothing is known but what helps against every loss."""
    trap: str = ""
    """What looks like it and is something else."""


OTHER_LOSS = Loss("other", "", "")
_LOSSES = (
    Loss(
        "memory_limit",
        r"exceed\w* (?:physical |virtual )?memory limits|oom[ -]?kill",
        "The cluster ended it because it used more memory than it had asked for: give more beside the heap"
        f" ({_OVERHEAD}), where Python workers, buffers and native code live, or let fewer tasks run at once.",
    ),
    Loss(
        "heap_full",
        r"(?:code|status):?(?: is)? 52\b|out ?of ?memory",
        f"Its heap was full: give it more ({_MEMORY}), let fewer tasks run at once, or make partitions smaller.",
    ),
    Loss(
        "killed",
        r"(?:code|status):?(?: is)? (?:137|-9)\b",
        "It was killed from outside (signal 9), most often because the machine or the container had no memory left:"
        f" give more beside the heap ({_OVERHEAD}), or put fewer executors on a machine.",
        "Signal 9 can be anybody's: the machine's log, or the cluster's, says whether it was for want of memory.",
    ),
    Loss(
        "silent",
        r"heartbeat timed out",
        "It did not answer in time: look at its garbage collection then, and at its machine and network, before"
        " spark.network.timeout is made longer.",
    ),
    Loss(
        "taken_back",
        r"preempted|evicted",
        "The cluster took its machine back: let executors hand over what they hold (spark.decommission.enabled and"
        " spark.storage.decommission.shuffleBlocks.enabled), or use machines that stay.",
    ),
)
"""The more certain first."""


def loss_of(reason: str | None) -> Loss:
    """Return the kind of a loss, by what the log says of it.

    Examples
    --------
    >>> [loss_of(f"Command exited with code {code}").name for code in (137, 52, 1, 1370)]
    ['killed', 'heap_full', 'other', 'other']
    """
    return next((loss for loss in _LOSSES if re.search(loss.pattern, reason or "", re.IGNORECASE)), OTHER_LOSS)


def most_common_loss(reasons: Sequence[str | None]) -> Loss:
    """Return the kind of which most executors went; of several the one that is more certain."""
    losses = [loss_of(reason) for reason in reasons]
    return max((*_LOSSES, OTHER_LOSS), key=losses.count)


def proposed_for(log: SparkLog, name: str) -> tuple[Change, ...]:
    """Return which settings to change against losses of a kind: twice what there was.

    Parameters
    ----------
    log
        As read.
    name
        Of a `Loss`.

    Returns
    -------
    tuple of Change
        Empty where the log does not say how much memory executors had, or the cluster has no such setting.
    """
    heap = size_of(log, _MEMORY)
    if heap is None:
        return ()
    if name == "heap_full":
        return (of_setting(log, _MEMORY, f"{heap * 2 >> 20}m"),)
    # Only YARN and Kubernetes give executors memory beside their heap.
    if name not in {"memory_limit", "killed"} or not (setting(log, "spark.master").value or "").startswith(
        ("yarn", "k8s:")
    ):
        return ()
    recorded, source = setting(log, _OVERHEAD)
    stated = bytes_of(_OVERHEAD, recorded)
    overhead = max(_LEAST_OVERHEAD, int(_factor(log) * heap)) if stated is None else stated
    overhead_now = f"{overhead >> 20}m"
    return (Change(_OVERHEAD, overhead_now, "default" if stated is None else source, f"{overhead * 2 >> 20}m"),)


def _factor(log: SparkLog) -> float:
    factor = setting(log, _FACTOR).value or ""
    return float(factor) if factor and _SHARE.fullmatch(factor) and factor != "." else _USUAL_FACTOR
