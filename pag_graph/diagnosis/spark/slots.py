"""Cores that no task may use, because each task asks for several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.changes import of_program, of_setting
from pag_graph.diagnosis.spark.cores import most_cores, recorded_cores
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.look import Cause, Look

__all__ = ["unused_slots"]

_TASK_CPUS = "spark.task.cpus"
_THREADS = 1.1
"""Tasks that take more processor time than run time work in several threads."""


def unused_slots(look: Look) -> list[Cause]:
    """Find cores that no task may use, and say when the application ends if tasks ask for one core each."""
    all_cores = recorded_cores(look.schedule, every=True)
    most_at_once, used = most_cores(all_cores), most_cores(look.cores)
    run, cpu = int(look.tasks["run"].sum()), int(look.tasks["cpu_ns"].sum())
    if used >= most_at_once or cpu > _THREADS * run:
        return []
    saved = look.base - look.ends(cores=all_cores)
    if not look.matters(saved):
        return []
    stated = setting(look.schedule.log, _TASK_CPUS)
    by_setting = stated.value not in {None, "1"}
    reason = (
        f"each asks for {stated.value} ({_TASK_CPUS})" if by_setting else "each asks for several (resource profile)"
    )
    text = f"Of {most_at_once} cores {used} were used at once at most, though tasks were waiting: {reason}."
    if cpu:
        text += f" Tasks had a processor for {cpu / max(run, 1):.0%} of their run time: they work in one thread."
    change = (
        of_setting(look.schedule.log, _TASK_CPUS, "1")
        if by_setting
        else of_program("cores of a task", f"{most_at_once // used}", "1", "the stages' resource profile")
    )
    signal = {"cores": most_at_once, "used_at_once": used, "cpu_share": round(cpu / max(run, 1), 4)}
    traps = (
        "Tasks that work in several threads would have more processor time than run time."
        if cpu
        else "Processor time was not measured: tasks can work in several threads.",
        "With more tasks at once each has less memory.",
    )
    return [look.cause("unused_slots", saved, text, signal=signal, changes=(change,), traps=traps, bound=True)]
