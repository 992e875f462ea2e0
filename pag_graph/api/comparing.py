"""What is asked of several runs at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.api.questions import Pag

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from pag_graph.analyses.scaling import Scaling


def scaling(runs: Iterable[str | os.PathLike[str] | Pag], *, n: int = 5, cores: int | None = None) -> Scaling:
    """Compare runs of one program with different numbers of workers.

    Parameters
    ----------
    runs
        Stores, or graphs that are open, of one program on the same input; repetitions are runs of their own.
    n
        Activities and operators to tell apart; the others are summed up.
    cores
        How many cores the runs had, to say where workers outnumber them.

    Returns
    -------
    Scaling
        As `pag_graph.analyses.scaling.scaling`; `study.headline()` says the most important of it, and
        `pag_graph.sinks.scaling.scaling_picture` draws it.

    Raises
    ------
    InvalidParameterError
        If the runs cannot be compared.
    UnsupportedPlanError
        If the clocks of a run are not aligned.

    Examples
    --------
    >>> pag_graph.api.scaling(["w1.pag", "w2.pag", "w4.pag"], cores=4)  # doctest: +SKIP
    """
    from pag_graph.analyses.scaling import scaling as compare

    opened = [each if isinstance(each, Pag) else Pag(Path(each)) for each in runs]
    return compare([pag.run for pag in opened], n=n, cores=cores)
