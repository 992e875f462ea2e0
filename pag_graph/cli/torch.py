"""`pag torch`: point it at the traces of PyTorch's profiler and hear why training steps took so long."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 Typer reads the annotations
from typing import Annotated

import typer

from pag_graph.cli.output import Format, compiling, print_csv, print_json, progress, stdout, tell_next

_CAUSE_COLUMNS = ["rank", "cause", "lost_ns", "share", "text", "advice"]


def torch(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Traces of torch.profiler, one per rank, or a folder of them."),
    ],
    step: Annotated[int | None, typer.Option(metavar="N", help="Look at this step only.")] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Annotations that mark the steps, if there is no ProfilerStep.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep trace and store here, for all other commands.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what is in the directory.")] = False,
    top: Annotated[int, typer.Option(min=1, help="Rows of each part of the text.")] = 6,
    form: Annotated[Format, typer.Option("--format", help="table for people, json with all, csv of the causes.")] = (
        Format.TABLE
    ),
) -> None:
    """Say why training steps took so long, from the traces of all ranks, and what would help.

    Reads what torch.profiler writes (Kineto, Chrome JSON), plain or gzip, whole or cut short.

    Example: pag torch traces/ --step 7
    """
    from pag_graph.diagnosis.torch.answer import answer, text_lines

    quiet = form is not Format.TABLE
    with progress(quiet=quiet) as report, compiling("torch", quiet=quiet, report=report):
        torch_answer = answer(traces, step=step, steps=steps, folder=out, replace=replace, progress=report)
    if form is Format.JSON:
        print_json(torch_answer.facts())
    elif form is Format.CSV:
        print_csv(
            [{"rank": rank, **cause.facts()} for rank, cause in enumerate(torch_answer.causes, 1)], _CAUSE_COLUMNS
        )
    else:
        stdout().print("\n".join(text_lines(torch_answer, top)), markup=False)
        if out is not None:
            tell_next("pag", "critical-path", out / "pag")
