"""Settings of Spark: the few that the mapping and the advice read, and where their values come from.

Settings can hold secrets, so only those listed here are ever taken in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.sources.spark.texts import OTHER

if TYPE_CHECKING:
    from pag_graph.sources.spark.log_tables import SparkLog

__all__ = ["SETTINGS", "Setting", "known_settings", "setting", "settings_of", "shown"]

SETTINGS: dict[str, tuple[tuple[tuple[int, int], str], ...]] = {
    "spark.app.id": (),
    "spark.app.name": (),
    "spark.blacklist.enabled": (((2, 1), "false"),),
    "spark.cores.max": (),
    "spark.default.parallelism": (),
    "spark.driver.memory": (((0, 0), "1g"),),
    "spark.dynamicAllocation.enabled": (((0, 0), "false"),),
    "spark.dynamicAllocation.executorIdleTimeout": (((1, 2), "60s"),),
    "spark.dynamicAllocation.initialExecutors": (),
    "spark.dynamicAllocation.maxExecutors": (),
    "spark.dynamicAllocation.minExecutors": (((0, 0), "0"),),
    "spark.excludeOnFailure.enabled": (((3, 1), "false"),),
    "spark.executor.cores": (),
    "spark.executor.instances": (),
    "spark.executor.memory": (((0, 0), "1g"),),
    "spark.executor.memoryOverhead": (),
    "spark.executor.memoryOverheadFactor": (((3, 3), "0.1"),),
    "spark.io.compression.codec": (((1, 2), "lz4"),),
    "spark.locality.wait": (((0, 0), "3s"),),
    "spark.locality.wait.node": (),
    "spark.master": (),
    "spark.memory.fraction": (((1, 6), "0.6"),),
    "spark.memory.offHeap.enabled": (((1, 6), "false"),),
    "spark.memory.offHeap.size": (((1, 6), "0"),),
    "spark.memory.storageFraction": (((1, 6), "0.5"),),
    "spark.rdd.compress": (((0, 6), "false"),),
    "spark.reducer.maxSizeInFlight": (((1, 4), "48m"),),
    "spark.scheduler.mode": (((0, 0), "FIFO"),),
    "spark.shuffle.compress": (((0, 6), "true"),),
    "spark.shuffle.service.enabled": (((1, 2), "false"),),
    "spark.shuffle.spill.compress": (((0, 9), "true"),),
    "spark.speculation": (((0, 0), "false"),),
    "spark.speculation.multiplier": (((0, 0), "1.5"), ((4, 0), "3")),
    "spark.speculation.quantile": (((0, 0), "0.75"), ((4, 0), "0.9")),
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": (((3, 0), "67108864b"),),
    "spark.sql.adaptive.autoBroadcastJoinThreshold": (),
    "spark.sql.adaptive.coalescePartitions.enabled": (((3, 0), "true"),),
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": (((3, 2), "1048576b"),),
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": (((3, 2), "true"),),
    "spark.sql.adaptive.enabled": (((1, 6), "false"), ((3, 2), "true")),
    "spark.sql.adaptive.skewJoin.enabled": (((3, 0), "true"),),
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": (((3, 0), "5"),),
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": (((3, 0), "268435456b"),),
    "spark.sql.autoBroadcastJoinThreshold": (((1, 1), "10485760b"),),
    "spark.sql.cbo.enabled": (((2, 2), "false"),),
    "spark.sql.codegen.maxFields": (((2, 0), "100"),),
    "spark.sql.codegen.wholeStage": (((2, 0), "true"),),
    "spark.sql.execution.pythonUDF.arrow.enabled": (((3, 4), "false"), ((4, 2), "true")),
    "spark.sql.files.maxPartitionBytes": (((2, 0), "134217728b"),),
    "spark.sql.files.maxPartitionNum": (),
    "spark.sql.files.minPartitionNum": (),
    "spark.sql.files.openCostInBytes": (((2, 0), "4194304b"),),
    "spark.sql.join.preferSortMergeJoin": (((2, 0), "true"),),
    "spark.sql.leafNodeDefaultParallelism": (),
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": (((2, 2), "128"),),
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": (((3, 0), "true"),),
    "spark.sql.parquet.enableVectorizedReader": (((2, 0), "true"),),
    "spark.sql.parquet.filterPushdown": (((1, 2), "true"),),
    "spark.sql.shuffle.partitions": (((1, 1), "200"),),
    "spark.sql.sources.parallelPartitionDiscovery.threshold": (((1, 5), "32"),),
    "spark.sql.streaming.stateStore.providerClass": (),
    "spark.task.cpus": (((0, 0), "1"),),
}
"""Names, each with Spark's default from a version on; none where it depends on the cluster."""

_VALUE = re.compile(
    r"-?\d{1,15}(?:\.\d{1,6})? ?[A-Za-z]{0,2}|true|false|FIFO|FAIR|lz4|lzf|snappy|zstd|yarn|"
    r"local(?:\[[\d*, ]{1,12}\])?",
    re.ASCII,
)
"""What a value is shown as: numbers, sizes, times and Spark's own words; a person could have written anything."""

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


class Setting(NamedTuple):
    """A setting's value."""

    value: str | None
    """None if it is not known."""
    source: str
    """``query``, ``application``, ``default`` (of the version; nothing in the log says it), or ``unknown``."""


def known_settings(stated: Any) -> dict[str, str]:
    """Return of a log's settings those that are read (`SETTINGS`), each cut to 500 characters."""
    if not isinstance(stated, dict):
        return {}
    return {name: str(value)[:500] for name, value in stated.items() if name in SETTINGS}


def setting(log: SparkLog, name: str, query: int | None = None) -> Setting:
    """Return a setting's value.

    Parameters
    ----------
    log
        As read.
    name
        One of `SETTINGS`.
    query
        SQL execution; what it changed (``modifiedConfigs``, Spark 3.3 and later) counts more than what the application
        began with.

    Returns
    -------
    Setting
        From the query, the application, or the default of the log's version, in this order. Without the application's
        environment in the log, a default would be a guess: it is unknown then.
    """
    query_settings = log.query_settings.get(query, {}) if query is not None else {}
    if name in query_settings:
        return Setting(query_settings[name], "query")
    if name in log.properties:
        return Setting(log.properties[name], "application")
    version = _VERSION.match(log.version)
    if not log.properties or version is None:
        return Setting(None, "unknown")
    is_now = (int(version[1]), int(version[2]))
    defaults = [value for since, value in SETTINGS[name] if since <= is_now]
    return Setting(defaults[-1], "default") if defaults else Setting(None, "unknown")


def settings_of(log: SparkLog) -> dict[str, dict[str, Any]]:
    """Return all settings that are read, as plain values.

    Returns
    -------
    dict
        By name: ``value``, ``source`` (as `setting` has it), and ``queries`` with the values that single queries have.
        A value that is no number, size, time or word of Spark is shown as ``other``.
    """
    settings: dict[str, dict[str, Any]] = {}
    for name in SETTINGS:
        value, source = setting(log, name)
        changed = {
            str(query): shown(query_settings[name])
            for query, query_settings in log.query_settings.items()
            if name in query_settings
        }
        settings[name] = {"value": shown(value), "source": source, **({"queries": changed} if changed else {})}
    return settings


def shown(value: str | None) -> str | None:
    """Return a setting's value as it is shown: a number, size, time or word of Spark; ``other`` for all else."""
    return value if value is None or _VALUE.fullmatch(value) else OTHER
