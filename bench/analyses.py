"""x."""

from bench.harness import Bench, Session, memory_copy, Yardstick, Figure


def run(s: Session):
    s.measure(
        "a", lambda: sum(range(100000)), against=memory_copy(10_000_000), items=100000, unit="numbers", target="1 s"
    )
    s.keep(Figure(name="b", values={"bytes": 12345, "share": 0.5}))


BENCH = Bench(name="analyses", title="T", about="About.", run=run)
