"""The closed vocabularies of traces and graphs; tables store their string values."""

from __future__ import annotations

from enum import IntFlag, StrEnum


class EventKind(StrEnum):
    """What a row of a trace says happened (contract 1)."""

    START = "start"
    """An operator or a named activity begins on the worker."""
    STOP = "stop"
    """It ends."""
    SEND = "send"
    """A data message leaves; `peer` is the receiver."""
    RECEIVE = "receive"
    """A data message is read; `peer` is the sender."""
    PROGRESS_SEND = "progress_send"
    """A progress message is broadcast to every worker, the sender included."""
    PROGRESS_RECEIVE = "progress_receive"
    """A progress message is read; `peer` is the sender."""
    PARK = "park"
    """The worker's thread goes to sleep; `timeout_ns` is null for a sleep without a limit."""
    UNPARK = "unpark"
    """The thread runs again."""
    IDLE_START = "idle_start"
    """A worker that does not park takes its first step in a row that finds nothing to do."""
    IDLE_STOP = "idle_stop"
    """The last such step ends; `records` counts them."""
    PUSH_PROGRESS = "push_progress"
    """Progress was pushed to an operator that is about to be scheduled."""
    SPAWN = "spawn"
    """A worker starts another one; `peer` is the new worker."""
    EXIT = "exit"
    """The worker ends; nothing of it follows."""
    EPOCH_END = "epoch_end"
    """The worker saw its round of input completed."""
    APPLICATION_START = "application_start"
    """A user-defined activity begins."""
    APPLICATION_STOP = "application_stop"
    """It ends."""
    STEP_STOP = "step_stop"
    """A step of the worker ends: Timely returns to the program."""
    PROGRAM = "program"
    """The program's own code ran since the event before."""
    ARRIVAL = "arrival"
    """A communication thread received a message for the worker."""


class VertexKind(StrEnum):
    """Vertex kinds beyond those of events: vertices that the build inserts."""

    ARRIVAL = "arrival"
    """The message that ended a wait arrived; the wait ends here."""
    RUN_START = "run_start"
    """The run's origin on a worker whose first event is later."""
    RUN_END = "run_end"
    """The run's end on a worker whose last event is earlier."""


class ActivityType(StrEnum):
    """Types of edges; everything but `WAITING` may lie on a critical path."""

    PROCESSING = "processing"
    SERIALIZATION = "serialization"
    DESERIALIZATION = "deserialization"
    BUFFER = "buffer"
    WAITING = "waiting"
    INPUT_WAIT = "input_wait"
    IO = "io"
    SPINNING = "spinning"
    SCHEDULING = "scheduling"
    BUSY = "busy"
    PROGRAM = "program"
    WAKE_UP = "wake_up"
    GC = "gc"
    IDLE = "idle"
    APPLICATION = "application"
    UNKNOWN = "unknown"
    DATA_MESSAGE = "data_message"
    PROGRESS_MESSAGE = "progress_message"
    CONTROL_MESSAGE = "control_message"
    SPAWN = "spawn"


MESSAGE_TYPES = (
    ActivityType.DATA_MESSAGE,
    ActivityType.PROGRESS_MESSAGE,
    ActivityType.CONTROL_MESSAGE,
    ActivityType.SPAWN,
)
"""Edge types that connect two workers; all others stay on one."""

LOCAL_TYPES = tuple(kind for kind in ActivityType if kind not in MESSAGE_TYPES)
"""Edge types that stay on one worker."""

RESTING_TYPES = (ActivityType.IDLE, ActivityType.INPUT_WAIT, ActivityType.UNKNOWN)
"""Edge types of a worker that does nothing, as far as anybody knows, and waits for no other worker: no path ends there
while somebody works."""


WARM_UP_ROUNDS = 3
"""First rounds of a run that count for nothing where runs are compared: memory is new, and so are the threads."""
COUNTED_TYPES = (
    ActivityType.PROCESSING,
    ActivityType.SERIALIZATION,
    ActivityType.DESERIALIZATION,
    ActivityType.IO,
    ActivityType.GC,
    ActivityType.SCHEDULING,
    ActivityType.APPLICATION,
    ActivityType.PROGRAM,
    ActivityType.BUSY,
)
"""Edge types of time in which a worker is utilised."""


class EdgeFlags(IntFlag):
    """Bits of the edges' `flags` column."""

    NONE = 0
    INFERRED = 1
    """The type is an inference (work without records), not an observation."""
    NEGATIVE = 2
    """The message is read before it was sent: the clocks disagree."""
    INEXACT_ARRIVAL = 4
    """Nobody logged the arrival; send or read stands in for it (a bound, not a measurement)."""


class RuleSet(StrEnum):
    """How stretches of a worker's time get their types."""

    ST2 = "st2"
    """The local rules of SnailTrail 2, kept exact for comparison; clocks are not aligned."""
    TIMELY = "timely"
    """Wait-state analysis for today's activation-driven Timely."""
    STATED = "stated"
    """The source itself says what its workers did and when they waited; only what ended the waits is looked for."""


class EpochRole(StrEnum):
    """What part of the run a row of the `epochs` table is."""

    STARTUP = "startup"
    """From the run's origin to the first completed epoch."""
    ROUND = "round"
    """From one epoch's completion to the next."""
    SHUTDOWN = "shutdown"
    """After the last completed epoch."""


class Severity(StrEnum):
    """How bad a finding is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class AlertEvent(StrEnum):
    """What happened to an alert."""

    OPENED = "opened"
    RESOLVED = "resolved"
