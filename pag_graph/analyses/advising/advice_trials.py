"""Whether ports that were inserted helped: runs before and after, and what to remember of it.

Definitions: `docs/model.md`, section "Advice"; Tang and Gedik (2013) 5.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import polars as pl
import pyarrow as pa

from pag_graph.analyses.advising.advice_state import AdviceState, Blacklisted, PortName, port_names
from pag_graph.analyses.advising.open_stacks import NOTHING, openings
from pag_graph.analyses.advising.pipelines import dataflow
from pag_graph.analyses.advising.ports import read_ports, read_traffic
from pag_graph.analyses.repetitions import ENOUGH, Ratio, compared, enough
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import WARM_UP_ROUNDS, EpochRole
from pag_graph.model.tables import ADVICE_TRIALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pag_graph.graph.run import Run

Decision = Literal["keep", "revert", "undecided"]
_EXAMPLE = "pag advise-evaluate b*.pag --after a1.pag --after a2.pag --after a3.pag --after a4.pag --state advice.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What came of ports."""

    table: pa.Table
    """Rows of `ADVICE_TRIALS`."""
    state: AdviceState
    """What is known from now on."""

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        decisions = Counter(self.table["decision"].to_pylist())
        lines = [", ".join(f"{count} x {decision}" for decision, count in sorted(decisions.items()))]
        if "undecided" in decisions:
            lines.append(
                f"Undecided: the intervals of runs before and after overlap, or they are fewer than {ENOUGH} a side."
            )
        if self.state.halt is not None:
            lines.append(
                f"Halt: {self.state.blacklisted_share:.0%} of the ports that ever were candidates did not help"
                f" (alpha {self.state.alpha:.0%})."
            )
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {
            "kept": [str(port) for port in self.state.kept],
            "blacklist": [str(entry.port) for entry in self.state.blacklist],
            "alpha": self.state.alpha,
            "halt": self.state.halt,
        }


def advise_evaluate(
    before: Sequence[Run],
    after: Sequence[Run],
    state: AdviceState,
    *,
    ports: Sequence[str] = (),
    pairs: Mapping[str, str] | None = None,
    single: bool = False,
    paper: bool = False,
) -> Evaluation:
    """Compare runs before ports were inserted with runs after, and decide which to keep.

    Parameters
    ----------
    before, after
        Runs of one program on the same input; four or more on each side.
    state
        What is known of the program's ports.
    ports
        Operators that got one; those that read across threads only after where absent.
    pairs
        Addresses of operators before, and of the same operators after, where names do not tell.
    single
        Whether to decide on so few runs that one program's would differ so by chance.
    paper
        Whether to compare one number, and keep only what is faster, as the paper does.

    Returns
    -------
    Evaluation
        Its state has a trial more; the same runs evaluated again replace theirs.

    Raises
    ------
    InvalidParameterError
        If there are no runs or ports, or it is not clear which operator is which.
    UnsupportedPlanError
        If the clocks of a run are not aligned.

    Notes
    -----
    Counted are the records that an operator reads per second, from the fourth round on; activations where a run counts
    no records. The interval of ratios goes from the slowest after over the fastest before to the fastest after
    over the slowest before.
    """
    _check(before, after)
    operator_pairs = _OperatorPairs(before, after, dict(pairs or {}))
    inserted = _named(ports, before[0]) if ports else _inserted(before[0], after[0], operator_pairs)
    if not inserted:
        message = "No operator reads across threads after the change that did not before."
        raise InvalidParameterError(message, "Say which got a port: `--port NAME`.")
    rows: list[dict[str, Any]] = []
    for port in inserted:
        reads_before = [_reads(run, operator_pairs.before(run, port)) for run in before]
        reads_after = [_reads(run, operator_pairs.after(run, port)) for run in after]
        rates_before, rates_after = _rates(reads_before, reads_after, port)
        ratio = compared(rates_before, rates_after)
        decision = decided(ratio, len(before), len(after), single=single, paper=paper)
        rows.append(
            {
                "port": str(port),
                "before_per_s": statistics.median(rates_before),
                "after_per_s": statistics.median(rates_after),
                "ratio_low": ratio.low,
                "ratio_high": ratio.high,
                "decision": decision,
                "blacklisted": decision == "revert",
            }
        )
    trial = {
        "before": [str(run.info.run["run_id"]) for run in before],
        "after": [str(run.info.run["run_id"]) for run in after],
        "ports": rows,
    }
    decisions: dict[PortName, Decision] = {port: row["decision"] for port, row in zip(inserted, rows, strict=True)}
    table = pa.Table.from_pylist(rows, ADVICE_TRIALS)
    return Evaluation(table=table, state=_learned(state, trial, decisions, _candidates(before[0])))


def address_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Read pairs of addresses, ``0.4=0.5``.

    Raises
    ------
    InvalidParameterError
        If one is something else.
    """
    pairs = {}
    for text in texts:
        before, equals, after = text.partition("=")
        if not equals or not before or not after:
            message = f"{text!r} is not a pair of addresses."
            raise InvalidParameterError(message, "Give addresses before and after: `--map 0.4=0.5`.")
        pairs[before] = after
    return pairs


def decided(ratio: Ratio, runs_before: int, runs_after: int, *, single: bool, paper: bool) -> Decision:
    """Return what to do with a port.

    Parameters
    ----------
    ratio
        How many times as fast it became.
    runs_before, runs_after
        Of how many runs.
    single
        Whether they are enough though runs of one program would differ so by chance more often than
        `pag_graph.analyses.repetitions.MOST_BY_CHANCE`.
    paper
        Whether one number decides, and what is not faster is reverted.
    """
    if paper:
        return "keep" if ratio.median > 1 else "revert"
    if not single and not enough(runs_before, runs_after):
        return "undecided"
    if ratio.low > 1:
        return "keep"
    return "revert" if ratio.high < 1 else "undecided"


def _check(before: Sequence[Run], after: Sequence[Run]) -> None:
    if not before or not after:
        message = "Give runs before and after the change."
        raise InvalidParameterError(message, _EXAMPLE)
    ids = Counter(str(run.info.run["run_id"]) for run in (*before, *after))
    repeated_runs = [run for run in (*before, *after) if ids[str(run.info.run["run_id"])] > 1]
    if repeated_runs:
        first, second = (run.info.path for run in repeated_runs[:2])
        message = f"{first} and {second} hold the same run. A repetition must be a new run."
        raise InvalidParameterError(message, "Give each recording once.")
    for run in (*before, *after):
        run.require_aligned("Runs are compared by one clock's time")


class _OperatorPairs:
    """Which operator of one run is which of another."""

    def __init__(self, before: Sequence[Run], after: Sequence[Run], pairs: Mapping[str, str]) -> None:
        self.pairs = pairs
        self.counts = [Counter(name.name for name in port_names(run).values()) for run in (before[0], after[0])]
        self.address = _addresses(before[0])

    def before(self, run: Run, port: PortName) -> int:
        """Return the number of a port's operator in a run before."""
        return _numbers(run)[port]

    def after(self, run: Run, port: PortName) -> int:
        """Return the number of a port's operator in a run after."""
        address = self.pairs.get(self.address[port])
        if address is not None:
            operators = run.operators.filter(pl.col("address") == address)["operator"].to_list()
            if not operators:
                message = f"{run.info.path} has no operator {address}."
                raise InvalidParameterError(message, "Give addresses before and after: `--map 0.4=0.5`.")
            return int(operators[0])
        if self.counts[0][port.name] != self.counts[1][port.name]:
            message = (
                f"There are {self.counts[0][port.name]} operators {port.name!r} before and"
                f" {self.counts[1][port.name]} after: it is not clear which belong together."
            )
            raise InvalidParameterError(message, "Give addresses before and after: `--map 0.4=0.5`.")
        return _numbers(run)[port]


@lru_cache(maxsize=32)
def _numbers(run: Run) -> Mapping[PortName, int]:
    return {name: number for number, name in port_names(run).items()}


def _addresses(run: Run) -> dict[PortName, str]:
    names = port_names(run)
    return {names[row["operator"]]: row["address"] for row in run.operators.to_dicts()}


def _named(ports: Sequence[str], run: Run) -> list[PortName]:
    name_of_operator = port_names(run)
    chosen = [name for text in ports for name in sorted(name_of_operator.values()) if text in {str(name), name.name}]
    lost = [text for text in ports if not any(text in {str(name), name.name} for name in name_of_operator.values())]
    if lost:
        message = (
            f"There is no operator {lost[0]!r}; there are {', '.join(sorted(map(str, name_of_operator.values())))}."
        )
        raise InvalidParameterError(message, _EXAMPLE)
    return sorted(set(chosen))


def _inserted(before: Run, after: Run, operator_pairs: _OperatorPairs) -> list[PortName]:
    """Return operators that have a port after that had none before."""
    return _nested_ports(before, after) if not before.one_dataflow else _flow_ports(before, after, operator_pairs)


def _nested_ports(before: Run, after: Run) -> list[PortName]:
    """Return operators that are outermost on a thread only after."""
    nested_names = [{port_names(run)[operator] for operator in _outermost(run)} for run in (before, after)]
    return sorted((nested_names[1] - nested_names[0]) & set(port_names(before).values()))


def _outermost(run: Run) -> set[int]:
    known = openings(run, run.end_ns)
    return {*run.outermost_before, *known.operator[known.parent == NOTHING].tolist()} & set(port_names(run))


def _flow_ports(before: Run, after: Run, operator_pairs: _OperatorPairs) -> list[PortName]:
    """Return operators that read what their own thread made before, and what came from others after."""
    flows = [dataflow(run, read_traffic(run, run.slowest()), level=None, pacts={}) for run in (before, after)]
    names = port_names(before)
    return [
        name
        for operator, name in sorted(names.items(), key=lambda item: item[1])
        if flows[0].pipeline_inputs(operator) and operator_pairs.counts[1][name.name]
        for inputs in [flows[1].inputs.get((operator_pairs.after(after, name), "", 0), ())]
        if any(link.pact == "exchange" for link in inputs)
    ]


class _Reads(NamedTuple):
    """What an operator did in the rounds of a run from the fourth on."""

    path: str
    """The run's store."""
    records: int
    """Records that it read; 0 where nobody counts them."""
    activations: int
    span_ns: int


def _reads(run: Run, operator: int) -> _Reads:
    """Return what an operator did once a run is warm."""
    rounds = [window for window in run.windows() if window.role is EpochRole.ROUND][WARM_UP_ROUNDS:]
    if not rounds or rounds[-1].end_ns == rounds[0].start_ns:
        message = (
            f"{run.info.path} has no more than {WARM_UP_ROUNDS} rounds, and the first {WARM_UP_ROUNDS} do not count."
        )
        raise InvalidParameterError(message, "Record a longer run.")
    first, last = rounds[0].start_ns, rounds[-1].end_ns
    read = run.scan("edges").filter(
        pl.col("operator") == operator, pl.col("start_ns") >= first, pl.col("start_ns") < last
    )
    counts = read.select(pl.col("records").sum(), activations=pl.col("activation").drop_nulls().n_unique()).collect()
    records, activations = counts.row(0)
    return _Reads(str(run.info.path), int(records), int(activations), last - first)


def _rates(before: Sequence[_Reads], after: Sequence[_Reads], port: PortName) -> tuple[list[float], list[float]]:
    """Return per run how much is read per second: records where all runs count them, else activations."""
    counts_records = all(reads.records for reads in (*before, *after))
    for reads in (*before, *after):
        if not (reads.records if counts_records else reads.activations):
            message = f"{port} did nothing in {reads.path} after the first {WARM_UP_ROUNDS} rounds."
            raise InvalidParameterError(message, "Compare runs in which it works.")
    before_rates, after_rates = (
        [1e9 * (reads.records if counts_records else reads.activations) / reads.span_ns for reads in side]
        for side in (before, after)
    )
    return before_rates, after_rates


def _candidates(run: Run) -> set[PortName]:
    names = port_names(run)
    ports = read_ports(run.snapshot(run.slowest()))
    return {names[operator] for operator in ports.candidates if operator in names}


def _learned(
    state: AdviceState, trial: Mapping[str, Any], decisions: Mapping[PortName, Decision], candidates: set[PortName]
) -> AdviceState:
    """Return a state that knows of one trial more."""
    runs = {key: trial[key] for key in ("before", "after")}
    replaced = [earlier for earlier in state.trials if {key: earlier[key] for key in runs} == runs]
    trials = [earlier for earlier in state.trials if earlier not in replaced]
    withdrawn = _said(replaced) - _said(trials)

    def stays(port: PortName, decision: Decision) -> bool:
        """Say whether an earlier decision holds: what is undecided changes nothing that other runs said, too."""
        if decisions.get(port, "undecided") != "undecided":
            return False
        return port not in decisions or (str(port), decision) not in withdrawn

    kept_ports = {port for port in state.kept if stays(port, "keep")}
    configuration = tuple(sorted(port for port in state.kept if port not in decisions))
    blacklist = [entry for entry in state.blacklist if stays(entry.port, "revert")]
    reasons = {row["port"]: f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f} x as fast" for row in trial["ports"]}
    blacklist += [
        Blacklisted(port=port, reason=reasons[str(port)], configuration=configuration)
        for port, decision in decisions.items()
        if decision == "revert"
    ]
    learned = replace(
        state,
        kept=tuple(sorted(kept_ports | {port for port, decision in decisions.items() if decision == "keep"})),
        blacklist=tuple(blacklist),
        candidates=tuple(sorted({*state.candidates, *candidates, *decisions})),
        trials=(*trials, trial),
    )
    return replace(learned, halt="blacklist" if learned.blacklisted_share > learned.alpha else None)


def _said(trials: Iterable[Mapping[str, Any]]) -> set[tuple[str, Decision]]:
    """Return which ports trials decided on, and how."""
    return {(row["port"], row["decision"]) for trial in trials for row in trial["ports"]}
