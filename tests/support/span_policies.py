"""The rules of Jaeger's UI and of CRISP, followed step by step without thought for speed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from pag_graph.sources.spans import jaeger_json
from pag_graph.sources.spans.span_rows import SpanRows

if TYPE_CHECKING:
    from pag_graph.sources.spans.table import SpanTable

Span = dict[str, Any]


def table_of(record: dict[str, Any]) -> SpanTable:
    """Return the spans of what Jaeger's API answers, or of one trace."""
    rows = SpanRows()
    jaeger_json.read(record, rows)
    (read_table,) = rows.parts(jaeger_json.FORMAT, jaeger_json.TICK_NS, []).tables
    return read_table()


def random_trace(seed: int, *, wild: bool = True) -> dict[str, Any]:
    """Return a trace of Jaeger with a random tree; `wild`: spans that outlive, begin before, or lie outside parents."""
    draw = random.Random(seed)
    count = draw.randint(1, 14)
    kinds = ["client", "server", "producer", "consumer", "internal", None]
    spans: list[Span] = []
    for number in range(count):
        if number == 0:
            start, duration, above = 1_000, draw.choice([60, 100, 400, 1_000]), None
        else:
            above = spans[draw.randrange(len(spans))]
            low, high = above["startTime"], above["startTime"] + above["duration"]
            slack = draw.choice([0, 0, 0, 5, 40]) if wild else 0
            start = draw.randint(low - slack, max(low - slack, high))
            duration = draw.randint(0, max(0, high - start)) + draw.choice([0, 0, slack])
        references = []
        if above is not None:
            kind = draw.choice(["CHILD_OF"] * 6 + ["FOLLOWS_FROM"])
            references.append({"refType": kind, "traceID": "t", "spanID": above["spanID"]})
            if draw.random() < 0.1:
                other_parent = spans[draw.randrange(len(spans))]["spanID"]
                references.insert(draw.randint(0, 1), {"refType": "CHILD_OF", "traceID": "t", "spanID": other_parent})
        tags = [{"key": "span.kind", "type": "string", "value": kind} for kind in [draw.choice(kinds)] if kind]
        if draw.random() < 0.25:
            tags.append({"key": "error", "type": "bool", "value": True})
        spans.append(
            {
                "traceID": "t",
                "spanID": f"s{draw.randrange(10_000)}.{number}",
                "operationName": f"op{draw.randrange(5)}",
                "references": references,
                "startTime": start,
                "duration": duration,
                "processID": f"p{draw.randrange(3)}",
                "tags": tags,
            }
        )
    draw.shuffle(spans)
    hosts = [draw.choice(["a", "b", None]) for _ in range(3)]
    processes = {
        f"p{number}": {
            "serviceName": f"S{number}",
            "tags": [{"key": "hostname", "value": host}] if host else [],
        }
        for number, host in enumerate(hosts)
    }
    return {"data": [{"traceID": "t", "spans": spans, "processes": processes}]}


def _kind(span: Span) -> str:
    return next((tag["value"] for tag in span["tags"] if tag["key"] == "span.kind"), "internal")


def jaeger_path(trace: dict[str, Any]) -> list[tuple[str, int, int]] | None:
    """Return sections (span, start, end) as the UI shows them; None where its walk would not end."""
    spans = {span["spanID"]: dict(span) for span in trace["data"][0]["spans"]}
    tree: dict[str, list[str]] = {name: [] for name in spans}
    roots, up = [], {}
    for name, span in spans.items():
        parents = [ref["spanID"] for ref in span["references"] if ref["spanID"] in spans]
        (tree[parents[0]] if parents else roots).append(name)
        by_kind = [
            reference["spanID"]
            for k in ("CHILD_OF", "FOLLOWS_FROM")
            for reference in span["references"]
            if reference["refType"] == k
        ]
        up[name] = by_kind[0] if by_kind else None
    sections: list[tuple[str, int, int]] = []

    def collect(name: str, into: dict[str, dict[str, Any]]) -> None:
        span = spans[name]
        for child in tree[name]:
            if spans[child]["startTime"] <= 0:
                spans[child]["startTime"] = span["startTime"]
        below = sorted(tree[name], key=lambda child: spans[child]["startTime"])
        below = [child for child in below if (_kind(span), _kind(spans[child])) != ("producer", "consumer")]
        end = span["startTime"] + span["duration"]
        into[name] = {"start": span["startTime"], "end": end, "children": below}
        for child in below:
            collect(child, into)

    def walk(name: str, alive: dict[str, dict[str, Any]], returned: int, depth: int) -> None:
        if depth > 500:
            raise RecursionError
        if name not in alive:
            return
        span, last_child = alive[name], None
        for child in span["children"]:
            if child in alive and (not returned or alive[child]["end"] < returned):
                last_child = (
                    child if last_child is None or alive[child]["end"] > alive[last_child]["end"] else last_child
                )
        begin = span["start"] if last_child is None else alive[last_child]["end"]
        if begin != (returned or span["end"]):
            sections.append((name, begin, returned or span["end"]))
        if last_child is not None:
            walk(last_child, alive, 0, depth + 1)
        elif up[name] is not None:
            walk(up[name], alive, span["start"], depth + 1)

    for root in sorted(roots, key=lambda name: spans[name]["startTime"]):
        alive: dict[str, dict[str, Any]] = {}
        collect(root, alive)
        for name in list(alive):
            span, parent = alive[name], alive.get(up[name] or "")
            if up[name] is None:
                continue
            outside = parent is None or (
                span["start"] >= parent["end"] if span["start"] >= parent["start"] else span["end"] <= parent["start"]
            )
            if parent is None or outside:
                del alive[name]
            else:
                span["start"], span["end"] = max(span["start"], parent["start"]), min(span["end"], parent["end"])
        try:
            walk(root, alive, 0, 0)
        except RecursionError:
            return None
    return sections


class CrispTree:
    """What CRISP makes of a trace: recursive, and quadratic.

    Parameters
    ----------
    trace
        As Jaeger's API answers it, with one trace.
    """

    def __init__(self, trace: dict[str, Any]) -> None:
        self.processes = trace["data"][0]["processes"]
        self.nodes: dict[str, Span] = {}
        for span in trace["data"][0]["spans"]:
            start = span["startTime"]
            failed = any(tag["key"] == "error" and tag["value"] for tag in span["tags"])
            self.nodes[span["spanID"]] = {
                "id": span["spanID"], "s": start, "d": span["duration"], "e": start + span["duration"],
                "kids": [], "up": None, "error": failed, "kind": _kind(span), "pid": span["processID"],
                "op": (self.processes[span["processID"]]["serviceName"], span["operationName"]),
                "ref": [ref["spanID"] for ref in span["references"] if ref["refType"] == "CHILD_OF"],
            }  # fmt: skip
        roots = []
        for node in self.nodes.values():
            parent = self.nodes.get(node["ref"][-1]) if node["ref"] else None
            if parent is None:
                roots.append(node)
            else:
                node["up"] = parent
                parent["kids"].append(node)
        self.root = roots[0]
        self.cut(self.root)

    def host(self, node: Span) -> str | None:
        """Return the host of a node's process, if it states one."""
        tags = self.processes[node["pid"]]["tags"]
        return tags[0]["value"] if tags else None

    def call(self, parent: Span, me: Span) -> bool:
        """Tell whether a parent and its only child are two ends of one call."""
        if len(parent["kids"]) != 1 or me["d"] > 1.01 * parent["d"]:
            return False
        above = parent["up"]
        clean = me["kind"] == "server" and parent["kind"] == "client"
        fuzzy = me["kind"] == "server" and parent["kind"] != "server" and above and above["kind"] == "server"
        hosts = self.host(parent), self.host(me)
        return bool(clean or fuzzy or (all(hosts) and hosts[0] != hosts[1]))

    def cut(self, parent: Span) -> None:
        """Cut children to their parent's time, and drop those outside of it, all the way down."""
        outside = []
        for kid in parent["kids"]:
            if self.call(parent, kid):
                kid["d"] = min(kid["d"], parent["d"])
            elif kid["s"] >= parent["s"] and kid["e"] <= parent["e"]:
                pass
            elif kid["s"] < parent["s"] and parent["s"] < kid["e"] <= parent["e"]:
                kid["d"] -= parent["s"] - kid["s"]
                kid["s"] = parent["s"]
            elif kid["s"] >= parent["s"] and kid["e"] > parent["e"] and kid["s"] < parent["e"]:
                kid["d"] -= kid["e"] - parent["e"]
                kid["e"] = parent["e"]
            else:
                outside.append(kid)
                continue
            self.cut(kid)
        parent["kids"] = [kid for kid in parent["kids"] if not any(kid is outsider for outsider in outside)]

    def before(self, parent: Span, among: list[Span], first: Span, later: Span) -> bool:
        """Tell whether one child ended before another one began, as far as clocks can tell."""
        if first["e"] < later["s"]:
            return True
        if first["e"] < later["e"] and first["s"] < later["s"] and (first["e"] - later["s"]) / parent["d"] < 0.01:
            return sum(later["s"] <= kid[end] <= first["e"] for kid in among for end in ("s", "e")) == 2
        return False

    def path(self, node: Span) -> list[Span]:
        """Return the nodes of the critical path, from the root down, late children first."""
        path = [node]
        if not node["kids"]:
            return path
        ordered = sorted(node["kids"], key=lambda kid: kid["e"])[::-1]
        latest = ordered[0]
        path += self.path(latest)
        for kid in ordered[1:]:
            if self.before(node, ordered, kid, latest):
                path += self.path(kid)
                latest = kid
        return path

    def work(self, node: Span) -> tuple[int, int]:
        """Return the time of a node and all below it, and of those of them that failed."""
        works = [self.work(kid) for kid in node["kids"]]
        return node["d"] + sum(a for a, _ in works), (node["d"] if node["error"] else 0) + sum(b for _, b in works)

    def exclusive(self) -> dict[tuple[str, str], int]:
        by_path: dict[tuple[Any, ...], int] = {}
        for node in reversed(self.path(self.root)):
            chain, above = [], node
            while above is not None:
                chain.append(above["op"])
                above = above["up"]
            by_path[tuple(chain)] = by_path.get(tuple(chain), 0) + node["d"]
            if node is not self.root:
                by_path[tuple(chain[1:])] = by_path.get(tuple(chain[1:]), 0) - node["d"]
        by_operation: dict[tuple[str, str], int] = {}
        for chain_, time in by_path.items():
            by_operation[chain_[0]] = by_operation.get(chain_[0], 0) + max(0, time)
        return by_operation

    def saved(self, node: Span) -> int:
        """Return how much shorter a node would be without what failed."""
        if node["error"]:
            return int(node["d"])
        blocks: list[dict[str, Any]] = []
        for kid in sorted(node["kids"], key=lambda kid: (-kid["e"], kid["s"], kid["id"])):
            if blocks and not self.before(node, node["kids"], kid, blocks[-1]["first"]):
                blocks[-1]["kids"].append(kid)
                if kid["s"] < blocks[-1]["first"]["s"]:
                    blocks[-1]["first"] = kid
            else:
                overlap = max(0, kid["e"] - blocks[-1]["first"]["s"]) if blocks else 0
                blocks.append({"first": kid, "kids": [kid], "end": kid["e"], "overlap": overlap})
        return min(int(node["d"]), sum(self.saved_in(block, node) for block in blocks))

    def saved_in(self, block: dict[str, Any], parent: Span) -> int:
        """Return how much sooner a block of children that overlap would have ended without what failed."""
        ordered = sorted(block["kids"], key=lambda kid: kid["e"])[::-1]
        just: dict[str, list[Span]] = {kid["id"]: [] for kid in ordered}
        waiting: list[Span] = []
        for kid in ordered:
            finished = []
            for later in waiting:
                if kid["e"] > later["s"]:
                    continue
                listed = just[later["id"]]
                follows = [kid["e"] <= other["s"] for other in listed]
                if not any(follows):
                    listed.append(kid)
                elif all(follows):
                    finished.append(later)
            waiting = [later for later in waiting if not any(later is other for other in finished)] + [kid]
        start, latest = block["first"]["s"], -1

        def gain(kid: Span) -> int:
            own_saving = self.saved(kid)
            assert 0 <= own_saving <= kid["d"]
            distance, until = kid["s"] - start, start
            for other in just[kid["id"]]:
                distance = max(0, min(distance, kid["s"] - other["e"]))
                until = max(until, other["e"] - gain(other))
            end = until + distance + kid["d"] - own_saving
            assert end <= kid["e"]
            return int(kid["e"] - end)

        for kid in ordered:
            if kid is not ordered[0] and self.before(parent, ordered, kid, ordered[0]):
                break
            kid_gain = gain(kid)
            assert 0 <= kid_gain <= block["end"] - start
            latest = max(latest, kid["e"] - kid_gain)
        assert 0 <= latest <= block["end"]
        return int(max(0, block["end"] - latest - block["overlap"]))
