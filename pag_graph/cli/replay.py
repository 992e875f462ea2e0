"""`pag replay`: write a recorded trace once more, as its recorder did."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

from pag_graph.cli.analyses import FormatOption  # noqa: TC001  (Typer reads it)
from pag_graph.cli.output import Format, print_facts, stderr, stdout
from pag_graph.model.units import duration, nanoseconds


def replay(
    trace: Annotated[Path, typer.Argument(help="A recorded trace.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="TRACE", help="Where to write it, or tcp://HOST:PORT to send it.", show_default=False
        ),
    ],
    speed: Annotated[
        str, typer.Option(metavar="2x|max", help="Speed, such as 2x for twice as fast as recorded.")
    ] = "1x",
    flush_every: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How often events are written to files, as Config::flush_every of the adapter."
        ),
    ] = "500ms",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a trace that exists.")] = False,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For tcp://: file of mode 600 with the follower's token.")
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For tcp:// to another machine: PEM of who has signed the follower's certificate. Encrypts.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Write or send a recorded trace in portions at the recorded pace, as its recorder did. Use it to try pag follow.

    Events are due by the clock, and the command waits for nobody. If more than one of a hundred events is over 50 ms
    late, the run is no valid measurement, and ends with exit code 1.

    Example: pag replay run.trace --speed 2x --to replayed.trace
    """  # noqa: DOC501  (an exit code is no error)
    from pag_graph.sources.replay import replay as run
    from pag_graph.sources.replay import speed_of

    every_s = nanoseconds(flush_every) / 1e9
    with stderr().status(f"replaying {trace}"):
        report = run(
            trace,
            to,
            speed=speed_of(speed),
            flush_every_s=every_s,
            replace_target=replace,
            token_file=token_file,
            authority=authority,
        )
    if not print_facts({**asdict(report), "valid": report.valid}, form):
        console = stdout()
        console.print(
            f"Replayed {report.events:,} events in {report.files:,} files and {report.duration_s:.2f} s:"
            f" {report.achieved_per_s:,.0f} events/s."
        )
        if report.late_p99_ns is not None:
            console.print(
                f"Late: p50 {duration(report.late_p50_ns or 0)}, p99 {duration(report.late_p99_ns)},"
                f" at most {duration(report.late_max_ns or 0)}."
            )
        if not report.valid:
            console.print("Too late for measuring: this machine does not keep up.", style="yellow")
    if not report.valid:
        raise typer.Exit(1)
