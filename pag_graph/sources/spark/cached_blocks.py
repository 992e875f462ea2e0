"""Blocks of cached datasets, where a log says what became of them (`spark.eventLog.logBlockUpdates.enabled`)."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["CachedBlocks"]

_BLOCK = re.compile(r"rdd_(\d{1,9})_(\d{1,9})", re.ASCII)


class CachedBlocks:
    """Counts blocks of datasets that were kept, and those that went again.

    A dataset that the program gives up ("unpersist") loses its blocks without an update for each: what went by one was
    evicted.
    """

    def __init__(self) -> None:
        self._there: dict[tuple[int, int], set[str]] = {}
        self._evicted: dict[tuple[int, int], int] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Take in an update of a block (``SparkListenerBlockUpdated``); only blocks of datasets are kept."""
        info = event["Block Updated Info"]
        block = _BLOCK.fullmatch(info["Block ID"])
        if block is None:
            return
        key, manager = (int(block[1]), int(block[2])), str(info["Block Manager ID"]["Executor ID"])
        level, places = info["Storage Level"], self._there.setdefault(key, set())
        if level.get("Use Memory") or level.get("Use Disk"):
            places.add(manager)
        elif manager in places:
            places.discard(manager)
            # A copy elsewhere is as good.
            self._evicted[key] = self._evicted.get(key, 0) + (not places)

    def rows(self) -> list[dict[str, int]]:
        """Return one row per dataset: `rdd`, `blocks` that were kept at some time, `evicted` of them, and `times`."""
        datasets: dict[int, dict[str, int]] = {}
        for key in sorted(self._there):
            dataset = datasets.setdefault(key[0], {"rdd": key[0], "blocks": 0, "evicted": 0, "times": 0})
            dataset["blocks"] += 1
            dataset["evicted"] += key in self._evicted and self._evicted[key] > 0
            dataset["times"] += self._evicted.get(key, 0)
        return list(datasets.values())
