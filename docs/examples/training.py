"""A training job to be looked at with `pag torch`: two ranks on processors, whose loader or second rank can be slow.

``python training.py FOLDER`` leaves one trace per rank in the folder. It needs PyTorch, and no GPU.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset, DistributedSampler

STEPS = 8


class Samples(Dataset[Any]):
    """Random samples that take their time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        """Return how many there are."""
        return 400

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Load one."""
        time.sleep(self.seconds)
        return torch.randn(64), torch.randn(8)


def train(rank: int, options: argparse.Namespace) -> None:
    """Train one of two ranks, and write its trace."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    samples = Samples(options.load)
    sampler: DistributedSampler[Any] = DistributedSampler(samples, 2, rank)
    batches = DataLoader(samples, batch_size=8, num_workers=1, sampler=sampler)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=5, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(options.folder / f"rank-{rank}.json.gz")),
    ) as profiler:
        for _, (inputs, wanted) in zip(range(STEPS), batches, strict=False):
            if rank == 1:
                time.sleep(options.late)
            optimiser.zero_grad()
            (model(inputs) - wanted).pow(2).mean().backward()
            optimiser.step()
            profiler.step()
    dist.destroy_process_group()


def main() -> None:
    """Run both ranks."""
    parser = argparse.ArgumentParser(description="Train two ranks, and leave their traces.")
    parser.add_argument("folder", type=Path, help="where to leave them")
    parser.add_argument("--load", type=float, default=0.0, help="seconds that loading a sample takes")
    parser.add_argument("--late", type=float, default=0.0, help="seconds that rank 1 sleeps before each step")
    parser.add_argument("--port", type=int, default=29611, help="on this machine, for the ranks to meet")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    mp.spawn(train, (options,), nprocs=2)


if __name__ == "__main__":
    main()
