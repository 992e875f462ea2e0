"""What is removed of a followed run, by the definition: row by row, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import os
from itertools import pairwise
from threading import Condition, current_thread, main_thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pag_graph import api, samples
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.view import View
from pag_graph.api.standing import standings
from pag_graph.builder.commit import commit_removal
from pag_graph.builder.follow import Follower
from pag_graph.engines.following import Following, Until
from pag_graph.errors import InvalidParameterError, StoreError, UnsupportedPlanError
from pag_graph.graph.run import Run
from pag_graph.model.enums import RuleSet
from pag_graph.store import compaction, cut_segments, retention
from pag_graph.store.check import check_store
from pag_graph.store.compaction import Compaction
from pag_graph.store.delta import LIVE, open_store
from pag_graph.store.delta_log import versions
from pag_graph.store.fresh import rows_of_files
from pag_graph.store.leftovers import vacuum
from pag_graph.store.needed import EpochsNeeded, first_needed
from pag_graph.store.remembered import Remembered
from pag_graph.store.retention import Keep, Retention, removal
from pag_graph.store.tail import Tail
from pag_graph.testing.traces import draw
from tests.support.growing import GrowingTrace, late_reads, rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

    from pag_graph.store.delta import StoreInfo
    from pag_graph.store.fresh import Fresh
    from pag_graph.store.parts import PartFile
    from pag_graph.store.retention import Removal
    from pag_graph.testing.traces import SmallTrace

PROVE = os.environ.get("PAG_PROVE") == "1"
QUERIES = ("critical-path", "metrics", "invariants")


def follow(
    trace: SmallTrace,
    place: Path,
    keep: Keep,
    *,
    tidy: bool = False,
    restart: int = 0,
    queries: tuple[str, ...] = (),
) -> StoreInfo:
    """Follow a trace epoch by epoch, and start again after so many epochs."""
    growing, store = GrowingTrace(trace, place / "trace"), place / "store"
    derive = standings(queries, (), forgets=True)
    follower, tail = Follower(store, derive=derive), Tail(place / "trace")
    count = 1 + max(event.epoch for log in trace.events for event in log)
    for epoch in range(count):
        growing.write_until(epoch)
        if epoch == count - 1:
            growing.finish()
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        last = epoch == count - 1
        if follower.advance(tail.trace(), log, show=last) or last:
            follower.commit()
            if follower.remove(keep, exactly=last) is not None and tidy:
                vacuum(store, forget=True)
        tail.forget(follower.done)
        if restart and epoch % restart == restart - 1:
            follower.close()
            follower = Follower(store, open_store(store), derive=derive)
            tail = Tail(place / "trace", follower.done)
    follower.close()
    return open_store(store)


def rows(info: StoreInfo, table: str) -> list[dict[str, Any]]:
    return info.scan(table).collect().to_dicts()


def texts(found: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, found))


def test_a_follower_commits_while_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, news, newest, seen = Follower.commit, Condition(), [0], list[bool]()

    def committed(follower: Follower) -> Any:
        info, closed = commit(follower)
        with news:
            newest[0] = info.versions["epochs"]
            news.notify_all()
        return info, closed

    def written(info: StoreInfo, first: int, *more: Any) -> Removal:
        if current_thread() is not main_thread():
            with news:
                seen.append(news.wait_for(lambda: newest[0] > info.versions["epochs"], 20))
        return removal(info, first, *more)

    monkeypatch.setattr(Follower, "commit", committed)
    monkeypatch.setattr(retention, "removal", written)
    kept = follow(rounds(48), tmp_path, Keep(epochs=4), tidy=True)
    # How often is a matter of how busy the machine is.
    assert seen
    assert all(seen)
    assert len(rows(kept, "epochs")) <= 5
    assert not check_store(kept).damaged


def test_what_another_process_has_to_read_stays_up_to_a_bound(tmp_path: Path) -> None:
    growing, store = GrowingTrace(rounds(40), tmp_path / "trace"), tmp_path / "store"

    def kept_at(epoch: int) -> list[int]:
        growing.write_until(epoch)
        done = Following(growing.path, store, commit_every_s=0, until=Until(idle_s=0.0), keep=Keep(epochs=4)).run()
        assert done.store is not None
        last = int(done.store.run["last_answered_epoch"])
        return sorted(row["epoch"] - last for row in rows(done.store, "epochs") if row["epoch"] <= last)

    latest = [-3, -2, -1, 0]
    assert kept_at(6) == latest
    with EpochsNeeded(store) as needed:
        # It has not said from where on: all of them stay, up to twice as many as are kept.
        assert kept_at(9) == [*range(-6, 1)]
        assert kept_at(20) == [*range(-7, 1)]
        needed.since(16)
        assert kept_at(21) == [*range(16 - 20, 1)]
        needed.since(1_000)
        assert kept_at(22) == latest
        needed.since(0)
        # Another one, that needs less.
        with EpochsNeeded(store) as other:
            other.since(1_000)
            assert len(kept_at(24)) > len(latest)
    assert kept_at(25) == latest
    # What a process that was killed has left holds nothing, and goes.
    left = store / LIVE / "needed" / "left"
    left.mkdir()
    (left / "since").write_text("0")
    assert kept_at(30) == latest
    assert not [*left.parent.iterdir()]


def test_without_locks_nobody_says_what_it_has_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / LIVE).mkdir()
    monkeypatch.setattr(fcntl, "flock", flock)
    with EpochsNeeded(tmp_path) as needed:
        needed.since(4)
        assert first_needed(tmp_path) is None
    assert not [*(tmp_path / LIVE / "needed").iterdir()]


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError])
def test_who_lacks_the_memory_to_remove_epochs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[MemoryError]
) -> None:
    kept = follow(rounds(12), tmp_path, Keep())
    before = {path for path in kept.path.rglob("*") if path.is_file()}
    work, refusals = retention.write_part, [False, True]

    def sometimes(*arguments: Any, **options: Any) -> Any:
        if refusals.pop(0):
            raise error
        return work(*arguments, **options)

    monkeypatch.setattr(retention, "write_part", sometimes)
    with pytest.raises(StoreError, match=r"To remove the epochs before 7 .* takes more memory than there is"):
        removal(kept, 7)
    assert not refusals
    assert {path for path in kept.path.rglob("*") if path.is_file()} == before


def test_files_of_which_all_goes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FILES", 1_000)
    growing = GrowingTrace(rounds(40), tmp_path / "trace")
    follower, tail = Follower(tmp_path / "store"), Tail(tmp_path / "trace")
    for epoch in range(40):
        growing.write_until(epoch)
        tail.look(now_ns=0)
        log = tail.log()
        assert log is not None
        if follower.advance(tail.trace(), log):
            follower.commit()
    info = follower.store
    assert info is not None
    follower.close()
    read: list[tuple[str, str]] = []

    def reader(asks: str) -> Callable[[Path, list[PartFile], Fresh | None], pl.LazyFrame]:
        def frames(folder: Path, parts: list[PartFile], fresh: Fresh | None) -> pl.LazyFrame:
            read.extend((asks, folder.name) for _ in parts)
            return rows_of_files(folder, parts, fresh)

        return frames

    for module in (retention, cut_segments):
        monkeypatch.setattr(module, "rows_of_files", reader(module.__name__))
    gone = removal(info, 30)
    # A file per commit; the window of the first epoch that stays opens in one or two of them, and so do segments.
    for table in ("vertices", "edges"):
        assert len(gone.swaps[table].removed) >= 28
        assert 0 < read.count((retention.__name__, table)) <= 6, table
    assert 0 < read.count((cut_segments.__name__, "edges")) <= 6


def test_what_was_written_for_files_that_are_gone_is_written_again(tmp_path: Path) -> None:
    follow(rounds(24), tmp_path, Keep())
    before, files = open_store(tmp_path / "store"), Compaction(tmp_path / "store")
    removals = Retention(files)
    assert removals.ready(before, Keep(epochs=4)) is None
    now = commit_removal(before, removal(before, 12))
    files.beside(int).result()
    gone = removals.ready(now, Keep(epochs=4))
    assert gone is not None
    kept = commit_removal(now, gone)
    files.close()
    # The shutdown comes beside them.
    assert len(rows(kept, "epochs")) == 5
    assert not check_store(kept).damaged
    # Nothing is left of what was written first.
    vacuum(tmp_path / "store")
    for table in ("vertices", "edges", "epochs"):
        assert {file.name for file in (tmp_path / "store" / table).glob("*.parquet")} == set(kept.table(table).files)


def later(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Let removals take so long that they are found to be written when they have been asked for so many times."""
    ready, left = Retention.ready, [0]

    def asked(self: Retention, info: StoreInfo, keep: Keep, *, exactly: bool = False) -> Removal | None:
        begun, left[0] = self._begun, left[0] - 1
        if begun is not None and not exactly:
            if left[0] > 0:
                return None
            begun.work.result()
        gone = ready(self, info, keep, exactly=exactly)
        if begun is None:
            left[0] = calls
        return gone

    monkeypatch.setattr(Retention, "ready", asked)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("sent", "read"), [(1, 3), (7, 10), (2, 11)])
@pytest.mark.parametrize(("calls", "restart"), [(1, 5), (3, 0)])
def test_what_stays_is_what_the_kept_windows_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int, read: int, calls: int, restart: int
) -> None:
    trace = late_reads(12, sent=sent, read=read)
    later(monkeypatch, calls)
    kept = follow(trace, tmp_path, Keep(epochs=4), restart=restart, queries=QUERIES)
    api.build(tmp_path / "trace", tmp_path / "whole", engine="local", queries=QUERIES)
    whole = open_store(tmp_path / "whole")
    epochs = sorted(rows(whole, "epochs"), key=lambda row: row["epoch"])
    answered = [row for row in epochs if row["epoch"] <= whole.run["last_answered_epoch"]]
    first = answered[-4]["epoch"]
    opens_ns = answered[-4]["start_ns"]
    edges = [
        row
        for row in rows(whole, "edges")
        if row["epoch"] >= first or row["start_ns"] + max(row["duration_ns"], 0) > opens_ns
    ]
    ends = {row[name] for row in edges for name in ("src", "dst")}
    vertices = [
        row for row in rows(whole, "vertices") if row["epoch"] >= first or row["t_ns"] > opens_ns or row["id"] in ends
    ]
    assert texts(rows(kept, "edges")) == texts(edges)
    assert texts(rows(kept, "vertices")) == texts(vertices)
    for name in ("epochs", "traffic"):
        assert texts(rows(kept, name)) == texts([row for row in rows(whole, name) if row["epoch"] >= first])
    assert kept.removed == (len(epochs) - len(rows(kept, "epochs")), first - 1, opens_ns)
    assert kept.run["closed_fingerprint"] == whole.run["closed_fingerprint"]
    assert not check_store(kept).damaged
    # Windows are answered as if all were there.
    of_kept, of_whole = api.open(tmp_path / "store"), api.open(tmp_path / "whole")
    for name in ("critical-path", "metrics", "slack"):
        table = of_whole.each(name).to_pylist()
        assert of_kept.each(name).to_pylist() == [row for row in table if row["epoch"] >= first], name
    for before, after in pairwise(of_kept.run.windows()):
        assert before.end_ns == after.start_ns
    # So are standing queries, by the changes that are left.
    for name in ("critical-path", "metrics"):
        assert summed(kept, name) == {row: n for row, n in summed(whole, name).items() if row[0] >= first}


@pytest.mark.parametrize(("calls", "restart"), [(1, 0), (3, 0), (1, 4)])
def test_who_sent_what_is_read_when_its_epoch_is_gone_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, restart: int
) -> None:
    """The epoch is answered a second later, whoever has still to read: the edge came, and one of its ends was gone."""
    later(monkeypatch, calls)
    kept = follow(late_reads(12, sent=3, read=11, length=300_000_000), tmp_path, Keep(epochs=2), restart=restart)
    api.build(tmp_path / "trace", tmp_path / "whole", engine="local")
    assert kept.removed is not None
    assert kept.removed.last_epoch >= 8
    there = {row["id"] for row in rows(kept, "vertices")}
    assert all({row["src"], row["dst"]} <= there for row in rows(kept, "edges"))
    of_kept, of_whole = (
        api.open(tmp_path / name).motif(
            "(s)-[m]->(z)", "m.type = 'data_message'", epochs=[11], columns=["s.worker", "s.t_ns", "z.worker"]
        )
        for name in ("store", "whole")
    )
    assert of_kept.table() == of_whole.table()
    assert of_kept.table().num_rows == 1


def test_a_message_that_nobody_reads_keeps_its_sender_only_until_the_run_is_complete(tmp_path: Path) -> None:
    kept = follow(late_reads(12, sent=3, read=None, length=300_000_000), tmp_path, Keep(epochs=2))
    assert all(row["kind"] != "send" for row in rows(kept, "vertices"))


def summed(info: StoreInfo, query: str) -> dict[tuple[int, str], int]:
    """Add up the changes of a query."""
    sums: dict[tuple[int, str], int] = {}
    for change in rows(info, "changes"):
        if change["query"] == query:
            key = change["epoch"], change["row"]
            sums[key] = sums.get(key, 0) + change["diff"]
    return {key: count for key, count in sums.items() if count}


def test_removed_epochs_that_workers_left_late_count_in_the_windows_that_stay(tmp_path: Path) -> None:
    Following(samples.path("skewed"), tmp_path / "kept", keep=Keep(epochs=6)).run()
    api.build(samples.path("skewed"), tmp_path / "whole", engine="local")
    kept, whole = (Run(tmp_path / name) for name in ("kept", "whole"))
    removed = kept.info.removed
    assert removed is not None
    left_late = whole.epochs.filter(whole.epochs["epoch"] == removed.last_epoch)["exit_ns"][0]
    assert left_late > kept.begin_ns
    for window in kept.windows():
        path = critical_path(View(run=kept, windows=[window]))
        assert path.length_ns == window.span_ns
        assert path.steps == critical_path(View(run=whole, windows=whole.windows([window.epoch or 0]))).steps


def test_which_channels_exchange_data_is_said_by_the_whole_run(tmp_path: Path) -> None:
    Following(samples.path("bfs"), tmp_path / "kept", keep=Keep(epochs=2)).run()
    api.build(samples.path("bfs"), tmp_path / "whole", engine="local")
    kept, whole = (api.open(tmp_path / name) for name in ("kept", "whole"))
    assert kept.run.info.removed is not None
    rows_of_whole = whole.each("advise-ports").to_pylist()
    stay = set(kept.run.epochs["epoch"])
    assert kept.each("advise-ports").to_pylist() == [row for row in rows_of_whole if row["epoch"] in stay]


def test_what_rescaling_did_is_not_said_without_what_went_before(tmp_path: Path) -> None:
    """Of 60 epochs that were left, one operation lost the mark that asked for it: it took 16 ms less than it did."""
    Following(samples.path("elastic"), tmp_path / "kept", keep=Keep(epochs=60)).run()
    api.build(samples.path("elastic"), tmp_path / "whole", engine="local")
    assert api.rescale(tmp_path / "whole").table.num_rows
    with pytest.raises(UnsupportedPlanError, match=r"its epochs up to \d+ were removed by its follower"):
        api.rescale(tmp_path / "kept")


def taking_turns(count: int) -> SmallTrace:
    """Two workers that ran both operators in the first rounds, and one each since; a third one does something else."""
    logs: list[list[str]] = [[], [], []]
    for number in range(count):
        t = 20 * number
        for worker, log in enumerate(logs):
            operator = 3 if worker == 2 else 1 + (worker + (number < 2) * number) % 2
            log.append(f"{t} start {operator} =processing *{5 + worker * number} | {t + 5 + worker} stop {operator}")
            log.append(f"{t + 5 + worker} start 4 =idle | {t + 20} stop 4 | {t + 20} end")
    return draw(*(" | ".join(log) for log in logs), rules=RuleSet.STATED)


@pytest.mark.parametrize("restart", [0, 3])
def test_who_can_be_compared_is_said_by_the_whole_run(tmp_path: Path, restart: int) -> None:
    kept = follow(taking_turns(12), tmp_path, Keep(epochs=2), tidy=True, restart=restart)
    api.build(tmp_path / "trace", tmp_path / "whole", engine="local")
    of_kept, of_whole = api.open(tmp_path / "store"), api.open(tmp_path / "whole")
    assert kept.removed is not None
    assert of_kept.run.peers == of_whole.run.peers == {0: 0, 1: 0, 2: 2}
    for name in ("skew", "stragglers"):
        table = of_whole.each(name).to_pylist()
        assert of_kept.each(name).to_pylist() == [row for row in table if row["epoch"] > kept.removed.last_epoch], name
    assert not check_store(kept).damaged
    # Of what was remembered before nothing is left, and the last of it stays.
    vacuum(tmp_path / "store", forget=True)
    assert api.open(tmp_path / "store").run.peers == of_whole.run.peers
    names = {file.name for file in (tmp_path / "store" / "epochs").glob("sends-*")}
    assert names == set(Remembered.of(open_store(tmp_path / "store")).files)


def nested_over_rounds(count: int) -> SmallTrace:
    """Activities that nest, over ends of rounds as well, or all the time; one is outermost in the first round only."""
    log = ["0 start 2 =processing | 10 stop 2"]
    for number in range(count):
        t = 20 * number
        if number % 5 == 0:
            log.append(
                f"{t + 10} stop 4 | " * (number > 0) + f"{t + 10} start 1 =processing | {t + 11} start 3 =processing"
            )
        log.append(f"{t + 12} start 2 =processing | {t + 15} stop 2 | {t + 15} start 1 =io | {t + 17} stop 1")
        if number % 5 == 4:
            log.append(f"{t + 18} stop 3 | {t + 19} stop 1 | {t + 19} start 4 =idle")
        log.append(f"{t + 20} end")
    rests = "0 start 5 =processing | 0 start 4 =idle"
    for number in range(1, count + 1):
        rests += f" | {20 * number} end | {20 * number} stop 4" + f" | {20 * number} start 4 =idle" * (number < count)
    return draw(" | ".join(log), f"{rests} | {20 * count} stop 5", rules=RuleSet.STATED)


@pytest.mark.parametrize(("epochs", "restart"), [(1, 0), (2, 0), (3, 6), (4, 8)])
def test_activities_that_began_in_removed_epochs_still_lie_around_others(
    tmp_path: Path, epochs: int, restart: int
) -> None:
    kept = follow(nested_over_rounds(18), tmp_path, Keep(epochs=epochs), tidy=True, restart=restart)
    api.build(tmp_path / "trace", tmp_path / "whole", engine="local")
    assert kept.removed is not None
    table = api.open(tmp_path / "whole").each("advise-ports").to_pylist()
    of_kept = api.open(tmp_path / "store").each("advise-ports").to_pylist()
    assert of_kept == [row for row in table if row["epoch"] > kept.removed.last_epoch]
    # Of what went no more stays than lies around them, and what the edges show that the window cuts.
    assert len([row for row in rows(kept, "vertices") if row["epoch"] <= kept.removed.last_epoch]) < 10


def test_the_origin_goes_with_a_first_round_that_has_no_length(tmp_path: Path) -> None:
    later = " | ".join(f"{10 * number} send 3>1 #{number} | {10 * number + 5} end" for number in range(1, 5))
    reads = " | ".join(f"{10 * number + 3} recv 3<0 #{number} | {10 * number + 9} end" for number in range(5))
    kept = follow(draw(f"0 end | 0 send 3>1 #0 | 5 end | {later}", reads), tmp_path, Keep(epochs=4))
    api.build(tmp_path / "trace", tmp_path / "whole", engine="local")
    assert kept.removed == (1, 0, 0)
    of_kept, of_whole = api.open(tmp_path / "store"), api.open(tmp_path / "whole")
    for name in ("traffic", "matrix", "participation", "metrics"):
        table = of_whole.each(name).to_pylist()
        assert of_kept.each(name).to_pylist() == [row for row in table if row["epoch"] > 0], name
        assert of_kept.analyse(name, epoch=1) == of_whole.analyse(name, epoch=1), name


def test_a_store_that_is_kept_small_stays_small(tmp_path: Path) -> None:
    sizes: dict[int, tuple[int, int]] = {}
    for count in (24, 160) if PROVE else (24, 70):
        place = tmp_path / str(count)
        place.mkdir()
        kept = follow(rounds(count), place, Keep(epochs=8), tidy=True)
        # The shutdown comes beside them.
        assert len(rows(kept, "epochs")) <= 9
        assert kept.removed is not None
        assert kept.removed.epochs >= count - 9
        assert not check_store(kept).damaged
        store = place / "store"
        files = [file for table in kept.versions for file in (store / table).glob("*.parquet")]
        entries = max(len(versions(store / table)) for table in kept.versions)
        sizes[count] = len(files), entries
    # Delta's logs go back to the checkpoint before: there is one after a hundred versions.
    assert all(files <= 60 and entries <= 110 for files, entries in sizes.values()), sizes


def test_who_asks_for_what_is_gone_is_told(tmp_path: Path) -> None:
    follow(rounds(12), tmp_path, Keep(epochs=3))
    run = api.open(tmp_path / "store").run
    with pytest.raises(InvalidParameterError, match=r"Those up to \d+ were removed"):
        run.window(epoch=1)
    with pytest.raises(InvalidParameterError, match=r"goes from [1-9]"):
        run.window(between=(0, run.end_ns))
    assert run.series(10)[0].start_ns == run.begin_ns > 0
    # What adds up all epochs cannot be had.
    with pytest.raises(UnsupportedPlanError, match="adds up all epochs"):
        standings(["totals"], (), forgets=True)


@pytest.mark.parametrize(("text", "keep"), [("all", Keep()), ("7", Keep(7)), ("1.5h", Keep(None, 5_400 * 10**9))])
def test_what_to_keep_is_read(text: str, keep: Keep) -> None:
    assert Keep.of(text) == keep


@pytest.mark.parametrize("text", ["", "0", "0s", "-3", "some", "3 epochs", "²", "9" * 19, "9" * 5000])
def test_what_keeps_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        Keep.of(text)


def test_a_time_is_the_time_of_the_run(tmp_path: Path) -> None:
    kept = follow(rounds(20), tmp_path, Keep(span_ns=100))
    ends = [row["end_ns"] for row in rows(kept, "epochs") if row["epoch"] <= kept.run["last_answered_epoch"]]
    assert max(ends) - min(ends) <= 100
    assert len(ends) >= 5
