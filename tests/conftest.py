"""How hard Hypothesis tries: the same few examples every time, or, with ``PAG_PROVE=1``, thousands of new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
