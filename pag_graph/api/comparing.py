"""What is asked of several runs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.api.questions import Pag
from pag_graph.graph.window import whole_number
from pag_graph.model.given import listed, path_of, texts_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from pag_graph.analyses.advising.advice_trials import Evaluation
    from pag_graph.analyses.scaling import Scaling


def _opened(store: str | os.PathLike[str] | Pag) -> Pag:
    return store if isinstance(store, Pag) else Pag(path_of(store, "store"))


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

    opened = [_opened(run).run for run in listed(runs, "runs", "stores")]
    return compare(opened, n=whole_number(n, "n"), cores=None if cores is None else whole_number(cores, "cores"))


def advise_evaluate(
    before: Iterable[str | os.PathLike[str] | Pag],
    after: Iterable[str | os.PathLike[str] | Pag],
    state: str | os.PathLike[str],
    *,
    ports: Iterable[str] = (),
    pairs: Iterable[str] = (),
    single: bool = False,
    paper: bool = False,
    alpha: float | None = None,
) -> Evaluation:
    """Compare runs before and after ports were inserted, and remember in a file which helped.

    Parameters
    ----------
    before, after
        Stores, or graphs that are open, of one program on the same input.
    state
        File of what is known; it is made where there is none, and replaced as a whole.
    ports
        Names of operators that got a port; those that read across threads only after where absent.
    pairs
        Addresses of operators before and after, ``0.4=0.5``, where names do not tell which is which.
    single, paper
        Whether to decide on fewer runs than four a side, and by one number.
    alpha
        Share of the candidates that did not help above which nothing more is proposed; as in the file where absent.

    Returns
    -------
    Evaluation
        As `pag_graph.analyses.advising.advice_trials.advise_evaluate`.

    Raises
    ------
    InvalidParameterError
        If the runs cannot be compared, or the file is something else.
    UnsupportedPlanError
        If the clocks of a run are not aligned.
    SinkError
        If the file system refuses.

    Examples
    --------
    >>> pag_graph.api.advise_evaluate(["b1.pag"], ["a1.pag"], "advice.json", single=True)  # doctest: +SKIP
    """
    from dataclasses import replace

    from pag_graph.analyses.advising.advice_state import read_state
    from pag_graph.analyses.advising.advice_trials import address_pairs
    from pag_graph.analyses.advising.advice_trials import advise_evaluate as evaluate
    from pag_graph.store.in_place import write_whole

    file = path_of(state, "state")
    state_before = read_state(file)
    if alpha is not None:
        state_before = replace(state_before, alpha=alpha)
    sides = listed(before, "before", "stores"), listed(after, "after", "stores")
    runs_before, runs_after = ([_opened(run).run for run in side] for side in sides)
    addresses = address_pairs(texts_of(pairs, "pairs"))
    evaluation = evaluate(
        runs_before,
        runs_after,
        state_before,
        ports=tuple(texts_of(ports, "ports")),
        pairs=addresses,
        single=single,
        paper=paper,
    )
    write_whole(file, evaluation.state.text)
    return evaluation
