import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses.distributions import hypergeometric, student_quantile


@pytest.mark.parametrize(
    ("share", "freedom", "printed"),
    # Printed tables of Student's distribution, to all their digits.
    [
        (0.95, 1, 6.314),
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.995, 3, 5.841),
        (0.9, 10, 1.372),
        (0.9995, 30, 3.646),
        (0.975, 120, 1.980),
    ],
)
def test_quantiles_are_those_of_the_printed_table(share: float, freedom: int, printed: float) -> None:
    assert round(student_quantile(share, freedom), 3) == printed
    assert student_quantile(1 - share, freedom) == pytest.approx(-student_quantile(share, freedom), rel=1e-9)


def test_quantiles_are_those_of_scipy_for_few_and_many_degrees_of_freedom() -> None:
    from scipy import stats

    for freedom in (1, 2, 3, 4, 7, 59, 998, 999, 1_000, 1_001, 50_000):
        for share in (0.5, 0.6, 0.9, 0.975, 0.9995, 0.05):
            expected = stats.t.ppf(share, freedom)
            assert student_quantile(share, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-12), (share, freedom)
    assert math.isnan(student_quantile(0.9, 0))


@given(st.integers(1, 40), st.data())
def test_chances_are_the_exact_fractions(population: int, data: st.DataObject) -> None:
    marked, drawn = data.draw(st.integers(0, population)), data.draw(st.integers(0, population))
    ways = [math.comb(marked, k) * math.comb(population - marked, drawn - k) for k in range(drawn + 1)]
    exact = np.array(ways) / math.comb(population, drawn)
    assert hypergeometric(population, marked, drawn) == pytest.approx(exact, rel=1e-12, abs=1e-300)


def test_chances_of_large_populations_are_those_of_scipy() -> None:
    from scipy import stats

    for population, marked, drawn in ((10**6, 500_000, 1_000), (10**6, 990_000, 20_000), (300, 299, 300)):
        expected = stats.hypergeom.pmf(np.arange(drawn + 1), population, marked, drawn)
        assert np.allclose(hypergeometric(population, marked, drawn), expected, rtol=1e-7, atol=1e-15)
