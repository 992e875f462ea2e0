"""Answers of the workbench equal those of every other surface; what cannot be answered says why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import polars as pl
import pytest
from typer.testing import CliRunner

from pag_graph import api, samples
from pag_graph.analyses import all_entries
from pag_graph.cli.app import app as command
from pag_graph.model.ids import position_of, worker_of
from pag_graph.sinks.provenance_walks import log_rows
from pag_graph.testing.traces import draw
from pag_graph.workbench import app as workbench
from pag_graph.workbench import facts
from pag_graph.workbench.app import BusyError, Workbench, make_app
from pag_graph.workbench.library import Library
from pag_graph.workbench.paths import pixel_of
from tests.support.asgi import get
from tests.support.growing import GrowingTrace, rounds

EXTRA = {"rows_name", "columns", "count", "headline", "text"}


def asked(library: Library, address: str, status: int = 200) -> Any:
    answer = get(make_app(library), address)
    assert answer.status == status, answer.body
    return json.loads(answer.body)


@pytest.mark.parametrize("name", [entry.name for entry in all_entries() if entry.name not in {"what-if", "k-hops-st2"}])
def test_an_answer_is_what_the_command_line_prints(name: str, library: Library, store: str, runs: Path) -> None:
    analysis = next(entry for entry in all_entries() if entry.name == name).load()
    window = "" if analysis.scope == "run" else "?epoch=4"
    shown = asked(library, f"/api/run/{store}/analysis/{name}.json{window}")
    options = [] if analysis.scope == "run" else ["--epoch", "4"]
    said = CliRunner().invoke(command, [name, str(runs / "skewed.pag"), *options, "--format", "json"])
    printed = json.loads(said.stdout)
    rows = shown["rows_name"]
    assert shown["count"] == len(printed[rows])
    printed[rows] = printed[rows][:200]
    assert {key: value for key, value in shown.items() if key not in EXTRA} == printed


def test_rows_and_pictures_are_those_of_the_command_line(library: Library, store: str, runs: Path) -> None:
    app = make_app(library)
    said = CliRunner().invoke(command, ["k-hops", str(runs / "skewed.pag"), "-e", "4", "-k", "3", "--format", "csv"])
    answer = get(app, f"/api/run/{store}/analysis/k-hops.csv?epoch=4&p.k=3")
    assert answer.body.decode() == said.stdout
    assert answer.headers["content-disposition"] == 'attachment; filename="k-hops.csv"'
    drawn = get(app, f"/api/run/{store}/analysis/critical-path.svg?epoch=4")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert drawn.body.startswith(b"<svg")


def test_epochs_are_made_of_their_paths(library: Library, store: str) -> None:
    columns = asked(library, f"/api/run/{store}/epochs")["columns"]
    run = library.open(store).pag.run
    spans: dict[int, int] = {}
    for epoch, ns in zip(columns["epoch"], columns["duration_ns"], strict=True):
        spans[epoch] = spans.get(epoch, 0) + ns
    assert spans == {row["epoch"]: row["end_ns"] - row["start_ns"] for row in run.epochs.iter_rows(named=True)}


def test_epochs_that_take_no_time_are_epochs(tmp_path: Path) -> None:
    """The page of the run counted fewer than the list of runs, and said that there was no such epoch."""
    draw("0 start 1 | 5 stop 1 | 9 end | 9 end | 12 start 1 | 15 stop 1 | 18 end").write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "run.pag", engine="local")
    library = Library([tmp_path])
    (name,) = library.stores()
    columns = asked(library, f"/api/run/{name}/epochs")["columns"]
    assert list(dict.fromkeys(columns["epoch"])) == [0, 1, 2]
    (row,) = (place for place, epoch in enumerate(columns["epoch"]) if epoch == 1)
    assert {key: values[row] for key, values in columns.items()} == {
        "epoch": 1,
        "type": None,
        "duration_ns": 0,
        "start_ns": 9,
        "end_ns": 9,
    }
    told = get(make_app(library), f"/api/run/{name}/events?after=0", leave_after=3).body.decode()
    assert 'data: {"epoch":1,"start":9,"end":9,"types":{}}' in told


def test_lanes_show_what_each_worker_did(library: Library, store: str) -> None:
    run = library.open(store).pag.run
    window = run.window(epoch=4)
    view = f"from={window.start_ns}&to={window.end_ns}"
    drawn = asked(library, f"/api/run/{store}/lanes?{view}&pixels=1000")
    assert drawn["exact"]
    boxes = drawn["boxes"]
    local = run.snapshot(window).local
    for place, worker in enumerate(run.workers):
        shown = sum(
            boxes["end"][box] - boxes["begin"][box]
            for box in range(len(boxes["worker"]))
            if boxes["worker"][box] == place
        )
        assert shown == window.span_ns, worker
    # What is wide enough is itself, and a click finds it.
    widest = max(range(len(boxes["worker"])), key=lambda box: boxes["end"][box] - boxes["begin"][box])
    worker = run.workers[boxes["worker"][widest]]
    told = asked(
        library, f"/api/run/{store}/activity?epoch=4&worker={worker}&position={boxes['position'][widest]}&hops=5"
    )
    assert told["edge"]["dst"] in local["dst"].to_list()
    slack = api.open(run.info.path).slack(epoch=4).to_pylist()
    (own,) = [row for row in slack if (row["src"], row["dst"]) == (told["edge"]["src"], told["edge"]["dst"])]
    assert told["slack_ns"] == own["slack_ns"]
    assert {row["hop"] for row in told["hops"]} == {1, 2, 3, 4, 5}
    assert drawn["messages"]["wait"]
    assert min(drawn["messages"]["wait"]) > 0


@pytest.mark.parametrize(("length", "pixels"), [(100, 100), (7_919, 4_000), ((1 << 40) - 1, 8_000)])
def test_an_instant_is_drawn_at_the_pixel_that_whole_numbers_give(length: int, pixels: int) -> None:
    instants = range(0, length, max(length // 5_000, 1))
    drawn = pixel_of(pl.Series([instant - 50 for instant in instants]), -50, length - 50, pixels)
    assert drawn.to_list() == [instant * pixels // length for instant in instants]


def test_a_run_of_months_shows_all_messages_that_ended_waits(tmp_path: Path) -> None:
    """A time of months as a number of pixels was more than 64 bits hold: two messages fell into one pixel."""
    later = 2**64 // 4_000
    times = [100 + part * later for part in range(2)]
    sends = " | ".join(f"{t} send 3>1 #{number}" for number, t in enumerate(times))
    waits = " | ".join(f"{t - 50} park | {t + 10} unpark | {t + 20} recv 3<0 #{n}" for n, t in enumerate(times))
    end = 2 * later
    draw(f"0 start 1 | {sends} | {end} stop 1 | {end} end", f"0 start 1 | 5 stop 1 | {waits} | {end} end").write(
        tmp_path / "trace"
    )
    api.build(tmp_path / "trace", tmp_path / "run.pag", engine="local")
    library = Library([tmp_path / "run.pag"])
    (name,) = library.stores()
    drawn = asked(library, f"/api/run/{name}/lanes?from=0&to={end}&pixels=4000")
    assert drawn["messages"]["begin"] == times


def test_a_large_run_is_summed_up(library: Library, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pag_graph.workbench import lanes

    monkeypatch.setattr(lanes, "STRETCH_EDGES", 300)
    run = library.open(store).pag.run
    drawn = lanes.Lanes(run).draw(0, run.end_ns, 500)
    assert not drawn["exact"]
    boxes = drawn["boxes"]
    shown = sum(end - begin for begin, end in zip(boxes["begin"], boxes["end"], strict=True))
    born = run.scan("edges").collect()
    assert shown <= run.end_ns * len(run.workers)
    assert shown >= 0.99 * born.filter(born["src"] // (1 << 40) == born["dst"] // (1 << 40))["duration_ns"].sum()


def test_neo4j_browser_is_named_while_its_server_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "running_in", lambda _: None)
    assert facts.cypher()["browser"] is None
    monkeypatch.setattr(facts, "running_in", lambda _: SimpleNamespace(host="127.0.0.1", http_port=7475))
    told = facts.cypher()
    assert told["browser"] == "http://127.0.0.1:7475/browser/"
    assert "$run" in str(told["query"])


def test_a_path_sums_to_its_window(library: Library, store: str) -> None:
    told = asked(library, f"/api/run/{store}/path?epoch=4&pixels=50")
    assert sum(told["by_type"].values()) == told["span_ns"]
    whole = asked(library, f"/api/run/{store}/path?epoch=4&pixels=4000")
    assert len(told["steps"]["begin"]) <= 100
    assert set(told["steps"]["begin"]) <= set(whole["steps"]["begin"])


def test_replays_are_an_interval(library: Library, store: str) -> None:
    same = asked(library, f"/api/run/{store}/what-if?epoch=4")
    assert same["new_span_ns"] == same["least_ns"] == same["most_ns"] == same["span_ns"]
    half = asked(library, f"/api/run/{store}/what-if?epoch=4&change=worker%3D0+factor%3D0.5")
    assert half["least_ns"] <= half["new_span_ns"] <= half["most_ns"] < same["span_ns"]
    # The page asks for the quick part first.
    address = f"/api/run/{store}/what-if?epoch=4&change=worker%3D0+factor%3D0.5&assumptions="
    usual, others = asked(library, address + "usual"), asked(library, address + "others")
    assert usual["new_span_ns"] == half["new_span_ns"]
    assert {**usual["spans"], **others["spans"]} == half["spans"]
    assert asked(library, address + "none", 400)["error"] == "INVALID_PARAMETER"


def test_matches_of_a_motif_can_be_lit_up(library: Library, store: str) -> None:
    told = asked(library, f"/api/run/{store}/motif?epoch=4&pattern=late_sender")
    assert told["total"] == len(told["rows"]) == len(told["edges"]) == 6
    assert {"source", "target", "sent", "position", "begin", "end"} == set(told["edges"][0][0])
    wrong = asked(library, f"/api/run/{store}/motif?epoch=4&pattern=%28a", 400)
    assert wrong["error"]
    # Of a window that is no epoch, those of all its epochs are asked for.
    counts = [asked(library, f"/api/run/{store}/motif?epoch={epoch}&pattern=late_sender")["total"] for epoch in (3, 4)]
    both = asked(library, f"/api/run/{store}/motif?epoch=3&last_epoch=4&pattern=late_sender")
    assert both["total"] == sum(counts)
    until = asked(library, f"/api/run/{store}/motif?last_epoch=4&pattern=late_sender")
    rest = asked(library, f"/api/run/{store}/motif?epoch=0&last_epoch=4&pattern=late_sender")
    everything = asked(library, f"/api/run/{store}/motif?pattern=late_sender")
    assert until["total"] == rest["total"] < everything["total"]


def test_an_activity_leads_to_the_rows_of_its_log(library: Library, store: str) -> None:
    run = library.open(store).pag.run
    steps = library.open(store).pag.critical_path(epoch=4).table.to_pylist()
    longest = max((step for step in steps if step["worker"] == step["to_worker"]), key=lambda step: step["duration_ns"])
    worker, position = worker_of(longest["edge_dst"]), position_of(longest["edge_dst"])
    told = asked(library, f"/api/run/{store}/activity?epoch=4&worker={worker}&position={position}")
    expected = log_rows(run, 4, longest["step"]).drop("step")
    assert expected.height
    assert pl.DataFrame(told["log"], schema=log_rows(run, 4).schema).drop("step").equals(expected)


def test_findings_have_the_epochs_of_what_they_are_about(tmp_path: Path) -> None:
    trace = draw(
        "0 start 1 | 4 send 3>1 #0 | 5 stop 1 | 9 end | 20 end", "0 start 1 | 12 recv 3<0 #7 | 13 stop 1 | 20 end"
    )
    api.build(trace.write(tmp_path / "trace"), tmp_path / "run.pag", engine="local")
    library = Library([tmp_path / "run.pag"])
    (name,) = library.stores()
    told = facts.run_facts(library.open(name))
    run = library.open(name).pag.run
    vertices = {row["id"]: row["epoch"] for row in run.scan("vertices").collect().to_dicts()}
    findings = run.scan("findings").collect().to_dicts()
    about = {(vertices[row["vertex"]], row["finding"]) for row in findings if row["vertex"] is not None}
    assert about
    assert {(row["epoch"], row["finding"]) for row in told["findings"] if row["epoch"] is not None} == about
    assert {row["epoch"] for row in told["findings_of_epochs"]} == {epoch for epoch, _ in about}


@pytest.mark.parametrize(
    ("address", "status", "error"),
    [
        ("/api/run/nothing", 404, "STORE_NOT_FOUND"),
        ("/api/run/%2e%2e%2fetc", 404, None),
        ("/api/run/{store}/analysis/nothing.json", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/analysis/k-hops.xml?epoch=4", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/analysis/k-hops.json?epoch=4&p.k=many", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/analysis/k-hops.json?epoch=99", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/analysis/advise.json?epoch=4&p.state=%00", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/analysis/k-hops.json?epoch=4&from=1", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/lanes?from=0&to=5&pixels=100000", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/lanes?from=5&to=5&pixels=10", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/lanes?from=0&to=99999999999999999999&pixels=10", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/near?worker=77&t=5&width=10", 400, "INVALID_PARAMETER"),
        ("/api/run/{store}/activity?epoch=4&worker=0&position=1", 400, "INVALID_PARAMETER"),
        ("/static/..%2fapp.py", 404, None),
        ("/static/app.py", 404, None),
    ],
)
def test_what_cannot_be_answered_says_why(library: Library, store: str, address: str, status: int, error: str) -> None:
    answer = get(make_app(library), address.format(store=store))
    assert answer.status == status
    if error:
        told = json.loads(answer.body)
        assert told["error"] == error
        assert told["message"]
        # What helps stands beside it.
        assert "hint:" not in told["message"]


def test_a_definition_is_the_section_of_the_docs(library: Library) -> None:
    answer = get(make_app(library), "/definition/k-hops")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.body.decode() in Path("docs/analyses.md").read_text(encoding="utf-8")
    assert get(make_app(library), "/definition/nothing").status == 400


def test_the_page_needs_nothing_from_elsewhere(library: Library) -> None:
    app = make_app(library)
    page = get(app, "/").body.decode()
    assert '<script type="module" src="/static/main.js">' in page
    for name in ("main.js", "window.js", "style.css", "icon.svg"):
        assert get(app, f"/static/{name}").status == 200
    for word in ("http://", "https://", "onclick=", "<style"):
        assert word not in page


def test_a_new_commit_is_seen(tmp_path: Path) -> None:
    api.build(samples.path("skewed"), tmp_path / "run.pag", engine="local")
    library = Library([tmp_path / "run.pag"])
    (name,) = library.stores()
    before = library.open(name)
    assert library.open(name) is before
    api.build(samples.path("skewed"), tmp_path / "run.pag", engine="local", mode="replace")
    after = library.open(name)
    assert (before.version, after.version) == (0, 1)


def test_a_store_that_is_removed_and_built_again_is_another_one(tmp_path: Path) -> None:
    """Its versions are those of the first one, whose answers were given on, or errors of the server."""
    store = tmp_path / "run.pag"
    api.build(samples.path("skewed"), store, engine="local")
    library = Library([tmp_path])
    (name,) = library.stores()
    app = make_app(library)
    for sample in ("skewed", "triangles"):
        if sample != "skewed":
            shutil.rmtree(store)
            assert json.loads(get(app, f"/api/run/{name}").body)["error"] == "STORE_NOT_FOUND"
            api.build(samples.path(sample), store, engine="local")
        run = api.open(store).run
        shown, columns = (json.loads(get(app, f"/api/run/{name}{part}").body) for part in ("", "/epochs"))
        assert (shown["run"], shown["version"]) == (run.info.run["run_id"], 0)
        assert set(columns["columns"]["epoch"]) == set(run.epochs["epoch"])
        assert get(app, f"/api/run/{name}/why").status == 200


def test_a_run_of_the_same_name_and_version_is_looked_at_anew(tmp_path: Path) -> None:
    """A trace that went on has the run's id of its beginning; the columns of epochs stayed those of the first store."""
    trace, store = tmp_path / "trace", tmp_path / "run.pag"
    library = Library([tmp_path])
    app, columns = make_app(library), []
    for log in ("0 start 1 | 5 stop 1 | 9 end", "0 start 1 | 5 stop 1 | 9 end | 12 start 1 | 15 stop 1 | 18 end"):
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(trace, ignore_errors=True)
        draw(log).write(trace)
        api.build(trace, store, engine="local")
        (name,) = library.stores()
        columns.append(json.loads(get(app, f"/api/run/{name}/epochs").body)["columns"])
        assert columns[-1]["epoch"][-1] == api.open(store).epochs["epoch"][-1]
    assert columns[0] != columns[1]


def test_epochs_that_were_open_are_looked_at_anew(tmp_path: Path) -> None:
    """An epoch as long as before may have another path: where a follower went on, it stayed that of the open epoch."""
    trace, store = GrowingTrace(rounds(4), tmp_path / "trace"), tmp_path / "run.pag"
    trace.write(0, 10)
    trace.write(1, 8)
    columns, spans = [], []
    library = Library([tmp_path])
    app = make_app(library)
    for is_last in (False, True):
        if is_last:
            trace.finish()
        api.follow(trace.path, store, until="idle:20ms")
        (name,) = library.stores()
        columns.append(json.loads(get(app, f"/api/run/{name}/epochs").body)["columns"])
        spans.append(api.open(store).epochs.select("epoch", "start_ns", "end_ns").rows()[:2])
    assert spans[0] == spans[1]
    assert columns[1] == facts.epochs(Library([tmp_path]).open(name)).to_dict(as_series=False)


def test_a_place_that_is_no_store_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.pag" / "epochs" / "_delta_log").mkdir(parents=True)
    (row,) = Library([tmp_path]).rows()
    assert row["title"] == "broken.pag"
    assert row["error"]


def test_a_store_whose_name_is_no_text_hides_no_other(runs: Path, tmp_path: Path) -> None:
    for name in ("l\udce4ufe.pag", "whole.pag"):
        shutil.copytree(runs / "skewed.pag", tmp_path / name)
    broken, whole = asked(Library([tmp_path]), "/api/runs")["runs"]
    assert (broken["title"], whole["title"]) == ("l?ufe.pag", "whole.pag")
    assert "not UTF-8" in broken["error"]
    assert whole["events"] > 0


def test_too_many_questions_are_told_to_wait(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "WAITING", 0)

    async def ask() -> None:
        with pytest.raises(BusyError):
            await Workbench(library).work(lambda: None)

    anyio.run(ask)
