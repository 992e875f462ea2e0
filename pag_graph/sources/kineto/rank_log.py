"""One rank's trace as columns: what its threads, its calls and its streams did."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from pag_graph.errors import TraceFormatError
from pag_graph.kernels.json_events import HAS_DURATION, HAS_TIME
from pag_graph.sources.collector import without_collector
from pag_graph.sources.kineto.event_text import TextEvents

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["RankLog", "read_rank"]

OP, CALL, PYTHON, ANNOTATION, KERNEL, COPY, FILL, SYNC, SLICE = range(9)
"""Classes of events. A slice is one of a Chrome trace that is none of Kineto's."""

_CLASSES: Final = {
    **dict.fromkeys(("cpu_op", "Operator", "operator"), OP),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"), CALL),
    **dict.fromkeys(("xpu_runtime", "mtia_runtime", "privateuse1_runtime", "hpu_runtime"), CALL),
    **dict.fromkeys(("python_function", "python"), PYTHON),
    "user_annotation": ANNOTATION,
    **dict.fromkeys(("kernel", "Kernel"), KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), COPY),
    **dict.fromkeys(("gpu_memset", "Memset"), FILL),
    "cuda_sync": SYNC,
}
_NOT_READ: Final = frozenset({"gpu_user_annotation", "overhead", "Trace", "cpu_instant_event", "ac2g", "fwdbwd"})
_OTHER_DEVICES: Final = re.compile("mtia|xpu|hpu|privateuse1")
_ON_GPU: Final = frozenset({KERNEL, COPY, FILL})
_RANK_IN_NAME: Final = re.compile(r"rank[-_]?(\d{1,6})", re.IGNORECASE)
_DETAILS: Final = (
    *("Collective name", "Process Group Name", "Process Group Ranks", "Seq", "Src Rank", "Dst Rank", "Group size"),
    *("In msg nelems", "Out msg nelems", "dtype", "External id", "Is P2P"),
)
_SYNC_DETAILS: Final = ("wait_on_stream", "wait_on_cuda_event_record_corr_id")
_NO_STREAM: Final = 4294967295
_MOST: Final = 1 << 53
_FARTHEST_NS: Final = 1 << 61
_LONGEST_FLOW: Final = 80
_COLUMNS: Final = 9
"""Kind, name, thread, begin, end, correlation, device, stream, bytes."""
_MOST_RANKS: Final = 1 << 17
"""A trace that claims more ranks than this says nothing of them: they are listed one by one."""


@dataclass(slots=True, kw_only=True)
class RankLog:
    """What one file says, in columns of a row per event.

    `name` and `thread` are places in `names` and `threads`, `kind` is a class such as `KERNEL`.
    """

    file: Path
    rank: int
    rank_stated: bool
    world_size: int
    """Number of ranks that ran; 0 where the trace does not say."""
    host: str | None
    groups: dict[str, list[int]]
    """Ranks of process groups, where the trace lists them."""
    names: list[str]
    threads: list[tuple[str, str]]
    """Process and thread, as they are written."""
    thread_names: dict[int, str]
    """Names of some of them."""
    kind: NDArray[np.int8]
    name: I64
    thread: I64
    t: I64
    """Nanoseconds of the rank's clock."""
    end: I64
    correlation: I64
    """-1 where there is none, as in the columns that follow."""
    device: I64
    stream: I64
    bytes: I64
    details: dict[int, dict[str, Any]]
    """Arguments of collectives and synchronisations, by row."""
    dropped: Counter[str]
    """Events that are no rows, by reason."""
    found: list[tuple[str, str, int]]
    """What is odd: name of the finding, what was done, how often."""
    flows: list[tuple[str, str, int, int]]
    """Of a trace that needs them: letter, id, thread, time."""

    def rows_of(self, *kinds: int) -> I64:
        """Return the rows of some classes, in the order of the file."""
        return np.flatnonzero(np.isin(self.kind, kinds))


def number(value: Any, absent: int = -1) -> int:
    """Read an id that may be a number, decimal or hexadecimal text, or end in a number, such as "stream 7".

    Parameters
    ----------
    value
        As it stands in the file.
    absent
        What else to return.
    """
    if isinstance(value, bool):
        return absent
    if isinstance(value, int):
        return value if -_MOST < value < _MOST else absent
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MOST else absent
    if isinstance(value, str):
        try:
            parsed = int(value.rpartition(" ")[2][:20], 0)
        except ValueError:
            return absent
        return parsed if -_MOST < parsed < _MOST else absent
    return absent


class _Columns:
    """Columns in the making: lists for a batch, arrays for those before."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[Any, Any], int] = {}
        self.thread_names: dict[int, str] = {}
        self.parts: list[I64] = []
        self.rows = 0
        self.details: dict[int, dict[str, Any]] = {}
        self.dropped: Counter[str] = Counter()
        self.flows: list[tuple[str, str, int, int]] = []
        self.halves: list[tuple[int, int, bool, int]] = []
        """Of slices whose begin and end are events of their own: thread, time, whether it is the begin, name."""
        self.odd: Counter[str] = Counter()
        self.kineto = False

    def add(self, events: list[dict[str, Any]], times: I64) -> None:
        """Take in a batch of events."""
        rows: list[tuple[int, ...]] = []
        names, threads, classes = self.names, self.threads, _CLASSES
        for event, (t, duration, flags) in zip(events, times.tolist(), strict=True):
            cat, phase = event.get("cat"), event.get("ph")
            kind = classes.get(cat) if isinstance(cat, str) else None
            if phase != "X" or kind is None or not flags & HAS_DURATION or not flags & HAS_TIME:
                kind = self._odd_event(event, cat, phase, t, flags)
                if kind is None:
                    continue
            else:
                self.kineto = True
            if not 0 <= duration < _FARTHEST_NS - abs(t):
                self.odd["event_damaged"] += 1
                continue
            args = event.get("args")
            if not isinstance(args, dict):
                args = {}
            name = event.get("name")
            key = (event.get("pid"), event.get("tid"))
            try:
                code = names.setdefault(name, len(names)) if type(name) is str else names.setdefault("", len(names))
                thread = threads.setdefault(key, len(threads))
            except TypeError:
                # Lists and objects name no thread.
                self.odd["event_damaged"] += 1
                continue
            correlation = device = stream = size = -1
            if kind >= CALL and args:
                correlation = args.get("correlation", -1)
                # Nearly always a small number: the general way takes longer.
                if type(correlation) is not int or not 0 <= correlation < _MOST:
                    correlation = number(correlation)
                if kind >= KERNEL and kind != SLICE:
                    device, stream = number(args.get("device", event.get("pid"))), number(args.get("stream"))
                    stream = -1 if stream == _NO_STREAM else stream
                    size = number(args.get("bytes"))
            row = self.rows + len(rows)
            if kind == SYNC:
                self.details[row] = {word: number(args.get(word)) for word in _SYNC_DETAILS}
            elif kind in (KERNEL, OP) and args and (name == "record_param_comms" or "Collective name" in args):
                self.details[row] = {word: args[word] for word in _DETAILS if word in args}
            elif kind == KERNEL and "External id" in args and type(name) is str and name.startswith("nccl"):
                self.details[row] = {"External id": args["External id"]}
            rows.append((kind, code, thread, t, t + duration, correlation, device, stream, size))
        if rows:
            self._append(rows)

    def _append(self, rows: list[tuple[int, ...]]) -> None:
        # Column by column, as they are used in the end.
        self.parts.append(np.array(rows, np.int64).T.copy())
        self.rows += len(rows)

    def table(self) -> I64:
        """Return all columns; to be called once, for the parts go as they are taken over."""
        table = np.empty((_COLUMNS, self.rows), np.int64)
        row = 0
        self.parts.reverse()
        while self.parts:
            part = self.parts.pop()
            table[:, row : row + part.shape[1]] = part
            row += part.shape[1]
        return table

    def without_correlations(self) -> bool:
        """Say whether there are activities of devices, and none of them says which call launched it."""
        activities = [part[5, np.isin(part[0], list(_ON_GPU))] for part in self.parts]
        return any(map(len, activities)) and all((correlations < 0).all() for correlations in activities)

    def _odd_event(self, event: dict[str, Any], cat: Any, phase: Any, t: int, flags: int) -> int | None:
        """Say what an event is that is no span of Kineto's; None if it becomes no row."""
        phase = phase if type(phase) is str else ""
        if phase == "M":
            self._name_thread(event)
            self.dropped["metadata"] += 1
        elif phase in {"s", "t", "f", "B", "E"} and not flags & HAS_TIME:
            self.odd["event_damaged"] += 1
        elif phase in {"s", "t", "f"}:
            self.flows.append((phase, _flow_of(event), self._thread(event), t))
        elif phase in {"B", "E"}:
            name = event.get("name")
            code = self.names.setdefault(name if type(name) is str else "", len(self.names))
            self.halves.append((self._thread(event), t, phase == "B", code))
        elif phase != "X":
            self.dropped[{"i": "instants", "I": "instants", "C": "counters"}.get(phase, "other phases")] += 1
        elif not flags & HAS_DURATION or not flags & HAS_TIME:
            self.odd["event_damaged"] += 1
        elif isinstance(cat, str) and _OTHER_DEVICES.search(cat):
            self.odd["device_not_supported"] += 1
            self.dropped["other devices"] += 1
        elif isinstance(cat, str) and cat in _NOT_READ:
            self.dropped[cat] += 1
        else:
            return SLICE
        return None

    def join_halves(self) -> None:
        """Make slices of begins and ends: on each thread an end is that of what began last."""
        open_slices: dict[int, list[tuple[int, int]]] = defaultdict(list)
        rows: list[tuple[int, ...]] = []
        for thread, t, begins, name in sorted(self.halves, key=lambda half: half[:2]):
            if thread < 0:
                self.odd["event_damaged"] += 1
            elif begins:
                open_slices[thread].append((t, name))
            elif open_slices[thread]:
                since, name_of_begin = open_slices[thread].pop()
                rows.append((SLICE, name_of_begin, thread, since, t, -1, -1, -1, -1))
            else:
                self.dropped["ends without a begin"] += 1
        self.dropped["begins without an end"] += sum(map(len, open_slices.values()))
        # Begin and end of a slice are two events, and one row.
        self.dropped["ends of slices"] += len(rows)
        if rows:
            self._append(rows)

    def _thread(self, event: dict[str, Any]) -> int:
        try:
            return self.threads.setdefault((event.get("pid"), event.get("tid")), len(self.threads))
        except TypeError:
            return -1

    def _name_thread(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        if event.get("name") == "thread_name" and isinstance(args, dict) and isinstance(args.get("name"), str):
            self.thread_names[self._thread(event)] = args["name"]


def _flow_of(event: dict[str, Any]) -> str:
    """Return what the events of one flow have in common; of a long text its hash, as there can be many flows."""
    # A list keeps its texts apart, whatever they hold. An id may be a number, or a text of digits.
    flow = str([str(event.get(key)) for key in ("cat", "name", "id")])
    return flow if len(flow) <= _LONGEST_FLOW else xxhash.xxh3_128_hexdigest(flow.encode("utf-8", "surrogatepass"))


def read_rank(file: Path, *, progress: Callable[[int], None] | None = None) -> RankLog:
    """Read one rank's trace.

    Parameters
    ----------
    file
        As the profiler wrote it, plain or compressed.
    progress
        Called with the bytes read so far.

    Returns
    -------
    RankLog
        O(events) in time; about 80 bytes per event.

    Raises
    ------
    TraceFormatError
        If there is no event that takes time.
    """
    text, columns = _columns_of(TextEvents(file, progress=progress))
    if text.skipped["flow"] and (not columns.kineto or columns.without_correlations()):
        # Some other program's trace, whose flows are its messages; or nothing else leads from calls to activities.
        text, columns = _columns_of(TextEvents(file, flows=True))
    log = _log_of(file, text, columns) if columns.rows else None
    if log is None or not (log.t < log.end).any():
        message = f"{file} holds no event that takes time."
        raise TraceFormatError(message, "Give traces that torch.profiler wrote.", {"file": str(file)})
    return log


def _columns_of(text: TextEvents) -> tuple[TextEvents, _Columns]:
    columns = _Columns()
    with without_collector():
        for events, times in text.batches():
            columns.add(events, times)
    columns.join_halves()
    return text, columns


def _correlate(table: I64, flows: list[tuple[str, str, int, int]]) -> int:
    """Give calls and activities that a flow joins the same number; return how many flows lead to no activity.

    Kineto draws a flow from the begin of a call to the begin of its activity, and ends some at calls as well.
    """
    calls = _places(table, [CALL])
    activities = _places(table, list(_ON_GPU))
    call_of_flow = {flow: calls.get((thread, t), -1) for phase, flow, thread, t in flows if phase == "s"}
    lost_flows = 0
    for phase, flow, thread, t in flows:
        call, activity = call_of_flow.get(flow, -1), activities.get((thread, t), -1)
        if phase == "f" and call >= 0 and activity >= 0:
            table[5, activity] = table[5, call] = call
        else:
            lost_flows += phase == "f"
    return lost_flows


def _places(table: I64, kinds: list[int]) -> dict[tuple[int, int], int]:
    """Return rows of some classes by thread and begin."""
    rows = np.flatnonzero(np.isin(table[0], kinds))
    return {place: row for row, place in zip(rows.tolist(), map(tuple, table[2:4, rows].T.tolist()), strict=True)}


def _log_of(file: Path, text: TextEvents, columns: _Columns) -> RankLog:
    table = columns.table()
    if columns.kineto and columns.flows:
        lost_flows = _correlate(table, columns.flows)
        columns.dropped["flows"] += len(columns.flows) - lost_flows
        columns.dropped["flows that lead to no activity"] += lost_flows
        columns.flows = []
    if columns.kineto:
        # Slices between Kineto's events are no work of its threads.
        foreign = table[0] == SLICE
        columns.dropped["other categories"] += int(foreign.sum())
        columns.details = _renumbered(columns.details, foreign)
        table = table[:, ~foreign] if foreign.any() else table
    stated_base = text.around.get("baseTimeNanoseconds")
    base = stated_base if type(stated_base) is int and abs(stated_base) < _FARTHEST_NS else 0
    columns.dropped["flows"] += text.skipped["flow"]
    info = text.around.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank = number(info.get("rank"))
    rank_in_name = _RANK_IN_NAME.search(file.name)
    kind, name, thread, t, end, correlation, device, stream, size = table
    threads, place_of = _sorted_threads(columns.threads)
    odd = columns.odd
    odd["event_damaged"] += text.damaged
    return RankLog(
        file=file,
        rank=rank if rank >= 0 else int(rank_in_name[1]) if rank_in_name else -1,
        rank_stated=rank >= 0,
        world_size=_world_size(info),
        host=_host(text.around),
        groups=_groups(info.get("pg_config")),
        names=list(columns.names),
        threads=threads,
        thread_names={place_of[thread_id]: label for thread_id, label in columns.thread_names.items()},
        kind=kind.astype(np.int8),
        name=name,
        thread=np.array([place_of[thread_id] for thread_id in range(len(threads))], np.int64)[thread],
        t=t + base,
        end=end + base,
        correlation=correlation,
        device=device,
        stream=stream,
        bytes=size,
        details=columns.details,
        dropped=+columns.dropped,
        found=_oddities(text, odd),
        flows=[(phase, flow, place_of[thread_id], moment + base) for phase, flow, thread_id, moment in columns.flows],
    )


def _sorted_threads(found: dict[tuple[Any, Any], int]) -> tuple[list[tuple[str, str]], dict[int, int]]:
    """Return threads by process and thread, and where each is that has a number in the order of the file.

    Events of a file may be in any order, and what is the same must get the same workers.
    """
    written = [(str(process), str(thread)) for process, thread in found]
    order = sorted(range(len(written)), key=lambda place: [(number(word), word) for word in written[place]])
    # What names no thread has the number -1, and keeps it.
    return [written[place] for place in order], {-1: -1} | {thread: place for place, thread in enumerate(order)}


def _renumbered(details: dict[int, dict[str, Any]], is_removed: NDArray[np.bool_]) -> dict[int, dict[str, Any]]:
    before = np.cumsum(is_removed)
    return {row - int(before[row]): values for row, values in details.items()}


def _oddities(text: TextEvents, odd: Counter[str]) -> list[tuple[str, str, int]]:
    oddities = []
    if text.truncated:
        oddities.append(("trace_truncated", f"{text.truncated}; whole events before that are used", 1))
    if odd["event_damaged"]:
        oddities.append(("event_damaged", "no JSON, or without a time or duration; left out", odd["event_damaged"]))
    if odd["device_not_supported"]:
        count = odd["device_not_supported"]
        oddities.append(("device_not_supported", "activities of this kind of device are left out", count))
    return oddities


def _world_size(info: dict[str, Any]) -> int:
    stated = number(info.get("world_size"), 0)
    return stated if 0 <= stated <= _MOST_RANKS else 0


def _host(around: dict[str, Any]) -> str | None:
    for word in ("host_name", "hostname"):
        if isinstance(around.get(word), str):
            return str(around[word])[:200]
    return None


def _groups(config: Any) -> dict[str, list[int]]:
    groups = {}
    for entry in config if isinstance(config, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("ranks"), list):
            ranks = [number(rank) for rank in entry["ranks"]]
            groups[str(entry.get("pg_name"))] = [rank for rank in ranks if rank >= 0]
    return groups
