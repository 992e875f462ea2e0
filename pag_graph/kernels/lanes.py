"""Activities of workers, drawn at the width of a screen: what is too narrow to be seen is summed up by pixel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pag_graph.kernels.compiling import kernel

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

KINDS = 32
"""More than there are types of edges."""
PER_PIXEL = 4
"""Most boxes of a lane that touch a pixel."""
# Columns of a box.
WORKER, BEGIN, END, KIND, OPERATOR, COUNT, ROW = range(7)


class Activities(NamedTuple):
    """Local edges, by worker and time; those of a worker do not overlap."""

    first: I64
    """Shape (workers + 1,): where the edges of each worker begin."""
    start: I64
    """Nanoseconds since the run's origin, as `end`; one element per edge."""
    end: I64
    kind: U8
    """Number of the edge's type, below `KINDS`."""
    operator: I32
    """-1 where there is none."""


class View(NamedTuple):
    """What is to be seen: a stretch of time, and how wide it is drawn."""

    begin: int
    """Nanoseconds since the run's origin, as `end`."""
    end: int
    """Exclusive."""
    pixels: int
    """Width of a lane."""


@kernel
def draw_lanes(activities: Activities, view: View, boxes: I64) -> int:
    """Draw the activities of every worker as boxes.

    Parameters
    ----------
    activities
        Of all workers.
    view
        At least one pixel and one nanosecond.
    boxes
        Shape (workers * (pixels + 1) * 3, 7); its first rows are written: place of the worker, begin, end, kind,
        operator (-1 where there is none, or several), number of activities, and the row of the activity, -1 where the
        box stands for several.

    Returns
    -------
    int
        Number of boxes, at most `PER_PIXEL` for any pixel of a lane. An activity that covers a whole pixel is a box of
        its own, cut at the view's ends. The others that begin in one pixel make one box, as wide as they reach; its
        kind is the one that takes most of their time.

    Notes
    -----
    O(activities in view).

    Examples
    --------
    Of 100 ns on ten pixels, the first activity is wide; two short ones follow in one pixel.

    >>> import numpy as np
    >>> start, end = np.array([0, 30, 33]), np.array([30, 33, 39])
    >>> kind, operator = np.array([1, 2, 3], np.uint8), np.array([5, 6, 7], np.int32)
    >>> boxes = np.zeros((33, 7), np.int64)
    >>> count = draw_lanes(Activities(np.array([0, 3]), start, end, kind, operator), View(0, 100, 10), boxes)
    >>> boxes[:count].tolist()
    [[0, 0, 30, 1, 5, 1, 0], [0, 30, 39, 3, -1, 2, -1]]
    """
    span = view.end - view.begin
    # Two pixels; not as a product of a time and pixels, which a view of two months would make too large.
    wide_ns = -(-2 * span // view.pixels)
    time = np.zeros(KINDS, np.int64)
    count = 0
    for worker in range(len(activities.first) - 1):
        low, high = activities.first[worker], activities.first[worker + 1]
        row = low + np.searchsorted(activities.end[low:high], view.begin, side="right")
        pixel, in_box, row_in_box, box_end, box_begin = -1, 0, -1, 0, 0
        while row <= high:
            is_end = row == high or activities.start[row] >= view.end
            begin, end, wide, place = 0, 0, False, -1
            if not is_end:
                begin, end = max(activities.start[row], view.begin), min(activities.end[row], view.end)
                place = int((begin - view.begin) / span * view.pixels)
                wide = end - begin >= wide_ns
            if in_box and (is_end or wide or place != pixel):
                best = np.argmax(time)
                boxes[count, WORKER], boxes[count, BEGIN], boxes[count, END] = worker, box_begin, box_end
                boxes[count, KIND], boxes[count, COUNT] = best, in_box
                boxes[count, ROW] = row_in_box if in_box == 1 else -1
                boxes[count, OPERATOR] = activities.operator[row_in_box] if in_box == 1 else -1
                count += 1
                time[:] = 0
                in_box = 0
            if is_end:
                break
            if wide:
                boxes[count, WORKER], boxes[count, BEGIN], boxes[count, END] = worker, begin, end
                boxes[count, KIND], boxes[count, OPERATOR] = activities.kind[row], activities.operator[row]
                boxes[count, COUNT], boxes[count, ROW] = 1, row
                count += 1
            elif end > begin:
                if not in_box:
                    box_begin = begin
                pixel, row_in_box, box_end = place, row, end
                time[activities.kind[row]] += end - begin
                in_box += 1
            row += 1
    return count
