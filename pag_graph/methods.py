"""A method for every analysis, made from the definitions: change them, and run `pag_graph.analyses.signatures`.

A method takes the fields of its parameters one by one, or all of them at once as `parameters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Never, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pag_graph.analyses.advise import Advice, AdviseParameters
    from pag_graph.analyses.advise_ports import AdvisePortsParameters, PortTable
    from pag_graph.analyses.causal_profile import CausalProfileParameters
    from pag_graph.analyses.diff import Difference
    from pag_graph.analyses.imbalance import ImbalanceParameters
    from pag_graph.analyses.invariants import InvariantsParameters
    from pag_graph.analyses.k_hops import KHopsParameters
    from pag_graph.analyses.k_hops_st2 import KHopsSt2Parameters
    from pag_graph.analyses.profile import ProfileParameters
    from pag_graph.analyses.sample import Sample, SampleParameters
    from pag_graph.analyses.skew import SkewParameters
    from pag_graph.analyses.slack import SlackParameters
    from pag_graph.analyses.stragglers import StragglersParameters
    from pag_graph.analyses.what_if import WhatIf, WhatIfParameters
    from pag_graph.analyses.why import Why, WhyParameters
    from pag_graph.api import Pag
    from pag_graph.builder.engine import Engine
    from pag_graph.model.enums import ActivityType, EpochRole

__all__ = ["AnalysisMethods"]


class AnalysisMethods:
    """What `Pag` can be asked.

    Every analysis of a window takes `epoch`, `role`, `between` or `latency` to choose it, and the slowest round where
    none is given: see `Pag.snapshot`. A name that is no parameter is an error: for type checkers, because nothing is of
    the type `Never`, and when it runs.
    """

    def _ask(self, name: str, given: dict[str, Any]) -> Any:
        """Run an analysis with what its method was called with."""
        raise NotImplementedError

    def why(
        self,
        parameters: WhyParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        lines: int = 30,
        words: int | None = None,
        above: float = 1.5,
        notable: float = 0.25,
        message_share: float = 0.1,
        baseline: int = 20,
        **unknown: Never,
    ) -> Why:
        """Say in plain words why a window took as long as it did, and what would help.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        lines
            Print at most this many lines; the least important lines are left out.
        words
            Print at most this many words.
        above
            A straggler works more than this many times the median of the workers that run the same.
        notable
            Something is called a cause if it makes up at least this share of the time.
        message_share
            A message is slow if it takes at least this share of the median round.
        baseline
            Learn from this many earlier rounds what is usual, at least 5; 0 for none.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        Why
            See docs/analyses.md#why for the rows, `WHY`.
        """
        return cast("Why", self._ask("why", locals()))

    def profile(
        self,
        parameters: ProfileParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        by: Literal["all", "type", "operator", "worker", "pair"] = "all",
        n: int = 10,
        **unknown: Never,
    ) -> pa.Table:
        """Divide the critical path by type, operator, worker and pair of workers.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        by
            What to divide the path by; all gives each of these divisions.
        n
            Number of keys to list; the rest is summed up as (other). 0 lists all.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#profile for the rows, `PROFILE`.
        """
        return cast("pa.Table", self._ask("profile", locals()))

    def profile_rounds(
        self,
        parameters: ProfileParameters | None = None,
        *,
        spark: SparkSession | None = None,
        engine: Engine | str = "local",
        progress: Callable[[str, int, int], None] | None = None,
        by: Literal["all", "type", "operator", "worker", "pair"] = "all",
        n: int = 10,
        **unknown: Never,
    ) -> pa.Table:
        """Divide the critical paths of all rounds, with percentiles over the rounds.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        spark
            Spread every window over this session's executors; the answer is the same.
        engine
            Where the rounds are looked at; each is one task.
        progress
            Called with (label, done, all).
        by
            What to divide the path by; all gives each of these divisions.
        n
            Number of keys to list; the rest is summed up as (other). 0 lists all.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#profile-rounds for the rows, `PROFILE_ROUNDS`.
        """
        return cast("pa.Table", self._ask("profile-rounds", locals()))

    def sample(
        self,
        parameters: SampleParameters | None = None,
        *,
        engine: Engine | str = "local",
        progress: Callable[[str, int, int], None] | None = None,
        fraction: float = 0.1,
        confidence: float = 0.95,
        strata: int = 1,
        seed: int = 0,
        **unknown: Never,
    ) -> Sample:
        """Estimate from some rounds what the critical paths and waits of all rounds are made of.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        engine
            Where the rounds are looked at; each is one task.
        progress
            Called with (label, done, all).
        fraction
            Share of the rounds to look at, above 0 and at most 1.
        confidence
            Share of samples whose interval holds the true value, between 0 and 1.
        strata
            Draw from this many groups of rounds of similar length; 1 draws uniformly from all.
        seed
            Seed of the drawing; another number draws other rounds.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        Sample
            See docs/analyses.md#sample for the rows, `SAMPLE`.
        """
        return cast("Sample", self._ask("sample", locals()))

    def imbalance(
        self,
        parameters: ImbalanceParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        by: Literal["type", "operator"] = "type",
        **unknown: Never,
    ) -> pa.Table:
        """Compare the time of each activity on the critical path with its mean over the workers.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        by
            Divide by types, or by types and operators.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#imbalance for the rows, `IMBALANCE`.
        """
        return cast("pa.Table", self._ask("imbalance", locals()))

    def slack(
        self,
        parameters: SlackParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        loop: Literal["closed", "open"] = "closed",
        arrival: Literal["shortest", "read"] = "shortest",
        **unknown: Never,
    ) -> pa.Table:
        """Say how much longer each activity may last before the window gets longer.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        loop
            Input comes as recorded after it is asked for (closed), or at its recorded time (open).
        arrival
            How long a message without a logged arrival took: as long as the shortest message, or until it was read.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#slack for the rows, `SLACK`.
        """
        return cast("pa.Table", self._ask("slack", locals()))

    def what_if(
        self,
        parameters: WhatIfParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        operator: Sequence[int | str] | int | str = (),
        worker: Sequence[int] | int = (),
        from_worker: Sequence[int] | int = (),
        to_worker: Sequence[int] | int = (),
        channel: Sequence[int] | int = (),
        type: Sequence[ActivityType | str] | ActivityType | str = (),
        factor: float | None = None,
        duration_ns: int | None = None,
        record_ns: float | None = None,
        change: Sequence[str] | str = (),
        loop: Literal["closed", "open"] = "closed",
        arrival: Literal["shortest", "read"] = "shortest",
        **unknown: Never,
    ) -> WhatIf:
        """Predict how long the window would be if something took more or less time.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        operator
            Change the own time of these operators: numbers, addresses, or names (all operators of that name).
        worker
            Change the work of these workers.
        from_worker
            Change messages that these workers send.
        to_worker
            Change messages to these workers.
        channel
            Change messages on these channels.
        type
            Change activities of these types; waiting is possible too.
        factor
            Multiply durations by this; 0.5 is twice as fast.
        duration_ns
            Let each activation, message or wait take this long instead.
        record_ns
            Let each activation take this much longer for every record that it reads; negative: shorter.
        change
            Another change, as FIELD=VALUE words: 'operator=Map factor=0.5', 'from=1 to=0 factor=0'.
        loop
            Input comes as recorded after it is asked for (closed), or at its recorded time (open).
        arrival
            How long a message without a logged arrival took: as long as the shortest message, or until it was read.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        WhatIf
            See docs/analyses.md#what-if for the rows, `WHAT_IF`.
        """
        return cast("WhatIf", self._ask("what-if", locals()))

    def causal_profile(
        self,
        parameters: CausalProfileParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        steps: int = 10,
        loop: Literal["closed", "open"] = "closed",
        arrival: Literal["shortest", "read"] = "shortest",
        **unknown: Never,
    ) -> pa.Table:
        """Say by how much the window would be shorter if an operator, worker or link were faster.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        steps
            Number of virtual speed-ups: 10 gives 10 %, 20 % and so on.
        loop
            Input comes as recorded after it is asked for (closed), or at its recorded time (open).
        arrival
            How long a message without a logged arrival took: as long as the shortest message, or until it was read.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#causal-profile for the rows, `CAUSAL_PROFILE`.
        """
        return cast("pa.Table", self._ask("causal-profile", locals()))

    def advise(
        self,
        parameters: AdviseParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        beta: float = 0.7,
        cores: int | None = None,
        new_threads: int = 1,
        ports: int = 1,
        until: int | None = None,
        level: int | None = None,
        keep: Sequence[int | str] | int | str = (),
        serial: Sequence[int | str] | int | str = (),
        pact: Sequence[str] | str = (),
        transfer: str | None = None,
        record_transfer: str | None = None,
        rank: Literal["gain", "utility"] = "gain",
        nodes: int = 1000000,
        state: str | None = None,
        blacklist: Literal["global", "configuration"] = "global",
        loop: Literal["closed", "open"] = "closed",
        arrival: Literal["shortest", "read"] = "shortest",
        **unknown: Never,
    ) -> Advice:
        """Say where one more thread would make the window shorter, and by how much.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        beta
            A thread that works for at least this share of its time is a bottleneck.
        cores
            Cores of the machine. Without it, there are enough cores for all threads.
        new_threads
            Try up to this many threads behind a port of a dataflow, and this many more workers.
        ports
            Try this many ports one after the other in a thread, if activities nest.
        until
            Look at all rounds from the chosen epoch to this one as one window.
        level
            Count operators that are nested deeper than this as their scope at this depth; 0 is the dataflow.
        keep
            Never insert a port at these operators: numbers, addresses, or names (all operators of that name).
        serial
            These operators must stay on one worker each, so more workers cannot help.
        pact
            The kind of a channel, if the log does not tell: 12=pipeline or 12=exchange.
        transfer
            Least and most cost of a hand-over: 0:20us. Default: from 0 to the slowest message of like size.
        record_transfer
            Least and most extra cost for every record of a hand-over: 0:50ns.
        rank
            Order by the time that is saved at least, or by utility as the paper does.
        nodes
            Stop searching for ports after this many matrices.
        state
            File of `pag advise-evaluate`: ports that it reverted are not proposed again.
        blacklist
            A port that did not help is never proposed again (global), or not with the same other ports (configuration).
        loop
            Input comes as recorded after it is asked for (closed), or at its recorded time (open).
        arrival
            How long a message without a logged arrival took: as long as the shortest message, or until it was read.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        Advice
            See docs/analyses.md#advise for the rows, `ADVICE`.
        """
        return cast("Advice", self._ask("advise", locals()))

    def advise_ports(
        self,
        parameters: AdvisePortsParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        level: int | None = None,
        keep: Sequence[int | str] | int | str = (),
        pact: Sequence[str] | str = (),
        **unknown: Never,
    ) -> PortTable:
        """Say how much of each thread's time lies downstream of each operator.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        level
            Count operators that are nested deeper than this as their scope at this depth; 0 is the dataflow.
        keep
            Never insert a port at these operators: numbers, addresses, or names (all operators of that name).
        pact
            The kind of a channel, if the log does not tell: 12=pipeline or 12=exchange.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        PortTable
            See docs/analyses.md#advise-ports for the rows, `ADVISE_PORTS`.
        """
        return cast("PortTable", self._ask("advise-ports", locals()))

    def participation(
        self,
        parameters: None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        **unknown: Never,
    ) -> pa.Table:
        """Say how many of all paths through the window lead over each activity.

        Parameters
        ----------
        parameters
            None.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#participation for the rows, `PARTICIPATION`.
        """
        return cast("pa.Table", self._ask("participation", locals()))

    def k_hops(
        self,
        parameters: KHopsParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        k: int = 10,
        through_waits: bool = True,
        weight: Literal["delivered", "transfer"] = "delivered",
        **unknown: Never,
    ) -> pa.Table:
        """Summarise the activities within k hops before the ends of the window's waits.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        k
            Number of hops, in edges.
        through_waits
            Also follow waits; without them, hops are causes only.
        weight
            Weight of a message: its time from send to read (delivered), or from send to arrival (transfer).
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#k-hops for the rows, `K_HOPS`.
        """
        return cast("pa.Table", self._ask("k-hops", locals()))

    def k_hops_st2(
        self,
        parameters: KHopsSt2Parameters | None = None,
        *,
        k: int = 10,
        **unknown: Never,
    ) -> pa.Table:
        """Count k-hops of all epochs as SnailTrail 2 does, by joining on times.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        k
            Number of hops, in edges.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#k-hops-st2 for the rows, `K_HOPS_ST2`.
        """
        return cast("pa.Table", self._ask("k-hops-st2", locals()))

    def metrics(
        self,
        parameters: None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        **unknown: Never,
    ) -> pa.Table:
        """Count activities, their time and records per epoch, pair of workers and type.

        Parameters
        ----------
        parameters
            None.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#metrics for the rows, `METRICS`.
        """
        return cast("pa.Table", self._ask("metrics", locals()))

    def matrix(
        self,
        parameters: None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        **unknown: Never,
    ) -> pa.Table:
        """Count the messages and records that each worker sent to each other worker.

        Parameters
        ----------
        parameters
            None.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#matrix for the rows, `MATRIX`.
        """
        return cast("pa.Table", self._ask("matrix", locals()))

    def skew(
        self,
        parameters: SkewParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        above: float = 1.5,
        **unknown: Never,
    ) -> pa.Table:
        """Compare the records that each worker read in each operator.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        above
            An operator is skewed if a worker reads more than this many times the mean.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#skew for the rows, `SKEW`.
        """
        return cast("pa.Table", self._ask("skew", locals()))

    def invariants(
        self,
        parameters: InvariantsParameters | None = None,
        *,
        spark: SparkSession | None = None,
        engine: Engine | str = "local",
        progress: Callable[[str, int, int], None] | None = None,
        epoch_max_ns: int | None = None,
        message_max_ns: int | None = None,
        operator_max_ns: int | None = None,
        progress_max_ns: int | None = None,
        some_progress: bool = True,
        progress_to_all: bool = False,
        learn: bool = True,
        deviations: float = 6.0,
        tolerance: float = 0.25,
        least_ns: int = 1000,
        at_least: int = 5,
        over: int = 20,
        **unknown: Never,
    ) -> pa.Table:
        """List the violations of limits on epochs, messages, operators and progress.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        spark
            Spread every window over this session's executors; the answer is the same.
        engine
            Where the rounds are looked at; each is one task.
        progress
            Called with (label, done, all).
        epoch_max_ns
            Limit for an epoch, from its first event to its last.
        message_max_ns
            Limit for a message, from send to read.
        operator_max_ns
            Limit for an activation of an operator.
        progress_max_ns
            Limit for the time between two progress messages of a worker.
        some_progress
            Require that every worker sends progress to another worker in every epoch.
        progress_to_all
            With some_progress: require progress to every other worker, not just to one.
        learn
            Also compare every epoch with limits that are learned from the epochs before it.
        deviations
            Learned limit: the median plus this many standard deviations, estimated by the MAD.
        tolerance
            Learned limit: at least this share of the median above the median.
        least_ns
            Learned limit: at least this many ns above the median; less is noise.
        at_least
            Learned limit: needs at least this many earlier epochs.
        over
            Learned limit: looks at this many of the latest earlier epochs.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#invariants for the rows, `INVARIANTS`.
        """
        return cast("pa.Table", self._ask("invariants", locals()))

    def diff(
        self,
        parameters: None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        against: Pag | None = None,
        against_epoch: int | None = None,
        against_role: EpochRole | Literal["startup", "shutdown"] | None = None,
        against_between: tuple[int, int] | None = None,
        against_latency: int | None = None,
        **unknown: Never,
    ) -> Difference:
        """Divide the difference of two windows, or of two runs, among the activities on their critical paths.

        Parameters
        ----------
        parameters
            None.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        against
            The other run to compare with, if it is not this one.
        against_epoch
            Of the other side: number of the epoch to look at; the slowest round where nothing is chosen.
        against_role
            Of the other side: the startup or the shutdown instead.
        against_between
            Of the other side: a free window instead, in nanoseconds from the run's origin.
        against_latency
            Of the other side: number of an epoch instead: from its first event on any worker to its last.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        Difference
            See docs/analyses.md#diff for the rows, `DIFF`.
        """
        return cast("Difference", self._ask("diff", locals()))

    def waits(
        self,
        parameters: None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        **unknown: Never,
    ) -> pa.Table:
        """Sum the waits in a window by the messages that ended them.

        Parameters
        ----------
        parameters
            None.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#waits for the rows, `WAITS`.
        """
        return cast("pa.Table", self._ask("waits", locals()))

    def blame(
        self,
        parameters: None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        **unknown: Never,
    ) -> pa.Table:
        """Charge the waiting in a window to what other workers did in that time.

        Parameters
        ----------
        parameters
            None.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#blame for the rows, `BLAME`.
        """
        return cast("pa.Table", self._ask("blame", locals()))

    def stragglers(
        self,
        parameters: StragglersParameters | None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        above: float = 1.5,
        **unknown: Never,
    ) -> pa.Table:
        """Compare how much each worker worked, and how long the others waited for it.

        Parameters
        ----------
        parameters
            All that follow the choice of windows, at once.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        above
            A straggler works more than this many times the median of the workers that run the same.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#stragglers for the rows, `STRAGGLERS`.
        """
        return cast("pa.Table", self._ask("stragglers", locals()))

    def traffic(
        self,
        parameters: None = None,
        *,
        epoch: int | None = None,
        role: EpochRole | Literal["startup", "shutdown"] | None = None,
        between: tuple[int, int] | None = None,
        latency: int | None = None,
        spark: SparkSession | None = None,
        **unknown: Never,
    ) -> pa.Table:
        """Sum the messages that were sent from worker to worker in a window.

        Parameters
        ----------
        parameters
            None.
        epoch
            Number of the epoch to look at; the slowest round where nothing is chosen.
        role
            The startup or the shutdown instead.
        between
            A free window instead, in nanoseconds from the run's origin.
        latency
            Number of an epoch instead: from its first event on any worker to its last.
        spark
            Spread every window over this session's executors; the answer is the same.
        unknown
            Nothing: an error, as a method has no other arguments.

        Returns
        -------
        pa.Table
            See docs/analyses.md#traffic for the rows, `TRAFFIC`.
        """
        return cast("pa.Table", self._ask("traffic", locals()))
