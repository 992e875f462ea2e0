"""How hard Hypothesis tries (few examples, always the same, or, with ``PAG_PROVE=1``, thousands), and the command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from pag_graph.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable

settings.register_profile(
    "default",
    max_examples=25,
    derandomize=True,
    deadline=None,
    # Kernels compile at the first example, and traces are built up step by step.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("prove", settings.get_profile("default"), max_examples=10_000, derandomize=False)
settings.load_profile("prove" if os.environ.get("PAG_PROVE") == "1" else "default")


@pytest.fixture
def run_pag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run the command ``pag`` in this process, with the arguments as words; gives its exit code and what it said."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pag", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
