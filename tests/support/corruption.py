"""Damage to traces on disk, by seed, and what a build makes of it.

A damaged trace must be refused with a typed error, or be built with a finding that the intact one does not have, or
give the very same graph (the damage hit something that means nothing).
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pag_graph import api
from pag_graph.errors import PagGraphError
from pag_graph.store.trace import Trace, write_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_EXTREMES = (-(2**63), 2**63 - 1, -1, -(2**31), 2**31 - 1, 2**53 + 1, 2**62)
_TABLES = ("vertices", "edges", "epochs", "operators", "channels", "workers")


def seal(trace: Path, target: Path) -> Path:
    """Copy a trace as a converter would write it: with the checksums of its files."""
    opened = Trace.open(trace)
    files = [(file.name.split("/")[-1].removesuffix(".parquet"), trace / file.name) for file in opened.files]
    write_trace(
        target,
        meta=opened.meta,
        events=((stem, pq.read_table(path, partitioning=None)) for stem, path in files),
        operators=opened.operators,
        channels=opened.channels,
        workers=opened.workers,
    )
    return target


def damage(trace: Path, seed: int) -> str:
    """Damage the files of a trace in one of many ways.

    Parameters
    ----------
    trace
        Directory; its files are changed in place.
    seed
        Chooses what is done, where.

    Returns
    -------
    str
        What was done.
    """
    chance = random.Random(seed)
    files = sorted(path for path in trace.rglob("*") if path.is_file())
    tables = [path for path in files if path.suffix == ".parquet"]
    events = [path for path in tables if path.parent.name == "events"]
    kinds: dict[str, tuple[list[Path], Callable[[Path, random.Random], str]]] = {
        "flip": (files, _flip),
        "truncate": (files, _truncate),
        "empty": (files, _empty),
        "remove": (files, _remove),
        "entry": ([path for path in files if path.suffix == ".json"], _change_entry),
        "drop rows": (tables, _drop),
        "lose events": (events, _drop),
        "repeat": (tables, _repeat),
        "swap": (events, _swap),
        "drop column": (tables, _drop_column),
        "value": (tables, _change_value),
        "event value": (events, _change_value),
    }
    kind = chance.choice(sorted(kinds))
    candidates, change = kinds[kind]
    file = chance.choice(candidates)
    return f"{kind} in {file.relative_to(trace)}: {change(file, chance)}"


def _flip(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    places = sorted(chance.sample(range(len(content)), min(len(content), chance.choice((1, 1, 3, 20)))))
    for place in places:
        content[place] ^= chance.randrange(1, 256)
    file.write_bytes(bytes(content))
    return f"bytes {places}"


def _truncate(file: Path, chance: random.Random) -> str:
    content = file.read_bytes()
    length = chance.randrange(len(content))
    file.write_bytes(content[:length])
    return f"{length} of {len(content)} bytes"


def _empty(file: Path, chance: random.Random) -> str:
    del chance
    file.write_bytes(b"")
    return "nothing left"


def _remove(file: Path, chance: random.Random) -> str:
    del chance
    file.unlink()
    return "gone"


def _change_entry(file: Path, chance: random.Random) -> str:
    content = json.loads(file.read_text(encoding="utf-8"))
    name = chance.choice(sorted(content))
    value = chance.choice((None, True, False, -1, 0, 2**63, "", "x", [], [1], {}, {"x": -1}, 1.5))
    content[name] = value
    file.write_text(json.dumps(content), encoding="utf-8")
    return f"{name} = {value!r}"


def _rewrite(file: Path, table: pa.Table) -> None:
    pq.write_table(table, file, compression="zstd")


def _rows(table: pa.Table, chance: random.Random) -> tuple[int, int]:
    if not table.num_rows:
        return 0, 0
    low = chance.randrange(table.num_rows)
    return low, min(table.num_rows, low + chance.choice((1, 1, 2, 10)))


def _drop(file: Path, chance: random.Random) -> str:
    table = pq.read_table(file, partitioning=None)
    low, high = _rows(table, chance)
    _rewrite(file, pa.concat_tables([table.slice(0, low), table.slice(high)]))
    return f"rows {low} to {high} of {table.num_rows}"


def _repeat(file: Path, chance: random.Random) -> str:
    table = pq.read_table(file, partitioning=None)
    low, high = _rows(table, chance)
    _rewrite(file, pa.concat_tables([table.slice(0, high), table.slice(low)]))
    return f"rows {low} to {high}"


def _swap(file: Path, chance: random.Random) -> str:
    table = pq.read_table(file, partitioning=None)
    order = np.arange(table.num_rows)
    row, other_row = chance.randrange(len(order)), chance.randrange(len(order))
    order[[row, other_row]] = order[[other_row, row]]
    _rewrite(file, table.take(pa.array(order)))
    return f"rows {row} and {other_row}"


def _drop_column(file: Path, chance: random.Random) -> str:
    table = pq.read_table(file, partitioning=None)
    name: str = chance.choice(table.column_names)
    _rewrite(file, table.drop_columns([name]))
    return name


def _change_value(file: Path, chance: random.Random) -> str:
    table = pq.read_table(file, partitioning=None)
    if not table.num_rows:
        return "no rows"
    position, row = chance.randrange(table.num_columns), chance.randrange(table.num_rows)
    field = table.schema.field(position)
    values = table.column(position).to_pylist()
    before = values[row]
    if pa.types.is_integer(field.type):
        signed = pa.types.is_signed_integer(field.type)
        limit = 2 ** (field.type.bit_width - signed)
        neighbours = [] if before is None else [before + 1, before - 1]
        fitting = [value for value in (*_EXTREMES, *neighbours) if -limit * signed <= value < limit]
        values[row] = chance.choice([None, 0, *fitting])
    elif pa.types.is_boolean(field.type):
        values[row] = chance.choice((None, True, False))
    else:
        values[row] = chance.choice([None, "", "x", *(value for value in values if value is not None)])
    changed = field.with_nullable(True)  # noqa: FBT003  (Arrow's own signature)
    _rewrite(file, table.set_column(position, changed, pa.array(values, field.type)))
    return f"{field.name} of row {row}: {before!r} -> {values[row]!r}"


def answer(trace: Path, store: Path) -> dict[str, Any]:
    """Build a trace and say what came of it.

    Parameters
    ----------
    trace, store
        Directories; the store is removed again.

    Returns
    -------
    dict
        ``error``, the name of a typed error's class; or ``graph``, a hash of all rows of the store but the findings,
        with ``findings`` and ``dropped``, both counted.
    """
    try:
        report = api.build(trace, store, engine="local", mode="replace")
        run = api.open(store).run
        digest = hashlib.sha256()
        for name in _TABLES:
            frame = run.scan(name).collect()
            digest.update(str((name, frame.columns, frame.height)).encode())
            hashes = frame.hash_rows(seed=7).sort() if frame.height else pl.Series([], dtype=pl.UInt64)
            digest.update(hashes.to_numpy().tobytes())
        facts = {name: run.info.run[name] for name in ("run_id", "rules", "origin_unix_ns", "end_ns", "source")}
        digest.update(json.dumps(facts, sort_keys=True).encode())
        return {
            "graph": digest.hexdigest(),
            "findings": Counter(report.findings["finding"].to_pylist()),
            "dropped": Counter(report.store.dropped),
        }
    except PagGraphError as error:
        return {"error": type(error).__name__, "message": error.message}
    finally:
        shutil.rmtree(store, ignore_errors=True)


def verdict(intact: dict[str, Any], damaged: dict[str, Any]) -> str:
    """Say how a build took damage: ``error``, ``finding``, ``same``, or ``silent``, which must not be."""
    if "error" in damaged:
        return "error"
    if damaged["findings"] - intact["findings"] or set(damaged["dropped"]) - set(intact["dropped"]):
        return "finding"
    return "same" if damaged["graph"] == intact["graph"] else "silent"


def try_one(trace: Path, place: Path, seed: int, intact: dict[str, Any]) -> tuple[str, str]:
    """Damage a copy of a trace and build it.

    Parameters
    ----------
    trace, place
        The intact trace, and an empty directory to work in.
    seed, intact
        What to do to it, and the `answer` that the intact trace gives.

    Returns
    -------
    damage_done, verdict
        As `damage` and `verdict` say; an exception of another type is the verdict ``crash: ...``.
    """
    copy = place / f"trace-{seed}"
    shutil.copytree(trace, copy)
    damage_done = damage(copy, seed)
    try:
        return damage_done, verdict(intact, answer(copy, place / f"store-{seed}"))
    except Exception as error:  # noqa: BLE001  (that there is none is what is being tested)
        return damage_done, f"crash: {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(copy, ignore_errors=True)
