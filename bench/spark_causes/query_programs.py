"""The held-out half: streams of queries with the operators of TPC-H and TPC-DS, and causes planted in them.

`pag spark` was not made with these programs in view: thresholds and rules come from `plan_programs.py` and recorded
logs. Tables are those of `query_data.py`; the queries are written here, each with the joins, aggregations, windows and
subqueries that queries of the two benchmarks have.

A *planted* program has its cause in a query, or in the settings of a whole stream; its *twin* has the advice applied;
its *decoy* does the planted thing with few rows, and takes its time in queries without a cause.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from plan_programs import Program
from pyspark.sql import Window
from pyspark.sql import functions as f
from query_data import TABLES, write_tables

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from plan_programs import Role
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["HEALTHY", "HELD_OUT", "QUERIES"]

QUERIES = {
    "h-summary": """
        select l_flag, l_quantity % 2 as odd, sum(l_quantity), sum(l_price), sum(l_price * (1 - l_discount)),
               avg(l_price), avg(l_discount), count(*)
        from lineitem where l_shipdate <= 1700 group by 1, 2 order by 1, 2""",
    "h-unshipped": """
        select l_orderkey, sum(l_price * (1 - l_discount)) as revenue, o_day, o_priority
        from customer join orders on c_key = o_customer join lineitem on l_orderkey = o_key
        where c_segment = 'toys' and o_day < 1200 and l_shipdate > 1200
        group by l_orderkey, o_day, o_priority order by revenue desc, o_day limit 10""",
    "h-late-orders": """
        select o_priority, count(*) from orders
        where o_day between 600 and 690
          and exists (select 1 from lineitem where l_orderkey = o_key and l_commitdate < l_shipdate)
        group by o_priority order by o_priority""",
    "h-own-nation": """
        select n_name, sum(l_price * (1 - l_discount)) as revenue
        from customer join orders on c_key = o_customer join lineitem on l_orderkey = o_key
          join supplier on l_supplier = s_key and c_nation = s_nation join nation on s_nation = n_key
        where o_day between 365 and 730 group by n_name order by revenue desc""",
    "h-discounts": """
        select sum(l_price * l_discount) from lineitem
        where l_shipdate between 365 and 730 and l_discount between 0.05 and 0.07 and l_quantity < 24""",
    "h-returned": """
        select c_key, n_name, sum(l_price * (1 - l_discount)) as lost, c_comment
        from customer join orders on c_key = o_customer join lineitem on l_orderkey = o_key
          join nation on c_nation = n_key
        where l_flag = 'R' and o_day between 700 and 790
        group by c_key, n_name, c_comment order by lost desc limit 20""",
    "h-order-counts": """
        select orders_of, count(*) as customers from (
          select c_key, count(o_key) as orders_of from customer
          left join orders on c_key = o_customer and o_comment not like '%brisk%jolly%' group by c_key)
        group by orders_of order by customers desc, orders_of desc""",
    "h-best-supplier": """
        with revenue as (select l_supplier, sum(l_price * (1 - l_discount)) as total from lineitem
                         where l_shipdate between 900 and 990 group by l_supplier)
        select s_key, total from supplier join revenue on s_key = l_supplier
        where total = (select max(total) from revenue)""",
    "h-small-quantities": """
        select sum(l_price) / 7 from lineitem join part on p_key = l_part
        where p_brand = 'brand 3'
          and l_quantity < (select 0.2 * avg(l_quantity) from lineitem as every where every.l_part = p_key)""",
    "h-large-orders": """
        select o_customer, o_key, o_day, o_price, sum(l_quantity) from orders join lineitem on o_key = l_orderkey
        where o_key in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 250)
        group by o_customer, o_key, o_day, o_price order by o_price desc limit 100""",
    "d-brands": """
        select d_year, i_brand, sum(ss_price) as sales
        from date_dim join store_sales on d_key = ss_day join item on ss_item = i_key
        where i_category = 3 and d_month = 11 group by d_year, i_brand order by d_year, sales desc limit 100""",
    "d-ranks": """
        select * from (
          select i_category, i_class, i_brand, sales,
                 rank() over (partition by i_category order by sales desc) as place
          from (select i_category, i_class, i_brand, sum(ss_price * ss_quantity) as sales
                from store_sales join item on ss_item = i_key
                group by rollup (i_category, i_class, i_brand)))
        where place <= 20 order by i_category, place limit 100""",
    "d-channels": """
        select channel, d_year, count(*), sum(price) from (
          select 'store' as channel, ss_day as day, ss_item as item, ss_price as price from store_sales
          union all select 'web', ws_day, ws_item, ws_price from web_sales)
        join date_dim on day = d_key join item on item = i_key
        where i_price > 50 group by channel, d_year order by channel, d_year""",
    "d-returned": """
        select i_brand, st_state, count(*), avg(ss_quantity), avg(sr_amount / ss_price)
        from store_sales join store_returns on ss_ticket = sr_ticket and ss_item = sr_item
          join item on ss_item = i_key join store on ss_store = st_key
        group by i_brand, st_state order by i_brand, st_state limit 100""",
    "d-shares": """
        select i_category, i_class, i_key, sum(ss_price) as revenue,
               sum(ss_price) * 100 / sum(sum(ss_price)) over (partition by i_class) as share
        from store_sales join item on ss_item = i_key
        where ss_day between 300 and 900 group by i_category, i_class, i_key order by 1, 2, share limit 100""",
    "d-monthly": """
        with months as (select ss_store, d_year, d_month, sum(ss_price) as sales
                        from store_sales join date_dim on ss_day = d_key group by ss_store, d_year, d_month)
        select now.ss_store, now.d_year, now.d_month, now.sales / before.sales
        from months as now join months as before
          on now.ss_store = before.ss_store and now.d_month = before.d_month and now.d_year = before.d_year + 1
        order by 1, 2, 3 limit 100""",
}
"""Queries without a cause, by name."""

_H = tuple(name for name in QUERIES if name.startswith("h-"))
_D = tuple(name for name in QUERIES if name.startswith("d-"))


def _tables(spark: SparkSession, folder: Path) -> None:
    for name in TABLES:
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)


def _stream(spark: SparkSession, folder: Path, names: Iterable[str]) -> None:
    _tables(spark, folder)
    for name in names:
        spark.sql(QUERIES[name]).collect()


def _keep_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def one_query(name: str) -> Program:
    """Return a program that runs one query, as it is in all roles."""

    def run(spark: SparkSession, role: Role, folder: Path) -> None:  # noqa: ARG001
        _stream(spark, folder, (name,))

    return Program(
        name=name,
        cause="",
        run=run,
        prepare=write_tables,
        data="tables",
        settings={"spark.sql.shuffle.partitions": "4"},
    )


def orders_stream(spark: SparkSession, role: Role, folder: Path) -> None:
    """Run the queries about orders; what is planted is in the settings."""
    if role != "decoy":
        _stream(spark, folder, _H)
        return
    # Few rows, so that what the settings do hardly matters; the time goes into an expression.
    _tables(spark, folder)
    for table in ("lineitem", "orders"):
        few_rows = spark.table(table).limit(2_000).cache()
        few_rows.createOrReplaceTempView(table)
    spark.sql(QUERIES["h-returned"]).collect()
    _burn(spark)


def _burn(spark: SparkSession, rows: int = 12_000_000) -> None:
    """Take some seconds of both cores for an expression."""
    number = f.col("id")
    for _ in range(10):
        number = (number * 31 + 7) % 1_000_003
    spark.range(0, rows, 1, 8).select(f.max(f.xxhash64(number))).collect()


def python_prices(spark: SparkSession, role: Role, folder: Path) -> None:
    """Work out a price with tax and discount in Python."""
    _tables(spark, folder)

    def net(price: float, discount: float, tax: float) -> float:
        return round(price * (1 - discount) * (1 + tax), 2)

    lines = spark.table("lineitem")
    if role == "twin":
        price = f.round(f.col("l_price") * (1 - f.col("l_discount")) * (1 + f.col("l_tax")), 2)
    else:
        price = f.udf(net, "double")("l_price", "l_discount", "l_tax")
    if role == "decoy":
        lines = lines.limit(500)
        _burn(spark)
    for _ in range(3):
        lines.withColumn("net", price).groupBy("l_flag").agg(f.sum("net")).collect()


def lines_in_many_files(spark: SparkSession, role: Role, folder: Path) -> None:
    """Sum up lines that lie in very many files."""
    place = {"planted": "many", "twin": "lineitem", "decoy": "some"}[role]
    lines = spark.read.schema("l_orderkey long, l_quantity long, l_shipdate long").parquet(str(folder / place))
    for least in (0, 400) if role != "decoy" else (0,):
        lines.filter(f.col("l_shipdate") > least).groupBy("l_orderkey").agg(f.sum("l_quantity")).count()
    if role == "decoy":
        _burn(spark)


def orders_in_one_archive(spark: SparkSession, role: Role, folder: Path) -> None:
    """Read orders from one compressed file of text."""
    schema = "o_key long, o_customer long, o_day long, o_price double, o_priority int, o_comment string"
    if role == "twin":
        orders = spark.read.parquet(str(folder / "orders"))
    else:
        orders = spark.read.schema(schema).csv(str(folder / "text"))
    if role == "decoy":
        orders = orders.limit(100)
        _burn(spark)
    words = f.size(f.split(f.regexp_replace("o_comment", "[aeiou]+", "."), "[ .]+"))
    for _ in range(3):
        orders.select(f.sum(words), f.max(f.sha2("o_comment", 512))).collect()


def returns_by_item_alone(spark: SparkSession, role: Role, folder: Path) -> None:
    """Join returns with sales by the item, and forget the ticket."""
    _tables(spark, folder)
    sales, returns = spark.table("store_sales"), spark.table("store_returns")
    keys = (f.col("ss_item") == f.col("sr_item")) & (f.col("ss_item") > 1)
    if role == "twin":
        keys &= f.col("ss_ticket") == f.col("sr_ticket")
    elif role == "decoy":
        sales, returns = sales.limit(300), returns.limit(300)
        _burn(spark)
    else:
        sales = sales.filter("ss_day % 4 = 0")
    sales.join(returns, keys).groupBy("ss_store").agg(f.sum(f.col("sr_amount") * f.col("ss_quantity"))).collect()


def prices_in_a_band(spark: SparkSession, role: Role, folder: Path) -> None:
    """Compare every part with every supplier, for a condition without an equality."""
    _tables(spark, folder)
    parts, suppliers = spark.table("part").repartition(4), spark.table("supplier")
    if role == "decoy":
        parts = parts.limit(200).repartition(4)
        _burn(spark)
    near = f.abs(f.col("p_price") - f.col("s_balance")) < 1
    if role == "twin":
        near &= f.floor(f.col("p_price") / 5) == f.floor(f.col("s_balance") / 5)
    text = f.length(f.concat_ws("-", "p_brand", "s_key"))
    if role == "planted":
        # Every pair is looked at for longer than for a comparison alone.
        near &= f.levenshtein(f.col("p_brand"), f.col("s_key").cast("string")) > 0
    for _ in range(3):
        parts.join(suppliers, near).select(f.sum(text)).collect()


def one_large_customer(spark: SparkSession, role: Role, folder: Path) -> None:
    """Rank the lines of each customer, one of whom has most of them."""
    _tables(spark, folder)
    lines = spark.table("lineitem").join(spark.table("orders"), f.col("l_orderkey") == f.col("o_key"))
    share = {"planted": 9, "twin": 9, "decoy": 0}[role]
    customer = f.when(f.col("l_orderkey") % 10 < share, f.lit(7)).otherwise(f.col("o_customer"))
    lines = lines.withColumn("customer", customer)
    # The twin ranks by customer and month: no key is large.
    keys = ["customer"] if role != "twin" else ["customer", (f.col("o_day") / 30).cast("int").alias("month")]
    window = Window.partitionBy(*keys).orderBy("l_price")
    ranked = lines.select(f.sha2("l_comment", 512).alias("text"), f.rank().over(window).alias("place"))
    _keep_nothing(ranked.filter("place % 2 = 0"))


def rank_of_all(spark: SparkSession, role: Role, folder: Path) -> None:
    """Rank all lines, with no key that would divide them."""
    _tables(spark, folder)
    lines = spark.table("lineitem")
    if role == "decoy":
        lines = lines.limit(500)
        _burn(spark)
    place = _rank_by_ranges(lines, "l_price") if role == "twin" else f.rank().over(Window.orderBy("l_price"))
    ranked = lines.select(f.sha2("l_comment", 512).alias("text"), place.alias("place"))
    _keep_nothing(ranked.filter("place % 2 = 0"))


def _rank_by_ranges(rows: DataFrame, column: str, ranges: int = 16) -> Column:
    """Return the rank among all rows, counted within ranges of the column: the rows of the ranges before are added."""
    bounds = rows.approxQuantile(column, [number / ranges for number in range(1, ranges)], 0.01)
    in_range = sum(((f.col(column) > bound).cast("int") for bound in bounds), f.lit(0))
    counts = dict(rows.groupBy(in_range.alias("range")).count().collect())
    before = [sum(counts.get(earlier, 0) for earlier in range(number)) for number in range(ranges)]
    rows_before = f.element_at(f.array(*map(f.lit, before)), in_range + 1)
    return f.rank().over(Window.partitionBy(in_range).orderBy(column)) + rows_before


def questions_about_one_table(spark: SparkSession, role: Role, folder: Path) -> None:
    """Ask four questions about the same joined and aggregated table."""
    _tables(spark, folder)
    lines = spark.table("lineitem").join(spark.table("orders"), f.col("l_orderkey") == f.col("o_key"))

    def table(least: int) -> DataFrame:
        large_lines = lines.filter(f.col("l_quantity") > least)
        return large_lines.groupBy("o_customer").agg(f.sum("l_price").alias("spent"), f.max(f.sha2("l_comment", 512)))

    base = table(10)
    if role == "twin":
        base.cache()
    for number in range(4):
        (table(10 + number) if role == "decoy" else base).filter(f.col("spent") > 1_000 * number).count()


def sales_by_day(spark: SparkSession, role: Role, folder: Path) -> None:
    """Write sales by day from tasks that each have rows of every day."""
    _tables(spark, folder)
    sales = spark.table("store_sales").filter("ss_day < 150").repartition(8)
    if role == "twin":
        sales = sales.repartition(4, "ss_day")
    elif role == "decoy":
        sales = sales.filter("ss_day < 3")
        _burn(spark)
    sales.write.partitionBy("ss_day").parquet(str(folder / f"written-{role}-{time.monotonic_ns()}"))


def a_job_for_each_brand(spark: SparkSession, role: Role, folder: Path) -> None:
    """Ask for the sales of each brand, one after the other."""
    _tables(spark, folder)
    items = spark.table("item").filter("i_category = 3").cache()
    items.count()
    sales = spark.table("store_sales").limit(2_000).cache()
    sales.count()
    joined = sales.join(f.broadcast(items), f.col("ss_item") == f.col("i_key"))
    if role == "twin":
        joined.groupBy("i_brand").agg(f.sum("ss_price")).collect()
        return
    brands = 60 if role == "planted" else 5
    if role == "decoy":
        _burn(spark)
    for brand in range(brands):
        joined.filter(f.col("i_brand") == f"brand {brand}").agg(f.sum("ss_price")).collect()


_PLAIN = {"spark.sql.shuffle.partitions": "4"}
_UNSPLIT = {**_PLAIN, "spark.sql.adaptive.enabled": "false"}

HELD_OUT = (
    Program(
        name="h-no-broadcast",
        cause="broadcast_missed",
        run=orders_stream,
        prepare=write_tables,
        data="tables",
        settings={**_PLAIN, "spark.sql.autoBroadcastJoinThreshold": "-1"},
        fixed_settings={"spark.sql.autoBroadcastJoinThreshold": "10485760"},
    ),
    Program(
        name="h-many-partitions",
        cause="tiny_tasks",
        run=orders_stream,
        prepare=write_tables,
        data="tables",
        settings={"spark.sql.shuffle.partitions": "600", "spark.sql.adaptive.enabled": "false"},
        fixed_settings={"spark.sql.shuffle.partitions": "4"},
    ),
    Program(
        name="h-one-partition",
        cause="too_few_partitions",
        run=orders_stream,
        prepare=write_tables,
        data="tables",
        settings={"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"},
        fixed_settings={"spark.sql.shuffle.partitions": "4"},
    ),
    Program(
        name="h-python-prices",
        cause="python_udf",
        run=python_prices,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="h-many-files",
        cause="small_files_read",
        run=lines_in_many_files,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="h-one-archive",
        cause="unsplittable_input",
        run=orders_in_one_archive,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="d-item-alone",
        cause="exploding_join",
        run=returns_by_item_alone,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="h-band",
        cause="exploding_join",
        run=prices_in_a_band,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="h-large-customer",
        cause="key_skew",
        run=one_large_customer,
        prepare=write_tables,
        data="tables",
        settings={**_UNSPLIT, "spark.sql.shuffle.partitions": "8"},
    ),
    Program(
        name="h-rank-of-all",
        cause="single_window",
        run=rank_of_all,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="h-questions",
        cause="repeated_subplan",
        run=questions_about_one_table,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="d-by-day",
        cause="small_files_written",
        run=sales_by_day,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
    Program(
        name="d-each-brand",
        cause="many_small_jobs",
        run=a_job_for_each_brand,
        prepare=write_tables,
        data="tables",
        settings=_PLAIN,
    ),
)
"""Programs that no rule was made with."""

HEALTHY = tuple(one_query(name) for name in QUERIES)
"""Each query by itself: nothing is planted."""
