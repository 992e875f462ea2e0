"""The policies `jaeger` and `crisp` beside the programs themselves, on their own cases and on random trees.

``python -m tests.support.span_tools CRISP JAEGER_UI`` wants two checkouts (uber-research/CRISP at 2710c0b,
jaegertracing/jaeger-ui at c321fb3), of which nothing is kept. CRISP wants ``python-dateutil`` in the interpreter that
runs it (``--python``); ``npm install esbuild lodash memoize-one deep-freeze`` gives what the other one imports.
Says how many answers agree, and ends with 1 if one does not.

CRISP keeps siblings in a set, in the order of their addresses in memory, and reckons savings on the path in that order
where siblings end together: asked twice, it may give two answers. So its sets are made to keep the order in which they
are filled. How many of its answers differ as it is, this time, is said besides.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.diagnosis.spans import crisp_policy, jaeger_policy
from pag_graph.diagnosis.spans.one_trace import each_trace
from tests.support.span_policies import random_trace, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pag_graph.sources.spans.table import SpanTable

Record = dict[str, Any]

_CRISP = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from crisp.graph import Graph
from crisp.models import PBlock
from crisp.shared.utils import getLeafNodeFromCallPath

class InOrder(dict):
    def add(self, node):
        self[node] = None

if sys.argv[1] == "in order":
    made = PBlock.__init__
    def make(block, parent, node, overlap=0.0):
        made(block, parent, node, overlap)
        block.spanSet = InOrder({node: None})
    PBlock.__init__ = make
for line in sys.stdin:
    service, operation, record = json.loads(line)
    answer = {}
    graph = Graph(record, service, operation, "", rootTrace=False)
    if graph.rootNode is not None:
        try:
            path = graph.findCriticalPath()
            calls, _ = graph.accumeCPMetrics(path, "t", graph.rootNode)
            exclusive = {}
            for name, value in calls.profile.items():
                leaf = getLeafNodeFromCallPath(name)
                exclusive[leaf] = exclusive.get(leaf, 0) + value.excl
            work, saved = graph.computeTimeSavedOnWork(graph.rootNode)
            answer = {"opTimeExclusive": exclusive, "totalWork": work, "timeSavedOnWork": saved, "timeSavedOnCP": None}
            answer["timeSavedOnCP"] = graph.ComputeAllSeriesTimeSaved(graph.rootNode)
        except (AssertionError, ZeroDivisionError):
            pass
    print(json.dumps(answer))
"""
_WINDOW = "globalThis.window = globalThis; globalThis.document = {}; console.error = () => {};"
_JAEGER = """
import transform from '%(source)s/model/transform-trace-data';
import path from '%(source)s/components/TracePage/CriticalPath/index';
import { createInterface } from 'readline';
createInterface({ input: process.stdin }).on('line', line => {
  const { sections, failed } = path(transform(JSON.parse(line)).asOtelTrace());
  console.log(JSON.stringify({ sections, failed }));
});
"""
_JAEGER_CASES = """
import { given } from '%(source)s/model/transform-trace-data';
%(imports)s
console.log(JSON.stringify([%(names)s].map((one, i) => ({ trace: given[i], expected: one.criticalPathSections }))));
"""
_BUILD = """
import { build } from '%(modules)s/esbuild/lib/main.js';
const recorder = {
  name: 'recorder',
  setup(build) {
    build.onResolve({ filter: /transform-trace-data$/ }, args =>
      /testCases|cases\\.js$/.test(args.importer) ? { path: 'recorder', namespace: 'own' } : undefined);
    build.onLoad({ filter: /.*/, namespace: 'own' }, () => ({ resolveDir: '%(source)s', contents: `
      import real from '%(source)s/model/transform-trace-data.ts';
      export const given = [];
      export default data => { given.push(JSON.parse(JSON.stringify(data))); return real(data); };` }));
  },
};
await build({ entryPoints: ['%(entry)s'], outfile: '%(target)s', bundle: true, platform: 'node', logLevel: 'error',
  nodePaths: ['%(modules)s'], plugins: [recorder], banner: { js: `%(window)s` } });
"""


class JaegerUi:
    """The modules of a checkout, made into one program."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.source = (checkout / "packages" / "jaeger-ui" / "src").resolve()
        self.modules, self.folder = (checkout / "node_modules").resolve(), folder

    def run(self, name: str, program: str, lines: Iterable[str] = ()) -> list[Any]:
        """Run a program of its modules; returns what it prints."""
        entry, target, maker = (self.folder / f"{name}.{end}" for end in ("js", "out.js", "build.mjs"))
        entry.write_text(program)
        facts = {"source": self.source, "modules": self.modules, "entry": entry, "target": target, "window": _WINDOW}
        maker.write_text(_BUILD % facts)
        _run(["node", str(maker)])
        return _values(_run(["node", str(target)], lines))

    def cases(self) -> list[Record]:
        """Return its own cases: `trace` as Jaeger's API gives it, and `expected` sections."""
        files = sorted((self.source / "components" / "TracePage" / "CriticalPath" / "testCases").glob("*.js"))
        imports = "\n".join(f"import case{number} from '{file}';" for number, file in enumerate(files))
        names = ", ".join(f"case{number}" for number in range(len(files)))
        (cases,) = self.run("cases", _JAEGER_CASES % {"source": self.source, "imports": imports, "names": names})
        return list(cases)

    def answers(self, traces: Iterable[Record]) -> list[Record]:
        """Return what its walk says of traces: `sections`, and whether it `failed`."""
        return self.run("answers", _JAEGER % {"source": self.source}, (json.dumps(trace) for trace in traces))


def crisp_answers(
    python: str, checkout: Path, questions: Iterable[tuple[str, str, Record]], sets: str = "in order"
) -> list[Record]:
    """Return CRISP's four values of records, given the root's service and operation; nothing where it fails."""
    lines = (json.dumps(question) for question in questions)
    return _values(_run([python, "-c", _CRISP, sets], lines, cwd=checkout))


def our_sections(table: SpanTable) -> Record:
    """Return what the policy `jaeger` says."""
    (trace,) = each_trace(table)
    sections, failed = jaeger_policy.critical_path(trace)
    section_records = [
        {"spanID": trace.ids[span], "sectionStart": start, "sectionEnd": end} for span, start, end in sections
    ]
    return {"sections": section_records, "failed": bool(failed)}


def our_values(table: SpanTable, service: str, operation: str) -> Record:
    """Return what the policy `crisp` says; nothing where CRISP fails."""
    (trace,) = each_trace(table)
    values = crisp_policy.critical_path(trace, table, service, operation)
    if values is None:
        return {}
    names = table.operations
    return {
        "opTimeExclusive": {f"[{names[o].service}] {names[o].name}": time for o, time in values.exclusive.items()},
        "totalWork": values.total_work,
        "timeSavedOnWork": values.saved_on_work,
        "timeSavedOnCP": values.saved_on_path,
    }


def _run(command: Sequence[str], lines: Iterable[str] = (), cwd: Path | None = None) -> str:
    completed = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, cwd=cwd, check=False)
    if completed.returncode:
        sys.exit(f"{command[0]} failed:\n{completed.stderr[-2000:]}")
    return completed.stdout


def _values(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line[:1] in "[{"]


def _told(subject: str, pairs: Sequence[tuple[Record, Record]], names: Sequence[Any]) -> int:
    """Say how many pairs agree, and which do not first."""
    wrong = [place for place, (ours, theirs) in enumerate(pairs) if ours != theirs]
    sys.stdout.write(f"{subject}: {len(pairs) - len(wrong):,} of {len(pairs):,}\n")
    for place in wrong[:3]:
        sys.stdout.write(f"  {names[place]}\n    ours   {pairs[place][0]}\n    theirs {pairs[place][1]}\n")
    return len(wrong)


def _compare_crisp(python: str, checkout: Path, trees: Sequence[Record]) -> int:
    files = sorted((checkout / "test_cases").glob("*.json"), key=lambda file: int(file.stem))
    records = [json.loads(file.read_bytes()) for file in files]
    ours = [our_values(table_of(record), "S1", "O1") for record in records]
    stated = [
        crisp_case["testing"]
        if isinstance(crisp_case["testing"], dict)
        else {"opTimeExclusive": crisp_case["testing"][0]}
        for crisp_case in records
    ]
    pairs = [
        (
            {name: our_record[name] for name in our_record if name in case},
            {name: case[name] for name in our_record if name in case},
        )
        for our_record, case in zip(ours, stated, strict=True)
    ]
    wrong = _told("crisp, values that its cases state", pairs, files)
    theirs = crisp_answers(python, checkout, [("S1", "O1", record) for record in records])
    wrong += _told("crisp, values that CRISP gives for its cases", list(zip(ours, theirs, strict=True)), files)
    questions = [(*_root(record), record) for record in trees]
    theirs = crisp_answers(python, checkout, questions)
    ours = [our_values(table_of(record), service, operation) for service, operation, record in questions]
    wrong += _told("crisp, random trees", list(zip(ours, theirs, strict=True)), range(len(trees)))
    as_it_is = crisp_answers(python, checkout, questions, sets="as they are")
    _told("crisp, random trees, siblings by address", list(zip(ours, as_it_is, strict=True)), range(len(trees)))
    return wrong


def _root(record: Record) -> tuple[str, str]:
    """Return service and operation of the first span that is nobody's child."""
    (trace,) = record["data"]
    root = next(s for s in trace["spans"] if all(reference["refType"] != "CHILD_OF" for reference in s["references"]))
    return trace["processes"][root["processID"]]["serviceName"], root["operationName"]


def _compare_jaeger(ui: JaegerUi, trees: Sequence[Record]) -> int:
    cases = ui.cases()
    traces = [case["trace"] for case in cases]
    ours = [our_sections(table_of(trace)) for trace in traces]
    expected = [{"sections": case["expected"], "failed": False} for case in cases]
    names = [trace["traceID"] for trace in traces]
    wrong = _told("jaeger, sections that its cases state", list(zip(ours, expected, strict=True)), names)
    wrong += _told(
        "jaeger, sections that its UI gives for its cases", list(zip(ours, ui.answers(traces), strict=True)), names
    )
    ours = [our_sections(table_of(record)) for record in trees]
    theirs = ui.answers(record["data"][0] for record in trees)
    return wrong + _told("jaeger, random trees", list(zip(ours, theirs, strict=True)), range(len(trees)))


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("crisp", type=Path, metavar="CRISP", help="checkout of uber-research/CRISP")
    parser.add_argument("ui", type=Path, metavar="JAEGER_UI", help="checkout of jaegertracing/jaeger-ui")
    parser.add_argument("--python", default=sys.executable, help="interpreter that CRISP runs in")
    parser.add_argument("--trees", type=int, default=10_000, help="how many random trees (default: 10,000)")
    options = parser.parse_args()
    trees = [random_trace(seed, wild=seed % 3 > 0) for seed in range(options.trees)]
    with tempfile.TemporaryDirectory() as folder:
        wrong = _compare_crisp(options.python, options.crisp, trees)
        wrong += _compare_jaeger(JaegerUi(options.ui, Path(folder)), trees)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
