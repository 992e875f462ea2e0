"""All rule sets: the only place that lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.model.enums import RuleSet
from pag_graph.rules import st2, stated, timely

if TYPE_CHECKING:
    from typing import Any

    from pag_graph.rules.protocol import IslandRules, Rules, WaitRules

_WAITS: dict[RuleSet, WaitRules[Any, Any]] = {RuleSet.TIMELY: timely, RuleSet.STATED: stated}
_ISLANDS: dict[RuleSet, IslandRules] = {RuleSet.ST2: st2}


def of(rules: RuleSet) -> Rules:
    """Return what a rule set does, and what it says of itself (`pag_graph.rules.protocol`).

    Parameters
    ----------
    rules
        Its name, as a trace or a store says it.

    Returns
    -------
    Rules
        A reader of a store asks for `aligned` and `epochs_are_islands`, and need not know which rules there are.
    """
    return _WAITS.get(rules) or _ISLANDS[rules]


def wait_rules(rules: RuleSet) -> WaitRules[Any, Any]:
    """Return a rule set whose epochs are no islands.

    Parameters
    ----------
    rules
        Its name, which must be one of such a rule set.

    Returns
    -------
    WaitRules
        What it does.
    """
    return _WAITS[rules]


def island_rules(rules: RuleSet) -> IslandRules:
    """Return a rule set whose epochs are islands.

    Parameters
    ----------
    rules
        Its name, which must be one of such a rule set.

    Returns
    -------
    IslandRules
        What it does.
    """
    return _ISLANDS[rules]
