"""What may be tried: ports, sets of them, and more workers, with what each promises.

Definitions: `docs/model.md`, section "Advice".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pag_graph.analyses.advising.handed_over import rows_of
from pag_graph.analyses.advising.port_search import Threads, search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.analyses.advising.port_replay import Bound, Replay, Transfer
    from pag_graph.analyses.advising.port_search import Group
    from pag_graph.analyses.advising.ports import Ports

_HARDLY = 0.05
"""Where a replay saves a smaller part than this of what could be saved, nothing is done at the same time."""

_LEAST_GAIN = 0.02
"""Where less is saved at least, a port does as much harm as good (`docs/advice.md`, What the defaults cost)."""

Verdict = Literal["insert", "no_gain", "cannot_tell"]


@dataclass(frozen=True, kw_only=True)
class Option:
    """Something to try: one port, several that belong together, or more workers."""

    kind: Literal["port", "widen"]
    operators: Mapping[int, int | None]
    """Operators that get a port, and the group of threads that each helps; None for a port by itself."""
    threads: Mapping[int, int]
    """Per operator: threads from which it takes work."""
    new_threads: int
    utility: float
    before: float
    moved_ns: int = 0
    bound: Bound | None = None
    """What the replay says; None where there was none."""

    def gains(self, span_ns: int) -> tuple[float, float] | None:
        """Return the shares of a window that are saved at least and at most."""
        if self.bound is None:
            return None
        return 1 - self.bound.high_ns / span_ns, 1 - self.bound.low_ns / span_ns

    def judged(self, span_ns: int, doubt: str | None) -> tuple[Verdict, str | None]:
        """Return a verdict, and what speaks against it or is not known.

        Parameters
        ----------
        span_ns
            Length of the window.
        doubt
            Why nothing can be told of any port.
        """
        if self.utility >= self.before:
            return "no_gain", "utility"
        if doubt is not None:
            return "cannot_tell", doubt
        if self.bound is None:
            return "cannot_tell", "not_replayed"
        bound = self.bound
        if bound.high_ns <= (1 - _LEAST_GAIN) * span_ns:
            return "insert", None
        if bound.high_ns < span_ns:
            return "cannot_tell", "slight"
        if bound.low_ns >= span_ns:
            return "no_gain", "cores" if bound.by_cores else "off_path"
        if bound.by_cores:
            return "cannot_tell", "cores"
        if self.kind == "widen":
            return "cannot_tell", "skew"
        overlaps = span_ns - bound.instant_ns > _HARDLY * (span_ns - bound.low_ns)
        return "cannot_tell", "transfer" if overlaps else "one_batch"

    def rows(self, rank: int, span_ns: int, doubt: str | None) -> list[dict[str, Any]]:
        """Return rows of `ADVICE`, but for the operators' names.

        Parameters
        ----------
        rank
            Place of the option among all, from 1.
        span_ns
            Length of the window, at least 1.
        doubt
            Why nothing can be told of any port; None where nothing speaks against it.

        Returns
        -------
        list of dict
            One row per operator that gets a port, which share all but `operator`, `group` and `threads`; a single one
            of more workers.
        """
        verdict, reason = self.judged(span_ns, doubt)
        gains = self.gains(span_ns) or (None, None)
        common = {
            "rank": rank,
            "kind": self.kind,
            "new_threads": self.new_threads,
            "utility": self.utility,
            "utility_before": self.before,
            "moved_ns": self.moved_ns if self.bound is None else self.bound.moved_ns,
            "predicted_ns": None if self.bound is None else self.bound.predicted_ns,
            "low_ns": None if self.bound is None else self.bound.low_ns,
            "high_ns": None if self.bound is None else self.bound.high_ns,
            "gain_low": gains[0],
            "gain_high": gains[1],
            "verdict": verdict,
            "reason": reason,
        }
        operator_ports = self.operators.items() if self.kind == "port" else [(None, None)]
        return [
            {**common, "operator": operator, "group": group, "threads": self.threads.get(operator or 0, 0)}
            for operator, group in operator_ports
        ]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What may be tried in a window."""

    rows: tuple[int, ...]
    """Threads that are bottlenecks."""
    options: Sequence[Option]
    nodes: int
    """Matrices that the search made."""
    pruned: int
    limited: bool
    """Whether the search ended before it was complete."""
    before: Mapping[int, float]
    """Per thread: its utilisation."""
    after: Mapping[int, float]
    """Per thread, the new ones included: what it would have to do with what is proposed, at today's pace."""
    ports: Ports | None = None

    def replayed(self, replay: Replay, transfer: Transfer | None) -> Plan:
        """Return the same plan with what replays say of each option; itself where there are no ports.

        Parameters
        ----------
        replay
            The window.
        transfer
            What a hand-over takes; from nothing to the slowest message of like size where absent.

        Returns
        -------
        Plan
            O(options x edges).
        """
        if self.ports is None:
            return self
        options, rows = [], rows_of(self.ports, replay.graph.base)
        for option in self.options:
            if option.kind == "widen":
                bound = replay.with_workers(option.new_threads)
            else:
                bound = replay.with_ports(rows.moved(option), transfer)
            options.append(replace(option, bound=bound))
        return replace(self, options=options)

    def ranked(self, by: Literal["gain", "utility"], span_ns: int) -> list[Option]:
        """Return the options, what promises most first; more workers where their bound is lower than that of all ports.

        Parameters
        ----------
        by
            What is saved at least, in whole percent, then utility; or utility alone.
        span_ns
            Length of the window.
        """
        best = min((option.utility for option in self.options if option.kind == "port"), default=math.inf)

        def key(option: Option) -> tuple[float, ...]:
            ids = tuple(float(operator) for operator in option.operators)
            gains = option.gains(span_ns)
            safe = math.inf if gains is None else -round(100 * gains[0])
            if option.kind == "widen":
                safe = -math.inf if option.utility < best else math.inf
            return (option.utility, *ids) if by == "utility" else (safe, option.utility, option.new_threads, *ids)

        return sorted(self.options, key=key)


def _taken_ns(ports: Ports, operator: int) -> int:
    """Return the work downstream of an operator on all threads."""
    return round(sum(mu.likely * ports.work.life[thread] for thread, mu in ports.below[operator].items()))


def flow_options(ports: Ports, beta: float, *, new_threads: int, widen: bool, nodes: int) -> Plan:
    """Return what may be tried with a dataflow, whose ports are on all workers alike, and help those that run them.

    Parameters
    ----------
    ports
        The operators.
    beta
        Workers of this utilisation and more are bottlenecks.
    new_threads
        Try up to so many.
    widen
        Whether more workers are a way out.
    nodes
        Matrices to make at most.
    """
    threads = ports.threads()
    busy = tuple(thread for thread, share in threads.busy.items() if share >= beta)
    before = max(threads.busy.values(), default=0.0)
    options: list[Option] = []
    for count in range(1, new_threads + 1) if busy else ():
        options += _single_ports(ports, threads, busy, count)
        if widen:
            work = sum(ports.work.counted.values())
            options.append(
                Option(
                    kind="widen",
                    operators={},
                    threads={0: len(ports.work.recorded)},
                    new_threads=count,
                    utility=threads.even(count),
                    before=before,
                    moved_ns=round(work * count / (threads.lives + count)),
                )
            )
    helped = search(threads, beta=beta, nodes=nodes)
    together = _ports_of(helped, 0)
    if len(together) > 1:
        # Where records went to other threads before, workers are no longer alike.
        utilities = [group.utility for group in helped]
        options.append(_joint_option(ports, together, max(utilities), before))
    best = min((option for option in options if option.kind == "port"), key=lambda option: option.utility, default=None)
    after = dict(threads.busy)
    if best is not None and best.utility < before:
        for operator in best.operators:
            after.update(threads.left(operator))
            new_threads_behind = best.new_threads if len(best.operators) == 1 else 1
            taken = threads.taken(operator, new_threads_behind)
            # Not all workers need be there in the window: numbers after the highest are nobody's.
            after.update(enumerate(taken, max(after) + 1))
    return Plan(
        rows=busy,
        options=options,
        nodes=sum(group.nodes for group in helped),
        pruned=sum(group.pruned for group in helped),
        limited=any(group.limited for group in helped),
        before=threads.busy,
        after=after,
        ports=ports,
    )


def _single_ports(ports: Ports, threads: Threads, busy: Sequence[int], new_threads: int) -> list[Option]:
    """Return each port by itself that takes anything from a busy thread."""
    before = max(threads.busy.values(), default=0.0)
    return [
        Option(
            kind="port",
            operators={operator: None},
            threads={operator: len(shares)},
            new_threads=new_threads,
            utility=threads.utility(operator, new_threads),
            before=before,
            moved_ns=_taken_ns(ports, operator),
        )
        for operator, shares in threads.below.items()
        if any(thread in shares for thread in busy)
    ]


def nested_options(ports: Ports, beta: float, *, steps: int, nodes: int) -> Plan:
    """Return what may be tried where activities nest: sets of ports that help all busy threads, and each port alone.

    Parameters
    ----------
    ports
        The operators.
    beta
        Threads of this utilisation and more are bottlenecks.
    steps
        How many ports, one after the other, a thread may get in its way.
    nodes
        Matrices to make at most.
    """
    threads = ports.threads()
    before = max(threads.busy.values(), default=0.0)
    busy = tuple(thread for thread, share in threads.busy.items() if share >= beta)
    singles = _single_ports(ports, threads, busy, 1)
    chosen: dict[int, int | None] = {}
    sets: list[Option] = []
    matrices = pruned = groups = 0
    limited = False
    for _ in range(steps):
        helped = search(_saturated(ports.threads(chosen), before), beta=beta, nodes=nodes - matrices)
        matrices += sum(group.nodes for group in helped)
        pruned += sum(group.pruned for group in helped)
        limited |= any(group.limited for group in helped)
        new_ports = _ports_of(helped, groups)
        groups += len(helped)
        if not new_ports:
            break
        chosen = {**chosen, **new_ports}
        sets.append(_joint_option(ports, chosen, max(ports.threads(chosen).busy.values()), before))
    together = [set(option.operators) for option in sets]
    options = [*sets, *(option for option in singles if set(option.operators) not in together)]
    return Plan(
        rows=busy,
        options=options,
        nodes=matrices,
        pruned=pruned,
        limited=limited,
        before=threads.busy,
        after=ports.threads(chosen).busy,
        ports=ports,
    )


def _joint_option(ports: Ports, operators: Mapping[int, int | None], utility: float, before: float) -> Option:
    """Return ports that belong together."""
    return Option(
        kind="port",
        operators=dict(sorted(operators.items())),
        threads={operator: len(ports.below[operator]) for operator in operators},
        new_threads=len(operators),
        utility=utility,
        before=before,
        moved_ns=sum(_taken_ns(ports, operator) for operator in operators),
    )


def _ports_of(groups: Sequence[Group], first: int) -> dict[int, int | None]:
    return {operator: first + place for place, group in enumerate(groups) for operator in group.operators}


def _saturated(threads: Threads, before: float) -> Threads:
    """Return what threads would do if the busiest worked as much as the busiest did before.

    A port makes room; what fills it is a faster pace.
    """
    now = max(threads.busy.values(), default=0.0)
    pace = before / now if now else 1.0
    if pace == 1.0:
        return threads
    return Threads(
        busy={thread: share * pace for thread, share in threads.busy.items()},
        below={
            operator: {thread: share * pace for thread, share in shares.items()}
            for operator, shares in threads.below.items()
        },
        life=threads.life,
    )
