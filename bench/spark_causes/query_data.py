"""Tables in the shapes of those of TPC-H (orders and their lines) and TPC-DS (sales of shops, returns), made here.

Columns and their relations are those that such queries need; values are drawn here, from a stated seed. They are no
data of the TPC, and times on them are no results of its benchmarks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator

__all__ = ["LINES", "MANY_FILES", "TABLES", "write_tables"]

LINES = 400_000
"""Lines of orders, unless another number is asked for; all other tables follow from it."""
MANY_FILES = 1_600
"""Files of the same lines, where they lie in many."""
_SEED = 25
_DAYS = 5 * 365
_WORDS = np.array(["amber", "brisk", "coast", "delta", "eager", "fjord", "grove", "hazel", "inlet", "jolly", "knoll"])

TABLES = (
    *("nation", "supplier", "customer", "part", "orders", "lineitem"),
    *("date_dim", "item", "store", "store_sales", "store_returns", "web_sales"),
)
"""Names of all tables."""


def write_tables(folder: Path, lines: int = LINES) -> None:
    """Write every table to a folder of its name, a file or four each; the lines also as many small files.

    Parameters
    ----------
    folder
        Where to.
    lines
        How many lines of orders.
    """
    draw = np.random.default_rng(_SEED)
    tables = {**_orders(draw, lines), **_sales(draw, lines)}
    for name, table in tables.items():
        _write(table, folder / name, files=4 if table.num_rows > lines // 10 else 1)
    _write(tables["lineitem"].select(["l_orderkey", "l_quantity", "l_shipdate"]), folder / "many", files=MANY_FILES)
    _write(tables["lineitem"].select(["l_orderkey", "l_quantity", "l_shipdate"]).slice(0, 6_000), folder / "some", 120)
    (folder / "text").mkdir()
    with pa.output_stream(folder / "text" / "orders.csv.gz", compression="gzip") as archive:
        pc.write_csv(tables["orders"], archive, pc.WriteOptions(include_header=False))


def _write(table: pa.Table, place: Path, files: int) -> None:
    place.mkdir(parents=True)
    bounds = np.linspace(0, table.num_rows, files + 1).astype(int)
    for number in range(files):
        file_rows = table.slice(bounds[number], bounds[number + 1] - bounds[number])
        pq.write_table(file_rows, place / f"part-{number:05}.parquet")


def _texts(draw: Generator, rows: int, words: int) -> np.ndarray:
    """Return a text of so many words for each row; a thousand different ones."""
    texts = np.array([" ".join(draw.choice(_WORDS, words)) for _ in range(1_000)])
    return texts[draw.integers(0, texts.size, rows)]


def _orders(draw: Generator, lines: int) -> dict[str, pa.Table]:
    orders, customers, parts, suppliers = lines // 4, lines // 40, lines // 30, lines // 600
    # A third of the customers never ordered; one in twenty orders is of a single customer.
    customer_of_order = draw.integers(0, customers * 2 // 3, orders)
    customer_of_order[draw.random(orders) < 0.05] = 7  # noqa: PLR2004 a share
    ordered = draw.integers(0, _DAYS, orders)
    order = np.sort(draw.integers(0, orders, lines))
    price = np.round(draw.uniform(900, 100_000, lines), 2)
    shipped = ordered[order] + draw.integers(1, 122, lines)
    return {
        "nation": pa.table({"n_key": np.arange(25), "n_name": [f"nation {k}" for k in range(25)]}),
        "supplier": pa.table(
            {
                "s_key": np.arange(suppliers),
                "s_nation": draw.integers(0, 25, suppliers),
                "s_balance": np.round(draw.uniform(-999, 9_999, suppliers), 2),
            }
        ),
        "customer": pa.table(
            {
                "c_key": np.arange(customers),
                "c_nation": draw.integers(0, 25, customers),
                "c_segment": np.array(["cars", "homes", "tools", "toys", "food"])[draw.integers(0, 5, customers)],
                "c_comment": _texts(draw, customers, 8),
            }
        ),
        "part": pa.table(
            {
                "p_key": np.arange(parts),
                "p_brand": [f"brand {k}" for k in draw.integers(0, 25, parts)],
                "p_size": draw.integers(1, 51, parts),
                "p_price": np.round(draw.uniform(900, 2_000, parts), 2),
            }
        ),
        "orders": pa.table(
            {
                "o_key": np.arange(orders),
                "o_customer": customer_of_order,
                "o_day": ordered,
                "o_price": np.round(draw.uniform(800, 500_000, orders), 2),
                "o_priority": draw.integers(1, 6, orders),
                "o_comment": _texts(draw, orders, 10),
            }
        ),
        "lineitem": pa.table(
            {
                "l_orderkey": order,
                "l_part": draw.integers(0, parts, lines),
                "l_supplier": draw.integers(0, suppliers, lines),
                "l_quantity": draw.integers(1, 51, lines),
                "l_price": price,
                "l_discount": np.round(draw.integers(0, 11, lines) / 100, 2),
                "l_tax": np.round(draw.integers(0, 9, lines) / 100, 2),
                "l_flag": np.array(["A", "N", "R"])[draw.integers(0, 3, lines)],
                "l_shipdate": shipped,
                "l_commitdate": shipped + draw.integers(-30, 60, lines),
                "l_comment": _texts(draw, lines, 4),
            }
        ),
    }


def _sales(draw: Generator, lines: int) -> dict[str, pa.Table]:
    sales, items, stores = lines // 2, lines // 200, 12
    days = np.arange(_DAYS)
    ticket = np.sort(draw.integers(0, sales // 8, sales))
    # A few items make most of the sales.
    item = np.minimum(draw.zipf(1.4, sales) - 1, items - 1)
    returned = np.sort(draw.choice(sales, sales // 10, replace=False))
    sold = draw.integers(0, _DAYS, sales)
    web = lines // 8
    return {
        "date_dim": pa.table({"d_key": days, "d_year": 2001 + days // 365, "d_month": days % 365 // 31 + 1}),
        "item": pa.table(
            {
                "i_key": np.arange(items),
                "i_brand": [f"brand {k}" for k in draw.integers(0, 60, items)],
                "i_class": draw.integers(0, 40, items),
                "i_category": draw.integers(0, 10, items),
                "i_price": np.round(draw.uniform(1, 300, items), 2),
            }
        ),
        "store": pa.table({"st_key": np.arange(stores), "st_state": [f"state {k % 5}" for k in range(stores)]}),
        "store_sales": pa.table(
            {
                "ss_ticket": ticket,
                "ss_item": item,
                "ss_store": draw.integers(0, stores, sales),
                "ss_customer": draw.integers(0, lines // 40, sales),
                "ss_day": sold,
                "ss_quantity": draw.integers(1, 100, sales),
                "ss_price": np.round(draw.uniform(1, 300, sales), 2),
            }
        ),
        "store_returns": pa.table(
            {
                "sr_ticket": ticket[returned],
                "sr_item": item[returned],
                "sr_day": sold[returned] + draw.integers(1, 60, returned.size),
                "sr_amount": np.round(draw.uniform(1, 300, returned.size), 2),
            }
        ),
        "web_sales": pa.table(
            {
                "ws_item": np.minimum(draw.zipf(1.4, web) - 1, items - 1),
                "ws_day": draw.integers(0, _DAYS, web),
                "ws_price": np.round(draw.uniform(1, 300, web), 2),
            }
        ),
    }
