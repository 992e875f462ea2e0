"""`pag record`: a real trace from one of the adapter's example programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pag_graph.cli.output import stderr, stdout, tell_next


def record(
    context: typer.Context,
    program: Annotated[
        str,
        typer.Argument(
            help="skewed, bfs, triangles, imbalance, ground_truth, adjustable, degrees, elastic or pipeline."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write the trace. Default: PROGRAM.trace.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Compile quickly; the program is then slow.")] = False,
) -> None:
    """Run an example program of the Timely adapter, and check the trace that it writes.

    All other arguments go to the program: --seed N, -w WORKERS, -n PROCESSES (all are started on this machine), --step
    (spin instead of parking) and others. To list them: pag record PROGRAM -- --help

    Example: pag record skewed -o run.trace -w 4 --seed 7
    """
    from pag_graph.sources.record import build_program, refuse_existing, run_program

    wants_help = "--help" in context.args
    target = output or Path(f"{program}.trace")
    if not wants_help:
        refuse_existing(target)
    with stderr().status(f"compiling {program} (a few minutes the first time)"):
        executable = build_program(program, optimised=not debug)
    if wants_help:
        import subprocess

        subprocess.run([executable, "--help"], check=True)
        return
    with stderr().status(f"running {program}"):
        trace, output_text = run_program(executable, target, context.args)
    console = stdout()
    console.print(output_text.strip(), markup=False, style="dim")
    console.print(
        f"Recorded {target}: {trace.rows:,} events of {trace.meta.workers} workers in {len(trace.files)} files;"
        " every log is in order."
    )
    missing = trace.meta.dropped
    if missing:
        counted = ", ".join(f"{count} x {reason.replace('_', ' ')}" for reason, count in missing.items())
        console.print(f"Left out, because it is no event: {counted}.")
    tell_next("pag", "build", target, "STORE")
