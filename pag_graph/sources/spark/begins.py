"""Where another application begins in a log: its start says so, and what it logged before that is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.sources.spark.event_values import AFTER_A_START, integer

if TYPE_CHECKING:
    from pag_graph.sources.spark.reader import Reading

__all__ = ["Begin", "another_may_begin", "starts_another"]


def starts_another(reading: Reading, event: dict[str, Any], app_id: str) -> bool:
    """Say whether an application's start is that of another application than the one that was read so far.

    Parameters
    ----------
    reading
        What was read before it.
    event
        The start.
    app_id
        Which application it names; may be empty.
    """
    log = reading.log
    if log.app_id and app_id and app_id != log.app_id:
        return True
    begins = event["Timestamp"]
    if log.start_ms is not None:
        # What is no time at all raises, as everywhere.
        return {begins} != {log.start_ms}
    # The log lacks the start of the first one, if this one comes after work, or begins after what was done.
    worked = not reading.counts.keys().isdisjoint(AFTER_A_START)
    return worked or (reading.first_ms is not None and (integer(begins) or 0) > reading.first_ms)


class Begin:
    """What a reading knew at the first event of an application, which may be another one: its start, later on, says.

    Parameters
    ----------
    reading
        Has counted this event already.
    """

    def __init__(self, reading: Reading) -> None:
        log = reading.log
        self._facts = log.version, dict(log.properties)
        self._executors = {name: dict(executor) for name, executor in reading.executors.items()}
        self._counts = dict(reading.unknown), dict(reading.damaged)
        self._odd_values, self._times = reading.tasks.odd_values, (reading.first_ms, reading.last_ms)
        self._events, self.work = sum(reading.counts.values()) - 1, _work(reading)

    def restore(self, reading: Reading) -> int:
        """Make a reading know again what it knew, unless work came since: that would be the first application's.

        Returns
        -------
        int
            How many events it has left out then; not the last one, which is the start.
        """
        if _work(reading) != self.work:
            return 0
        reading.log.version, reading.log.properties = self._facts
        reading.executors = self._executors
        reading.unknown, reading.damaged = self._counts
        reading.tasks.odd_values, (reading.first_ms, reading.last_ms) = self._odd_values, self._times
        return sum(reading.counts.values()) - 1 - self._events


def another_may_begin(reading: Reading) -> bool:
    """Say whether a start may still tell that the last events are another application's, for no work came since.

    Parameters
    ----------
    reading
        What was read.
    """
    return reading.begin is not None and _work(reading) == reading.begin.work


def _work(reading: Reading) -> int:
    return sum(reading.counts.get(name, 0) for name in AFTER_A_START)
