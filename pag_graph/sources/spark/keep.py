"""The folder of `pag spark --out`: the trace of a log and the store built from it, both or neither.

They are made beside the folder and take its place in one step (`store.in_place`). A store that is replaced goes on as
it does with `pag build --replace`: its earlier states stay until they are cleaned away, so that who reads one can.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pag_graph.errors import PagGraphError, StoreConflictError, StoreError, StoreExistsError
from pag_graph.model.enums import RuleSet
from pag_graph.rules.rows import RuleParameters
from pag_graph.sources.spark.convert import write_mapped
from pag_graph.store.commit import check_target
from pag_graph.store.delta import STAGING, open_store
from pag_graph.store.held import scratch_folder
from pag_graph.store.in_place import clean_beside, refusals, whole_folder
from pag_graph.store.trace import Trace, check_trace_place
from pag_graph.store.trace_files import CHECKSUMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pag_graph.store.meta import TraceMeta

    class _Mapped(Protocol):
        @property
        def meta(self) -> TraceMeta: ...

    _Write = Callable[[Any, Path], None]

TRACE, STORE = "trace", "pag"
"""Names within the folder."""


@contextmanager
def temporary_results() -> Iterator[Path]:
    """Yield a folder for trace and store that nobody is to see; what killed commands left of theirs is removed."""
    with scratch_folder("pag-spark-") as folder:
        yield folder


def is_result_of(mapped: _Mapped, folder: Path, write: _Write = write_mapped) -> bool:
    """Tell whether a folder holds the trace of a log already, byte for byte, and a store that is built from it.

    Parameters
    ----------
    mapped
        The log.
    folder
        Folder with trace and store, if there are any.
    write
        Writes `mapped` to a directory; what it writes is compared by its checksums.
    """
    with suppress(PagGraphError):
        info = open_store(folder / STORE)
        run = info.run["trace_id"], info.run["rules"], info.run["parameters"]
        expected = mapped.meta.trace_id, RuleSet.STATED, asdict(RuleParameters())
        if run == expected and _has_trace(mapped, folder, write):
            return Trace.open(folder / TRACE).rows == info.events
    return False


def _has_trace(mapped: _Mapped, folder: Path, write: _Write) -> bool:
    checksums = folder / TRACE / CHECKSUMS
    if not checksums.is_file():
        return False
    with temporary_results() as scratch:
        write(mapped, scratch / TRACE)
        return checksums.read_bytes() == (scratch / TRACE / CHECKSUMS).read_bytes()


def place_of(folder: Path) -> Path:
    """Return a folder's whole name, as all here take it: absolute, with links as they are.

    What a killed command left there is put back or removed first.
    """
    place = Path(os.path.abspath(folder))  # noqa: PTH100  (links stay links, and `..` has no name)
    clean_beside(place)
    return place


@contextmanager
def new_results(mapped: _Mapped, folder: Path, *, replace: bool, write: _Write = write_mapped) -> Iterator[Path]:
    """Yield a folder for trace and store that becomes `folder` when the block ends well.

    Parameters
    ----------
    mapped
        The log.
    folder
        Where they are to be, from `place_of`.
    replace
        Whether to take the place of what is there. A trace of the very same log without a store, as earlier releases
        left it when they were killed, gives way in any case.
    write
        Writes the trace of the log to a folder.

    Yields
    ------
    Path
        Holds the store that is to be replaced, as ``pag``, if there is one.

    Raises
    ------
    StoreExistsError
        If something is there that is not to be replaced.
    StoreConflictError
        If somebody else built to the store meanwhile.
    StoreError
        If the file system refuses.
    """
    began = check_target(folder / STORE, "replace")
    replace = replace or (began is None and _has_trace(mapped, folder, write))
    check_trace_place(folder / TRACE, replace=replace)
    if began is not None and not replace:
        check_target(folder / STORE, "error")

    def check() -> None:
        check_trace_place(folder / TRACE, replace=replace)
        now = check_target(folder / STORE, "replace")
        if (now and now.versions) != (began and began.versions):
            raise StoreConflictError.from_concurrent_build(folder / STORE)

    if folder.exists() and not folder.is_dir():
        message = f"{folder} exists and is not a folder."
        raise StoreExistsError(message, "Choose another place.", {"path": str(folder)})
    with (
        refusals(folder, "The folder", StoreError),
        whole_folder(folder, parts=(TRACE, STORE), check=check) as place,
    ):
        if began is not None:
            shutil.copytree(
                folder / STORE, place / STORE, copy_function=_link, ignore=shutil.ignore_patterns(f"{STAGING}*")
            )
        yield place


def _link(source: str, target: str) -> None:
    """Give a file, which nobody changes once it is written, a second name; copy it where that cannot be."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        # A build that runs there removed its own file.
        return
    except OSError:
        shutil.copy2(source, target)
