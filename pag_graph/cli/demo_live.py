"""The demonstration of what is answered while a program runs: a real trace is sent, followed, and alerts appear."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph import samples
from pag_graph.cli.output import stdout
from pag_graph.model.units import duration
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from rich.console import Console

    from pag_graph.graph.following import Committed

SECONDS = 10.0
"""How long the bundled run takes here: it took some milliseconds."""


def run_live_demo(*, trace: str, folder: Path) -> None:
    """Send a bundled trace as its program did, only slower, follow it, and say what is known when.

    Parameters
    ----------
    trace
        Name of a bundled trace.
    folder
        Where what is received and the store go; what an earlier demonstration left there is replaced.
    """
    from pag_graph import api
    from pag_graph.motif.alerts import BUILT_IN
    from pag_graph.sources.record import free_ports
    from pag_graph.sources.replay import replay

    console, source = stdout(), samples.path(trace)
    received, store = folder / f"{trace}-live.trace", folder / f"{trace}-live.pag"
    if (received / "received").is_dir():
        shutil.rmtree(received)
    [port] = free_ports(1)
    console.rule(
        f"1. A program runs: the bundled trace {trace!r}, as it was recorded, in {SECONDS:.0f} s", align="left"
    )
    console.print(
        f"It sends what it does to 127.0.0.1:{port}; pag follow --listen keeps it in {received}.", markup=False
    )
    console.rule("2. What is known while it runs", align="left")
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(1) as program:
        token = Path(place) / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_urlsafe())
        speed = _length_ns(source) / 1e9 / SECONDS
        send = partial(replay, source, f"tcp://127.0.0.1:{port}", speed=speed, flush_every_s=0.25, token_file=token)
        sending = program.submit(send)
        commits = api.live(received, store, listen=f"127.0.0.1:{port}", token_file=token, alerts=BUILT_IN, replace=True)
        for commit in commits:
            _say(console, commit)
        sending.result()
    console.rule("3. The program has ended", align="left")
    console.print("The store is now what pag build makes of the whole trace, row for row.")
    console.print(f"Alerts: pag alerts {store}", markup=False)
    console.print(f"How long answers took: pag timings {store}", markup=False)
    console.print(f"In the browser: pag serve {folder} --open", markup=False)


def _length_ns(source: Path) -> int:
    times = Trace.open(source).events(["t_ns"])["t_ns"].to_numpy()
    return int(times.max() - times.min())


def _say(console: Console, commit: Committed) -> None:
    """Say what a commit made known."""
    from pag_graph import api

    epochs = commit.run.epochs.to_arrow().to_pylist()
    closed_rows = [row for row in epochs if row["epoch"] in set(commit.closed)]
    epoch_list = ", ".join(f"{row['epoch']} ({duration(row['end_ns'] - row['start_ns'])})" for row in closed_rows)
    console.print(f"closed: epoch {epoch_list}" if closed_rows else "committed", markup=False)
    for alert in api.alerts(commit.path, since=commit.version - 1).to_pylist():
        console.print(
            f"  alert {alert['event']}: {alert['rule']} {alert['subject']}, epoch {alert['epoch']}",
            style="red" if alert["event"] == "opened" else "green",
            markup=False,
        )
