"""Record a trace by running one of the adapter's example programs: real dataflows, seeded, of any size."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph.errors import InvalidParameterError, MissingExtraError, StoreExistsError, TraceFormatError
from pag_graph.store.order import check_trace
from pag_graph.store.trace import Trace
from pag_graph.store.trace_files import seal_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PROGRAMS", "adapter_folder", "build_program", "free_ports", "record", "refuse_existing", "run_program"]

PROGRAMS = {
    "skewed": "four workers exchange all their records to worker 0",
    "bfs": "breadth-first search in a random graph, by hand on Timely",
    "triangles": "triangles of a power-law graph that changes, on Differential",
    "imbalance": "one worker has more to do than the others",
    "ground_truth": "known sleeps and busy loops, written down beside the trace",
    "adjustable": "costs of operators, routes of records and batches are arguments",
    "degrees": "degrees of the nodes of a graph that changes, on Differential, by the clock or not",
    "elastic": "bins of keys move to workers that were idle",
    "pipeline": "operators in a row, each on the worker that you say",
}
"""Example programs of the adapter, and what they do."""

_SECONDS_TO_STOP = 10.0


def adapter_folder() -> Path:
    """Return the folder of the Rust adapter.

    Returns
    -------
    Path
        ``PAG_ADAPTER`` where it is set, else ``adapters`` beside the package in a checkout.

    Raises
    ------
    MissingExtraError
        If there is none: an installed package does not bring the Rust sources.
    """
    given_folder = os.environ.get("PAG_ADAPTER")
    folder = Path(given_folder) if given_folder else Path(__file__).parents[2] / "adapters"
    if (folder / "timely" / "Cargo.toml").is_file():
        return folder
    message = f"The Rust adapter is not at {folder}."
    raise MissingExtraError(message, "Use a checkout of pag_graph, or name its adapters folder in PAG_ADAPTER.")


def build_program(program: str, *, optimised: bool = True, features: Sequence[str] = ()) -> Path:
    """Compile an example program, unless it is compiled already.

    Parameters
    ----------
    program
        One of `PROGRAMS`.
    optimised
        Whether to take the time that a fast program needs.
    features
        Of the adapter.

    Returns
    -------
    Path
        The executable.

    Raises
    ------
    InvalidParameterError
        If there is no such program.
    MissingExtraError
        If cargo is missing, or does not succeed; the message ends with what it said last.
    """
    if program not in PROGRAMS:
        message = f"There is no program {program!r}; there are {', '.join(PROGRAMS)}."
        raise InvalidParameterError(message)
    folder = adapter_folder()
    cargo = shutil.which("cargo")
    if cargo is None:
        message = "cargo is not on the path; the example programs are compiled with it."
        raise MissingExtraError(message, "Install Rust, 1.89 or later.")
    profile = ["--release"] if optimised else []
    chosen = [f"--features={','.join(features)}"] if features else []
    process = subprocess.run(
        [cargo, "build", "--quiet", *profile, "--package", "pag-timely", "--example", program, *chosen],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        message = f"cargo could not build {program}: {process.stderr.strip()[-800:]}"
        raise MissingExtraError(message, f"Try it yourself: cd {folder} && cargo build --release --example {program}")
    target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
    return target / ("release" if optimised else "debug") / "examples" / program


def record(program: str, trace: Path, arguments: Sequence[str] = (), *, optimised: bool = True) -> tuple[Trace, str]:
    """Compile an example program, run it, and check the trace that it leaves.

    Parameters
    ----------
    program, optimised
        As in `build_program`.
    trace, arguments
        As in `run_program`.

    Returns
    -------
    Trace, str
        As of `run_program`.
    """
    # Compiling takes minutes: what cannot be written is said before.
    refuse_existing(trace)
    return run_program(build_program(program, optimised=optimised), trace, arguments)


def refuse_existing(trace: Path) -> None:
    """Refuse a place for a trace where there is something.

    Raises
    ------
    StoreExistsError
        With the place.
    """
    if trace.exists():
        message = f"{trace} exists."
        raise StoreExistsError(message, "Choose another place, or remove it.", {"path": str(trace)})


def run_program(executable: Path, trace: Path, arguments: Sequence[str] = ()) -> tuple[Trace, str]:
    """Run an example program that is compiled, and check the trace that it leaves.

    Parameters
    ----------
    executable
        From `build_program`.
    trace
        Where the trace goes; there must be nothing.
    arguments
        Passed on to the program. With ``-n N`` (several processes) and without ``-p`` all N are started, connected
        over loopback on free ports.

    Returns
    -------
    Trace, str
        The trace, opened and checked event by event, and what the program printed.

    Raises
    ------
    StoreExistsError
        If there is something at `trace`.
    TraceFormatError
        If the program fails, or its trace is not whole.
    """
    refuse_existing(trace)
    program = executable.name
    with _hosts(arguments) as groups:
        output_text, failed = _run([[str(executable), "--trace", str(trace), *arguments, *group] for group in groups])
    if failed:
        message = f"{program} failed: {output_text.strip()[:400]}"
        raise TraceFormatError(message, f"pag record {program} --help shows its arguments.", {"file": str(trace)})
    opened = Trace.open(trace)
    check_trace(opened)
    if not opened.meta.complete:
        message = f"The trace at {trace} says that it was cut short, though {program} ended."
        raise TraceFormatError(message, "Look at what the program printed.", {"file": str(trace)})
    seal_trace(trace)
    return opened, output_text


def _option(arguments: Sequence[str], name: str) -> str | None:
    for index, argument in enumerate(arguments):
        if argument == name:
            return arguments[index + 1] if index + 1 < len(arguments) else None
        if argument.startswith(name) and not argument.startswith("--") and len(argument) > len(name):
            return argument.removeprefix(name)
    return None


@contextmanager
def _hosts(arguments: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield, per process to start, the arguments that only this one gets."""
    count_text = _option(arguments, "-n")
    if count_text is None or _option(arguments, "-p") is not None:
        yield [[]]
        return
    if not count_text.isdecimal() or int(count_text) < 1:
        message = f"-n is {count_text!r}, and must be a number of processes."
        raise InvalidParameterError(message)
    if _option(arguments, "-h") is not None:
        yield [["-p", str(process)] for process in range(int(count_text))]
        return
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts"
        hosts.write_text("".join(f"127.0.0.1:{port}\n" for port in free_ports(int(count_text))), encoding="ascii")
        yield [["-h", str(hosts), "-p", str(process)] for process in range(int(count_text))]


def free_ports(count: int) -> list[int]:
    """Return so many ports of the loopback that nobody listens on, all different."""
    with ExitStack() as stack:
        # All are held at once, so that they differ; the programs take them right after.
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free_socket in sockets:
            free_socket.bind(("127.0.0.1", 0))
        return [int(free_socket.getsockname()[1]) for free_socket in sockets]


def _run(commands: list[list[str]]) -> tuple[str, bool]:
    """Run commands side by side until all have ended; when one fails the others have a little time to follow."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        # Every line goes to one file in the order of writing; pipes of several processes could fill up and block.
        running = [subprocess.Popen(c, stdout=output, stderr=subprocess.STDOUT) for c in commands]
        try:
            deadline = None
            while any(process.poll() is None for process in running):
                if deadline is None and any(process.returncode for process in running):
                    deadline = time.monotonic() + _SECONDS_TO_STOP
                if deadline is not None and time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                process.wait()
        output.seek(0)
        return output.read(), any(process.returncode for process in running)
