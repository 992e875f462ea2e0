"""Named patterns: motifs that say something about a program activity graph, each with a twin in Cypher.

The twin of a pattern is the query ``patterns/<name>`` of the Cypher library. It returns the columns `Pattern.shown`,
and takes the pattern's parameters beside ``run``, ``first_epoch`` and ``last_epoch``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.motif.conditions import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternParameter:
    """A number that a pattern's filter takes."""

    default: int
    """Its value, if none is given."""
    meaning: str
    """What it says, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A motif with a name."""

    name: str
    """Name of the pattern, as the command takes it."""
    purpose: str
    """One sentence."""
    motif: str
    """In the language of `pag_graph.motif.syntax`."""
    where: str
    """In the language of `pag_graph.motif.filters`."""
    parameters: Mapping[str, PatternParameter]
    """By name, what its filter takes."""
    shown: Mapping[str, str]
    """What people look at: columns by name, each ``element.column``."""

    @property
    def cypher(self) -> str:
        """Name of the query in the Cypher library that finds the same."""
        return f"patterns/{self.name}"

    def values(self, given: Mapping[str, Value] | None = None) -> dict[str, Value]:
        """Return a value for every parameter.

        Parameters
        ----------
        given
            Values that replace the defaults.

        Returns
        -------
        dict
            By name.

        Raises
        ------
        InvalidParameterError
            If there is no such parameter, or a value is no whole number.
        """
        values: dict[str, Value] = {name: parameter.default for name, parameter in self.parameters.items()}
        for name, value in (given or {}).items():
            if name not in values:
                message = f"The pattern {self.name} has no parameter {name!r}; it has {', '.join(values)}."
                raise InvalidParameterError(message, None, {"parameter": name})
            if isinstance(value, bool) or not isinstance(value, int):
                message = f"{name} is {value!r}, and must be a whole number."
                raise InvalidParameterError(message, f"It means: {self.parameters[name].meaning}.")
            values[name] = value
        return values


def _pattern(
    name: str, purpose: str, motif: str, where: str, shown: dict[str, str], **parameters: tuple[int, str]
) -> Pattern:
    return Pattern(
        name=name,
        purpose=purpose,
        motif=motif,
        where=where,
        parameters=MappingProxyType(
            {key: PatternParameter(default=value, meaning=meaning) for key, (value, meaning) in parameters.items()}
        ),
        shown=MappingProxyType(shown),
    )


_MESSAGES = "('data_message', 'progress_message', 'control_message', 'spawn')"
_WAIT = {
    "worker": "z.worker",
    "from_worker": "s.worker",
    "wait_start_ns": "wait.start_ns",
    "waited_ns": "wait.duration_ns",
    "message": "message.type",
    "channel": "message.channel",
    "records": "message.records",
    "sent": "s.id",
    "wait_end": "z.id",
}

_ALL = (
    _pattern(
        "wait_ended_by_data",
        "A worker waited, and data from another worker ended it: it had nothing left to work on.",
        "(a)-[wait]->(z); (s)-[message]->(z)",
        "wait.type = 'waiting' and message.type = 'data_message' and wait.duration_ns >= $min_ns",
        _WAIT,
        min_ns=(0, "shortest wait, in ns"),
    ),
    _pattern(
        "wait_chain",
        "A worker waited for one that itself had been waiting for a third: the cause is further back.",
        "(a1)-[wait1]->(z1); (s1)-[m1]->(z1); (a2)-[wait2]->(z2); (s2)-[m2]->(z2)",
        "wait1.type = 'waiting' and wait2.type = 'waiting'"
        f" and m1.type in {_MESSAGES} and m2.type in {_MESSAGES}"
        # The second message is sent after the first wait, before another one. Where the gap is 0 the waits overlap.
        " and s2.segment = z1.id and a2.t_ns < z1.t_ns + $gap_ns"
        " and s1.worker != z1.worker and z1.worker != z2.worker and s1.worker != z2.worker"
        " and wait1.duration_ns >= $min_ns and wait2.duration_ns >= $min_ns",
        {
            "first_worker": "s1.worker",
            "second_worker": "z1.worker",
            "third_worker": "z2.worker",
            "second_waited_ns": "wait1.duration_ns",
            "third_waited_ns": "wait2.duration_ns",
            "sent_first": "s1.id",
            "second_wait_end": "z1.id",
            "sent_second": "s2.id",
            "third_wait_end": "z2.id",
        },
        min_ns=(0, "shortest of both waits, in ns"),
        gap_ns=(1_000_000, "how much later than the first wait's end the second wait may begin, in ns"),
    ),
    _pattern(
        "fan_in",
        "Three workers sent data to one that read it without waiting in between: it is where work piles up.",
        "(s1)-[m1]->(r1); (s2)-[m2]->(r2); (s3)-[m3]->(r3)",
        "m1.type = 'data_message' and m2.type = 'data_message' and m3.type = 'data_message'"
        " and r1.segment = r2.segment and r2.segment = r3.segment"
        " and s1.worker < s2.worker and s2.worker < s3.worker"
        " and abs(r1.t_ns - r2.t_ns) <= $within_ns and abs(r2.t_ns - r3.t_ns) <= $within_ns"
        " and abs(r1.t_ns - r3.t_ns) <= $within_ns",
        {
            "worker": "r1.worker",
            "first_sender": "s1.worker",
            "second_sender": "s2.worker",
            "third_sender": "s3.worker",
            "first_read_ns": "r1.t_ns",
            "second_read_ns": "r2.t_ns",
            "third_read_ns": "r3.t_ns",
            "first_read": "r1.id",
            "second_read": "r2.id",
            "third_read": "r3.id",
        },
        within_ns=(1_000_000, "longest time between any two of the reads, in ns"),
    ),
    _pattern(
        "ping_pong",
        "Data went to a worker, and data came back from it soon: a conversation that pays for every turn.",
        "(a)-[there]->(b); (c)-[back]->(d)",
        "there.type = 'data_message' and back.type = 'data_message'"
        # The answer is sent after the read, before another wait.
        " and c.segment = b.segment and c.id > b.id and d.worker = a.worker and d.t_ns - a.t_ns <= $within_ns",
        {
            "worker": "a.worker",
            "other_worker": "b.worker",
            "sent_ns": "a.t_ns",
            "read_ns": "b.t_ns",
            "answered_ns": "c.t_ns",
            "back_ns": "d.t_ns",
            "sent": "a.id",
            "read": "b.id",
            "answer": "c.id",
            "back": "d.id",
        },
        within_ns=(1_000_000, "longest time from the first send to the end of the way back, in ns"),
    ),
    _pattern(
        "late_sender",
        "A worker waited already when the message that ended its wait was sent: the sender was late.",
        "(a)-[wait]->(z); (s)-[message]->(z)",
        f"wait.type = 'waiting' and message.type in {_MESSAGES} and message.start_ns - wait.start_ns >= $min_ns",
        _WAIT | {"send_ns": "message.start_ns"},
        min_ns=(1, "least time from the beginning of the wait to the send, in ns"),
    ),
    _pattern(
        "late_receiver",
        "Data lay at a worker that was busy with something else: the receiver was late.",
        "(s)-[message]->(r); (p)-[activity]->(r)",
        "message.type = 'data_message' and message.read = r.id and message.receive_buffer_ns >= $min_ns"
        " and p.worker = r.worker",
        {
            "worker": "r.worker",
            "from_worker": "s.worker",
            "lay_ns": "message.receive_buffer_ns",
            "read_ns": "r.t_ns",
            "channel": "message.channel",
            "records": "message.records",
            "activity": "activity.type",
            "operator": "activity.operator",
            "activity_ns": "activity.duration_ns",
            "sent": "s.id",
            "read": "r.id",
        },
        min_ns=(100_000, "least time from the arrival to the read, in ns"),
    ),
    _pattern(
        "message_burst",
        "A worker sent three data messages in a row with nothing in between: larger batches would cost less.",
        "(s1)-[m1]->(r1); (s1)-[gap1]->(s2); (s2)-[m2]->(r2); (s2)-[gap2]->(s3); (s3)-[m3]->(r3)",
        "m1.type = 'data_message' and m2.type = 'data_message' and m3.type = 'data_message'"
        " and s1.worker = s2.worker and s2.worker = s3.worker"
        " and gap1.duration_ns + gap2.duration_ns <= $within_ns",
        {
            "worker": "s1.worker",
            "first_sent_ns": "s1.t_ns",
            "first_gap_ns": "gap1.duration_ns",
            "second_gap_ns": "gap2.duration_ns",
            "first_receiver": "r1.worker",
            "second_receiver": "r2.worker",
            "third_receiver": "r3.worker",
            "first_records": "m1.records",
            "second_records": "m2.records",
            "third_records": "m3.records",
            "first_sent": "s1.id",
            "third_sent": "s3.id",
        },
        within_ns=(100_000, "longest time from the first to the third send, in ns"),
    ),
    _pattern(
        "idle_beside_backlog",
        "A worker had nothing to do while data lay unread at another one: work that could have been elsewhere.",
        "(a)-[idle]->(z); (s)-[message]->(r)",
        "idle.type in ('waiting', 'input_wait', 'idle') and idle.duration_ns >= $min_ns"
        " and message.type = 'data_message' and message.read = r.id and message.receive_buffer_ns >= $min_ns"
        " and z.worker != r.worker"
        # Both lasted for `min_ns` at the same time.
        " and z.t_ns - (r.t_ns - message.receive_buffer_ns) >= $min_ns and r.t_ns - a.t_ns >= $min_ns",
        {
            "idle_worker": "z.worker",
            "idle_type": "idle.type",
            "idle_start_ns": "idle.start_ns",
            "idle_ns": "idle.duration_ns",
            "busy_worker": "r.worker",
            "lay_ns": "message.receive_buffer_ns",
            "read_ns": "r.t_ns",
            "records": "message.records",
            "idle_end": "z.id",
            "read": "r.id",
        },
        min_ns=(100_000, "least time that both lasted together, in ns"),
    ),
)

PATTERNS: Mapping[str, Pattern] = MappingProxyType({pattern.name: pattern for pattern in _ALL})
"""All named patterns, by name."""


def find_pattern(text: str) -> Pattern | None:
    """Return the pattern of a name; None of a text that is no name, but a motif.

    Raises
    ------
    InvalidParameterError
        If it is a name that no pattern has.
    """
    if text not in PATTERNS and re.fullmatch(r"\w+", text):
        message = f"There is no pattern {text!r}; there are {', '.join(PATTERNS)}."
        raise InvalidParameterError(message, "A motif of one vertex is written with parentheses: '(a)'.")
    return PATTERNS.get(text)
