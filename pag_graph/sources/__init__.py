"""One reader per trace format; each writes the canonical trace."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.model.given import path_of, text_of
from pag_graph.sources import st2, timely_prototype
from pag_graph.sources.activities import convert as activities
from pag_graph.sources.spark import convert as spark
from pag_graph.store.safe_files import check_folder, check_regular

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.store.meta import TraceMeta

__all__ = ["FORMATS", "convert", "detect_format"]


class _Reader(NamedTuple):
    mismatch: Callable[[Path], str | None]
    convert: Callable[..., TraceMeta]
    texts: bool = False
    """Whether it leaves texts out unless it is asked for them: its `convert` takes ``keep_texts``."""


def _compiled(package: str, **form: str) -> _Reader:
    """Return a reader whose module calls kernels: it is imported when it reads, for the compiler takes long to load."""

    def later(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(import_module(f"{__name__}.{package}.convert"), name)(*arguments, **form, **options)

        return call

    return _Reader(later("mismatch"), later("convert"))


_READERS: dict[str, _Reader] = {
    timely_prototype.FORMAT: _Reader(timely_prototype.mismatch, timely_prototype.convert),
    st2.RAW_FORMAT: _Reader(st2.raw_mismatch, st2.convert_raw),
    st2.RECORDS_FORMAT: _Reader(st2.records_mismatch, st2.convert_records),
    activities.FORMAT: _Reader(activities.mismatch, activities.convert),
    "kineto": _compiled("kineto"),
    spark.FORMAT: _Reader(spark.mismatch, spark.convert, texts=True),
    **{form: _compiled("spans", form=form) for form in ("jaeger", "otlp", "zipkin")},
}

FORMATS = tuple(_READERS)
"""Names of the formats that can be converted."""


def detect_format(source: str | os.PathLike[str]) -> str:
    """Return the name of the format that a log is in, by its files and columns.

    Parameters
    ----------
    source
        File or directory.

    Returns
    -------
    str
        One of `FORMATS`.

    Raises
    ------
    TraceFormatError
        If no format fits, or more than one does; lists all formats with the reason.
    """
    path = path_of(source, "source")
    if not path.exists():
        message = f"There is nothing at {path}."
        raise TraceFormatError(message, None, {"file": str(path)})
    _check_kind(path)
    reasons = {name: reader.mismatch(path) for name, reader in _READERS.items()}
    fitting = [name for name, reason in reasons.items() if reason is None]
    if len(fitting) == 1:
        return fitting[0]
    listed = "; ".join(f"{name}: {reason or 'fits'}" for name, reason in reasons.items())
    fit = "more than one known format" if fitting else "no known format"
    hint = f"Say which one it is: format={fitting[0]!r}." if fitting else None
    if (path / "meta.json").is_file() and (path / "events").is_dir():
        hint = "This is a canonical trace already: it needs no conversion."
    message = f"{path} is in {fit} ({listed})."
    raise TraceFormatError(message, hint, {"file": str(path), "formats": reasons})


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 the word that users and every library of tables use
    replace: bool = False,
    keep_texts: bool = False,
    epochs: str | None = None,
) -> TraceMeta:
    """Convert a log to a canonical trace.

    Parameters
    ----------
    source
        File or directory with the log.
    target
        Directory of the trace to write.
    format
        One of `FORMATS`; found out when absent.
    replace
        Whether to replace a trace that is there.
    keep_texts
        Whether to keep descriptions of jobs and queries, which event logs of Spark have; all other formats have names
        only, and keep them.
    epochs
        For event logs of Spark: what an epoch is, ``batch``, ``query`` or ``job``. The log is mapped from one instant
        at which none is under way to the next, as it is when it is followed; as a whole where absent.

    Returns
    -------
    TraceMeta
        Also in the trace; says how many rows of the log are no events, and why.

    Raises
    ------
    TraceFormatError
        If the format is unknown or does not fit, or a file is damaged or contradicts another one.
    InvalidParameterError
        If texts are asked for of a format that has none, or epochs of one that is no event log.

    Examples
    --------
    >>> from pag_graph.sources import convert
    >>> convert("logs/", "run.trace")  # doctest: +SKIP
    """
    path, place = path_of(source, "source"), path_of(target, "target")
    name = detect_format(path) if format is None else text_of(format, "format")
    if name not in _READERS:
        message = f"The format {name!r} is not known."
        raise TraceFormatError(message, f"Known are {', '.join(FORMATS)}.", {"format": name})
    _check_kind(path)
    if reason := _READERS[name].mismatch(path):
        message = f"{path} is not in the format {name}: {reason}."
        raise TraceFormatError(message, "Leave out the format, and it is detected.", {"file": str(path)})
    reader = _READERS[name]
    if keep_texts and not reader.texts:
        message = f"{path} is in the format {name}, which has no texts that would be left out."
        raise InvalidParameterError(message, "Leave out --keep-texts.", {"format": name})
    if epochs is not None and name != spark.FORMAT:
        message = f"{path} is in the format {name}, which states itself where its epochs end."
        raise InvalidParameterError(message, "Leave out --epochs.", {"format": name})
    options: dict[str, Any] = {"keep_texts": True} if keep_texts else {}
    options |= {"epochs": epochs} if epochs is not None else {}
    try:
        return reader.convert(path, place, replace=replace, **options)
    except MemoryError as error:
        message = f"{path} takes more memory to convert than there is: {error}."
        hint = "Give the process more memory, or convert a part of the log."
        raise TraceFormatError(message, hint, {"file": str(path)}) from error


def _check_kind(path: Path) -> None:
    """Refuse what is no file or folder, and a folder with such content, before a reader opens and waits for it."""
    check_regular([path])
    if path.is_dir():
        check_folder(path)
