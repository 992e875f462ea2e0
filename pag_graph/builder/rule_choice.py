"""Which rule set a trace is built by: the one that it asks for, or another one that does not contradict it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import Severity
from pag_graph.model.units import short
from pag_graph.rules.registry import of
from pag_graph.rules.rows import RuleParameters
from pag_graph.store.findings import findings, no_findings
from pag_graph.store.trace_files import META

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.model.enums import RuleSet
    from pag_graph.store.trace import Trace

CONTRADICTS = "rules_contradict_trace"
"""The finding of a build by rules that its trace contradicts."""
INFERRED_WAITS = "no_idle_logged"
"""The finding of a build from a log that says nothing of idleness."""


def choose_rules(trace: Trace, rules: RuleSet | None = None, *, force: bool = False) -> tuple[RuleSet, pa.Table]:
    """Choose the rule set of a build.

    Parameters
    ----------
    trace
        The opened trace.
    rules
        The rule set that was asked for, if any was.
    force
        Whether to build by it even if the trace contradicts it.

    Returns
    -------
    rules
        The rule set.
    findings
        Rows of `PAG_FINDINGS`: one if the trace contradicts the rules, none otherwise.

    Raises
    ------
    UnsupportedPlanError
        If the trace contradicts the rules and nobody forces them, or lacks events that they need.

    Notes
    -----
    A source either states what its workers did and when they waited (`RuleSet.STATED`), or logs events from which that
    is inferred. Rules of one kind do not read what a trace of the other kind says, so that its waits would be lost.
    `RuleSet.TIMELY` and `RuleSet.ST2` infer from the same events: the one that the trace does not ask for is a
    comparison, and no contradiction. A trace that SnailTrail 2 prepared lacks events, and nothing can force those.
    """
    trace_rules = trace.meta.rules
    rules = trace_rules if rules is None else rules
    context = {"trace": str(trace.path), "rules": str(rules), "asked_for": str(trace_rules)}
    if trace.meta.prepared and not of(rules).reads_prepared:
        message = f"{trace.path} was prepared by SnailTrail 2: events are missing that the rule set {rules} needs."
        raise UnsupportedPlanError(message, "Use --rules st2, or convert the raw log.", context)
    if of(rules).states_activities == of(trace_rules).states_activities:
        return rules, no_findings()
    lost = (
        f"states what its workers did and when they waited, and the rule set {rules} reads none of that"
        if of(trace_rules).states_activities
        else f"does not state what its workers did, and the rule set {rules} takes no wait from what it logs instead"
    )
    if not force:
        message = f"{trace.path} {lost}: its waits would be lost. It asks for the rule set {trace_rules}."
        hint = f"Leave out --rules, or give --rules {trace_rules}; --force-rules builds by {rules} nevertheless."
        raise UnsupportedPlanError(message, hint, context)
    action = f"built by the rule set {rules}, as forced, though the trace asks for {trace_rules}: it {lost}"
    return rules, findings(CONTRADICTS, Severity.ERROR, action, file=META)


def rule_parameters(parameters: RuleParameters | None) -> RuleParameters | None:
    """Return parameters of a rule set that are given.

    Parameters
    ----------
    parameters
        None for the defaults.

    Returns
    -------
    RuleParameters or None
        The same.

    Raises
    ------
    InvalidParameterError
        If they are something else.
    """
    if parameters is not None and not isinstance(parameters, RuleParameters):
        message = f"parameters are {short(repr(parameters), 80)}, and must be RuleParameters."
        raise InvalidParameterError(message, "Such as parameters=pag_graph.rules.rows.RuleParameters(level=1).")
    return parameters
