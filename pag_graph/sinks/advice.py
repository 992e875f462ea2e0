"""Picture of an advice: how much each thread works, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.analyses.definition import Chart
from pag_graph.model.units import duration
from pag_graph.sinks.charts import draw

if TYPE_CHECKING:
    from pag_graph.analyses.advise import Advice

_CHART = Chart(kind="bars", x=("thread",), y=("before", "after"), unit="unit")


def utilisation_picture(advice: Advice) -> str:
    """Draw the utilisation of every thread, and what it would be with the ports of least utility.

    Parameters
    ----------
    advice
        From `advise`.

    Returns
    -------
    str
        An SVG document: a row per thread, the new ones last, with mu(t) and mu'(t) at today's pace.
    """
    names = {thread: f"worker {thread}" for thread in advice.plan.before}
    rows = [
        {
            "thread": names.get(thread, f"new thread {thread - max(names, default=-1)}"),
            "before": advice.plan.before.get(thread, 0.0),
            "after": after,
            "unit": "share",
        }
        for thread, after in sorted(advice.plan.after.items())
    ]
    window_title = f"{advice.window.name} ({duration(advice.window.span_ns)})"
    return draw(_CHART, rows, title=f"Utilisation of threads, {window_title}", labels={}, workers={})
