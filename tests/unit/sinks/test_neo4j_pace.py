"""With how much detail a follower loads: less by a step while epochs wait too long, more when they no longer do."""

from __future__ import annotations

from pag_graph.cypher import load_query, queries_for_people
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.follow import Pace
from pag_graph.sinks.neo4j.loaded import LoadedEpoch


def test_detail_goes_down_by_steps_and_up_again() -> None:
    pace = Pace(Detail.FULL, 30.0)
    seen = []
    for lag_s in (0.0, 31.0, 20.0, 40.0, 50.0, 60.0, 9.9, 15.0, 0.0, 0.0, 0.0):
        pace.heed(lag_s)
        seen.append(str(pace.detail))
    down = ["full", "critical", "critical", "waits", "summary", "summary"]
    assert seen == [*down, "waits", "waits", "critical", "full", "full"]


def test_no_epoch_gets_more_than_was_asked_for() -> None:
    pace = Pace(Detail.WAITS, 30.0)
    pace.heed(0.0)
    assert pace.detail is Detail.WAITS


def test_a_summary_answers_only_what_it_holds() -> None:
    epoch = LoadedEpoch(1, "round", 0, 1, "summary", 1, 0)
    enough = {query.name for query in queries_for_people() if query.over is not None and epoch.is_enough(query)}
    assert {"epochs/trend", "analyses/epochs", "provenance/snapshot"} <= enough
    for name in ("patterns/late_sender", "segments/path", "segments/waits", "patterns/who_waits_for_whom"):
        assert name not in enough
        assert epoch._replace(detail="waits").is_enough(load_query(name))
    assert not any(load_query(name).details for name in enough)
