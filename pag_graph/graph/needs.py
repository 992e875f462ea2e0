"""What a run must be for a question to have a meaning, and which rule sets make such runs.

The readers of a graph name no rule set: they ask a run whether its clocks are aligned and whether its epochs are
islands, and say what they need.
"""

from __future__ import annotations

from enum import Enum

from pag_graph.model.enums import RuleSet


def aligned(rules: RuleSet) -> bool:
    """Say whether all instants of a run built by these rules are of one clock.

    Parameters
    ----------
    rules
        A rule set.

    Returns
    -------
    bool
        False where every worker keeps its own clock.
    """
    return rules is not RuleSet.ST2


def epochs_are_islands(rules: RuleSet) -> bool:
    """Say whether no edge of a run built by these rules leads from one epoch into another.

    Parameters
    ----------
    rules
        A rule set.

    Returns
    -------
    bool
        True of `st2`.
    """
    return rules is RuleSet.ST2


def one_dataflow(rules: RuleSet) -> bool:
    """Say whether all workers of a run built by these rules run the same operators.

    Parameters
    ----------
    rules
        A rule set.

    Returns
    -------
    bool
        False where the source states what each worker did: they can be anything then.
    """
    return rules is not RuleSet.STATED


class Needs(Enum):
    """What an analysis needs of a run."""

    NOTHING = "nothing"
    """Any run will do."""
    ALIGNED_CLOCKS = "aligned clocks"
    """Times of different workers are compared."""
    ISLANDS = "epochs that are islands"
    """Epochs are looked at as graphs of their own, each worker with its clock."""

    def met_by(self, rules: RuleSet) -> bool:
        """Say whether runs built by these rules have what is needed.

        Parameters
        ----------
        rules
            A rule set.

        Returns
        -------
        bool
            Whether they have.
        """
        checks = {Needs.ALIGNED_CLOCKS: aligned, Needs.ISLANDS: epochs_are_islands}
        return self is Needs.NOTHING or checks[self](rules)

    @property
    def rule_sets(self) -> frozenset[RuleSet]:
        """Rule sets that make such runs."""
        return frozenset(filter(self.met_by, RuleSet))

    @property
    def usual(self) -> RuleSet:
        """The rule set to build a trace with for it: the default one, where that does."""
        return RuleSet.TIMELY if self.met_by(RuleSet.TIMELY) else min(self.rule_sets)
