"""What readers are told of rule sets is what the rules say of themselves."""

from __future__ import annotations

import pytest

from pag_graph.graph import needs
from pag_graph.graph.needs import Needs
from pag_graph.model.enums import RuleSet
from pag_graph.rules import registry


@pytest.mark.parametrize("rules", RuleSet)
def test_the_registry_says_the_same(rules: RuleSet) -> None:
    assert needs.aligned(rules) == registry.of(rules).aligned
    assert needs.epochs_are_islands(rules) == registry.of(rules).epochs_are_islands


def test_what_a_question_needs_says_which_rules_to_build_by() -> None:
    assert Needs.NOTHING.rule_sets == set(RuleSet)
    assert Needs.ALIGNED_CLOCKS.rule_sets == {RuleSet.TIMELY, RuleSet.STATED}
    assert Needs.ISLANDS.rule_sets == {RuleSet.ST2}
    assert [need.usual for need in Needs] == [RuleSet.TIMELY, RuleSet.TIMELY, RuleSet.ST2]
