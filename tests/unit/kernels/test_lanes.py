"""What is drawn of lanes: nothing is lost, nothing is invented, and no pixel is crowded."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels import lanes
from pag_graph.kernels.lanes import Activities, View, draw_lanes


@st.composite
def drawn_lanes(draw: st.DrawFn) -> tuple[list[list[tuple[int, int, int]]], View]:
    """Draw activities (start, end, kind) of some workers, and a view."""
    workers = []
    for _ in range(draw(st.integers(1, 3))):
        time, own = 0, []
        for _ in range(draw(st.integers(0, 25))):
            time += draw(st.sampled_from([0, 0, 0, 1, 7, 40]))
            end = time + draw(st.sampled_from([0, 1, 2, 3, 10, 100]))
            own.append((time, end, draw(st.integers(0, 4))))
            time = end
        workers.append(own)
    begin = draw(st.integers(0, 200))
    return workers, View(begin, begin + draw(st.integers(1, 500)), draw(st.integers(1, 60)))


def boxes_of(workers: list[list[tuple[int, int, int]]], view: View) -> np.ndarray:
    first = np.cumsum([0, *(len(own) for own in workers)])
    rows = np.array([row for own in workers for row in own], np.int64).reshape(-1, 3)
    activities = Activities(
        first.astype(np.int64),
        rows[:, 0].copy(),
        rows[:, 1].copy(),
        rows[:, 2].astype(np.uint8),
        np.arange(len(rows), dtype=np.int32),
    )
    boxes = np.zeros((len(workers) * (view.pixels + 1) * 3, 7), np.int64)
    return boxes[: draw_lanes(activities, view, boxes)]


@given(drawn_lanes())
def test_boxes_hold_every_activity_of_the_view_once(drawn: tuple[list[list[tuple[int, int, int]]], View]) -> None:
    workers, view = drawn
    boxes = boxes_of(workers, view)
    row = 0
    for worker, own in enumerate(workers):
        shown = []
        for start, end, kind in own:
            if max(start, view.begin) < min(end, view.end):
                shown.append((max(start, view.begin), min(end, view.end), kind, row))
            row += 1
        of_worker = boxes[boxes[:, lanes.WORKER] == worker]
        # In order, apart from each other, and each over exactly the activities that it stands for.
        assert (of_worker[1:, lanes.BEGIN] >= of_worker[:-1, lanes.END]).all()
        place = 0
        for box in of_worker:
            part = shown[place : place + box[lanes.COUNT]]
            place += box[lanes.COUNT]
            assert (part[0][0], part[-1][1]) == (box[lanes.BEGIN], box[lanes.END])
            time = dict.fromkeys((kind for _, _, kind, _ in part), 0)
            for begin, end, kind, _ in part:
                time[kind] += end - begin
            assert time[box[lanes.KIND]] == max(time.values())
            assert box[lanes.ROW] == (part[0][3] if len(part) == 1 else -1)
        assert place == len(shown)


@given(drawn_lanes())
def test_few_boxes_touch_a_pixel(drawn: tuple[list[list[tuple[int, int, int]]], View]) -> None:
    workers, view = drawn
    boxes = boxes_of(workers, view)
    span = view.end - view.begin
    for worker in range(len(workers)):
        own = boxes[boxes[:, lanes.WORKER] == worker]
        for pixel in range(view.pixels):
            low, high = view.begin + pixel * span / view.pixels, view.begin + (pixel + 1) * span / view.pixels
            assert ((own[:, lanes.BEGIN] < high) & (own[:, lanes.END] > low)).sum() <= lanes.PER_PIXEL


def test_what_is_wide_has_a_box_of_its_own_in_a_view_of_months() -> None:
    months_ns = 100 * 86_400 * 10**9
    boxes = boxes_of([[(0, 10, 3), (10, months_ns, 1)]], View(begin=0, end=months_ns, pixels=4000))
    assert boxes[:, [lanes.BEGIN, lanes.END, lanes.ROW]].tolist() == [[0, 10, 0], [10, months_ns, 1]]
