"""What a reader finds at a place: a trace, a store, or nothing; as plain values that can be compared."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import polars as pl

from pag_graph import api
from pag_graph.errors import PagGraphError, StoreNotFoundError, TraceFormatError
from pag_graph.model.tables import STORE_TABLES
from pag_graph.store.trace import Trace

State = dict[str, Any]
"""Empty where there is nothing; ``error`` with the class and what it said; or the hash of every table."""

_RUN = ("run_id", "trace_id", "rules", "parameters", "origin_unix_ns", "end_ns", "workers", "source", "clocks")


def digest(frame: pl.DataFrame) -> str:
    """Hash the rows of a table, in whatever order they come."""
    rows = sorted(json.dumps(row, default=str, sort_keys=True) for row in frame.to_dicts())
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def store_state(store: str) -> State:
    """Read all tables of a store, as one open finds them."""
    try:
        run = api.open(store).run
        tables = {name: digest(run.scan(name).collect()) for name in STORE_TABLES}
    except StoreNotFoundError:
        return {}
    except PagGraphError as error:
        return {"error": f"{type(error).__name__}: {error.message}"}
    except Exception as error:  # noqa: BLE001  (what a reader must not see is a finding, not an end)
        return {"error": f"untyped {type(error).__name__}: {error}"}
    info = run.info
    facts = {
        **{name: info.run[name] for name in _RUN},
        "closed_epochs": info.closed_epochs,
        "dropped": dict(info.dropped),
        "events": info.events,
    }
    return {**tables, "run": hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]}


def trace_state(trace: str) -> State:
    """Read all tables of a trace, as one open finds them."""
    try:
        opened = Trace.open(trace)
        tables = {
            "events": digest(pl.DataFrame(pl.from_arrow(opened.events()))),
            **{
                name: digest(pl.DataFrame(pl.from_arrow(getattr(opened, name))))
                for name in ("operators", "channels", "workers", "findings")
            },
        }
    except TraceFormatError as error:
        return {"error": error.message} if Path(trace).exists() else {}
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}"}
    return {**tables, "meta": hashlib.sha256(repr(opened.meta).encode()).hexdigest()[:16]}


def spark_state(folder: str) -> State:
    """Read what ``pag spark --out`` leaves: a trace and the store that was built from it."""
    trace, store = trace_state(f"{folder}/trace"), store_state(f"{folder}/pag")
    if not trace and not store:
        return {}
    return {"trace": trace, "store": store}


STATES = {"trace": trace_state, "store": store_state, "spark": spark_state}

# Also the checksum after it, which differs with it.
_RANDOM = re.compile(r"[0-9a-f]{32}(?:-[0-9a-f]{8})?|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def nameless(path: str) -> str:
    """Put a star where a path has a number drawn at random."""
    return _RANDOM.sub("*", path)


_OF_A_LOG = re.compile(r"\d{20}\.(?:json|checkpoint\.parquet)|_last_checkpoint")


def listing(folder: Path, *, rows: bool) -> list[str]:
    """Name all that lies below a folder, but for the logs of Delta tables, which only grow.

    Parameters
    ----------
    folder
        The folder.
    rows
        Whether also files of rows that such a log names: those of replaced versions stay until somebody asks.
    """
    named = set() if rows else _named_by_logs(folder)
    return sorted(
        nameless(str(path.relative_to(folder))) + ("/" if path.is_dir() else "")
        for path in folder.rglob("*")
        if path not in named and not (path.parent.name == "_delta_log" and _OF_A_LOG.fullmatch(path.name))
    )


def _named_by_logs(folder: Path) -> set[Path]:
    """Files of rows that logs of Delta tables name, and the states that the commits in them pin."""
    states = {
        file.parent.parent / name
        for file in folder.rglob("_delta_log/*.json")
        for name in re.findall(r"state-[0-9a-f-]+\.json", file.read_text())
    }
    return states | {
        file.parent.parent / action[kind]["path"]
        for file in folder.rglob("_delta_log/*.json")
        for line in file.read_text().splitlines()
        if (action := json.loads(line))
        for kind in ("add", "remove")
        if kind in action
    }
