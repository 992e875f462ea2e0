"""Random logs of workers that poll: long stretches in which steps find nothing, and what ends them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pag_graph.testing.traces import SmallTrace, draw

_SCOPE, _OPERATORS = 9, (1, 2)


@dataclass(slots=True)
class _Program:
    """Workers that take steps in turns, and the messages under way between them."""

    chance: random.Random
    logs: list[list[str]]
    now: list[int]
    data: list[tuple[int, int, int]] = field(default_factory=list)
    """Sender, receiver and number of messages that nobody has read."""
    progress: list[tuple[int, int, int]] = field(default_factory=list)
    sent: int = 0

    def log(self, worker: int, event: str) -> None:
        self.now[worker] += self.chance.choice((0, 1, 1, 1, 2))
        self.logs[worker].append(f"{self.now[worker]} {event}")

    def polls(self, worker: int) -> None:
        """Take steps that find nothing."""
        for _ in range(self.chance.randint(1, 4)):
            self.log(worker, f"start {_SCOPE}")
            for operator in self.chance.sample(_OPERATORS, self.chance.randint(0, 2)):
                self.log(worker, f"start {operator}")
                self.log(worker, f"stop {operator}")
            self.log(worker, f"stop {_SCOPE}")

    def works(self, worker: int) -> None:
        """Take a step that reads, sends, or both."""
        self.log(worker, f"start {_SCOPE}")
        self.news(worker)
        for operator in _OPERATORS:
            if self.chance.random() < 0.3:
                self.log(worker, f"push {operator}")
            self.log(worker, f"start {operator}")
            if self.chance.random() < 0.6:
                self.data = self.read(worker, self.data, "recv 3")
            if self.chance.random() < 0.4:
                self.sent += 1
                peer = self.chance.randrange(len(self.logs))
                self.log(worker, f"send 3>{peer} #{self.sent}")
                self.data.append((worker, peer, self.sent))
            self.log(worker, f"stop {operator}")
        self.news(worker)
        self.log(worker, f"stop {_SCOPE}")

    def news(self, worker: int) -> None:
        """Read or send progress, or neither."""
        if self.chance.random() < 0.3:
            self.progress = self.read(worker, self.progress, "precv 8")
        if self.chance.random() < 0.2:
            self.sent += 1
            self.log(worker, f"psend 8 #{self.sent}")
            self.progress += [(worker, reader, self.sent) for reader in range(len(self.logs))]

    def read(self, worker: int, under_way: list[tuple[int, int, int]], word: str) -> list[tuple[int, int, int]]:
        """Read what is there; now and then something stays, or is lost."""
        unread = []
        for sender, reader, number in under_way:
            if reader != worker or self.chance.random() < 0.3:
                unread.append((sender, reader, number))
            elif self.chance.random() < 0.95:
                self.log(worker, f"{word}<{sender} #{number}")
        return unread

    def speaks(self, worker: int) -> None:
        """Log what lies outside of steps."""
        words = ("end", "end", "app 4", "app 5", "endapp 4", "endapp 4", "endapp 5", f"send 3>{worker} #-1", "arrival")
        self.log(worker, self.chance.choice(words).replace("#-1", f"#{1_000 + len(self.logs[worker])}"))

    def sleeps(self, worker: int) -> None:
        """Let time pass."""
        self.now[worker] += self.chance.choice((3, 15, 40))


def polled_log(seed: int) -> SmallTrace:
    """Return a random log of workers that poll, which says nothing about idleness.

    Parameters
    ----------
    seed
        The same seed gives the same log.
    """
    chance = random.Random(seed)
    count = chance.randint(1, 3)
    program = _Program(chance, [[] for _ in range(count)], [chance.randint(0, 9) for _ in range(count)])
    deeds = (program.polls, program.polls, program.works, program.works, program.speaks, program.sleeps)
    for _ in range(chance.randint(1, 30)):
        chance.choice(deeds)(chance.randrange(count))
    if not any(program.logs):
        program.log(0, "end")
    return draw(
        *(" | ".join(log) for log in program.logs),
        processes=[chance.choice((0, 0, 1)) for _ in range(count)],
        offsets_ns=[chance.choice((0, 0, 4, -3)) for _ in range(count)],
        idle_logged=False,
    )
