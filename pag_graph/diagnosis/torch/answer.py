"""One answer for one training job: read all ranks, build, walk the critical path, name causes, predict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pag_graph.analyses.critical_path import critical_path
from pag_graph.builder.engine import silent
from pag_graph.diagnosis.path_steps import built
from pag_graph.diagnosis.torch.causes import Cause, Limits, Prediction, causes_of, predictions
from pag_graph.diagnosis.torch.look import KERNELS, Look, look_at
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.run import Run
from pag_graph.model.enums import EpochRole
from pag_graph.model.units import printable
from pag_graph.sources.kineto.convert import map_files, write_mapped
from pag_graph.sources.spark.keep import STORE, is_result_of, new_results, place_of, temporary_results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pag_graph.graph.window import Window
    from pag_graph.sources.kineto.convert import Mapped

__all__ = ["TorchAnswer", "answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchAnswer:
    """Why steps of a training job took as long as they did."""

    look: Look
    step: int | None
    """The step that was asked for; None for all of them."""
    causes: list[Cause]
    what_if: list[Prediction]
    step_times: list[tuple[int, int]]
    """Step and how long it took."""
    findings: dict[str, int]

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for programs."""
        look = self.look
        return {
            "ranks": [rank.number for rank in look.mapped.ranks],
            "step": self.step,
            "window": {"start_ns": look.window.start_ns, "end_ns": look.window.end_ns, "span_ns": look.span_ns},
            "path": {
                "length_ns": look.path.length_ns,
                "explained": look.path.explained,
                "inferred_share": look.inferred,
                "by_kind": look.shares("kind"),
                "by_rank": look.shares("rank"),
                "by_kernel": look.shares("name", KERNELS),
            },
            "causes": [cause.facts() for cause in self.causes],
            "what_if": [prediction.facts() for prediction in self.what_if],
            "skew": [skew.facts() for skew in look.skews],
            "stalls": [stalls.facts() for stalls in look.stalls],
            "overlap": look.overlap,
            "steps": [{"step": step, "span_ns": span} for step, span in self.step_times],
            "findings": self.findings,
        }


def answer(
    places: Sequence[Path],
    *,
    step: int | None = None,
    steps: str | None = None,
    folder: Path | None = None,
    replace: bool = False,
    limits: Limits | None = None,
    progress: Callable[[str, int, int], None] = silent,
) -> TorchAnswer:
    """Say why steps of a training job took as long as they did.

    Parameters
    ----------
    places
        Traces, one per rank, or folders of them.
    step
        The step to look at; all of them if absent.
    steps
        A regular expression: annotations that are steps, where the profiler was told of none.
    folder
        Where to leave the trace (``trace``) and the store (``pag``); nowhere if absent.
    replace
        Whether to replace what is in the folder.
    limits
        From where on something is a cause.
    progress
        Called with (label, done, all).

    Returns
    -------
    TorchAnswer
        Path, causes and predictions.

    Raises
    ------
    InvalidParameterError
        If there is no such step.
    """
    mapped = map_files(places, steps=steps, progress=progress)
    if folder is None:
        with temporary_results() as place:
            return _answer_of_run(mapped, built(partial(write_mapped, mapped), place, progress), step, limits)
    place_kept = place_of(folder)
    if not replace and is_result_of(mapped, place_kept, write_mapped):
        return _answer_of_run(mapped, Run(place_kept / STORE), step, limits)
    with new_results(mapped, place_kept, replace=replace, write=write_mapped) as place:
        return _answer_of_run(mapped, built(partial(write_mapped, mapped), place, progress), step, limits)


def _answer_of_run(mapped: Mapped, run: Run, step: int | None, limits: Limits | None) -> TorchAnswer:
    window = _window(run, step)
    look = look_at(mapped, run, window, critical_path(run.snapshot(window)))
    counts = run.scan("findings").group_by("finding").len().sort("finding").collect()
    rounds = run.epochs.filter(run.epochs["role"] == str(EpochRole.ROUND))
    return TorchAnswer(
        look=look,
        step=step,
        causes=causes_of(look, limits),
        what_if=predictions(look),
        step_times=[
            (step_round["epoch"], step_round["end_ns"] - step_round["start_ns"])
            for step_round in rounds.iter_rows(named=True)
        ],
        findings=dict(counts.iter_rows()),
    )


def _window(run: Run, step: int | None) -> Window:
    """Return the round of a step, or the stretch of all of them.

    Raises
    ------
    InvalidParameterError
        If there is no such step.
    """
    rounds = run.epochs.filter(run.epochs["role"] == str(EpochRole.ROUND))
    if step is not None:
        if step not in rounds["epoch"].to_list():
            listed_steps = ", ".join(map(str, rounds["epoch"].to_list()[:20])) or "none: give --steps REGEX"
            message = f"There is no step {step}."
            raise InvalidParameterError(message, f"Steps are {listed_steps}.", {"step": step})
        return run.window(epoch=step)
    if rounds.height:
        return run.window(between=(int(rounds["start_ns"].min()), int(rounds["end_ns"].max())))  # type: ignore[arg-type]
    return run.window(between=(0, run.end_ns))


def text_lines(told: TorchAnswer, top: int) -> list[str]:
    """Return the answer as lines for people.

    Parameters
    ----------
    told
        The answer.
    top
        Rows of each part.
    """
    look = told.look
    ranks = look.mapped.ranks
    subject = f"Step {told.step}" if told.step is not None else f"{len(told.step_times) or 1} step(s)"
    lines = [f"{subject} of {len(ranks)} rank(s): {_time(look.span_ns)}.", ""]
    if told.causes:
        lines.append("Why it took so long (share of the time in which it shows):")
        for number, cause in enumerate(told.causes, 1):
            lines += [f"  {number}. {cause.cause.replace('_', ' ')}: {_time(cause.lost_ns)} ({cause.share:.0%})"]
            lines += [f"     {cause.text}", f"     {cause.facts()['advice']}"]
    else:
        lines.append("Nothing stands out: no slow loader, late rank, stall or kernel that takes most of the time.")
    lines += ["", f"Critical path, {_time(look.path.length_ns)} = the whole time:"]
    for title, rows in (
        ("kind", look.shares("kind")),
        ("rank", look.shares("rank")),
        ("kernel", look.shares("name", KERNELS)),
    ):
        shares = [f"{str(share_row['key'])[:60]} {share_row['share']:.0%}" for share_row in rows[:top]]
        if shares and not (title == "rank" and len(ranks) == 1):
            lines.append(f"  by {title}: " + ", ".join(shares) + (", ..." if len(rows) > top else ""))
    lines.append(f"  {look.path.explained:.1%} of it is explained; {look.inferred:.0%} is inferred.")
    if len(ranks) > 1:
        worst = sorted(look.skews, key=lambda skew: -skew.blamed_ns)[:top]
        blamed = ", ".join(f"{skew.rank}: {_time(skew.blamed_ns)}" for skew in worst)
        lines += ["", f"Others waited for rank {blamed}."]
    if told.what_if:
        lines += ["", "What if (the recorded steps replayed):"]
        lines += [
            f"  {prediction.change}: {_time(prediction.saved_ns)} sooner ({prediction.share:.0%})"
            for prediction in told.what_if[:top]
        ]
    if told.findings:
        lines += ["", "Findings: " + ", ".join(f"{count} x {name}" for name, count in told.findings.items()) + "."]
    return [printable(line) for line in lines]


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"
