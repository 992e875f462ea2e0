"""Why a window took as long as it did, in plain words: what waited for what, the cause, what would help, how sure.

It says nothing of its own: every statement is a row, or a sum of rows, of another analysis (`evidence`).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl

from pag_graph.analyses.definition import Chart, ReportAnalysis
from pag_graph.analyses.evidence import ALARMING, Cause, Evidence
from pag_graph.analyses.invariants import FEWEST
from pag_graph.analyses.reports import Report
from pag_graph.analyses.statements import label, statements
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.model.tables import WHY
from pag_graph.model.units import in_html, in_markdown

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

_TITLES = {
    "summary": "",
    "cause": "",
    "path": "What the time went to (critical path)",
    "waiting": "Who waited",
    "records": "What went from worker to worker",
    "limits": "Limits that were exceeded",
    "typical": "Compared with a typical round",
    "help": "What would help",
    "doubt": "How sure this is",
}
_WIDTH = 118


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyParameters:
    """Parameters of `why`."""

    lines: Annotated[int, "Print at most this many lines; the least important lines are left out."] = 30
    words: Annotated[int | None, "Print at most this many words."] = None
    above: Annotated[
        float, "A straggler works more than this many times the median of the workers that run the same."
    ] = 1.5
    notable: Annotated[float, "Something is called a cause if it makes up at least this share of the time."] = 0.25
    message_share: Annotated[float, "A message is slow if it takes at least this share of the median round."] = 0.1
    baseline: Annotated[int, "Learn from this many earlier rounds what is usual, at least 5; 0 for none."] = 20

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises
        ------
        InvalidParameterError
            If a value is out of its range.
        """
        message = ""
        if self.lines < 1 or (self.words is not None and self.words < 1):
            message = f"lines is {self.lines} and words is {self.words}; both must be at least 1."
        elif self.above < 1:
            message = f"above is {self.above}, and must be at least 1."
        elif not (0 < self.notable <= 1 and 0 < self.message_share <= 1):
            message = f"notable is {self.notable} and message_share is {self.message_share}; both are shares, up to 1."
        elif self.baseline != 0 and self.baseline < FEWEST:
            message = f"baseline is {self.baseline}, and must be at least {FEWEST}, or 0 for none."
        if message:
            raise InvalidParameterError(message, "why(lines=30, above=1.5, notable=0.25)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Why(Report):
    """What there is to say of a window; `str()` gives it as text."""

    window: Window
    """The window."""
    table: pa.Table
    """Rows of `WHY`."""
    cause: Cause
    """What mainly made it as long as it was."""
    alarm: bool
    """Whether somebody could do something about it."""
    confidence: str
    """``high``, ``medium`` or ``low``."""
    explained: float
    """Share of the critical path's time that is not `unknown`."""
    lines: int
    """Lines of text, at most."""
    words: int | None
    """Words of text, at most; None for any number."""
    named: dict[str, Any]
    """The worker, the operator, its label and the share of the cause."""

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {
            "window": self.window.name,
            "epoch": self.window.epoch,
            "start_ns": self.window.start_ns,
            "end_ns": self.window.end_ns,
            "span_ns": self.window.span_ns,
            "cause": str(self.cause),
            "alarm": self.alarm,
            "confidence": self.confidence,
            "explained": self.explained,
            **{f"cause_{name}": value for name, value in self.named.items()},
        }

    def __str__(self) -> str:
        """Return the report as text."""
        return self.text()

    def html(self, *, top: int = 5) -> list[str]:
        """Return the report for a page: heading, cause, and then its sections.

        Parameters
        ----------
        top
            Sentences of a section, at most.

        Returns
        -------
        list of str
            Elements of HTML; values from traces are escaped.
        """
        (_, first), *sections = self.sections(top=top)
        heading, *cause = first
        mark = "cause alarm" if self.alarm else "cause"
        parts = [f"<h1>{in_html(heading)}</h1>", f'<p class="{mark}">{" ".join(map(in_html, cause))}</p>']
        for title, texts in sections:
            items = [f"<li>{in_html(text)}</li>" for text in texts]
            parts += [f"<h2>{in_html(title)}</h2>", "<ul>", *items, "</ul>"]
        return parts

    def text(self, *, top: int = 5) -> str:
        """Return the report for a terminal.

        Parameters
        ----------
        top
            How many statements of each topic to show; the length budget can make it fewer.

        Returns
        -------
        str
            Lines of at most 118 characters.
        """
        rows, left_out = self._chosen(top)
        lines: list[str] = []
        topic = "summary"
        for row in rows:
            if row["topic"] != topic:
                topic = row["topic"]
                lines += [f"{_TITLES[topic]}:"] if _TITLES[topic] else []
            # In front of a title, what belongs to it is indented.
            lines += _wrapped(row["statement"], "  - " if _TITLES[topic] else "")
        if left_out:
            lines.append(f"({left_out} more; --top and --lines give more room)")
        return "\n".join(lines)

    def markdown(self, *, top: int = 5) -> str:
        """Return the report for an issue.

        Parameters
        ----------
        top
            How many statements of each topic to show.

        Returns
        -------
        str
            Markdown; what comes from the trace is escaped.
        """
        rows, left_out = self._chosen(top)
        lines: list[str] = []
        topic = ""
        for row in rows:
            text = in_markdown(row["statement"])
            if row["topic"] != topic:
                topic = row["topic"]
                lines += ["", f"#### {_TITLES[topic]}", ""] if _TITLES[topic] else [""] * bool(lines)
            lines.append(f"- {text}" if _TITLES[topic] else f"### {text}" if topic == "summary" else f"**{text}**")
        if left_out:
            lines += ["", f"({left_out} statements more)"]
        return "\n".join(lines)

    def sections(self, *, top: int = 5) -> list[tuple[str, list[str]]]:
        """Return the titles of the report, and the statements under each.

        Parameters
        ----------
        top
            How many statements of each topic to show.

        Returns
        -------
        list
            In order; the first title is empty.
        """
        result: list[tuple[str, list[str]]] = [("", [])]
        for row in self._chosen(top)[0]:
            title = _TITLES[row["topic"]]
            if title != result[-1][0]:
                result.append((title, []))
            result[-1][1].append(row["statement"])
        return result

    def _chosen(self, top: int) -> tuple[list[dict[str, Any]], int]:
        """Return the rows that the budget has room for, in order, and how many it has not."""
        rows = self.table.to_pylist()
        counted: dict[str, int] = {}
        eligible = []
        for row in rows:
            counted[row["topic"]] = counted.get(row["topic"], 0) + 1
            if counted[row["topic"]] <= top:
                eligible.append(row)
        chosen: list[dict[str, Any]] = []
        titled: set[str] = set()
        lines, words = self.lines, self.words
        for row in sorted(eligible, key=lambda row: row["rank"]):
            title = _TITLES[row["topic"]] if row["topic"] not in titled else ""
            needed = len(_wrapped(row["statement"], "  - ")) + bool(title)
            needed_words = len(f"{row['statement']} {title}".split())
            # The last line is for what was left out; the summary always has room.
            fits = needed <= lines - 1 and (words is None or needed_words <= words)
            if chosen and not fits:
                continue
            chosen.append(row)
            titled.add(row["topic"])
            lines -= needed
            words = None if words is None else words - needed_words
        return [row for row in rows if row in chosen], len(rows) - len(chosen)


def _wrapped(text: str, mark: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark)) or [mark]


def why(snapshot: Snapshot, parameters: WhyParameters | None = None) -> Why:
    """Say in plain words why a window took as long as it did, and what would help.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        Length budget, and what is called a cause.

    Returns
    -------
    Why
        Rows of `WHY`, one per statement, and the report as text, Markdown or HTML.

    Raises
    ------
    InvalidParameterError
        If a parameter is out of its range.
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the graph has a gap; names the vertex.

    Notes
    -----
    One cause is named. It is the first of these that is large enough:

    - `data_skew`, `slow_worker`: there is a straggler (see `stragglers`), and waiting of at least `notable` of the
      window is charged to it (see `blame`). With `data_skew` it read more records, with `slow_worker` it did not. If
      workers run different operators, the straggler also has `notable` of the critical path.
    - `unknown`, `input`: half of the critical path is unknown, or waits for input.
    - `wake_up`, `transfer`: `notable` of the path is the operating system's delay in waking workers, or is messages.
      If messages to or from a worker that reads most of an operator's records (see `skew`) are that much, the report
      says so.
    - `bottleneck`: workers run different operators (`Run.peers`), and one of them works on half of the path. Also, it
      works more than `above` times the median of the workers that run the same; or no other worker runs the same, and
      others wait for it for `notable` of the window; or all workers wait as for `uneven_work`.
    - `uneven_work`, `taking_turns`: all workers wait for `notable` of their time. With `uneven_work`, three quarters
      of this is for one worker; with `taking_turns` it is not. If nothing is recorded of that worker in the window, all
      its time being `unknown`, the cause is `unknown`: it may have had nothing to do.
    - `unusual`: the round is longer by `notable` than earlier rounds allow (see `invariants`), and than the median
      round.
    - `work`: none of these. The workers are balanced, and the window takes as long as the work takes.

    `alarm` is true for all causes but `work`, `input` and `unknown`. What would help is found by replays (see
    `what-if`): everything that is not changed takes as long as it did and comes in the same order.

    Confidence is `high` if at least 95 % of the path are explained and nothing is doubtful. Doubtful are messages that
    may have ended a wait instead, other workers on which the path may end, negative transfers, waits that are
    inferred, and findings inside the window. Confidence is `low` below 80 %, if all workers wait at the end, or if the
    trace contradicts the rules.

    The cost is that of the analyses named, with `baseline` earlier rounds read. Under the rule set `stated`, four
    columns of all edges of the run are also read, once.
    """
    parameters = parameters or WhyParameters()
    evidence = Evidence(
        snapshot=snapshot,
        above=parameters.above,
        notable=parameters.notable,
        message_share=parameters.message_share,
        baseline=parameters.baseline,
    )
    all_statements = list(statements(evidence))
    order = sorted(range(len(all_statements)), key=lambda number: (all_statements[number].urgency, number))
    rank = {number: position + 1 for position, number in enumerate(order)}
    rows = [
        {
            "rank": rank[number],
            "topic": statement.topic,
            "statement": statement.text,
            "worker": statement.worker,
            "operator": statement.operator,
            "time_ns": statement.time_ns,
            "share": statement.share,
        }
        for number, statement in enumerate(all_statements)
    ]
    empty = pl.DataFrame(pl.from_arrow(WHY.empty_table()))
    verdict = evidence.verdict
    return Why(
        window=snapshot.window,
        table=pl.DataFrame(rows, schema=empty.schema).to_arrow().cast(WHY),
        cause=verdict.cause,
        alarm=verdict.cause in ALARMING,
        confidence=evidence.confidence,
        explained=evidence.path.explained,
        lines=parameters.lines,
        words=parameters.words,
        named={
            "worker": verdict.worker,
            "worker_name": None if verdict.worker is None else snapshot.run.worker_names.get(verdict.worker),
            "operator": verdict.operator,
            "operator_name": None if verdict.operator is None else label(evidence, verdict.operator),
            "share": verdict.share,
        },
    )


ANALYSIS = ReportAnalysis(
    name="why",
    function=why,
    parameters=WhyParameters,
    schema=WHY,
    output="WHY",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5 --lines 20",
    rows="statements",
    chart=Chart(kind="timeline"),
)
