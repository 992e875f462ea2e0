"""Why a window took as long as it did, in plain words: its critical path, who waited for whom, who sent to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.critical_path import CriticalPath, critical_path
from pag_graph.analyses.traffic import traffic
from pag_graph.analyses.waits import waits
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType, EpochRole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pag_graph.pag.snapshot import Run, Snapshot

_MESSAGES = [str(kind) for kind in MESSAGE_TYPES]
_DATA = str(ActivityType.DATA_MESSAGE)
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What there is to say of a window; `str()` gives it as text."""

    path: CriticalPath
    rank: int
    """1 for the longest round."""
    rounds: int
    median_span_ns: int
    path_by_worker: dict[int, int]
    """Local time on the path per worker, most first."""
    path_by_operator: dict[str, int]
    """Local time on the path per operator name and type, most first."""
    waits: list[dict[str, Any]]
    """Rows of `WAITS`."""
    traffic: list[dict[str, Any]]
    """Rows of `TRAFFIC` for data messages."""
    findings: dict[str, int]
    """Findings of the run, counted by kind."""
    channels: dict[int, str]
    """Channels that occur, as ``source operator -> target operator``."""

    def facts(self) -> dict[str, Any]:
        """Return the explanation as plain values, for programs."""
        return {
            **self.path.summary(),
            "rank": self.rank,
            "rounds": self.rounds,
            "median_span_ns": self.median_span_ns,
            "path_by_worker": {str(worker): ns for worker, ns in self.path_by_worker.items()},
            "path_by_operator": self.path_by_operator,
            "waits": self.waits,
            "data_messages": self.traffic,
            "findings": self.findings,
            "channels": {str(channel): name for channel, name in self.channels.items()},
        }

    def __str__(self) -> str:
        """Return the explanation as text of a few lines."""
        return "\n".join([*self._headline(), *self._path(), *self._waiting(), *self._messages(), *self._doubts()])

    def _headline(self) -> list[str]:
        window = self.path.window
        name = window.name.capitalize()
        span = duration(window.span_ns)
        if window.role is EpochRole.ROUND and self.median_span_ns:
            ratio = window.span_ns / self.median_span_ns
            place = {1: "the slowest"}.get(self.rank, f"number {self.rank} by length")
            return [f"{name} took {span}: {place} of {self.rounds} rounds, {ratio:.1f} x their median."]
        return [f"{name} took {span}."]

    def _path(self) -> list[str]:
        span = self.path.window.span_ns or 1
        local = sum(self.path_by_worker.values()) or 1
        lines = [f"Its critical path ({self.path.steps.num_rows} steps, {self.path.coverage:.1%} explained):"]
        lines += [
            f"  {ns / local:4.0%} of the work on it was done by worker {worker} ({duration(ns)})"
            for worker, ns in _most(self.path_by_worker.items())
        ]
        lines.append(
            "  by activity: " + ", ".join(f"{k} {ns / span:.0%}" for k, ns in _most(self.path.by_type.items()))
        )
        operators = [f"{name} {duration(ns)}" for name, ns in _most(self.path_by_operator.items())]
        if operators:
            lines.append("  by operator: " + ", ".join(operators))
        return lines

    def _waiting(self) -> list[str]:
        if not self.waits:
            return ["Nobody waited."]
        workers: dict[int, int] = {}
        for row in self.waits:
            workers[row["worker"]] = workers.get(row["worker"], 0) + row["waiting_ns"]
        who = ", ".join(str(worker) for worker in sorted(workers))
        total = duration(sum(workers.values()))
        lines = [f"Meanwhile worker{'s' if len(workers) > 1 else ''} {who} waited, {total} in all:"]
        for row in self.waits[:_MOST]:
            times = "once" if row["waits"] == 1 else f"{row['waits']} times"
            if row["from_worker"] is None:
                what = "a message that is not known"
            else:
                what = (
                    f"a {row['type'].replace('_', ' ')} of worker {row['from_worker']}{self._channel(row['channel'])}"
                )
            lines.append(f"  worker {row['worker']} waited {duration(row['waiting_ns'])} ({times}) for {what}")
        if len(self.waits) > _MOST:
            rest = duration(sum(row["waiting_ns"] for row in self.waits[_MOST:]))
            lines.append(f"  and {rest} for {len(self.waits) - _MOST} others")
        return lines

    def _channel(self, channel: int | None) -> str:
        if channel is None:
            return ""
        return f" ({self.channels[channel]})" if channel in self.channels else f" (channel {channel})"

    def _messages(self) -> list[str]:
        if not self.traffic:
            return ["No data went from worker to worker."]
        pairs: dict[tuple[int, int], list[int]] = {}
        for row in self.traffic:
            sums = pairs.setdefault((row["from_worker"], row["to_worker"]), [0, 0])
            sums[0] += row["messages"]
            sums[1] += row["records"] or 0
        shown = [
            f"{a} -> {b} ({messages} message{'s' if messages > 1 else ''}, {records:,} records)"
            for (a, b), (messages, records) in _most(sorted(pairs.items(), key=lambda pair: (-pair[1][1], pair[0])), 8)
        ]
        more = f", and {len(pairs) - 8} other pairs" if len(pairs) > 8 else ""  # noqa: PLR2004
        lines = [f"Data went from worker to worker: {', '.join(shown)}{more}."]
        receivers = {to for _, to in pairs}
        if len(receivers) == 1 and len(pairs) > 1:
            lines.append(f"All of it went to worker {receivers.pop()}: the data is skewed.")
        return lines

    def _doubts(self) -> list[str]:
        lines = []
        if self.path.alternatives:
            lines.append(f"{self.path.alternatives} waits on the path may have been ended by another message as well.")
        if self.path.all_waiting:
            lines.append("Where the window ends, every worker waited.")
        if self.findings:
            counted = ", ".join(f"{count} x {name}" for name, count in self.findings.items())
            lines.append(f"Findings of the run: {counted}.")
        return lines


def duration(ns: int) -> str:
    """Return nanoseconds as people read them.

    Examples
    --------
    >>> duration(210_943), duration(999), duration(2_500_000_000)
    ('210.9 us', '999 ns', '2.500 s')
    """
    for limit, unit, digits in ((10**3, "ns", 0), (10**6, "us", 1), (10**9, "ms", 2)):
        if abs(ns) < limit:
            return f"{ns / (limit // 1000):.{digits}f} {unit}"
    return f"{ns / 10**9:.3f} s"


def _most(items: Iterable[Any], count: int = _MOST) -> list[Any]:
    return list(items)[:count]


def explain(snapshot: Snapshot) -> Explanation:
    """Gather what there is to say of a window.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.

    Returns
    -------
    Explanation
        Facts, and text made of them.
    """
    run, window = snapshot.run, snapshot.window
    path = critical_path(snapshot)
    steps = pl.DataFrame(pl.from_arrow(path.steps)).filter(~pl.col("type").is_in(_MESSAGES))
    rounds = run.epochs.filter(pl.col("role") == str(EpochRole.ROUND))
    spans = (rounds["end_ns"] - rounds["start_ns"]).to_numpy()
    by_worker = steps.group_by("worker").agg(pl.col("duration_ns").sum()).sort("duration_ns", "worker", descending=True)
    findings = run.scan("findings").group_by("finding").len().sort("finding").collect()
    sent = [row for row in traffic(snapshot).to_pylist() if row["type"] == _DATA]
    waited = waits(snapshot).to_pylist()
    return Explanation(
        path=path,
        rank=int((spans > window.span_ns).sum()) + 1,
        rounds=len(spans),
        median_span_ns=int(sorted(spans)[len(spans) // 2]) if len(spans) else 0,
        path_by_worker=dict(by_worker.iter_rows()),
        path_by_operator=_by_operator(run, steps),
        waits=waited,
        traffic=sent,
        findings=dict(findings.iter_rows()),
        channels=_channel_names(run, {row["channel"] for row in [*sent, *waited]}),
    )


def _operator_names(run: Run) -> Mapping[int, str]:
    return {
        row["operator"]: f"{row['name']} ({row['address']})" if row["name"] else f"operator {row['operator']}"
        for row in run.operators.iter_rows(named=True)
    }


def _by_operator(run: Run, steps: pl.DataFrame) -> dict[str, int]:
    names = _operator_names(run)
    summed = (
        steps.filter(pl.col("operator").is_not_null())
        .group_by("operator", "type")
        .agg(pl.col("duration_ns").sum())
        .sort("duration_ns", "operator", "type", descending=[True, False, False])
    )
    return {
        f"{names.get(row['operator'], row['operator'])} {row['type']}": row["duration_ns"]
        for row in summed.iter_rows(named=True)
    }


def _channel_names(run: Run, used: set[int | None]) -> dict[int, str]:
    operators = _operator_names(run)
    return {
        row["channel"]: f"{operators[row['source_operator']]} -> {operators[row['target_operator']]}"
        for row in run.channels.iter_rows(named=True)
        if row["channel"] in used and {row["source_operator"], row["target_operator"]} <= set(operators)
    }
