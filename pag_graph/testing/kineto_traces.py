"""Made-up training jobs: what Kineto would have written of them, and what is true of them.

A discrete-event simulation of ranks that train together: a thread per rank that gets batches from a loader, launches
kernels and synchronises; a stream that computes; a stream for collectives; clocks. It shares no code with the reader of
such traces. Causes of lost time can be planted, and the same job without them says what they cost.
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Job", "KinetoRun", "Plant", "simulate"]

COMPUTE, NETWORK = 7, 20
"""Streams of every device."""

_GAP_NS, _LATENCY_NS, _WAKE_NS = 900, 3_100, 4_200
_BASE_NS = 1_712_000_000_000_000_000
_SYNC_ROWS = 1_000_000

Dialect = Literal["plain", "gzip", "array", "texts", "hex", "base", "old", "rows", "fronted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A cause of lost time that is planted in a job."""

    cause: Literal["late_rank", "slow_kernel", "slow_link", "slow_loader", "launch_bound", "sync_per_layer"]
    rank: int = 0
    """Of `late_rank`."""
    step: int | None = None
    """Of `late_rank`; all steps if absent."""
    by_ns: int = 0
    """How late."""
    factor: float = 1.0
    """How much longer kernels, transfers or loading take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job: so many ranks, steps, and layers of its network, drawn with a seed."""

    seed: int = 0
    ranks: int = 2
    steps: int = 3
    layers: int = 3
    plants: tuple[Plant, ...] = ()
    offsets_ns: tuple[int, ...] = ()
    """Per rank: by how much its clock is fast."""
    numbered: bool = True
    """Whether collectives have numbers (`Seq`)."""
    hosts: bool = True
    """Whether all ranks are on one host, and say so."""
    loader: bool = True
    """Whether batches come from loader processes."""

    def without_plants(self) -> Job:
        """Return the same job with nothing planted."""
        return replace(self, plants=())


@dataclass(slots=True)
class _Work:
    """An activity of a stream."""

    rank: int
    stream: int
    name: str
    begin: int
    end: int
    before: _Work | None
    releases: list[tuple[int, _Work | None]]
    """When what it needed was there: launches have no work, what another stream did has."""
    last: _Work | None = None
    """Of a collective: what came last, maybe itself."""
    met: int = 0
    """Of a collective: when all had come."""
    step: int = 0
    correlation: int = 0
    size: int = 0
    seq: int = 0


@dataclass(slots=True)
class _Rank:
    number: int
    now: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    works: dict[int, _Work] = field(default_factory=dict)
    """The last one of each stream."""
    waits: list[tuple[int, _Work]] = field(default_factory=list)
    """When the thread went on, and after what."""
    correlation: int = 0
    batch_ready: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KinetoRun:
    """A simulated job: its traces, and the truth."""

    job: Job
    events: tuple[tuple[dict[str, Any], ...], ...]
    """Per rank: times `ts` and `dur` in nanoseconds of its own clock."""
    step_ends: tuple[int, ...]
    """When each step was complete on all ranks."""
    skews: dict[tuple[int, int], int]
    """Per collective and rank: how long it waited for who came last."""
    transfers: dict[tuple[int, int], int]
    """The same: how long it then took."""
    path: dict[str, int]
    """Time on the critical path of the whole run: `cpu`, `kernel`, `transfer`, `gap` and `message`."""

    def write(self, folder: Path, dialect: Dialect = "plain") -> list[Path]:
        """Write one trace per rank.

        Parameters
        ----------
        folder
            Made if it is absent.
        dialect
            How: compressed, as a bare array, ids as texts or hexadecimal, times from a base, categories of 2021,
            synchronisations in rows of their own, or with what is said of the rank before the events.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for rank, events in enumerate(self.events):
            text = _document(self.job, rank, events, dialect)
            file = folder / f"rank-{rank}.json"
            if dialect == "gzip":
                file = folder / f"rank-{rank}.json.gz"
                file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
            else:
                file.write_text(text)
            files.append(file)
        return files


class _Simulation:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.ranks = [_Rank(number) for number in range(job.ranks)]
        self.skews: dict[tuple[int, int], int] = {}
        self.transfers: dict[tuple[int, int], int] = {}
        self.step_ends: list[int] = []
        self.last: list[_Work] = []
        self.collectives = 0

    def draw(self, low: int, high: int, *subject: object) -> int:
        """Draw a duration that does not depend on what else is planted."""
        return random.Random(f"{self.job.seed} {subject}").randint(low, high)  # noqa: S311 nothing is secret

    def planted(self, cause: str) -> Plant | None:
        return next((plant for plant in self.job.plants if plant.cause == cause), None)

    def factor(self, cause: str) -> float:
        plant = self.planted(cause)
        return plant.factor if plant is not None else 1.0

    def run(self) -> None:
        for rank in self.ranks:
            rank.now = self.draw(0, 5_000, "begin", rank.number)
        for step in range(1, self.job.steps + 1):
            begins = [rank.now for rank in self.ranks]
            for rank in self.ranks:
                self.load(rank, step)
                self.late(rank, step)
            for layer in range(self.job.layers):
                for rank in self.ranks:
                    self.compute(rank, step, f"forward {layer}")
            for layer in reversed(range(self.job.layers)):
                for rank in self.ranks:
                    self.compute(rank, step, f"backward {layer}")
                if self.job.ranks > 1:
                    self.reduce(step, layer)
            for rank in self.ranks:
                self.optimise(rank, step)
            for rank, begin in zip(self.ranks, begins, strict=True):
                self.emit(rank, f"ProfilerStep#{step}", "user_annotation", begin, rank.now)
            of_step = [work for work in self.last if work.step == step]
            self.step_ends.append(max([work.end for work in of_step] + [rank.now for rank in self.ranks]))

    def emit(self, rank: _Rank, name: str, cat: str, begin: int, end: int, **args: object) -> None:
        gpu = cat in {"kernel", "gpu_memcpy", "cuda_sync"}
        tid = args.get("stream", 0) if gpu else 100
        event = {"ph": "X", "cat": cat, "name": name, "pid": 0 if gpu else 100 + rank.number, "tid": tid}
        rank.events.append(event | {"ts": begin, "dur": end - begin, "args": args})

    def cpu(self, rank: _Rank, name: str, cat: str, length: int, **args: object) -> tuple[int, int]:
        begin, rank.now = rank.now, rank.now + length
        self.emit(rank, name, cat, begin, rank.now, **args)
        return begin, rank.now

    def load(self, rank: _Rank, step: int) -> None:
        if not self.job.loader:
            return
        rank.batch_ready += int(self.draw(20_000, 40_000, "load", rank.number, step) * self.factor("slow_loader"))
        begin = rank.now
        rank.now = max(rank.now + 2_000, rank.batch_ready)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self.emit(rank, name, "user_annotation", begin, rank.now)
        # Loaders begin the next batch but one when this one is taken.
        rank.batch_ready = max(rank.batch_ready, begin)

    def late(self, rank: _Rank, step: int) -> None:
        plant = self.planted("late_rank")
        if plant is not None and plant.rank == rank.number and plant.step in {None, step}:
            self.cpu(rank, "checkpoint", "user_annotation", plant.by_ns)

    def compute(self, rank: _Rank, step: int, name: str) -> None:
        key = (rank.number, step, name)
        bound = self.planted("launch_bound") is not None
        begin = rank.now
        rank.now += self.draw(3_000, 6_000, "before", *key) + (25_000 if bound else 0)
        # The same kernel takes about as long on all ranks.
        length = self.draw(30_000, 60_000, "kernel", step, name) + self.draw(0, 3_000, "kernel", *key)
        if bound:
            length //= 10
        if name == "forward 0":
            length = int(length * self.factor("slow_kernel"))
        work = self.launch(rank, COMPUTE, f"{name.split(maxsplit=1)[0]}_kernel_{name.split()[1]}", step, length, [])
        rank.now += self.draw(500, 1_500, "after", *key)
        self.emit(rank, f"aten::{name}", "cpu_op", begin, rank.now)
        if self.planted("sync_per_layer") is not None:
            self.synchronise(rank, work)

    def launch(self, rank: _Rank, stream: int, name: str, step: int, length: int, needs: list[_Work]) -> _Work:
        rank.correlation += 1
        correlation = rank.correlation
        _, sent = self.cpu(rank, "cudaLaunchKernel", "cuda_runtime", 2_300, correlation=correlation)
        before = rank.works.get(stream)
        begin = max([sent + _LATENCY_NS] + [work.end + _GAP_NS for work in ([before] if before else []) + needs])
        releases: list[tuple[int, _Work | None]] = [(sent, None), *((work.end, work) for work in needs)]
        work = _Work(rank.number, stream, name, begin, begin + length, before, releases, step=step)
        work.correlation = correlation
        rank.works[stream] = work
        self.last.append(work)
        if stream == COMPUTE:
            self.emit_work(rank, work)
        return work

    def emit_work(self, rank: _Rank, work: _Work, **args: object) -> None:
        facts = {"correlation": work.correlation, "stream": work.stream, "device": 0}
        self.emit(rank, work.name, "kernel", work.begin, work.end, **facts, **args)

    def wait_for(self, rank: _Rank, waiting: int, source: _Work) -> None:
        """Make a stream wait for what another one has done so far."""
        rank.correlation += 2
        record, wait = rank.correlation - 1, rank.correlation
        self.cpu(rank, "cudaEventRecord", "cuda_runtime", 700, correlation=record)
        begin, end = self.cpu(rank, "cudaStreamWaitEvent", "cuda_runtime", 600, correlation=wait)
        facts = {"wait_on_stream": source.stream, "wait_on_cuda_event_record_corr_id": record}
        facts |= {"stream": waiting, "device": 0, "correlation": wait}
        self.emit(rank, "Stream Wait Event", "cuda_sync", begin, end, **facts)

    def reduce(self, step: int, layer: int) -> None:
        """Let all ranks reduce the gradients of a layer."""
        works = []
        for rank in self.ranks:
            source = rank.works[COMPUTE]
            self.wait_for(rank, NETWORK, source)
            works.append(self.launch(rank, NETWORK, "ncclDevKernel_AllReduce_Sum_f32_RING", step, 0, [source]))
        last_work = max(works, key=lambda work: (work.begin, -work.rank))
        transfer = int(self.draw(20_000, 30_000, "transfer", step, layer) * self.factor("slow_link"))
        for rank, work in zip(self.ranks, works, strict=True):
            rank.seq += 1
            work.last, work.met = last_work, last_work.begin
            work.end = last_work.begin + transfer + self.draw(0, 40, "leaves", rank.number, step, layer)
            work.seq = rank.seq
            self.skews[self.collectives, rank.number] = last_work.begin - work.begin
            self.transfers[self.collectives, rank.number] = work.end - last_work.begin
            ranks = list(range(self.job.ranks))
            facts: dict[str, object] = {"Collective name": "allreduce", "Process Group Name": "0"}
            facts |= {"Process Group Ranks": json.dumps(ranks), "Group size": len(ranks), "In msg nelems": 1000 + layer}
            if self.job.numbered:
                facts["Seq"] = rank.seq
            self.emit_work(rank, work, **facts)
        self.collectives += 1

    def optimise(self, rank: _Rank, step: int) -> None:
        """Update the weights when all gradients are there, and read the loss."""
        needs = []
        if NETWORK in rank.works:
            needs = [rank.works[NETWORK]]
            self.wait_for(rank, COMPUTE, needs[0])
        length = self.draw(10_000, 20_000, "optimiser", rank.number, step)
        work = self.launch(rank, COMPUTE, "adam_kernel", step, length, needs)
        self.synchronise(rank, work)

    def synchronise(self, rank: _Rank, work: _Work) -> None:
        rank.correlation += 1
        begin = rank.now
        rank.now = max(begin + 1_100, work.end + _WAKE_NS)
        if work.end > begin:
            rank.waits.append((work.end, work))
        facts = {"correlation": rank.correlation}
        self.emit(rank, "cudaStreamSynchronize", "cuda_runtime", begin, rank.now, **facts)
        facts |= {"stream": work.stream, "device": 0}
        self.emit(rank, "Stream Sync", "cuda_sync", begin, work.end if work.end > begin else begin + 1, **facts)

    def true_path(self) -> dict[str, int]:
        """Walk back from the end: to whatever happened last of all that an activity needed."""
        path = dict.fromkeys(("cpu", "kernel", "transfer", "gap", "message"), 0)
        origin = min(event["ts"] for rank in self.ranks for event in rank.events)
        end = self.step_ends[-1]
        rank = next(rank for rank in self.ranks if rank.now == end)
        t, work = end, None
        while t > origin:
            if work is None:
                wait = max((wait for wait in rank.waits if wait[0] < t), key=lambda wait: wait[0], default=None)
                since = wait[0] if wait else origin
                path["cpu"] += t - since
                t, work = since, wait[1] if wait else None
                continue
            if work.last is not None:
                path["transfer"] += t - work.met
                work = work.last
            else:
                path["kernel"] += t - work.begin
            rank = self.ranks[work.rank]
            free = work.before.end if work.before else origin
            sent, source = max(work.releases, key=lambda release: release[0])
            if sent > free:
                path["message"] += work.begin - sent
                t, work = sent, source
            else:
                path["gap"] += work.begin - free
                t, work = free, work.before
        return path


def simulate(job: Job) -> KinetoRun:
    """Simulate a job.

    Parameters
    ----------
    job
        What to run.

    Returns
    -------
    KinetoRun
        The same job gives the same run.

    Examples
    --------
    >>> run = simulate(Job(ranks=1, steps=2))
    >>> len(run.events), len(run.step_ends), run.skews
    (1, 2, {})
    """
    simulation = _Simulation(job)
    simulation.run()
    offsets = job.offsets_ns or (0,) * job.ranks
    events = tuple(
        tuple(event | {"ts": event["ts"] + offset} for event in sorted(rank.events, key=lambda event: event["ts"]))
        for rank, offset in zip(simulation.ranks, offsets, strict=True)
    )
    return KinetoRun(
        job=job,
        events=events,
        step_ends=tuple(simulation.step_ends),
        skews=simulation.skews,
        transfers=simulation.transfers,
        path=simulation.true_path(),
    )


_OLD = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel", "user_annotation": "user_annotation"}


def _document(job: Job, rank: int, events: tuple[dict[str, Any], ...], dialect: Dialect) -> str:
    base = 0 if dialect == "base" else _BASE_NS
    texts = [_text(event, base, dialect) for event in events]
    events_text = "[\n" + ",\n".join(texts) + "\n]"
    if dialect == "array":
        return events_text
    info: dict[str, Any] = {"backend": "nccl", "rank": rank, "world_size": job.ranks}
    around: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "made up"}]}
    if dialect == "base":
        around["baseTimeNanoseconds"] = _BASE_NS
    facts: dict[str, Any] = {"distributedInfo": info, "traceName": f"rank-{rank}.json"}
    if job.hosts:
        facts["host_name"] = "node-0"
    head, tail = (around | facts, {"displayTimeUnit": "ms"}) if dialect == "fronted" else (around, facts)
    return f'{json.dumps(head)[:-1]}, "traceEvents": {events_text}, {json.dumps(tail)[1:]}'


def _text(event: dict[str, Any], base: int, dialect: Dialect) -> str:
    args = dict(event["args"])
    if dialect == "texts":
        args = {key: f"stream {value}" if key == "stream" else str(value) for key, value in args.items()}
    elif dialect == "hex":
        args = {key: hex(value) if type(value) is int and value >= 0 else value for key, value in args.items()}
    cat = _OLD.get(event["cat"], event["cat"]) if dialect == "old" else event["cat"]
    # Kineto shows synchronisations of a stream in a row of their own, whose number is no stream's.
    shift = _SYNC_ROWS if dialect == "rows" and cat == "cuda_sync" else 0
    facts = {"ph": "X", "cat": cat, "name": event["name"], "pid": event["pid"], "tid": event["tid"] + shift}
    # Microseconds with all their decimals: no floating point on the way.
    ts, duration = base + event["ts"], event["dur"]
    times = f'"ts": {ts // 1000}.{ts % 1000:03}, "dur": {duration // 1000}.{duration % 1000:03}'
    return f'{json.dumps(facts)[:-1]}, {times}, "args": {json.dumps(args)}}}'
