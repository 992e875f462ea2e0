"""Simulated services: spans in every format that is read, with the truth about who waited for whom.

Each request is played step by step: handlers work, call other services and wait, call several at once, do work on other
threads, talk to databases, try again, and leave messages for consumers. What they waited for is written down as it
happens. Nothing here is shared with the readers.
"""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

US = 1_000
_BEGIN_NS = 1_700_000_000_000_000_000
_NEST = 3
_KINDS = ("internal", "server", "client", "producer", "consumer")
"""By number in OTLP, which is one more."""


class Section(NamedTuple):
    """A part of a true path, in nanoseconds on the true clock."""

    span: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSpan:
    """One span as its service recorded it: times are Unix ns on its host's clock, whole microseconds."""

    trace: str
    id: str
    parent: str | None
    service: str
    host: str
    operation: str
    kind: str
    thread: str | None
    start: int
    end: int
    error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a simulation gives."""

    spans: list[SimulatedSpan]
    paths: dict[str, list[Section]]
    """The true path of each trace, last section first; what no section covers was under way between services."""
    offsets: dict[str, int]
    """What each host's clock is ahead, in ns."""


@dataclass(slots=True)
class _Step:
    """What a handler did for a while: worked itself, or waited for a child."""

    start: int
    end: int
    child: str | None = None
    called: int = 0


@dataclass(slots=True)
class _Handler:
    span: SimulatedSpan
    steps: list[_Step] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How services behave."""

    services: int = 4
    skew_ns: int = 0
    """How far hosts' clocks may be ahead or behind."""
    threads: bool = True
    """Whether spans state their threads."""
    alongside: bool = True
    """Whether handlers work while something that they started runs: what spans cannot tell from waiting."""
    slow: tuple[str, int] | None = None
    """A service, and by how many ns each of its own steps takes longer."""


class _Player:
    def __init__(self, seed: int, settings: Settings) -> None:
        self.draw, self.settings = random.Random(seed), settings  # noqa: S311 nothing is secret
        self.handlers: dict[str, _Handler] = {}
        names = [f"service-{number}" for number in range(settings.services)]
        self.services = names
        limit = settings.skew_ns // US
        self.offsets = {f"host-{name}": self.draw.randint(-limit, limit) * US for name in names}
        self.offsets["host-service-0"] = 0
        self.trace, self.numbers = "", 0

    def work(self, service: str) -> int:
        """Return how long a step of a handler takes."""
        slow = self.settings.slow
        return self.draw.randint(2, 400) * US + (slow[1] if slow and slow[0] == service else 0)

    def span(self, parent: str | None, service: str, operation: str, kind: str, start: int, thread: str) -> _Handler:
        self.numbers += 1
        handler = _Handler(
            SimulatedSpan(
                trace=self.trace,
                id=f"{self.numbers + (1 << 40):016x}",
                parent=parent,
                service=service,
                host=f"host-{service}",
                operation=operation,
                kind=kind,
                thread=thread if self.settings.threads else None,
                start=start,
                end=start,
                error=self.draw.random() < 0.1,  # noqa: PLR2004
            )
        )
        self.handlers[handler.span.id] = handler
        return handler

    def end(self, handler: _Handler, time: int) -> int:
        handler.span = replace(handler.span, end=time)
        return time

    def own(self, handler: _Handler, time: int) -> int:
        until = time + self.work(handler.span.service)
        handler.steps.append(_Step(time, until))
        return until

    def handle(self, handler: _Handler, time: int, depth: int) -> int:
        """Play a handler from `time` on; returns when it ends."""
        for _ in range(self.draw.randint(1, 3)):
            time = self.own(handler, time)
            time = self.act(handler, time, depth)
        return self.end(handler, self.own(handler, time))

    def act(self, handler: _Handler, time: int, depth: int) -> int:
        kinds = ["call", "call", "both", "nested", "database", "retry", "queue", "future"]
        if self.settings.alongside:
            kinds.append("alongside")
        match self.draw.choice(kinds if depth < _NEST else ["nested", "database"]):
            case "call":
                return self.nested_call(handler, time, depth)
            case "both":
                ends = [self.call(handler, time, depth, f"pool-{place}") for place in range(2)]
                return self.wait(handler, time, ends)
            case "retry":
                return self.nested_call(handler, self.own(handler, self.nested_call(handler, time, depth)), depth)
            case "database":
                return self.database(handler, time)
            case "queue":
                return self.queue(handler, time)
            case "future" | "alongside" as kind:
                inner = self.inner(handler, time, "background")
                end = self.end(inner, self.own(inner, time))
                if kind == "future":
                    return self.wait(handler, time, [(inner.span.id, time, end)])
                until = max(self.own(handler, time), end + US)
                handler.steps[-1].end = until
                return until
            case _:
                inner = self.inner(handler, time, handler.span.thread or "main")
                end = self.end(inner, self.own(inner, time))
                handler.steps.append(_Step(time, end, inner.span.id, time))
                return end

    def inner(self, handler: _Handler, time: int, thread: str) -> _Handler:
        span = handler.span
        return self.span(span.id, span.service, f"step-{self.draw.randint(0, 2)}", "internal", time, thread)

    def wait(self, handler: _Handler, time: int, ends: Sequence[tuple[str, int, int]]) -> int:
        """Wait for all; the last one to end is what the handler waited for."""
        child, called, end = max(ends, key=lambda call: (call[2], call[0]))
        handler.steps.append(_Step(time, end, child, called))
        return end

    def nested_call(self, handler: _Handler, time: int, depth: int) -> int:
        return self.wait(handler, time, [self.call(handler, time, depth, handler.span.thread or "main")])

    def call(self, handler: _Handler, time: int, depth: int, thread: str) -> tuple[str, int, int]:
        """Call another service; returns the client's span, when it began, and when it ended."""
        callee = self.draw.choice([name for name in self.services if name != handler.span.service])
        operation = f"get-{self.draw.randint(0, 2)}"
        client = self.span(handler.span.id, handler.span.service, f"call {callee}", "client", time, thread)
        begin = time + self.draw.randint(1, 60) * US
        server = self.span(client.span.id, callee, operation, "server", begin, f"http-{self.draw.randint(1, 4)}")
        handled = self.handle(server, begin, depth + 1)
        end = self.end(client, handled + self.draw.randint(1, 60) * US)
        client.steps.append(_Step(time, end, server.span.id, time))
        return client.span.id, time, end

    def database(self, handler: _Handler, time: int) -> int:
        client = self.span(
            handler.span.id, handler.span.service, "query", "client", time, handler.span.thread or "main"
        )
        end = self.end(client, self.own(client, time))
        handler.steps.append(_Step(time, end, client.span.id, time))
        return end

    def queue(self, handler: _Handler, time: int) -> int:
        producer = self.span(
            handler.span.id, handler.span.service, "send", "producer", time, handler.span.thread or "main"
        )
        end = self.end(producer, self.own(producer, time))
        handler.steps.append(_Step(time, end, producer.span.id, time))
        receiver = self.draw.choice(self.services)
        begin = end + self.draw.randint(1, 500) * US
        consumer = self.span(producer.span.id, receiver, "receive", "consumer", begin, "consumer-1")
        self.end(consumer, self.own(consumer, begin))
        return end

    def path(self, root: str) -> list[Section]:
        """Walk the steps that were written down from a root's end to its start."""
        sections: list[Section] = []
        back: list[tuple[str, int]] = []
        span, place = root, len(self.handlers[root].steps) - 1
        while True:
            steps = self.handlers[span].steps
            if place < 0:
                if not back:
                    return sections
                span, place = back.pop()
                continue
            step = steps[place]
            if step.child is None:
                sections.append(Section(span, step.start, step.end))
                place -= 1
                continue
            back.append((span, place - 1))
            span = step.child
            place = len(self.handlers[span].steps) - 1


def simulate(seed: int, requests: int = 1, settings: Settings | None = None) -> Simulation:
    """Simulate requests.

    Parameters
    ----------
    seed
        The same seed gives the same spans.
    requests
        How many there are; they overlap.
    settings
        How services behave.

    Returns
    -------
    Simulation
        Spans in random order, true paths, and clocks.
    """
    player = _Player(seed, settings or Settings())
    paths = {}
    for number in range(requests):
        player.trace = f"{(seed << 20) + number + 1:032x}"
        begin = _BEGIN_NS + number * 300 * US
        root = player.span(None, "service-0", f"page-{player.draw.randint(0, 2)}", "server", begin, f"main-{number}")
        player.handle(root, begin, 0)
        paths[player.trace] = player.path(root.span.id)
    spans = []
    for handler in player.handlers.values():
        span = handler.span
        offset = player.offsets[span.host]
        spans.append(replace(span, start=span.start + offset, end=span.end + offset))
    player.draw.shuffle(spans)
    return Simulation(spans=spans, paths=paths, offsets=player.offsets)


def _by_trace(spans: Iterable[SimulatedSpan]) -> dict[str, list[SimulatedSpan]]:
    groups: dict[str, list[SimulatedSpan]] = {}
    for span in spans:
        groups.setdefault(span.trace, []).append(span)
    return groups


def jaeger(spans: Iterable[SimulatedSpan]) -> bytes:
    """Return spans as Jaeger's API answers: JSON of ``data``, one entry per trace; times in microseconds."""
    traces = []
    for trace, members in _by_trace(spans).items():
        hosts = sorted({(span.service, span.host) for span in members})
        rows = []
        for span in members:
            reference = {"refType": "CHILD_OF", "traceID": trace, "spanID": span.parent}
            tags: list[dict[str, Any]] = [{"key": "span.kind", "type": "string", "value": span.kind}]
            tags += [{"key": "thread.id", "type": "string", "value": span.thread}] if span.thread else []
            tags += [{"key": "error", "type": "bool", "value": True}] if span.error else []
            rows.append(
                {
                    "traceID": trace,
                    "spanID": span.id,
                    "operationName": span.operation,
                    "references": [reference] if span.parent else [],
                    "startTime": span.start // US,
                    "duration": (span.end - span.start) // US,
                    "tags": tags,
                    "processID": f"p{hosts.index((span.service, span.host))}",
                }
            )
        processes = {
            f"p{number}": {"serviceName": service, "tags": [{"key": "hostname", "type": "string", "value": host}]}
            for number, (service, host) in enumerate(hosts)
        }
        traces.append({"traceID": trace, "spans": rows, "processes": processes})
    return json.dumps({"data": traces}).encode()


def zipkin(spans: Iterable[SimulatedSpan]) -> bytes:
    """Return spans as Zipkin v2 has them: a JSON list, one entry per span; times in microseconds."""
    rows = []
    for span in spans:
        tags = {"host.name": span.host} | ({"thread.id": span.thread} if span.thread else {})
        tags |= {"error": "true"} if span.error else {}
        row: dict[str, Any] = {
            "traceId": span.trace,
            "id": span.id,
            "name": span.operation,
            "timestamp": span.start // US,
            "duration": (span.end - span.start) // US,
            "localEndpoint": {"serviceName": span.service},
            "tags": tags,
        }
        row |= {"kind": span.kind.upper()} if span.kind != "internal" else {}
        rows.append(row | ({"parentId": span.parent} if span.parent else {}))
    return json.dumps(rows).encode()


def otlp(spans: Iterable[SimulatedSpan]) -> bytes:
    """Return spans as the collector's file exporter writes them: a line of JSON per host; times in nanoseconds."""
    lines = []
    for (service, host), members in _by_resource(spans).items():
        rows = []
        for span in members:
            row: dict[str, Any] = {
                "traceId": span.trace,
                "spanId": span.id,
                "name": span.operation,
                "kind": _KINDS.index(span.kind) + 1,
                "startTimeUnixNano": str(span.start),
                "endTimeUnixNano": str(span.end),
                "attributes": [_pair("thread.id", span.thread)] if span.thread else [],
                "status": {"code": 2} if span.error else {},
            }
            rows.append(row | ({"parentSpanId": span.parent} if span.parent else {}))
        resource = {"attributes": [_pair("service.name", service), _pair("host.name", host)]}
        lines.append({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": rows}]}]})
    return "\n".join(json.dumps(line) for line in lines).encode() + b"\n"


def _pair(key: str, value: str | None) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def _by_resource(spans: Iterable[SimulatedSpan]) -> dict[tuple[str, str], list[SimulatedSpan]]:
    groups: dict[tuple[str, str], list[SimulatedSpan]] = {}
    for span in spans:
        groups.setdefault((span.service, span.host), []).append(span)
    return groups


def otlp_protobuf(spans: Iterable[SimulatedSpan], *, lengths: bool = True) -> bytes:
    """Return spans as protocol buffers of OTLP; times in nanoseconds.

    Parameters
    ----------
    spans
        In the order in which they are written, host by host.
    lengths
        Whether each host's export has its length before it (four bytes, big endian), as the collector's file exporter
        writes them; without it all together are one export.
    """
    exports = []
    for (service, host), members in _by_resource(spans).items():
        resource = b"".join(_message(1, _attribute(*pair)) for pair in (("service.name", service), ("host.name", host)))
        rows = b"".join(_message(2, _encoded(span)) for span in members)
        exports.append(_message(1, _message(1, resource) + _message(2, rows)))
    return b"".join(struct.pack(">I", len(export)) + export for export in exports) if lengths else b"".join(exports)


def _encoded(span: SimulatedSpan) -> bytes:
    fields = [_message(1, bytes.fromhex(span.trace)), _message(2, bytes.fromhex(span.id))]
    fields += [_message(4, bytes.fromhex(span.parent))] if span.parent else []
    fields += [_message(5, span.operation.encode()), bytes([6 << 3]) + _varint(_KINDS.index(span.kind) + 1)]
    fields += [bytes([7 << 3 | 1]) + struct.pack("<Q", span.start), bytes([8 << 3 | 1]) + struct.pack("<Q", span.end)]
    fields += [_message(9, _attribute("thread.id", span.thread))] if span.thread else []
    fields += [_message(15, bytes([3 << 3]) + _varint(2))] if span.error else []
    return b"".join(fields)


def _attribute(key: str, value: str) -> bytes:
    return _message(1, key.encode()) + _message(2, _message(1, value.encode()))


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:  # noqa: PLR2004 seven bits a byte
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
