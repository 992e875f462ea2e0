"""What a page in one file answers: the answers of the workbench to what its pages ask of some windows."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

from pag_graph.analyses import Scope, all_entries, find_analysis
from pag_graph.errors import InvalidParameterError
from pag_graph.workbench import answers, facts
from pag_graph.workbench.answers import HOPS, in_bytes
from pag_graph.workbench.library import Opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pag_graph.api import Pag

STORE = "run"
"""Name of the run in addresses of the file."""
PANELS = (
    "critical-path", "profile", "k-hops", "metrics", "matrix", "skew", "blame", "waits", "stragglers", "traffic",
    "imbalance", "profile-rounds", "invariants",
)  # fmt: skip
"""Analyses that a file holds unless others are chosen, of those that have a meaning for the run."""
MOST_EPOCHS = 50
MOST_BYTES = 5_000_000
"""A file may have."""
_PIXELS = (2_000, 16_000, 128_000, 1_000_000)
"""How wide lanes are drawn, as far as there is room: each level shows eight times as much."""
_PATH_PIXELS = 20_000
_MOST_BOXES = 2_000_000
_CLICKS = 400
"""Activities that can be clicked, at most, over all windows."""
_LARGEST_CSV = 200_000
_SHARE = 0.6
"""Of the room that the other answers leave, lanes take so much, and clicks what is left then."""


class Recording:
    """Answers for a page in one file.

    Parameters
    ----------
    pag
        A run with aligned clocks.
    epochs
        Whose windows it shows; the slowest round where there are none.
    panels
        Names of analyses; `PANELS` where there are none.
    room
        Bytes that its answers may take, packed.

    Raises
    ------
    InvalidParameterError
        If there is no such epoch, an analysis is unknown or is not one of windows or runs, or the answers do not fit.
    UnsupportedPlanError
        If the workers' clocks are not aligned, or a chosen analysis has no meaning for this run.
    """

    def __init__(self, pag: Pag, epochs: Sequence[int], panels: Sequence[str], room: int) -> None:
        self._opened = Opened(pag)
        self._room = room
        self.epochs = list(dict.fromkeys(epochs)) or [_slowest(pag)]
        if len(self.epochs) > MOST_EPOCHS:
            message = f"{len(self.epochs)} epochs: a page in one file shows {MOST_EPOCHS} at most."
            raise InvalidParameterError(message, "`pag serve` shows all.")
        self.panels = _checked(pag, panels)
        self._answers: dict[str, Any] = {}
        self._levels: list[dict[str, Any]] = []

    def packed(self) -> bytes:
        """Return the answers as compressed JSON, of at most the bytes that it was given."""
        self._record_run()
        for epoch in self.epochs:
            self._record_window(epoch)
        fixed = len(self._pack())
        if fixed > self._room:
            message = (
                f"The panels of {len(self.epochs)} epochs take {fixed / 1e6:,.1f} MB, more than the file may have."
            )
            raise InvalidParameterError(message, "Choose fewer epochs, or fewer panels.")
        free = self._room - fixed
        self._levels = [self._drawn(epoch, _SHARE * free / len(self.epochs)) for epoch in self.epochs]
        free = self._room - len(self._pack())
        while True:
            clicks = self._record_clicks(free)
            packed = self._pack()
            if len(packed) <= self._room or not clicks:
                return packed
            for key in clicks:
                del self._answers[key]
            free //= 2

    def _record_run(self) -> None:
        run_facts = facts.run_facts(self._opened)
        shown_analyses = [
            {**analysis, "parameters": []} for analysis in run_facts["analyses"] if analysis["name"] in self.panels
        ]
        self._answers[self._key("")] = {
            **run_facts,
            "analyses": shown_analyses,
            "cypher": {**run_facts["cypher"], "browser": None},
        }
        self._answers[self._key("/epochs")] = facts.epochs_answer(facts.epochs(self._opened))
        for name in self.panels:
            if find_analysis(name).scope is Scope.RUN:
                self._record_panel(name, {})

    def _record_window(self, epoch: int) -> None:
        chosen = {"epoch": epoch}
        self._answers[self._key("/why", chosen)] = answers.why(self._opened, chosen)
        self._answers[self._key("/path", chosen)] = answers.path(self._opened, chosen, None, _PATH_PIXELS)
        for name in self.panels:
            if find_analysis(name).scope is Scope.WINDOW:
                self._record_panel(name, chosen)

    def _record_panel(self, name: str, chosen: Mapping[str, Any]) -> None:
        answer = answers.Answer(self._opened, name, chosen, {})
        place = f"/analysis/{name}"
        self._answers[self._key(f"{place}.json", chosen)] = answer.as_json()
        if answer.analysis.chart is not None:
            self._answers[self._key(f"{place}.svg", chosen)] = answer.as_svg()
        rows = answer.as_csv()
        if len(rows) <= _LARGEST_CSV:
            self._answers[self._key(f"{place}.csv", chosen)] = rows

    def _drawn(self, epoch: int, room: float) -> dict[str, Any]:
        """Return the lanes of a window at several widths, as far as there is room; the first has its place always."""
        window = self._opened.pag.run.window(epoch=epoch)
        levels: list[dict[str, Any]] = []
        for pixels in _PIXELS:
            if levels and (levels[-1]["single"] or pixels * len(self._opened.pag.run.workers) > _MOST_BOXES):
                break
            drawn = self._opened.lanes.draw(window.start_ns, window.end_ns, pixels, widest=pixels)
            level = {
                "pixel_ns": window.span_ns / pixels,
                "single": drawn["exact"] and max(drawn["boxes"]["count"], default=1) == 1,
                "boxes": drawn["boxes"],
                "messages": drawn["messages"] or dict.fromkeys(("begin", "end", "source", "target", "kind"), ()),
            }
            room -= len(_packed(level))
            if levels and room < 0:
                break
            levels.append(level)
        return {"epoch": epoch, "from": window.start_ns, "to": window.end_ns, "levels": levels}

    def _record_clicks(self, room: int) -> list[str]:
        """Hold what a click on the longest activities says; returns the keys of those answers."""
        keys: list[str] = []
        places = self._opened.pag.run.workers
        for drawn in self._levels:
            boxes, used = drawn["levels"][-1]["boxes"], 0
            single = [box for box, position in enumerate(boxes["position"]) if position >= 0]
            single.sort(key=lambda box, boxes=boxes: boxes["begin"][box] - boxes["end"][box])  # type: ignore[misc]
            for box in single[: _CLICKS // len(self.epochs)]:
                chosen, vertex = {"epoch": drawn["epoch"]}, (places[boxes["worker"][box]], boxes["position"][box])
                activity = answers.activity(self._opened, chosen, *vertex, HOPS)
                used += len(gzip.compress(in_bytes(activity), 1))
                if used > room / len(self.epochs):
                    break
                keys.append(
                    self._key("/activity", {**chosen, "worker": vertex[0], "position": vertex[1], "hops": HOPS})
                )
                self._answers[keys[-1]] = activity
        return keys

    def _pack(self) -> bytes:
        epoch_list = ", ".join(map(str, self.epochs))
        return _packed(
            {
                "home": {"page": "window", "given": {"store": STORE, "epoch": str(self.epochs[0])}},
                "pages": ["run", "window", "panels"],
                "limit": "This file does not hold that. It has lanes, `why` and analyses of "
                f"epoch{'s' * (len(self.epochs) > 1)} {epoch_list}, and all of the longest activities there.",
                "hint": "Ask the store itself: pag serve STORE",
                "coarse": "; this file holds nothing finer",
                "answers": self._answers,
                "lanes": self._levels,
            }
        )

    @staticmethod
    def _key(place: str, parameters: Mapping[str, Any] | None = None) -> str:
        """Return the key of a question, as the page makes it."""
        query = "&".join(sorted(f"{name}={value}" for name, value in (parameters or {}).items()))
        return f"/api/run/{STORE}{place}?{query}"


def _slowest(pag: Pag) -> int:
    slowest = pag.run.slowest().epoch
    assert slowest is not None  # noqa: S101  (a round has a number)
    return slowest


def _checked(pag: Pag, panels: Iterable[str]) -> list[str]:
    """Return names of analyses that this run can be asked.

    Raises
    ------
    InvalidParameterError
        If one is unknown, or compares windows.
    """
    names = list(dict.fromkeys(panels))
    for name in names:
        analysis = find_analysis(name)
        analysis.check(pag.run)
        if analysis.scope is Scope.PAIR:
            message = f"{name} compares two windows, which a page in one file does not."
            raise InvalidParameterError(message, f"`pag {name} --format json` does, and `pag serve`.")
    if names:
        return names
    names_met = {entry.name for entry in all_entries() if entry.load().needs.met_by(pag.run.rules)}
    return [name for name in PANELS if name in names_met]


def _packed(value: Any) -> bytes:
    return gzip.compress(in_bytes(value), 6, mtime=0)
