"""What there is to say of a window, sentence by sentence, each with the numbers that it stands on.

Nothing is computed here: every statement is a row, or a sum of rows, of another analysis (`evidence`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pag_graph.analyses.evidence import Cause, Evidence
from pag_graph.builder.rule_choice import CONTRADICTS, INFERRED_WAITS
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType
from pag_graph.model.units import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_LATENCY = " (latency, from the epoch's first event on any worker to its last)"
_NOTED = 0.05
"""Share of the path from which on it is said that nobody logged what ran."""
_FIRST = {"summary": 0, "cause": 0, "path": 2, "waiting": 3, "records": 5, "limits": 6, "typical": 7, "help": 1}
"""When the first line of a topic gives way, where lines are few; later lines of it give way before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One sentence, and the numbers that it stands on."""

    topic: str
    """Section of the report."""
    text: str
    """The sentence."""
    worker: int | None = None
    """Whom it speaks of, if anybody."""
    operator: int | None = None
    """Number of the operator that it speaks of, if any."""
    time_ns: int | None = None
    """Time that it names, if any."""
    share: float | None = None
    """Share that it names, if any."""
    urgency: float = 0.0
    """What is lowest stays longest where lines are few."""


def statements(evidence: Evidence) -> Iterator[Statement]:
    """Yield everything that there is to say of a window, in the order of the report.

    Parameters
    ----------
    evidence
        What is known of the window.

    Yields
    ------
    Statement
        With its urgency.
    """
    for topic in (_summary, _cause, _path, _waiting, _records, _limits, _typical, _help, _doubts):
        for place, statement in enumerate(topic(evidence)):
            # The first line of every topic outlasts the later ones of others.
            first = _FIRST.get(statement.topic, 4)
            yield replace(statement, urgency=first if place == 0 else 10 * place + first)


def label(evidence: Evidence, operator: int) -> str:
    """Return what people call an operator.

    Parameters
    ----------
    evidence
        Knows the labels of operators.
    operator
        Number of the operator.

    Returns
    -------
    str
        Its number as a word where it has no name.
    """
    return evidence.labels.get(operator, f"operator {operator}")


def _listed(evidence: Evidence, workers: list[int]) -> str:
    """Return ``worker 1``, or ``workers 1, 2 and 3``, or ``source (worker 1) and sink (worker 2)``."""
    run = evidence.snapshot.run
    if len(workers) == 1 or any(worker in run.worker_names for worker in workers):
        *names, last = map(run.worker_label, workers)
        return f"{', '.join(names)} and {last}" if names else last
    return f"workers {', '.join(map(str, workers[:-1]))} and {workers[-1]}"


def _worker(evidence: Evidence, worker: int | None, *, begins: bool = False) -> str:
    """Return how to speak of a worker, also where a sentence begins; a name stays as it is."""
    run = evidence.snapshot.run
    name = "nobody" if worker is None else run.worker_label(worker)
    return name[0].upper() + name[1:] if begins and worker not in run.worker_names else name


def _between(evidence: Evidence, sender: int, receiver: int) -> str:
    """Return ``worker 1 to 2``, or ``source (worker 1) to sink (worker 2)``."""
    names = evidence.snapshot.run.worker_names
    is_named = sender in names or receiver in names
    return f"{_worker(evidence, sender)} to {_worker(evidence, receiver) if is_named else receiver}"


def _short(evidence: Evidence, worker: int) -> str:
    return evidence.snapshot.run.worker_names.get(worker, str(worker))


def _peers(evidence: Evidence, worker: int | None) -> str:
    """Return who a worker is compared with."""
    if worker is None or not evidence.snapshot.run.unlike:
        return "the workers"
    return f"the {len(evidence.peers(worker))} workers that run the same"


def _times(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _kind(kind: str) -> str:
    return kind.replace("_", " ")


def _summary(evidence: Evidence) -> Iterator[Statement]:
    window, count = evidence.window, len(evidence.spans)
    text = f"{window.name.capitalize()} took {duration(window.span_ns)}"
    if evidence.is_round and count > 1 and evidence.median_ns:
        place = "the slowest" if evidence.rank == 1 else f"number {evidence.rank} by length"
        text += f": {place} of {count} rounds, {window.span_ns / evidence.median_ns:.1f} x their median"
    yield Statement(topic="summary", text=f"{text}.", time_ns=window.span_ns, share=1.0)


def _cause(evidence: Evidence) -> Iterator[Statement]:
    verdict = evidence.verdict
    facts: dict[str, Any] = {"worker": verdict.worker, "operator": verdict.operator, "time_ns": verdict.time_ns}
    share, span = verdict.share, duration(verdict.time_ns)
    waiting_workers = [worker for worker in evidence.waiting_by_worker if worker != verdict.worker]
    waiting = _listed(evidence, waiting_workers) if waiting_workers else "the others"
    in_operator = "" if verdict.operator is None else f", most of it for {label(evidence, verdict.operator)}"
    charged = f"{waiting} waited {span} for it, {share:.0%} of all waiting{in_operator}"
    row = next((row for row in evidence.stragglers if row["worker"] == verdict.worker), {})
    peers = _peers(evidence, verdict.worker)
    ratio = f"{row['work_ratio']:.1f} x the median of {peers}" if row.get("work_ratio") else "most"
    # Where nobody counts records, nobody can say that there were not more.
    no_more = ", for no more records" if any(row["records"] for row in evidence.stragglers) else ""
    subject = _worker(evidence, verdict.worker)
    first = _worker(evidence, verdict.worker, begins=True)
    text = {
        Cause.DATA_SKEW: lambda: (
            f"the data is skewed. {first} {_read(evidence, verdict.worker)} and worked {ratio}; {charged}."
        ),
        Cause.SLOW_WORKER: lambda: f"{subject} is slow. It worked {ratio}{no_more}; {charged}.",
        Cause.UNEVEN_WORK: lambda: f"the work is uneven. {first} had most to do; {charged}.",
        Cause.BOTTLENECK: lambda: f"{subject} is the bottleneck. {_held_up(evidence)}",
        Cause.TAKING_TURNS: lambda: (
            "the workers take turns. They waited for each other"
            f" {share:.0%} of their time, and none of them is to blame for most of it."
        ),
        Cause.WAKE_UP: lambda: (
            f"the workers were woken late. For {share:.0%} of the time ({span}) a worker that had something to do was"
            " not running yet: the operating system took so long to run its thread. More cores, or workers that do not"
            " park, would help."
        ),
        Cause.TRANSFER: lambda: (
            f"messages were under way. For {share:.0%} of the time ({span}) everything that the end"
            " depends on was in transfer."
        ),
        Cause.INPUT: lambda: f"there was no input for {share:.0%} of the time ({span}).",
        Cause.UNKNOWN: lambda: f"the trace does not say what {_unsaid(evidence, charged)}.",
        Cause.UNUSUAL: lambda: (
            f"the round is unusual: {span} longer than the median round, and longer than the rounds"
            " before it allow, though the workers are balanced. See the comparison."
        ),
        Cause.WORK: lambda: _work(evidence),
    }[verdict.cause]()
    start = "" if verdict.cause is Cause.WORK else "Cause: "
    yield Statement(topic="cause", text=f"{start}{text}", share=verdict.share, **facts)
    skewed = evidence.skewed_messages if verdict.cause is Cause.TRANSFER else None
    if skewed is not None:
        share = skewed["message_ns"] / (evidence.window.span_ns or 1)
        read = f"{_worker(evidence, skewed['worker'])} {_read(evidence, skewed['worker'])}"
        text = f"The data is skewed: {read}, and {share:.0%} of the time was messages to or from it."
        yield Statement(
            topic="cause",
            text=text,
            worker=skewed["worker"],
            operator=skewed["operator"],
            time_ns=skewed["message_ns"],
            share=share,
        )


def _unsaid(evidence: Evidence, charged: str) -> str:
    """Say of what nothing is recorded: a part of the path, or all that a worker did."""
    verdict = evidence.verdict
    if verdict.worker is None:
        return f"happened in {verdict.share:.0%} of the time ({duration(verdict.time_ns)})"
    return f"{_worker(evidence, verdict.worker)} did; {charged}"


def _held_up(evidence: Evidence) -> str:
    """Say what a worker holds up, and how it compares with those that run the same."""
    verdict = evidence.verdict
    assert verdict.worker is not None  # noqa: S101  (a bottleneck is somebody)
    text = f"{verdict.share:.0%} of the time on the critical path ({duration(verdict.time_ns)}) is its work"
    if verdict.operator is not None:
        text += f", most of it in {label(evidence, verdict.operator)}"
    charged = evidence.blamed_by_worker.get(verdict.worker, 0)
    if charged:
        waiting = _listed(evidence, [w for w in evidence.waiting_by_worker if w != verdict.worker])
        text += f"; {waiting} waited {duration(charged)} for it, {charged / evidence.waiting_ns:.0%} of all waiting"
    if evidence.peers(verdict.worker) == [verdict.worker]:
        return f"{text}. Nobody else runs what it runs."
    row = next(row for row in evidence.stragglers if row["worker"] == verdict.worker)
    if not row["work_ratio"] or row["work_ratio"] <= evidence.above:
        return f"{text}. Others that run the same do not work much less."
    read = any(row["worker"] == verdict.worker and row["skewed"] for row in evidence.skew)
    reading = f"{_read(evidence, verdict.worker)} and " if read else ""
    return f"{text}. It {reading}worked {row['work_ratio']:.1f} x the median of {_peers(evidence, verdict.worker)}."


def _work(evidence: Evidence) -> str:
    verdict = evidence.verdict
    balanced = (
        "nobody works much more than others that run the same"
        if evidence.snapshot.run.unlike
        else ("the workers are balanced")
    )
    text = f"No cause stands out: {balanced}, and it takes as long as the work takes"
    if verdict.operator is not None:
        text += f", {verdict.share:.0%} of it in {label(evidence, verdict.operator)}"
    extra_ns = evidence.window.span_ns - evidence.median_ns
    if evidence.is_round and extra_ns >= evidence.notable * evidence.window.span_ns:
        return f"{text}. That it is {duration(extra_ns)} longer than the median round is within what earlier rounds do."
    return f"{text}. Nothing to worry about."


def _read(evidence: Evidence, worker: int | None) -> str:
    """Say what share of an operator's records a worker read, for the operator that it spent most time in."""
    rows = [row for row in evidence.skew if row["worker"] == worker and row["skewed"] and row["operator"] is not None]
    if not rows:
        return "read many more records than the others"
    row = max(rows, key=lambda row: (row["processing_ns"], row["records"]))
    amount = f"all {row['records']:,}" if row["share"] == 1 else f"{row['share']:.0%} of all"
    return f"read {amount} records of {label(evidence, row['operator'])}"


def _path(evidence: Evidence) -> Iterator[Statement]:
    span = evidence.window.span_ns or 1
    for row in evidence.steps.iter_rows(named=True):
        ns, message = row["duration_ns"], row["type"] in MESSAGE_TYPES
        activity = _kind(row["type"])
        if row["operator"] is not None:
            activity = f"{label(evidence, row['operator'])}, {activity}"
        worker = _worker(evidence, row["worker"])
        location = f"from {_between(evidence, row['worker'], row['to_worker'])}" if message else f"on {worker}"
        yield Statement(
            topic="path",
            text=f"{ns / span:.0%} {activity} {location} ({duration(ns)})",
            worker=row["worker"],
            operator=row["operator"],
            time_ns=ns,
            share=ns / span,
        )


def _waiting(evidence: Evidence) -> Iterator[Statement]:
    workers, total = evidence.waiting_by_worker, evidence.waiting_ns
    if not workers:
        yield Statement(topic="waiting", text="nobody", time_ns=0, share=0.0)
        return
    waiting = _listed(evidence, list(workers))
    text = f"{waiting} waited {duration(total)} in all, {evidence.waiting_share:.0%} of all workers' time"
    yield Statement(topic="waiting", text=text, time_ns=total, share=evidence.waiting_share)
    sums: dict[tuple[int, int, str, int | None], int] = {}
    for row in evidence.blame:
        key = (row["by_worker"], row["to_worker"], row["type"], row["operator"])
        sums[key] = sums.get(key, 0) + row["blamed_ns"]
    for (by_worker, to_worker, kind, operator), ns in sorted(sums.items(), key=lambda item: -item[1]):
        cause = _kind(kind) if operator is None else f"{label(evidence, operator)}, {_kind(kind)}"
        location = (
            f"on {_worker(evidence, by_worker)}"
            if by_worker == to_worker
            else f"from {_between(evidence, by_worker, to_worker)}"
        )
        text = f"{ns / total:.0%} of it while the path to the wait's end was in {cause}, {location} ({duration(ns)})"
        yield Statement(topic="waiting", text=text, worker=by_worker, operator=operator, time_ns=ns, share=ns / total)
    for (worker, sender, message), ns in _ended(evidence).items():
        cause = (
            "a message that is not known"
            if sender is None
            else f"a {_kind(message or 'message')} of {_worker(evidence, sender)}"
        )
        text = f"{_worker(evidence, worker)} waited {duration(ns)} for {cause}"
        yield Statement(topic="waiting", text=text, worker=worker, time_ns=ns, share=ns / total)


def _ended(evidence: Evidence) -> dict[tuple[int, int | None, str | None], int]:
    sums: dict[tuple[int, int | None, str | None], int] = {}
    for row in evidence.waits:
        key = (row["worker"], row["from_worker"], row["type"])
        sums[key] = sums.get(key, 0) + row["waiting_ns"]
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _records(evidence: Evidence) -> Iterator[Statement]:
    sent = evidence.sent
    if not sent:
        yield Statement(topic="records", text="no data")
        return
    receivers = {receiver for _, receiver in sent}
    shown = []
    for (a, b), (messages, records) in list(sent.items())[:8]:
        amount = f"not counted, {_times(messages, 'message')}" if records is None else f"{records:,}"
        shown.append(f"{_short(evidence, a)} -> {_short(evidence, b)} ({amount})")
    more_pairs = f" and {len(sent) - 8} more pairs of workers" if len(sent) > 8 else ""  # noqa: PLR2004
    is_only_receiver = len(receivers) == 1 and len(sent) > 1
    end = f"; records went to {_worker(evidence, min(receivers))} only" if is_only_receiver else ""
    yield Statement(
        topic="records",
        text=f"records {', '.join(shown)}{more_pairs}{end}",
        worker=min(receivers) if is_only_receiver else None,
        share=1.0 if is_only_receiver else None,
    )
    # The rows of k-hops name senders only; the receiver is known where a sender sent data to one worker alone.
    hops: dict[str, list[Any]] = {}
    for (kind, worker), share in evidence.hops.items():
        receiver = {b for a, b in sent if a == worker}
        has_receiver = kind == ActivityType.DATA_MESSAGE and len(receiver) == 1
        place = hops.setdefault(
            f"data messages to {_worker(evidence, min(receiver))}"
            if has_receiver
            else f"{_kind(kind)} of {_worker(evidence, worker)}",
            [],
        )
        place.append((worker, share))
    for group, parts in sorted(hops.items(), key=lambda item: -sum(share for _, share in item[1])):
        share = sum(share for _, share in parts)
        senders = (
            f" from {_listed(evidence, sorted(w for w, _ in parts))}" if group.startswith("data messages to") else ""
        )
        text = f"within 10 hops before the waits' ends, {share:.0%} of the time is {group}{senders}"
        yield Statement(topic="records", text=text, worker=parts[0][0] if len(parts) == 1 else None, share=share)


def _limits(evidence: Evidence) -> Iterator[Statement]:
    slow = [row for row in evidence.violations if row["invariant"] == "message_max" and not row["learned"]]
    if slow:
        worst = max(slow, key=lambda row: row["observed"])
        senders, receivers = ({row[name] for row in slow} for name in ("worker", "to_worker"))
        to_receivers = f"to {_listed(evidence, sorted(receivers))}"
        text = (
            f"{_times(len(slow), 'message')} from {_listed(evidence, sorted(senders))} {to_receivers} took longer than"
            f" {duration(evidence.slow_message_ns)} from send to read (message_max), the slowest"
            f" {duration(worst['observed'])}"
        )
        worker = min(receivers) if len(receivers) == 1 else None
        yield Statement(topic="limits", text=text, worker=worker, time_ns=worst["observed"])
    for row in sorted((r for r in evidence.violations if r not in slow), key=lambda row: -row["observed"]):
        of_worker = "" if row["worker"] is None else f" of {_worker(evidence, row['worker'])}"
        if row["worker"] is not None and row["to_worker"] is not None:
            of_worker = f" of {_between(evidence, row['worker'], row['to_worker'])}"
        subject = "" if row["type"] is None else f", {_kind(row['type'])}"
        subject += "" if row["operator"] is None else f" in {label(evidence, row['operator'])}"
        if row["unit"] == "ns":
            numbers = f"{duration(row['observed'])}, more than {duration(row['limit'])}"
        else:
            numbers = f"{row['observed']} {row['unit']} instead of {row['limit']}"
        learned = " (learned from the rounds before)" if row["learned"] else ""
        meant = _LATENCY if row["invariant"] == "epoch_max" else ""
        yield Statement(
            topic="limits",
            text=f"{row['invariant']}{meant}{of_worker}{subject}: {numbers}{learned}",
            worker=row["worker"],
            operator=row["operator"],
            time_ns=row["observed"] if row["unit"] == "ns" else None,
        )


def _typical(evidence: Evidence) -> Iterator[Statement]:
    difference = evidence.typical
    if difference is None:
        return
    change_ns = difference.difference_ns
    text = f"{duration(change_ns)} {'more' if change_ns >= 0 else 'less'} than {difference.before}"
    share = change_ns / (difference.before_ns or 1)
    text = text.replace("-", "", 1) if change_ns < 0 else text
    yield Statement(
        topic="typical",
        text=f"{text} ({duration(difference.before_ns)})",
        time_ns=difference.difference_ns,
        share=share,
    )
    for row in difference.table.to_pylist():
        ns = row["difference_ns"]
        if not ns:
            continue
        activity = _kind(row["type"])
        if row["operator_name"]:
            activity = f"{printable(row['operator_name'])} ({row['address']}), {activity}"
        if row["worker"] is not None:
            receiver = row["to_worker"]
            on = f" on {_worker(evidence, row['worker'])}"
            activity += on if receiver is None else f" from {_between(evidence, row['worker'], receiver)}"
        sign = "+" if ns > 0 else ""
        yield Statement(
            topic="typical",
            text=f"{sign}{duration(ns)} {activity}",
            worker=row["worker"],
            time_ns=ns,
            share=ns / (difference.difference_ns or 1),
        )


def _help(evidence: Evidence) -> Iterator[Statement]:
    span = evidence.window.span_ns or 1
    if not evidence.helps:
        yield Statement(topic="help", text="nothing that a replay can show: no single change saves 1 %")
    for row in evidence.helps:
        operator, worker = row.get("operator"), row.get("worker")
        name = "" if operator is None else label(evidence, operator)
        if row["kind"] == "balance":
            peers = " that run the same" if evidence.snapshot.run.unlike else ""
            change = f"records of {name} spread evenly over the {len(evidence.peers(row['worker']))} workers{peers}"
        elif row["kind"] == "wake_up":
            change = "workers woken at once"
        elif row["kind"] == "message":
            change = f"messages from {_between(evidence, row['from_worker'], row['to_worker'])} twice as fast"
        else:
            change = f"{name or f'all work of {_worker(evidence, worker)}'} twice as fast"
        saved = row["saved_ns"]
        ratio = f", {span / row['span_ns']:.1f} x as fast" if row["span_ns"] else ""
        yield Statement(
            topic="help",
            text=f"{change}: {duration(row['span_ns'])} instead of {duration(span)} (-{saved / span:.0%}{ratio})",
            worker=worker,
            operator=operator,
            time_ns=saved,
            share=saved / span,
        )


def _doubts(evidence: Evidence) -> Iterator[Statement]:
    path = evidence.path
    text = f"{evidence.confidence} confidence: {path.explained:.1%} of the time on the path is explained"
    # A wait may have had several alternatives.
    doubtful = sum(count > 0 for count in path.steps["alternatives"].to_pylist())
    text += (
        f"; {_times(doubtful, 'wait')} on it may have been ended by another message as well"
        if doubtful
        else "; every wait on it has one message that ended it"
    )
    yield Statement(topic="doubt", text=text, share=path.explained)
    counts_inside, run_findings = evidence.findings
    if CONTRADICTS in run_findings:
        text = "the graph was built by rules that its trace contradicts: what the trace says of waits is lost"
        yield Statement(topic="doubt", text=text)
    if INFERRED_WAITS in run_findings:
        text = "the log does not say when workers had nothing to do: all waits are inferred from what they did"
        yield Statement(topic="doubt", text=text)
    text = "predictions replay the window in the recorded order: no batch changes, and nobody competes for cores"
    yield Statement(topic="doubt", text=text)
    for doubt in path.doubts_at_end():
        yield Statement(topic="doubt", text=doubt)
    if evidence.negative:
        text = f"{_times(evidence.negative, 'message')} arrived before being sent, by the recorded clocks"
        yield Statement(topic="doubt", text=text)
    clock = evidence.clock_ns
    if len(evidence.snapshot.run.workers) > 1:
        text = "how well the workers' clocks agree is not known"
        if clock is not None:
            text = f"the workers' clocks agree within {duration(clock)}"
        yield Statement(topic="doubt", text=text, time_ns=clock)
    span = evidence.window.span_ns or 1
    if evidence.between_ns >= _NOTED * span:
        share = evidence.between_ns / span
        text = (
            f"{share:.0%} of the path lies between activations and is not instrumented: the program's work, or Timely's"
        )
        yield Statement(topic="doubt", text=text, time_ns=evidence.between_ns, share=share)
    if counts_inside:
        counted = ", ".join(f"{count} x {name}" for name, count in counts_inside.items())
        yield Statement(topic="doubt", text=f"findings inside the window: {counted}")
    elif run_findings:
        counted = ", ".join(f"{count} x {name}" for name, count in run_findings.items())
        yield Statement(topic="doubt", text=f"findings of the run, none of them in this window: {counted}")
