"""Anything done to the files that something reads: sources of all formats, canonical traces, and stores.

Every reader gets a small folder to which something was done by seed, and must refuse it with a typed error, or tell it
in a finding, or give the very same answer. What it cannot notice by its nature is said in `docs/reliability.md`.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import shutil
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from pag_graph import api
from pag_graph.errors import PagGraphError
from pag_graph.graph.run import Run
from pag_graph.model.tables import STORE_TABLES
from pag_graph.sources import convert
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log
from pag_graph.store.trace import Trace
from tests.attack import sources
from tests.attack.operations import event_log, growing
from tests.attack.states import digest, nameless
from tests.support import corruption

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any]
LONGEST_S = 60
_ROOM = 4 << 30
"""Bytes of address space that reading a damaged file may take: the files are a few kB."""


def _trace_answer(opened: Trace) -> Answer:
    tables = [
        digest(pl.DataFrame(pl.from_arrow(table)))
        for table in (opened.events(), opened.operators, opened.channels, opened.workers)
    ]
    meta = opened.meta
    kept = [meta.workers, meta.complete, meta.aligned, meta.prepared, str(meta.rules)]
    return {
        "graph": json.dumps([tables, kept]),
        "findings": _counted(opened.findings),
        "dropped": Counter(meta.dropped),
    }


def _counted(findings: pa.Table) -> Counter[str]:
    return Counter(f"{row['finding']} {row.get('observed')}" for row in findings.to_pylist())


def look_at_source(folder: Path, work: Path) -> Answer:
    """Convert what lies in a folder, and read the trace."""
    inner = sorted(folder.iterdir())
    # A single file is given by its name, as people do.
    source = inner[0] if len(inner) == 1 and inner[0].is_file() else folder
    convert(source, work / "trace")
    return _trace_answer(Trace.open(work / "trace"))


def look_at_trace(folder: Path, work: Path) -> Answer:
    """Build a trace and read the store."""
    report = api.build(folder, work / "store", engine="local")
    answer = look_at_store(work / "store", work)
    return {**answer, "findings": _counted(report.findings)}


def look_at_store(folder: Path, work: Path) -> Answer:
    """Read all tables of a store, and what only its metadata say."""
    del work
    run = Run(folder)
    tables = {name: run.scan(name).collect() for name in STORE_TABLES}
    facts = {name: value for name, value in run.info.run.items() if name != "product_version"}
    graph = [digest(table) for name, table in tables.items() if name != "findings"]
    return {
        "graph": json.dumps([graph, facts, run.info.closed_epochs, run.info.events], sort_keys=True),
        "findings": _counted(tables["findings"].to_arrow()),
        "dropped": Counter(run.info.dropped),
    }


def look_at_log(folder: Path, work: Path) -> Answer:
    """Read an event log of Spark and map it."""
    del work
    (log,) = find_logs(folder)
    read = read_log(log)
    found = Counter({f"{one.finding} {one.observed}": 1 for one in read.findings})
    mapped = map_log(read)
    rows = pl.concat([pl.DataFrame(pl.from_arrow(table)) for _, table in mapped.events()], how="diagonal")
    return {
        "graph": digest(rows),
        "findings": found + _counted(mapped.findings),
        "dropped": Counter(mapped.meta.dropped),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Something that reads files."""

    name: str
    make: Callable[[Path], object]
    """Writes a folder that is whole."""
    look: Callable[[Path, Path], Answer]
    sealed: bool
    """Whether what it reads carries checksums, so that nothing may go unnoticed."""


def _store(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        for epochs in (2, 3):
            growing(epochs).write(Path(name) / str(epochs))
        api.build(Path(name) / "2", folder, engine="local")
        api.build(Path(name) / "3", folder, engine="local", mode="append")


def _checkpointed(folder: Path) -> None:
    from deltalake import DeltaTable

    _store(folder)
    for name in STORE_TABLES:
        DeltaTable(folder / name).create_checkpoint()


def _log(folder: Path) -> None:
    folder.mkdir()
    event_log(5).write(folder / "app-1")


READERS = {
    reader.name: reader
    for reader in (
        Reader(name="activities-csv", make=sources.activities_csv, look=look_at_source, sealed=False),
        Reader(name="activities-jsonl", make=sources.activities_jsonl, look=look_at_source, sealed=False),
        Reader(name="activities-parquet", make=sources.activities_parquet, look=look_at_source, sealed=False),
        Reader(name="timely-prototype", make=sources.timely_prototype, look=look_at_source, sealed=False),
        Reader(name="st2-raw", make=sources.st2_raw, look=look_at_source, sealed=False),
        Reader(name="st2-lrs", make=sources.st2_records, look=look_at_source, sealed=False),
        Reader(name="spark-log", make=_log, look=look_at_log, sealed=False),
        Reader(name="trace", make=growing(3).write, look=look_at_trace, sealed=True),
        Reader(name="store", make=_store, look=look_at_store, sealed=True),
        Reader(name="store-checkpointed", make=_checkpointed, look=look_at_store, sealed=True),
    )
}
"""Everything that reads files."""


# ---- what is done ----


def _insert(file: Path, chance: random.Random) -> str:
    content = file.read_bytes()
    at = chance.randrange(len(content) + 1)
    more = chance.randbytes(chance.choice((1, 1, 8, 4096)))
    file.write_bytes(content[:at] + more + content[at:])
    return f"{len(more)} bytes at {at}"


def _cut_out(file: Path, chance: random.Random) -> str:
    content = file.read_bytes()
    at = chance.randrange(len(content) + 1)
    end = min(len(content), at + chance.choice((1, 2, 16, 512)))
    file.write_bytes(content[:at] + content[end:])
    return f"bytes {at} to {end}"


def _zero(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    at = chance.randrange(len(content) + 1)
    end = min(len(content), at + chance.choice((4, 64, 4096)))
    content[at:end] = bytes(end - at)
    file.write_bytes(bytes(content))
    return f"bytes {at} to {end}"


def _lines(file: Path, chance: random.Random) -> str:
    lines = file.read_bytes().split(b"\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    what = chance.choice(("gone", "twice", "swapped", "half"))
    match what:
        case "gone":
            del lines[at]
        case "twice":
            lines.insert(other, lines[at])
        case "swapped":
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines[at] = lines[at][: len(lines[at]) // 2]
    file.write_bytes(b"\n".join(lines))
    return f"{at} {what}"


_WORDS = (
    *(
        b"",
        b"null",
        b"{}",
        b"[]",
        b"true",
        b"\x22",
        b"-1",
        b"0",
        b"1e999",
        b"NaN",
        b"-0.0",
        b"9223372036854775807",
        b"9" * 30,
    ),
    *(b"\x1b[31m", b"\xff\xfe", b"\x00", b"../../x", b"x" * 5000, "\u202e".encode()),
)


def _word(file: Path, chance: random.Random) -> str:
    """Put another word in the place of one between commas, colons, quotes or line ends."""
    content = file.read_bytes()
    if not content:
        return "nothing there"
    at = chance.randrange(len(content))
    borders = [k for k, byte in enumerate(content) if byte in b',:"\n{}[] ']
    low = max((k for k in borders if k < at), default=-1)
    high = min((k for k in borders if k >= at), default=len(content))
    word = chance.choice(_WORDS)
    file.write_bytes(content[: low + 1] + word + content[high:])
    return f"{content[low + 1 : high][:40]!r} -> {word[:40]!r}"


def _number(file: Path, chance: random.Random) -> str:
    content = bytearray(file.read_bytes())
    places = [k for k, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return "no digit"
    at = chance.choice(places)
    content[at] = 48 + chance.randrange(10)
    file.write_bytes(bytes(content))
    return f"byte {at}"


def _exchange(file: Path, chance: random.Random) -> str:
    other = chance.choice([one for one in sorted(file.parent.iterdir()) if one.is_file()])
    mine, its = file.read_bytes(), other.read_bytes()
    file.write_bytes(its)
    other.write_bytes(mine)
    return f"with {other.name}"


def _over(file: Path, chance: random.Random) -> str:
    other = chance.choice([one for one in sorted(file.parent.iterdir()) if one.is_file()])
    other.write_bytes(file.read_bytes())
    return f"over {other.name}"


def _rename(file: Path, chance: random.Random) -> str:
    name = chance.choice(
        (f"x{file.name}", file.stem, f"{file.name}.bak", file.name.upper(), f"a b\x1b[31m{file.suffix}")
    )
    file.rename(file.with_name(name))
    return f"to {name!r}"


def _folder(file: Path, chance: random.Random) -> str:
    del chance
    file.unlink()
    file.mkdir()
    return "a folder instead"


def _other_type(file: Path, chance: random.Random) -> str:
    table = corruption.pq.read_table(file, partitioning=None)
    at = chance.randrange(table.num_columns)
    kind = chance.choice((pa.string(), pa.float64(), pa.int32(), pa.bool_(), pa.binary()))
    values = table.column(at).cast(kind, safe=False)
    corruption.pq.write_table(table.set_column(at, table.column_names[at], values), file)
    return f"{table.column_names[at]} as {kind}"


_ANY: dict[str, Callable[[Path, random.Random], str]] = {
    "flip": corruption._flip,
    "truncate": corruption._truncate,
    "empty": corruption._empty,
    "remove": corruption._remove,
    "insert": _insert,
    "cut out": _cut_out,
    "zero": _zero,
    "exchange": _exchange,
    "over another": _over,
    "rename": _rename,
    "folder": _folder,
}
_TEXT = {"line": _lines, "word": _word, "number": _number}
_PARQUET = {
    "drop rows": corruption._drop,
    "repeat rows": corruption._repeat,
    "swap rows": corruption._swap,
    "drop column": corruption._drop_column,
    "value": corruption._change_value,
    "type": _other_type,
}


def _order(file: Path) -> tuple[str, bytes]:
    return nameless(str(file)), file.read_bytes()


def mutate(folder: Path, seed: str) -> str:
    """Do one to three things to the files of a folder; say what was done."""
    chance = random.Random(seed)
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        # Names have numbers drawn at random: what comes after what must depend on the seed alone.
        files = sorted((path for path in folder.rglob("*") if path.is_file()), key=_order)
        if not files:
            break
        file = chance.choice(files)
        special = _PARQUET if file.suffix == ".parquet" else _TEXT
        # Half of the time something that only this kind of file can have.
        kinds = special if chance.random() < 0.5 else _ANY
        kind = chance.choice(sorted(kinds))
        try:
            what = kinds[kind](file, chance)
        except (pa.ArrowException, OSError, ValueError):
            # The thing before made it unreadable.
            what = "nothing more"
        done.append(f"{kind} in {file.relative_to(folder)}: {what}")
    return "; ".join(done)


# ---- what comes of it ----


def judged(look: Callable[[Path, Path], Answer], folder: Path, work: Path) -> Answer:
    """Look, and turn an error into an answer."""
    try:
        return look(folder, work)
    except PagGraphError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except MemoryError:
        return {"crash": "MemoryError"}
    except BaseException as error:  # noqa: BLE001  (a panic of a Rust library is a BaseException)
        where = traceback.extract_tb(error.__traceback__)
        ours = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in where if "pag_graph" in frame.filename]
        return {"crash": f"{type(error).__name__} at {ours[-1] if ours else '?'}: {str(error)[:200]}"}


def try_mutations(reader_name: str, seeds: list[str], progress: str) -> None:
    """Try mutations of one reader's files; runs in a fork.

    Parameters
    ----------
    reader_name
        Out of `READERS`.
    seeds
        What each draws from.
    progress
        A file that gets a line per seed: seed, what was done, and ``error``, ``finding``, ``same``, ``silent`` or
        ``crash: ...``. The verdict of the seed that is being tried is ``died``.
    """
    reader = READERS[reader_name]
    with tempfile.TemporaryDirectory(prefix="mutations-") as name, Path(progress).open("w", encoding="utf-8") as out:
        place = Path(name)
        reader.make(place / "whole")
        (place / "work").mkdir()
        intact = judged(reader.look, place / "whole", place / "work")
        assert "graph" in intact, intact
        shutil.rmtree(place / "work")
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _ROOM, size + _ROOM))
        for seed in seeds:
            shutil.copytree(place / "whole", place / "copy")
            (place / "work").mkdir()
            what = mutate(place / "copy", f"{reader_name} {seed}")
            begun = out.tell()
            out.write(json.dumps([seed, what, "died"]) + "\n")
            out.flush()
            faulthandler.dump_traceback_later(LONGEST_S, exit=True)
            answer = judged(reader.look, place / "copy", place / "work")
            faulthandler.cancel_dump_traceback_later()
            verdict = f"crash: {answer['crash']}" if "crash" in answer else corruption.verdict(intact, answer)
            out.seek(begun)
            out.truncate()
            out.write(json.dumps([seed, what, verdict]) + "\n")
            shutil.rmtree(place / "copy")
            shutil.rmtree(place / "work")
