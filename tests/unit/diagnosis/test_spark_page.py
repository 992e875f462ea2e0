"""The page of an answer: verdict and changes first, links to stages, and the whole cluster drawn."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from pag_graph.diagnosis.spark.answer import SCHEMA, SparkAnswer, answer
from pag_graph.diagnosis.spark.lines import text_lines
from pag_graph.diagnosis.spark.page import html_page
from pag_graph.sources.spark.logfiles import LogFiles, find_logs
from tests.support.spark_logs import EventLog

LOGS = Path(__file__).parents[2] / "data" / "spark"


@cache
def told(name: str) -> SparkAnswer:
    (log,) = find_logs(LOGS / f"{name}.zstd")
    return answer(log)


def test_parts_of_the_page_come_in_the_order_in_which_they_are_read() -> None:
    page = html_page([told("plans/broadcast-missed-planted")])
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads[:4] == ["What to change", "Why it was slow", "Where the time went", "Timeline"]
    assert heads[4:6] == ["Other cores, and other changes", "Stages"]
    # The change, with what was recorded and what is proposed.
    row = next(line for line in page.splitlines() if "spark.sql.autoBroadcastJoinThreshold" in line)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
    assert cells[1:4] == ["spark.sql.autoBroadcastJoinThreshold", "-1", "1048576"]
    assert cells[4].startswith("at most ")
    assert len(page) < 2_000_000


def test_causes_link_to_the_rows_of_their_stages() -> None:
    page = html_page([told("plans/exploding-join-planted")])
    links = re.findall(r'href="#(stage-\d+)"', page)
    assert links
    assert all(page.count(f'<tr id="{link}">') == 1 for link in links)


def test_where_nothing_stands_out_it_is_said_what_the_time_is_bound_by() -> None:
    healthy = told("healthy")
    lines = text_lines(healthy)
    place = next(number for number, line in enumerate(lines) if line.startswith("Nothing stands out"))
    assert re.match(
        r"  Most of the time: stage \d+ \(.*\): .* of the time since the first job; bound by", lines[place + 1]
    )
    assert lines[place + 2].count(": ") == 4
    assert "Most of the time: stage" in html_page([healthy])
    bound = healthy.facts()["bound_by"]
    assert bound["resource"].startswith("waiting for something outside of the JVM")
    assert 0.5 < bound["share"] <= 1
    assert healthy.facts()["schema"] == SCHEMA == "pag-spark/2"


def cluster(executors: int) -> EventLog:
    log = EventLog(cores=[2] * executors).job(0, 1000, [0]).stage(0, 1000, tasks=2 * executors)
    for index in range(2 * executors):
        log.task(0, index, str(index // 2), 1010, 3010 if index % 2 else 9010, run=1900 if index % 2 else 7900)
    return log.stage_done(0, 9010).job_done(0, 9020).end(9030)


def test_the_whole_cluster_is_drawn_folded_by_executor(tmp_path: Path) -> None:
    for executors, most in ((30, 30), (200, 48)):
        file = cluster(executors).write(tmp_path / f"log-{executors}")
        page = html_page([answer(LogFiles(name="log", files=(file,)))])
        labels = re.findall(r">(executor \d+)(?: and (\d+) more)?</text>", page)
        assert len(labels) == most
        assert sum(1 + int(more or 0) for _, more in labels) == executors
        assert "of 2 cores busy" in page or executors == 200
        # Both cores are busy at first, and then one of two.
        assert "100% of" in page
        assert "50% of" in page
        assert len(page) < 2_000_000
