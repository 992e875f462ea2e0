"""What jobs do: look at all windows of a store, or for a motif, and write the rows as Parquet."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from pag_graph.analyses import PairAnalysis, RunAnalysis, WindowAnalysis, find_analysis, table_of
from pag_graph.analyses.runner import Runner, rows_of_stretch, with_epoch
from pag_graph.api.building import engine_of
from pag_graph.api.questions import Pag, spreading
from pag_graph.builder.engine import silent
from pag_graph.errors import InvalidParameterError, PagGraphError, SinkError
from pag_graph.graph.pinned import PinnedRun
from pag_graph.model.given import mapping, path_of
from pag_graph.store.in_place import refusals, whole_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pag_graph.builder.engine import Engine
    from pag_graph.graph.window import Window

_ROW_GROUP = 64 * 1024


def analyse(
    store: str | os.PathLike[str],
    output: str | os.PathLike[str],
    analysis: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    against: str | os.PathLike[str] | None = None,
    engine: Engine | str = "spark",
    across: bool = False,
    progress: Callable[[str, int, int], None] = silent,
) -> dict[str, Any]:
    """Run one analysis over all windows of a store and write its rows as Parquet.

    Parameters
    ----------
    store, output
        Directories; `output` must be new or empty. One file per task is written to it, ``epoch*.parquet``, whose rows
        have a column `epoch`; an analysis of the whole run writes ``run.parquet``.
    analysis
        Name out of `ANALYSES`.
    parameters
        Fields of its parameters; defaults where absent.
    against
        For a comparison: another store, whose windows of the same epochs are compared with. Without it each window
        is compared with the one before.
    engine
        ``spark``, ``local``, or an engine of one's own; some windows that follow each other are one task.
    across
        Instead of that, look at one window after the other, and spread each over all executors of the engine ``spark``:
        for windows that are too large for one task. The rows are the same.
    progress
        Called with (label, done, all).

    Returns
    -------
    dict
        Counts of windows and rows.

    Raises
    ------
    InvalidParameterError
        If there is no such analysis or parameter, or nothing to compare.
    UnsupportedPlanError
        If the run's rule set gives the analysis no meaning, or its windows cannot be spread.
    SinkError
        If `output` holds something.
    """
    definition = find_analysis(analysis)
    if across:
        definition.check_across()
        if engine == "local":
            message = "Windows are spread over Spark's executors, and the engine is local."
            raise InvalidParameterError(message, "analyse(..., engine='spark', across=True)")
    chosen_parameters = definition.make_parameters(mapping(parameters, "parameters"))
    if against is not None and not isinstance(definition, PairAnalysis):
        message = f"{definition.name} does not compare, so it takes no other store."
        raise InvalidParameterError(message)
    pag = Pag(path_of(store, "store"))
    definition.check(pag.run)
    target = _new_folder(output)
    chosen = engine_of(engine)
    spread = spreading(pag.run, getattr(chosen, "spark", None) if across else None)
    runner = Runner(run=pag.run, engine=chosen, spread=spread, progress=progress)
    rows: tuple[int, ...]
    with _made(target):
        if isinstance(definition, RunAnalysis):
            table = table_of(runner.whole(definition, pag.rounds(), chosen_parameters))
            windows, rows = len(pag.rounds()), (_write(table, target, "run"),)
        elif isinstance(definition, WindowAnalysis):
            windows, rows = _of_windows(runner, definition, chosen_parameters, target)
        else:
            base = None if against is None else Pag(path_of(against, "against"))
            pairs, states = _pairs(pag, base), (PinnedRun.of((base or pag).run), PinnedRun.of(pag.run))
            compare = partial(_analyse_pair, *states, target, definition.name, chosen_parameters)
            windows, rows = len(pairs), tuple(chosen.map(compare, pairs, label=definition.name, progress=progress))
    return {
        "analysis": definition.name,
        "run_id": pag.run.info.run["run_id"],
        "windows": windows,
        "rows": sum(rows),
    }


def _of_windows(
    runner: Runner, analysis: WindowAnalysis[Any], parameters: Any, target: Path
) -> tuple[int, tuple[int, ...]]:
    """Write the rows of all windows, a file for each task; return how many windows there are, and the rows of each."""
    windows = runner.run.windows()
    if runner.spread is not None:
        tables = zip(windows, runner.spread_rows(analysis, windows, parameters), strict=True)
        return len(windows), tuple(_write(table, target, f"epoch-{window.epoch:09}") for window, table in tables)
    # A task looks at as many windows as are read together, and writes what it finds.
    task = partial(_analyse_windows, PinnedRun.of(runner.run), target, analysis.name, parameters)
    stretches = list(runner.run.stretches(windows, tasks=runner.engine.tasks))
    counts = runner.engine.map(task, stretches, label=analysis.name, progress=runner.progress)
    return len(windows), tuple(counts)


def write_motif(
    store: str | os.PathLike[str],
    output: str | os.PathLike[str],
    pattern: str,
    where: str | None = None,
    *,
    epochs: Sequence[int] | None = None,
    parameters: Mapping[str, int | float | str | bool] | None = None,
    distinct: bool = False,
    spark: SparkSession | None = None,
) -> dict[str, Any]:
    """Find a motif with Spark and write its matches as Parquet.

    Parameters
    ----------
    store, output
        Directories; `output` must be new or empty.
    pattern, where, epochs, parameters, distinct
        See `Pag.motif`.
    spark
        Session to use; the active one, or a new one, where absent.

    Returns
    -------
    dict
        The run, the motif, and how many matches were written.

    Raises
    ------
    MotifSyntaxError
        If motif or filter cannot be understood.
    SinkError
        If `output` holds something, or cannot be made.
    """
    from pag_graph.engines.frames import parquet
    from pag_graph.engines.session import spark_session

    pag, target = Pag(path_of(store, "store")), _new_folder(output)
    # Mistakes in the pattern are reported before Spark starts.
    pag.motif(pattern, where, epochs=epochs, parameters=parameters, distinct=distinct)
    session = spark or spark_session(app="pag_graph motif")
    query = pag.motif(pattern, where, epochs=epochs, parameters=parameters, distinct=distinct, spark=session)
    with _made(target):
        query.frame().write.mode("append").parquet(str(target))  # type: ignore[union-attr]
    matches = parquet(session.read, [str(target)]).count()
    return {"run_id": pag.run.info.run["run_id"], "motif": str(query.question.motif), "matches": matches}


def _new_folder(output: str | os.PathLike[str]) -> Path:
    """Return where results go, as an absolute path.

    Raises
    ------
    SinkError
        If something is there.
    """
    target = path_of(output, "output").absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        message = f"{target} exists and is not empty."
        raise SinkError(message, "Choose a new place for the results.", {"path": str(target)})
    return target


@contextmanager
def _made(target: Path) -> Iterator[None]:
    """Make a folder, which goes again if the block fails before it has written anything.

    Raises
    ------
    SinkError
        If the file system refuses.
    PagGraphError
        That of the block.
    """
    is_new = not target.exists()
    with refusals(target, "", SinkError):
        target.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except PagGraphError:
        if is_new and not any(target.iterdir()):
            target.rmdir()
        raise


def _pairs(pag: Pag, against: Pag | None) -> list[tuple[Window, Window]]:
    windows = pag.run.windows()
    if against is None:
        pairs, message = list(pairwise(windows)), f"{pag.run.info.path} has one epoch, and none before it."
    else:
        others = {window.epoch: window for window in against.run.windows()}
        pairs = [(others[window.epoch], window) for window in windows if window.epoch in others]
        message = f"{against.run.info.path} and {pag.run.info.path} have no epoch in common."
    if not pairs:
        raise InvalidParameterError(message, "There is nothing to compare. `pag info` lists the epochs of a store.")
    return pairs


def _analyse_windows(state: PinnedRun, target: Path, name: str, parameters: Any, windows: Sequence[Window]) -> int:
    stem = f"epochs-{windows[0].epoch:09}-{windows[-1].epoch:09}"
    return _write(rows_of_stretch(state, name, parameters, windows), target, stem)


def _analyse_pair(
    base: PinnedRun, state: PinnedRun, target: Path, name: str, parameters: Any, pair: tuple[Window, Window]
) -> int:
    comparison = find_analysis(name)
    assert isinstance(comparison, PairAnalysis)  # noqa: S101  (tasks know an analysis by its name)
    before, after = base.open().snapshot(pair[0]), state.open().snapshot(pair[1])
    table = table_of(comparison(before, after, parameters))
    return _write(with_epoch(table, pair[1]), target, f"epoch-{pair[1].epoch:09}")


def _write(table: pa.Table, target: Path, stem: str) -> int:
    # A task that is run again overwrites its own file; one that is killed leaves nothing that readers take for data.
    with whole_file(target / f"{stem}.parquet") as file:
        # Rows are in the order of epochs: readers of a few epochs skip the other row groups.
        pq.write_table(table, file, compression="zstd", row_group_size=_ROW_GROUP)
    return int(table.num_rows)
