"""What is said of the shape of tables, on Differential's own and on such as have another one."""

from __future__ import annotations

from bench.differential import LARGE, OFFERED, SMALL, Closed, closed_shape, open_shape


def test_differentials_own_tables_have_the_shape() -> None:
    assert all(closed_shape(LARGE, plateau=False).values())
    assert all(closed_shape(SMALL, plateau=True).values())
    assert all(open_shape(OFFERED, LARGE).values())
    # And each is told from the other.
    assert not all(closed_shape(LARGE, plateau=True).values())
    assert not all(closed_shape(SMALL, plateau=False).values())


def test_what_has_another_shape_is_said() -> None:
    proportional = [Closed(batch, batch * 1e-5, 1e5) for batch in (1, 10, 100, 1_000, 10_000)]
    assert list(closed_shape(proportional, plateau=True).values()) == [True, False, True, True]
    falling = [*SMALL[:4], Closed(10_000, 0.1, 100_000)]
    assert list(closed_shape(falling, plateau=True).values()) == [True, True, True, False]
    level = [row._replace(p50_s=0.001, max_s=0.005) for row in OFFERED]
    assert list(open_shape(level, LARGE).values()) == [False, False, False, True]
    beyond = [*OFFERED, OFFERED[-1]._replace(offered_per_s=700_000, p50_s=1.0)]
    assert list(open_shape(beyond, LARGE).values()) == [True, True, True, False]
