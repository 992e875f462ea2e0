"""The workbench in a real Chromium: the story of a skewed run found by clicking, and numbers that equal the analyses.

With ``PAG_PICTURES=docs/pictures`` the screenshots of the documentation are made anew.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api, samples
from pag_graph.analyses import Scope, all_entries, find_analysis
from pag_graph.analyses.result_tables import table_of
from pag_graph.analyses.what_if import WhatIfParameters, what_if
from pag_graph.diagnosis.spark.answer import answer
from pag_graph.model.units import duration as short_duration
from pag_graph.sinks.csv_tables import csv_text
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.testing.traces import draw
from pag_graph.workbench.applications import Applications
from pag_graph.workbench.library import Library, name_of
from pag_graph.workbench.news import LOOK_S
from tests.support.growing import GrowingTrace, rounds
from tests.support.serving import PAGE, picture, serving, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.api import Pag
    from tests.support.chromium import Chromium

PROVE = os.environ.get("PAG_PROVE") == "1"
HOSTILE = (
    "<script>document.title='run'</script><img src=x onerror=alert(1)>"
    "\u202eevil\u0645\u0631\u062d\u0628\u0627\x1b[31m\x00" + 20_000 * "long"
)
PANELS = ("metrics", "matrix", "skew", "blame", "traffic", "invariants", "profile-rounds")
if PROVE:
    elsewhere = {"k-hops", "k-hops-st2", "diff", "why", "what-if"}
    PANELS = tuple(entry.name for entry in all_entries() if entry.name not in elsewhere)
HOSTILE_NAME = "<img src=x onerror=alert(1)>\u202e'; rm -rf `script`"
HOSTILE_STORE = f"{HOSTILE_NAME}.pag"
HOSTILE_KEYS = {"App ID", "Details", "Executor ID", "Host", "Stage Name", "User", "description", "details", "nodeName"}
"""Of an event log: what people, programs and machines are called."""
DIFFERENCE = (
    "(() => { const place = [...document.querySelectorAll('th')].findIndex((c) => c.innerText === 'difference_ns');"
    " return [...document.querySelectorAll('#answer tbody tr')].map((row) => row.children[place])"
    ".reduce((sum, cell) => sum + Number(cell.querySelector('[data-ns]').dataset.ns), 0); })()"
)
"""The sum of a comparison's rows."""
SPARK_LOG = Path(__file__).parents[1] / "data" / "spark" / "skewed-key.zstd"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of the skewed sample: as it is, and with names that mean harm."""
    folder = tmp_path_factory.mktemp("workbench")
    api.build(samples.path("skewed"), folder / "skewed.pag", engine="local")
    trace = folder / "trace"
    shutil.copytree(samples.path("skewed"), trace)
    rows = pq.read_table(trace / "operators.parquet")
    column = rows.schema.get_field_index("name")
    names = pa.array([f"{HOSTILE}{row}" for row in range(rows.num_rows - 1)] + [HOSTILE + 10_000_000 * "x"])
    pq.write_table(rows.set_column(column, rows.schema.field(column), names), trace / "operators.parquet")
    api.build(trace, folder / HOSTILE_STORE, engine="local")
    api.build(samples.path("bfs"), folder / "bfs.pag", engine="local")
    return folder


@pytest.fixture(scope="module")
def hostile_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An event log whose names mean harm, one of them 10 MB long."""

    def spoiled(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoiled(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [spoiled(part, key) for part in value]
        if key == "App Name":
            return HOSTILE + 10_000_000 * "x"
        return value + HOSTILE if key in HOSTILE_KEYS and value != "driver" else value

    log = pa.input_stream(SPARK_LOG, compression="zstd").read().decode()
    events = [spoiled(json.loads(line)) for line in log.splitlines()]
    events.insert(-1, {"Event": HOSTILE})
    file = tmp_path_factory.mktemp("log") / HOSTILE_NAME
    file.write_text("\n".join(json.dumps(event) for event in events), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def library(folder: Path, hostile_log: Path) -> Library:
    return Library([folder, SPARK_LOG, hostile_log])


@pytest.fixture(scope="module")
def page(library: Library, chromium: Chromium) -> Iterator[Chromium]:
    """A browser that has opened the link."""
    with serving(library) as place:
        chromium.call("Page.navigate", url=place.link)
        chromium.until(f"document.getElementById('main') && {PAGE} === 'runs'", "list of runs")
        yield chromium
        chromium.call("Page.navigate", url="about:blank")


@pytest.fixture(autouse=True)
def _nothing_is_wrong(page: Chromium) -> Iterator[None]:
    """No error on the console, and nothing asked of anybody else."""
    page.problems.clear()
    yield
    assert not page.problems


def store_of(library: Library, name: str) -> str:
    return next(store for store, path in library.stores().items() if path.name == name)


def log_of(library: Library, path: Path) -> str:
    return next(name for name, log in Applications(library).logs().items() if log.files[0] == path)


def click(page: Chromium, selector: str) -> None:
    page.until(f"document.querySelector({json.dumps(selector)}) !== null", selector)
    page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


def resident() -> int:
    """Return how many bytes of memory this process has, in which the server runs."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def pag(folder: Path) -> Pag:
    return api.open(folder / "skewed.pag")


def test_who_is_to_blame_is_found_by_clicking(page: Chromium, library: Library, tmp_path: Path) -> None:
    show(page, "runs")
    row = next(place for place, path in enumerate(library.stores().values()) if path.name == "skewed.pag")
    page.evaluate(f"document.querySelectorAll('tr.pick')[{row}].click()")
    page.until(f"{PAGE} === 'run'", "run")
    # The worst round is chosen already, and the report says why.
    page.until("document.querySelector('#why .cause')?.innerText.includes('the data is skewed')", "cause")
    assert "Worker 0" in page.evaluate("document.querySelector('#why').innerText")
    picture(page, "run", tmp_path)
    click(page, "#open-window")
    page.until(f"{PAGE} === 'window'", "lanes")
    page.until("document.querySelector('#lanes').dataset.drawn > 0", "drawn lanes")
    # Who is to blame, and since when, stands first among the steps of the path; a click zooms to it.
    blamed = page.evaluate("document.querySelector('#steps tbody tr').innerText")
    assert blamed.startswith("worker 0\tprocessing\tFlatMap (0.4)\t1.17 ms into the window\t2.64 ms\t68%")
    before = page.evaluate("location.hash")
    click(page, "#steps tr.pick")
    page.until(f"location.hash !== {json.dumps(before)}", "zoom")
    page.evaluate("document.querySelector('#lanes').focus()")
    page.press("0", 48)
    page.until("Number(document.querySelector('#lanes').dataset.drawn) >= 3", "whole window")
    # The longest work of the first lane: a click in its middle.
    box = page.evaluate(
        "(({left, top, width}) => [left + 130 + (width - 140) * 0.6, top + 22 + 9])"
        "(document.querySelector('#lanes').getBoundingClientRect())"
    )
    page.click(*box)
    page.until("document.querySelector('#details h2') !== null", "activity")
    told = page.evaluate("document.querySelector('#details').innerText")
    assert "processing on worker 0" in told
    assert "FlatMap" in told
    for surface in ("CLI", "Python", "Cypher", "motif"):
        assert page.evaluate(f"document.querySelector('pre[data-surface={surface}]').innerText")
    page.until("document.querySelector('#why .cause') !== null", "cause")
    picture(page, "window", tmp_path)
    # The address alone shows the same again.
    page.call("Page.reload")
    page.until("document.querySelector('#details h2')?.innerText.includes('processing on worker 0')", "the same again")


def test_a_drag_over_columns_chooses_all_of_them(page: Chromium, library: Library, folder: Path) -> None:
    show(page, f"run?store={store_of(library, 'skewed.pag')}")
    page.until("document.querySelector('#why .cause') !== null", "report of the slowest round")
    epochs = api.open(folder / "skewed.pag").run.epochs.sort("epoch").to_dicts()
    # 56 pixels lie before the first column, and 8 behind the last one.
    box = page.evaluate(
        "(({ left, top, width }) => [left, top, width])(document.querySelector('#epochs').getBoundingClientRect())"
    )
    first, last = (box[0] + 56 + (box[2] - 64) * (place + 0.5) / len(epochs) for place in (3, 5))
    for start, end in ((first, last), (last, first)):
        page.evaluate("document.querySelector('#open-lanes').remove()")
        page.drag((start, box[1] + 100), (end, box[1] + 100))
        page.until("document.querySelector('#open-lanes') !== null", "choice")
        address = page.evaluate("location.hash")
        assert f"from={epochs[3]['start_ns']}&to={epochs[5]['end_ns']}" in address, address
        assert "epoch=" not in address
    # The report and the lanes are of that window.
    page.until("document.querySelector('#why')?.innerText.includes('What the time went to')", "report of the window")
    click(page, "#open-lanes")
    page.until(f"{PAGE} === 'window' && document.querySelector('#lanes').dataset.drawn > 0", "lanes of the window")
    assert f"from={epochs[3]['start_ns']}&to={epochs[5]['end_ns']}" in page.evaluate("location.hash")


def test_a_new_user_finds_who_is_to_blame_and_since_when(page: Chromium, folder: Path) -> None:
    """As a person would: what can be seen is clicked, and nothing else is known."""
    clicks = 0

    def click_on(code: str) -> None:
        nonlocal clicks
        clicks += 1
        page.until(f"({code}) !== undefined", code)
        page.evaluate(f"({code}).scrollIntoView({{ block: 'center' }})")
        middle = "(({ left, top, width, height }) => [left + width / 2, top + height / 2])"
        page.click(*page.evaluate(f"{middle}(({code}).getBoundingClientRect())"))

    started = time.monotonic()
    show(page, "runs")
    click_on("[...document.querySelectorAll('tr.pick td button')].find((each) => each.innerText === 'bfs.pag')")
    page.until(f"{PAGE} === 'run'", "run")
    page.until("document.querySelector('#why .cause') !== null", "report of the slowest round")
    click_on("[...document.querySelectorAll('a')].find((each) => each.innerText === 'Look into its lanes')")
    page.until(f"{PAGE} === 'window'", "lanes")
    blamed = page.evaluate("[...document.querySelector('#steps tbody tr').cells].map((cell) => cell.innerText)")
    assert clicks == 2
    assert time.monotonic() - started < 120
    # It is what the analysis says.
    run = api.open(folder / "bfs.pag")
    window = run.run.slowest()
    steps = run.critical_path(epoch=window.epoch).table.to_pylist()
    longest = max(steps, key=lambda step: (step["duration_ns"], -step["start_ns"]))
    assert blamed[0] == f"worker {longest['worker']}"
    assert blamed[1] == longest["type"].replace("_", " ")
    assert blamed[3] == f"{short_duration(longest['start_ns'] - window.start_ns)} into the window"
    assert blamed[4] == short_duration(longest["duration_ns"])


def test_lanes_move_and_zoom_by_keys(page: Chromium, library: Library) -> None:
    show(page, f"window?store={store_of(library, 'skewed.pag')}&epoch=4")
    page.until("document.querySelector('#lanes').dataset.drawn > 0", "drawn lanes")
    before = page.evaluate("location.hash")
    page.evaluate("document.querySelector('#lanes').focus()")
    drawn = int(page.evaluate("document.querySelector('#lanes').dataset.drawn"))
    page.press("+", 187)
    page.until(f"document.querySelector('#lanes').dataset.drawn > {drawn}", "zoomed lanes")
    nearer = page.evaluate("location.hash")
    page.until("location.hash.includes('view_from')", "address of the view")
    nearer = page.evaluate("location.hash")
    assert nearer != before
    page.press("ArrowRight", 39)
    page.until(f"location.hash !== {json.dumps(nearer)}", "moved lanes")
    click(page, "#hide-waiting")
    assert "hide=waiting" in page.evaluate("location.hash")
    assert "waiting" not in page.evaluate("document.querySelector('#largest').innerText")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("k-hops", {}),
        ("k-hops", {"weight": "transfer"}),
        *((name, {}) for name in PANELS),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)
def test_numbers_of_panels_are_those_of_the_analysis(
    page: Chromium, library: Library, pag: Pag, name: str, parameters: dict[str, str], tmp_path: Path
) -> None:
    chosen = "".join(f"&p.{key}={value}" for key, value in parameters.items())
    show(page, f"panels?store={store_of(library, 'skewed.pag')}&epoch=4&name={name}{chosen}")
    page.until("document.querySelector('#answer table') !== null", "rows")
    analysis = find_analysis(name)
    if analysis.chart is not None:
        page.until("document.querySelector('#answer figure svg') !== null", "picture")
    result = pag.analyse(name, **parameters, **({"epoch": 4} if analysis.scope is Scope.WINDOW else {}))
    table = table_of(result)
    rows = table.slice(0, 200).to_pylist()
    columns = page.evaluate("[...document.querySelectorAll('#answer th')].map((cell) => cell.innerText)")
    shown = page.evaluate(
        "[...document.querySelectorAll('#answer tbody tr')].map((row) => [...row.cells].map((cell) =>"
        " cell.querySelector('[data-ns]')?.dataset.ns ?? cell.innerText))"
    )
    assert columns
    assert rows
    compared = [place for place, column in enumerate(columns) if column != "operator"]
    told = [[as_shown(column, row.get(column)) for column in columns] for row in rows]
    assert [[row[place] for place in compared] for row in shown] == [[row[place] for place in compared] for row in told]
    # Its definition is one click away, and so are all of its rows and its picture.
    assert linked(page, "definition").startswith(f"\n## {name}\n")
    assert linked(page, "csv") == csv_text(table.to_pylist(), table.column_names)
    if analysis.chart is not None:
        assert linked(page, "svg").startswith("<svg")
    if name == "k-hops" and not parameters:
        picture(page, "panel", tmp_path)


def linked(page: Chromium, link: str) -> str:
    """Return what stands behind a link of the page."""
    return str(page.evaluate(f"fetch(document.querySelector('#{link}').href).then((answer) => answer.text())"))


def as_shown(column: str, value: object) -> str:
    """Return a value as a cell of a panel has it: times in nanoseconds, as the page keeps them beside what it shows."""
    if value is None or isinstance(value, str):
        return value or ""
    assert isinstance(value, int | float)
    if column.endswith("_ns") and not isinstance(value, bool):
        return str(int(value)) if float(value).is_integer() else repr(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.4f}"


def test_a_slider_replays(page: Chromium, library: Library, pag: Pag, tmp_path: Path) -> None:
    show(page, f"what-if?store={store_of(library, 'skewed.pag')}&epoch=4")
    page.until("document.querySelector('#answer').dataset.span !== undefined", "replay")
    whole = pag.run.window(epoch=4).span_ns
    assert int(page.evaluate("document.querySelector('#answer').dataset.span")) == whole
    page.evaluate(
        "(() => { const slider = document.querySelector('[data-change=\"worker=0\"]'); slider.value = 0.5;"
        " slider.dispatchEvent(new Event('input')); })()"
    )
    page.until(f"Number(document.querySelector('#answer').dataset.span) < {whole}", "faster replay")
    expected = what_if(pag.snapshot(epoch=4), WhatIfParameters(worker=(0,), factor=0.5)).span_ns
    assert int(page.evaluate("document.querySelector('#answer').dataset.span")) == expected
    least, most = page.until("document.querySelector('#answer').dataset.interval", "interval").split()
    assert int(least) <= expected <= int(most)
    assert "change=worker%3D0+factor%3D0.5" in page.evaluate("location.hash")
    picture(page, "what-if", tmp_path)


def test_a_comparison_sums_exactly(page: Chromium, library: Library, pag: Pag, tmp_path: Path) -> None:
    show(page, f"compare?store={store_of(library, 'skewed.pag')}&epoch=4")
    page.until("document.querySelector('#answer table') !== null", "differences")
    rows = pag.analyse("diff", epoch=4, against_epoch=6).table.num_rows
    page.evaluate("document.querySelector('#against-epoch').value = '6'; document.querySelector('#compare').click()")
    page.until("location.hash.includes('against_epoch=6')", "address")
    page.until("document.querySelector('#answer').innerText.includes('Before, epoch 6 ')", "the other epoch")
    assert page.evaluate("document.querySelectorAll('#answer tbody tr').length") == rows
    assert page.evaluate(DIFFERENCE) == pag.run.window(epoch=4).span_ns - pag.run.window(epoch=6).span_ns
    # The lanes of both stand above each other, at one scale.
    page.until("document.querySelectorAll('#pair canvas[data-boxes]').length === 2", "lanes of both")
    longer = str(max(pag.run.window(epoch=epoch).span_ns for epoch in (4, 6)))
    drawn = page.evaluate(
        "[...document.querySelectorAll('#pair canvas.compared')].map((each) => [each.dataset.span, each.dataset.boxes])"
    )
    assert [span for span, _ in drawn] == [longer, longer]
    assert all(int(boxes) > 50 for _, boxes in drawn)
    assert "Before: epoch 6 of skewed.pag" in page.evaluate("document.querySelector('#pair').innerText")
    page.until("document.querySelectorAll('#answer figure rect').length > 3", "waterfall")
    page.size(1280, 1300)
    picture(page, "compare", tmp_path)
    page.size(1280, 900)
    # Another run, by its name: the sum is exact there too.
    other = store_of(library, "bfs.pag")
    show(page, f"compare?store={store_of(library, 'skewed.pag')}&epoch=4&against={other}&against_epoch=6")
    page.until("document.querySelectorAll('#pair canvas[data-boxes]').length === 2", "lanes of both runs")
    assert "Before: epoch 6 of bfs.pag" in page.evaluate("document.querySelector('#pair').innerText")
    before = api.open(library.stores()[other]).run.window(epoch=6).span_ns
    assert page.evaluate(DIFFERENCE) == pag.run.window(epoch=4).span_ns - before


def test_two_stores_of_one_run_are_told_from_each_other(page: Chromium, folder: Path) -> None:
    """Both had the title of the first one."""
    copy = folder / "copies" / "skewed.pag"
    shutil.copytree(folder / "skewed.pag", copy)
    store, other = (name_of(path) for path in (folder / "skewed.pag", copy))
    show(page, f"compare?store={store}&epoch=4&against={other}&against_epoch=4")
    page.until("document.querySelectorAll('#pair canvas[data-boxes]').length === 2", "lanes of both")
    titles = page.evaluate("[...document.querySelectorAll('#pair h2')].map((each) => each.innerText)")
    assert [title.rpartition(",")[0] for title in titles] == [
        f"Before: epoch 4 of skewed.pag in {copy.parent}",
        f"After: epoch 4 of skewed.pag in {folder}",
    ]
    shutil.rmtree(copy.parent)


def test_matches_of_a_motif_are_lit_up(page: Chromium, library: Library, tmp_path: Path) -> None:
    # Those that have a name are offered with what they find.
    show(page, f"motif?store={store_of(library, 'skewed.pag')}&epoch=4")
    name = "[...document.querySelectorAll('#answer tr.pick button')].find((each) => each.innerText === 'late_sender')"
    page.evaluate(f"{name}.click()")
    page.until(f"{PAGE} === 'motif' && location.hash.includes('pattern=late_sender')", "motif")
    page.until("document.querySelectorAll('#answer tbody tr').length === 6", "matches")
    click(page, "#answer tbody tr")
    assert int(page.evaluate("document.querySelector('#lanes').dataset.lit")) == 2
    picture(page, "motif", tmp_path)


def test_a_run_that_is_followed_grows_on_its_page(
    page: Chromium, library: Library, folder: Path, tmp_path: Path
) -> None:
    trace = GrowingTrace.of(samples.path("skewed"), tmp_path / "live.trace")
    store, stop = folder / "live.pag", threading.Event()
    options = {"alerts": "docs/examples/alerts.toml", "stop": stop, "commit_every_s": 0.0}
    follower = threading.Thread(target=api.follow, args=(trace.path, store), kwargs=options)
    count = "Number(document.querySelector('#epochs').dataset.epochs)"
    trace.write_until(3)
    follower.start()
    try:
        while not (store / "epochs" / "_delta_log").exists():
            time.sleep(0.05)
        show(page, f"run?store={store_of(library, 'live.pag')}")
        look_at_what_goes_on(page, tmp_path)
        show(page, f"run?store={store_of(library, 'live.pag')}")
        page.evaluate("document.querySelector('main').firstElementChild.dataset.same = 'yes'")
        for epoch in (5, 7):
            before = page.evaluate(count)
            trace.write_until(epoch)
            page.until(f"{count} > {before}", "closed epochs")
        page.until("document.querySelector('#ongoing h2')?.innerText.includes('goes on')", "what goes on")
        told = page.evaluate("document.querySelector('#ongoing').innerText")
        for words in ("It waits for worker", "holds the frontier", "behind", "decided to"):
            assert words in told
        page.until("Number(document.querySelector('#alerts').dataset.open) > 0", "alerts")
        # The report says of a run that goes on what it says of one that has ended.
        page.until("document.querySelector('#why .cause')?.innerText.includes('the data is skewed')", "cause")
        picture(page, "live", tmp_path)
        trace.finish()
        page.until("document.querySelector('#ongoing h2').innerText === 'The run has ended'", "the end")
        page.until(f"{count} === 11", "all epochs")
    finally:
        stop.set()
        follower.join()
    rows = {row["id"]: row["event"] for row in api.alerts(store).to_pylist()}
    open_ones = sum(event == "opened" for event in rows.values())
    page.until(f"document.querySelector('#alerts').dataset.open === '{open_ones}'", "resolved alerts")
    assert page.evaluate("document.querySelector('#alerts').innerText").count("resolved in") == len(rows) - open_ones
    # Nothing was drawn anew: columns were added to the page that there was.
    assert page.evaluate("document.querySelector('main').firstElementChild.dataset.same") == "yes"


def test_an_epoch_that_was_open_is_drawn_anew(page: Chromium, library: Library, folder: Path, tmp_path: Path) -> None:
    """A follower that heard nothing for a while left it as far as it went; its column stayed when another went on."""
    trace, store = GrowingTrace(rounds(4), tmp_path / "paused.trace"), folder / "paused.pag"
    trace.write(0, 10)
    trace.write(1, 9)
    api.follow(trace.path, store, until="idle:20ms")
    show(page, f"run?store={store_of(library, 'paused.pag')}")
    page.evaluate("document.querySelector('main').firstElementChild.dataset.same = 'yes'")
    trace.finish()
    api.follow(trace.path, store)
    page.until("document.querySelector('main').firstElementChild?.dataset.same !== 'yes'", "a page that is drawn anew")
    page.until(f"document.getElementById('news').innerText === '{api.open(store).epochs.height} epochs'", "news")


def look_at_what_goes_on(page: Chromium, tmp_path: Path) -> None:
    """Open the lanes at the end of a run that goes on: pale behind its closed epochs, and marked."""
    click(page, "#open-ongoing")
    page.until(f"{PAGE} === 'window'", "lanes")
    page.until("document.querySelector('#lanes').dataset.ongoing", "what goes on")
    page.until("document.querySelector('#legend').innerText.includes('goes on')", "legend")
    counted = (
        "(() => { const canvas = document.querySelector('#lanes'); const [left, width] = [canvas.width - 200, 180];"
        " const { data } = canvas.getContext('2d').getImageData(left, 22, width, 18);"
        " return new Set([...data.keys()].filter((place) => place % 4 === 0)"
        ".map((place) => data.slice(place, place + 3).join())).size; })()"
    )
    # On the right of the closed epochs there is more than the ground and the lines of the axis.
    assert page.evaluate(counted) > 2
    picture(page, "ongoing", tmp_path)


def test_a_spark_application_is_answered_as_by_the_command(page: Chromium, library: Library, tmp_path: Path) -> None:
    log = log_of(library, SPARK_LOG)
    show(page, "runs")
    click(page, "[aria-label='Spark applications'] tr.pick")
    page.until(f"{PAGE} === 'spark' && location.hash.includes('{log}')", "application")
    told = answer(find_logs(SPARK_LOG)[0]).facts()
    first = told["causes"][0]
    assert page.evaluate("document.querySelector('#verdict').innerText").startswith(first["title"])
    assert page.evaluate("document.querySelectorAll('#causes > li').length") == len(told["causes"])
    assert page.evaluate("document.querySelectorAll('#timeline svg rect').length") > 10
    for label, expected in (
        ("The path by stage", [row["path_ns"] for row in told["path"]["by_stage"][:30]]),
        ("Plan nodes", [row[name] for row in told["plan_nodes"][:30] for name in ("path_ns", "task_ns")]),
    ):
        cells = f"[...document.querySelectorAll('[aria-label=\"{label}\"] [data-ns]')]"
        assert page.evaluate(f"{cells}.map((cell) => Number(cell.dataset.ns))") == expected
    picture(page, "spark", tmp_path)
    # Its graph has the pages that every run has, for the same numbers.
    answer(find_logs(SPARK_LOG)[0], folder=tmp_path / "results")
    own = api.open(tmp_path / "results" / "pag")
    click(page, "#open-panels")
    page.until(f"{PAGE} === 'panels'", "analyses")
    for name in ("profile", "traffic"):
        show(page, f"panels?store={log}&name={name}")
        page.until("document.querySelector('#answer table') !== null", "rows")
        result = own.analyse(name)
        rows = table_of(result).slice(0, 200).to_pylist()
        cells = "[...document.querySelectorAll('#answer [data-ns]')].map((cell) => Number(cell.dataset.ns))"
        columns = page.evaluate("[...document.querySelectorAll('#answer th')].map((cell) => cell.innerText)")
        times = [row[column] for row in rows for column in columns if column.endswith("_ns")]
        assert page.evaluate(cells) == [value for value in times if value is not None]
    show(page, f"window?store={log}")
    page.until("document.querySelector('#lanes').dataset.drawn > 0", "drawn lanes")
    assert "pag spark skewed-key.zstd --out" in page.evaluate(
        "document.querySelector('pre[data-surface=CLI]').innerText"
    )
    click(page, "#where a[href*=spark]")
    page.until(f"{PAGE} === 'spark'", "application")


def test_a_page_of_a_long_run_stays_small(page: Chromium, library: Library, folder: Path, tmp_path: Path) -> None:
    """With ``PAG_PROVE=1`` over 10,000 epochs: browser and server grow by the epochs that they know, and no more."""
    count, portions = (10_000, 20) if PROVE else (80, 4)
    trace, store, stop = GrowingTrace(rounds(count), tmp_path / "long.trace"), folder / "long.pag", threading.Event()
    options = {"stop": stop, "commit_every_s": 0.0}
    follower = threading.Thread(target=api.follow, args=(trace.path, store), kwargs=options)
    shown = "Number(document.querySelector('#epochs').dataset.epochs)"
    trace.write_until(count // portions)
    follower.start()
    heaps, residents, counts = [], [], []
    try:
        while not (store / "epochs" / "_delta_log").exists():
            time.sleep(0.05)
        show(page, f"run?store={store_of(library, 'long.pag')}")
        for portion in range(1, portions):
            trace.write_until((portion + 1) * count // portions)
            page.until(f"{shown} >= {(portion + 1) * count // portions - 2}", "closed epochs")
            page.call("HeapProfiler.collectGarbage")
            heaps.append(page.call("Runtime.getHeapUsage")["usedSize"])
            residents.append(resident())
            counts.append(page.counts("nodes", "jsEventListeners"))
            print(  # noqa: T201
                f"{page.evaluate(shown):,} epochs: heap {heaps[-1] / 1e6:.1f} MB, server {residents[-1] / 1e6:.0f} MB,"
                f" {counts[-1][0]} nodes, {counts[-1][1]} listeners"
            )
        trace.finish()
        page.until("document.querySelector('#ongoing h2').innerText === 'The run has ended'", "the end")
        # What is drawn of the epochs comes in an answer of its own.
        page.until(f"{shown} >= {count}", "all epochs")
    finally:
        stop.set()
        follower.join()
    # A column for each pixel at most, and no more elements and listeners than at first.
    assert page.evaluate("document.querySelectorAll('*').length") < 500
    assert all(last <= 1.2 * first + 100 for first, last in zip(counts[0], counts[-1], strict=True)), counts
    epochs = count * (portions - 2) // portions
    assert heaps[-1] - heaps[0] < 4e6 + 1_000 * epochs, heaps
    if PROVE:
        # The second half takes nothing that the first did not, but for the epochs themselves.
        assert residents[-1] - residents[len(residents) // 2] < 150e6, residents


def test_names_that_mean_harm_are_text(page: Chromium, library: Library) -> None:
    store = store_of(library, HOSTILE_STORE)
    pages = ("runs?", "run?", "window?epoch=4&", "panels?name=profile&epoch=4&", "what-if?epoch=4&", "compare?epoch=4&")
    for address in (*pages, "motif?epoch=4&pattern=late_sender&"):
        show(page, f"{address}store={store}")
        if not address.startswith("run"):
            # The report of a run leaves out statements that are longer than its page.
            page.until("document.querySelector('main').innerText.includes('script')", "hostile name")
        check_that_it_is_text(page)


def check_that_it_is_text(page: Chromium) -> None:
    assert page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0
    assert page.evaluate("document.title").startswith("pag: ")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not page.evaluate(r"/[\u0000-\u0008\u001b\u202e]/.test(document.body.innerText + document.title)")


def test_names_of_an_event_log_that_mean_harm_are_text(page: Chromium, library: Library, hostile_log: Path) -> None:
    log = log_of(library, hostile_log)
    for address in (f"spark?log={log}", f"run?store={log}", f"window?store={log}", f"panels?name=profile&store={log}"):
        show(page, address)
        page.until("document.querySelector('main').innerText.includes('script')", "hostile name")
        check_that_it_is_text(page)
    show(page, f"spark?log={log}")
    assert page.evaluate("document.querySelectorAll('#timeline svg rect').length") > 10
    assert page.evaluate("document.documentElement.outerHTML.length") < 1e6


def test_a_page_that_was_left_draws_nothing(page: Chromium, library: Library) -> None:
    """The answer for a page comes when another one is there already."""
    show(page, "runs")
    page.evaluate(
        "(() => { const ask = window.fetch; window.late = 0; window.fetch = async (address, ...more) => {"
        " if (address.includes('/epochs')) { await new Promise((go) => setTimeout(go, 600)); window.late += 1; }"
        " return ask(address, ...more); }; })()"
    )
    page.evaluate(f"location.hash = '#/run?store={store_of(library, 'skewed.pag')}'")
    # It says that it is under way.
    page.until("getComputedStyle(document.querySelector('main'), '::before').visibility === 'visible'", "sign of work")
    page.evaluate("location.hash = '#/runs?'")
    page.until("window.late === 1", "late answer")
    time.sleep(0.3)
    assert page.evaluate(PAGE) == "runs"
    assert page.evaluate("document.title") == "pag: runs"
    assert page.evaluate("document.querySelector('#epochs')") is None
    page.call("Page.reload")
    page.until(f"document.getElementById('main') && {PAGE} === 'runs'", "list of runs")


def test_what_an_address_says_wrong_is_said(page: Chromium, library: Library) -> None:
    store = store_of(library, "skewed.pag")
    for address, words in (
        (f"run?store={store}&epoch=99", "has no epoch 99"),
        (f"panels?store={store}&epoch=4&name=nothing", "nothing cannot be asked here"),
    ):
        page.evaluate(f"{PAGE} = ''; location.hash = {json.dumps('#/' + address)}")
        page.until(f"{PAGE} === 'error'", "error")
        assert words in page.evaluate("document.querySelector('main .error').innerText")
    page.evaluate("document.querySelector('#again').dataset.old = 'yes'")
    click(page, "#again")
    page.until("document.querySelector('#again:not([data-old])') !== null", "the same again")
    show(page, "runs")


def test_a_commit_is_shown_while_the_page_is_open(page: Chromium, library: Library, folder: Path) -> None:
    api.build(samples.path("skewed"), folder / "replaced.pag", engine="local")
    show(page, f"run?store={store_of(library, 'replaced.pag')}")
    page.evaluate("document.getElementById('main').dataset.page = ''")
    api.build(samples.path("bfs"), folder / "replaced.pag", engine="local", mode="replace")
    epochs = api.open(folder / "replaced.pag").run.epochs.height
    page.until(f"document.getElementById('news').innerText === '{epochs} epochs'", "news")
    page.until(f"{PAGE} === 'run' && document.querySelector('#facts').innerText.includes('2 workers')", "new state")


def test_a_store_that_is_built_anew_is_shown_while_the_page_is_open(
    page: Chromium, library: Library, folder: Path
) -> None:
    """A store with the same run and version was taken for the one that was there before; its page stayed as it was."""
    trace, store = folder / "anew.trace", folder / "anew.pag"
    for rounds_done, log in enumerate(
        ("0 start 1 | 5 stop 1 | 9 end", "0 start 1 | 5 stop 1 | 9 end | 12 end | 15 end")
    ):
        shutil.rmtree(store, ignore_errors=True)
        if rounds_done:
            # Longer than it takes to look again: meanwhile there is no such run.
            time.sleep(3 * LOOK_S)
        shutil.rmtree(trace, ignore_errors=True)
        draw(log).write(trace)
        api.build(trace, store, engine="local")
        run = api.open(store).run
        if not rounds_done:
            before = run.info.run["run_id"], run.info.versions["epochs"]
            show(page, f"run?store={store_of(library, 'anew.pag')}")
        assert (run.info.run["run_id"], run.info.versions["epochs"]) == before
        page.until(f"document.getElementById('news').innerText === '{run.epochs.height} epochs'", "news")
        page.until(f"document.querySelector('#facts')?.innerText.includes(', {run.epochs.height} epochs')", "state")
        # What is asked of a store while it is removed fails.
        page.until("/^(?!Asking)./.test(document.querySelector('#why')?.innerText ?? '')", "answer why")
    assert run.epochs.height > 1
