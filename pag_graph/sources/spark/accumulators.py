"""Accumulators of plan nodes, summed by stage attempt.

A task end says by how much the task changed an accumulator (`Update`), and a stage's end what the accumulator had come
to (`Value`): a total that runs on over all stages that share it, such as those of a reused exchange, a cached table, or
another attempt. So the updates are summed; totals count only in a log whose tasks state no updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.sources.spark.task_rows import LARGEST

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Accumulators"]


class Accumulators:
    """What the stages of a log added to the accumulators of plan nodes, in the making."""

    def __init__(self) -> None:
        self.wanted: set[int] = set()
        """Those that belong to a plan node."""
        self.odd_values = 0
        """Values that are no numbers; they are left out."""
        self._sums: dict[tuple[int, int], dict[int, list[int]]] = {}
        """Per stage attempt and accumulator: the sum of the updates, and how many tasks changed it."""
        self._totals: dict[tuple[int, int, int], int] = {}

    def add_task(self, stage: int, attempt: int, items: Any) -> None:
        """Take in what one task added.

        Parameters
        ----------
        stage, attempt
            Of the task.
        items
            ``Accumulables`` of its end, as the event has them; what is no number is counted in `odd_values`.
        """
        sums = self._sums.get((stage, attempt))
        if sums is None:
            sums = self._sums[stage, attempt] = {}
        try:
            for accumulable in items:
                # Adaptive execution can tell of a plan only after its first stages ran.
                if accumulable.get("Metadata") == "sql" or accumulable.get("ID") in self.wanted:
                    number, update = accumulable["ID"], accumulable.get("Update")
                    if update is not None:
                        added = int(update)
                        so_far = sums.get(number)
                        if so_far is None:
                            sums[number] = [added, 1 if added else 0]
                        elif added:
                            so_far[0] += added
                            so_far[1] += 1
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            self.odd_values += 1

    def add_stage(self, stage: int, attempt: int, items: Any) -> None:
        """Take in the totals at a stage's end; accumulators of the program itself are passed over.

        Parameters
        ----------
        stage, attempt
            The stage attempt.
        items
            ``Accumulables`` of its description, as the event has them.
        """
        try:
            for accumulable in items:
                if isinstance(accumulable.get("Value"), int | str) and type(accumulable["ID"]) is int:
                    self._totals[stage, attempt, accumulable["ID"]] = int(accumulable["Value"])
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            # Accumulators of the program can hold anything, and are none of a plan node.
            return

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per stage attempt and accumulator of a plan node.

        ``value`` is the sum of the updates, and ``updates`` how many tasks changed it; where no task states any, they
        are the total and null.
        """
        sums: dict[tuple[int, int, int], tuple[int, int | None]] = {
            (*key, number): (added, updates)
            for key, stage_sums in self._sums.items()
            for number, (added, updates) in stage_sums.items()
        }
        totals = {key: (total, None) for key, total in self._totals.items()}
        for (stage, attempt, number), (added, updates) in (sums or totals).items():
            if number not in self.wanted:
                continue
            bounded = max(-LARGEST, min(added, LARGEST))
            metric = {"stage": stage, "stage_attempt": attempt, "accumulator": number, "value": bounded}
            yield metric | {"updates": updates}
