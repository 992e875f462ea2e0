"""What is odd about spans, counted part by part, and told once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pag_graph.model.enums import Severity
from pag_graph.store.findings import findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

TWICE, MISSING, CYCLE, ELSEWHERE, NO_DURATION = "twice", "missing", "cycle", "elsewhere", "no duration"
FAR, NEAR, ROOTS = "far outside", "just outside", "roots"
FINDINGS: Final = {
    TWICE: ("span_twice", Severity.WARNING, "the longest one is kept", "spans"),
    MISSING: ("parent_missing", Severity.WARNING, "a root of its own, left out of sums", "spans"),
    CYCLE: ("cycle", Severity.WARNING, "cut above the span that starts first", "spans"),
    ELSEWHERE: ("link_to_other_trace", Severity.INFO, "not followed", "spans"),
    NO_DURATION: ("no_duration", Severity.WARNING, "taken as spans without duration", "spans"),
    FAR: (
        "child_outside_parent",
        Severity.WARNING,
        "no return: a child that outlives its parent, or begins before it ({count} spans, `observed` is the farthest)",
        "ns",
    ),
    NEAR: (
        "child_outside_parent",
        Severity.INFO,
        "cut to the parent's time: as far as clocks can tell it is inside ({count} spans, `observed` is the farthest)",
        "ns",
    ),
    ROOTS: ("many_roots", Severity.INFO, "each is a request of its own", "traces"),
}
"""Per oddity: finding, severity, what is done, unit."""


class Odd(NamedTuple):
    """How often something is odd."""

    often: int
    most: int | None = None
    """The greatest measure of it, where it has one."""
    limit: int | None = None
    """The greatest limit that it is over."""


def together(parts: Iterable[Mapping[str, Odd]]) -> dict[str, Odd]:
    """Return what is odd about all of some parts: sums, with the greatest measure and limit of each."""
    sums: dict[str, Odd] = {}
    for odd_of_part in parts:
        for name, odd in odd_of_part.items():
            so_far = sums.get(name, Odd(0))
            greatest, limit = (
                max((number for number in pair if number is not None), default=None)
                for pair in ((so_far.most, odd.most), (so_far.limit, odd.limit))
            )
            sums[name] = Odd(so_far.often + odd.often, greatest, limit)
    return sums


def told(odd: Mapping[str, Odd]) -> list[pa.Table]:
    """Return a finding for each oddity that there is, as tables of one row."""
    tables = []
    for name, (finding, severity, action, unit) in FINDINGS.items():
        oddity = odd.get(name, Odd(0))
        if oddity.often:
            observed = oddity.often if oddity.most is None else oddity.most
            action_taken = action.format(count=oddity.often)
            tables.append(findings(finding, severity, action_taken, observed=observed, limit=oddity.limit, unit=unit))
    return tables
