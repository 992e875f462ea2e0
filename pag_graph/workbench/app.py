"""Addresses of the workbench: files of the page, answers as JSON, pictures, tables, and news."""

from __future__ import annotations

from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pag_graph.analyses import find_analysis
from pag_graph.analyses.reference_page import about
from pag_graph.errors import (
    InvalidParameterError,
    PagGraphError,
    StoreNotFoundError,
    TraceFormatError,
    UnsupportedPlanError,
)
from pag_graph.model.units import printable
from pag_graph.workbench import answers, facts
from pag_graph.workbench.answers import in_bytes
from pag_graph.workbench.applications import Applications
from pag_graph.workbench.news import News

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from pag_graph.api import Pag
    from pag_graph.workbench.library import Library, Opened

    T = TypeVar("T")

TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
"""Files of the page, by the ends of their names."""
ANSWERS, REPLAYS = 2, 1
"""Answers, and replays, that are worked on at a time; the others wait."""
WAITING = 40
"""Requests that may wait for an answer; more are told to come again."""
STREAMS = 32
"""Pages that are told of news at a time."""
_REPLAYED = {"what-if", "causal-profile", "slack"}


class Workbench:
    """What the addresses ask.

    Parameters
    ----------
    library
        The stores.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._answers = anyio.CapacityLimiter(ANSWERS)
        self._replays = anyio.CapacityLimiter(REPLAYS)
        self._waiting = 0
        self._streams = 0
        self.applications = Applications(library)
        self.news = News(library, self.in_turn)

    async def work(self, function: Callable[[], T], *, replay: bool = False) -> T:
        """Answer a question: run something that computes in a thread, when it is its turn.

        Parameters
        ----------
        function, replay
            As for `in_turn`.

        Raises
        ------
        BusyError
            If too many wait already.
        """
        if self._waiting >= WAITING:
            raise BusyError
        self._waiting += 1
        try:
            return await self.in_turn(function, replay=replay)
        finally:
            self._waiting -= 1

    async def in_turn(self, function: Callable[[], T], *, replay: bool = False) -> T:
        """Run something that computes in a thread, when it is its turn, however many wait.

        Parameters
        ----------
        function
            What to run.
        replay
            Whether it replays windows.
        """
        return await anyio.to_thread.run_sync(function, limiter=self._replays if replay else self._answers)

    async def opened(self, request: Request) -> Opened:
        """Return the run that an address names."""
        return await self.work(partial(self.library.open, request.path_params["store"]))

    async def runs(self, request: Request) -> Response:
        """List the runs."""
        del request
        rows, logs = await self.work(self.library.rows), await self.work(self.applications.rows)
        return _json({"runs": rows, "applications": logs})

    async def application(self, request: Request) -> Response:
        """Say why a Spark application was slow."""
        return _json(await self.work(partial(self.applications.told, request.path_params["log"]), replay=True))

    async def run(self, request: Request) -> Response:
        """Say what the pages of a run need."""
        opened = await self.opened(request)
        return _json(await self.work(partial(facts.run_facts, opened)))

    async def epochs(self, request: Request) -> Response:
        """Say what the critical path of each epoch is made of."""
        opened, name = await self.opened(request), request.path_params["store"]
        rows = await self.work(partial(self.news.epochs, name, opened))
        return _json({"version": opened.version, **facts.epochs_answer(rows)})

    async def lanes(self, request: Request) -> Response:
        """Draw a part of a run."""
        opened = await self.opened(request)
        begin, end, pixels = (_number(request, name) for name in ("from", "to", "pixels"))
        return _json(await self.work(lambda: opened.lanes.draw(begin, end, pixels)))

    async def path(self, request: Request) -> Response:
        """Draw the critical path of a window."""
        opened, chosen = await self.opened(request), _choice(request)
        shown = (
            (_number(request, "view_from"), _number(request, "view_to")) if "view_from" in _query_of(request) else None
        )
        pixels = _number(request, "pixels", 1_000)
        return _json(await self.work(partial(answers.path, opened, chosen, shown, max(1, min(pixels, 4_000)))))

    async def near(self, request: Request) -> Response:
        """List messages around an instant."""
        opened = await self.opened(request)
        numbers = [_number(request, name) for name in ("worker", "t", "width")]
        return _json({"messages": await self.work(lambda: opened.lanes.near(*numbers))})

    async def activity(self, request: Request) -> Response:
        """Say all of an activity."""
        opened, chosen = await self.opened(request), _choice(request)
        numbers = [_number(request, "worker"), _number(request, "position"), _number(request, "hops", 0)]
        return _json(await self.work(partial(answers.activity, opened, chosen, *numbers), replay=True))

    async def why(self, request: Request) -> Response:
        """Say why a window took so long."""
        opened = await self.opened(request)
        return _json(await self.work(partial(answers.why, opened, _choice(request)), replay=True))

    async def analysis(self, request: Request) -> Response:
        """Answer by an analysis, as JSON, CSV or a picture."""
        opened, name = await self.opened(request), request.path_params["name"]
        form = request.path_params["form"]
        chosen, values = _choice(request), _parameters(request)
        against = await self._compared_run(request)
        work = partial(_answered, opened, name, chosen, values, against, form)
        text = await self.work(work, replay=name in _REPLAYED)
        if form == "json":
            return Response(text, media_type="application/json")
        if form == "svg":
            return Response(text, media_type=TYPES["svg"])
        headers = {
            "Content-Disposition": f'attachment; filename="{"".join(c for c in name if c.isalnum() or c == "-")}.csv"'
        }
        return Response(text, media_type="text/csv", headers=headers)

    async def _compared_run(self, request: Request) -> tuple[Pag | None, dict[str, Any]]:
        query = _query_of(request)
        store = query.get("against")
        window = answers.choice(*(_optional(request, f"against_{name}") for name in ("epoch", "from", "to")))
        if store is None:
            return None, window
        opened = await self.work(partial(self.library.open, store))
        return opened.pag, window

    async def what_if(self, request: Request) -> Response:
        """Replay a window with changes."""
        opened, changes = await self.opened(request), request.query_params.getlist("change")
        assumptions = _query_of(request).get("assumptions", "all")
        work = partial(answers.replays, opened, _choice(request), changes, assumptions)
        return _json(await self.work(work, replay=True))

    async def motif(self, request: Request) -> Response:
        """Look for a motif."""
        opened, query = await self.opened(request), _query_of(request)
        epochs = answers.epochs_between(opened, *(_optional(request, name) for name in ("epoch", "last_epoch")))
        work = partial(answers.motif, opened, query.get("pattern", ""), query.get("where") or None, epochs)
        return _json(await self.work(work))

    async def events(self, request: Request) -> Response:
        """Tell of a run, event by event; after a lost connection it goes on behind the last epoch that was told."""
        name = request.path_params["store"]
        await self.opened(request)
        if self._streams >= STREAMS:
            raise BusyError
        last = request.headers.get("last-event-id", "")
        last_epoch = int(last) if last.isdecimal() and len(last) < len(str(2**53)) else _optional(request, "after")
        commit = _query_of(request).get("commit")

        async def event_bytes() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                async for event in self.news.told(name, last_epoch, commit):
                    if await request.is_disconnected():
                        return
                    yield event
            finally:
                self._streams -= 1

        return StreamingResponse(event_bytes(), media_type="text/event-stream")


class BusyError(Exception):
    """Too many wait for an answer already."""


def make_app(library: Library) -> Starlette:
    """Return the application, without its guard.

    Parameters
    ----------
    library
        The stores that it shows.

    Returns
    -------
    Starlette
        Answers ``GET`` and ``HEAD``.
    """
    bench = Workbench(library)
    of_run = "/api/run/{store:str}"
    routes = [
        Route("/", _page_file),
        Route("/static/{file:str}", _page_file),
        Route("/definition/{name:str}", _definition),
        Route("/api/runs", bench.runs),
        Route("/api/application/{log:str}", bench.application),
        Route(of_run, bench.run),
        Route(f"{of_run}/epochs", bench.epochs),
        Route(f"{of_run}/lanes", bench.lanes),
        Route(f"{of_run}/path", bench.path),
        Route(f"{of_run}/near", bench.near),
        Route(f"{of_run}/activity", bench.activity),
        Route(f"{of_run}/why", bench.why),
        Route(f"{of_run}/what-if", bench.what_if),
        Route(f"{of_run}/motif", bench.motif),
        Route(f"{of_run}/events", bench.events),
        Route(of_run + "/analysis/{name:str}.{form:str}", bench.analysis),
    ]
    handlers: Any = {PagGraphError: _error_answer, BusyError: _busy}
    return Starlette(routes=routes, exception_handlers=handlers)


async def _page_file(request: Request) -> Response:
    """Return a file of the page: one out of those that there are, so that a name is never a path."""
    file_name = request.path_params.get("file", "index.html")
    for file in resources.files("pag_graph.workbench").joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if file.name == file_name and kind:
            return Response(file.read_bytes(), media_type=kind)
    return PlainTextResponse("There is no such file.", 404)


async def _definition(request: Request) -> Response:
    """Say how an analysis is defined, as its section of ``docs/analyses.md`` does."""
    return PlainTextResponse(about(find_analysis(request.path_params["name"])))


async def _error_answer(request: Request, error: Exception) -> Response:
    """Say what is wrong."""
    del request
    assert isinstance(error, PagGraphError)  # noqa: S101  (it is the handler of these)
    status = 500
    if isinstance(error, StoreNotFoundError):
        status = 404
    elif isinstance(error, InvalidParameterError | UnsupportedPlanError | TraceFormatError):
        status = 400
    hint = error.hint and printable(error.hint)
    return _json({"error": error.condition, "message": printable(error.message), "hint": hint}, status)


async def _busy(request: Request, error: Exception) -> Response:
    del request, error
    return _json({"error": "BUSY", "message": "Too many questions at once.", "hint": "Ask again."}, 503)


def _answered(
    opened: Opened,
    name: str,
    chosen: dict[str, Any],
    values: dict[str, Any],
    against: tuple[Pag | None, dict[str, Any]],
    form: str,
) -> str | bytes:
    """Return an answer as text.

    Raises
    ------
    InvalidParameterError
        If there is no such form.
    """
    if form not in {"json", "csv", "svg"}:
        message = f"There is no form {form!r}; there are json, csv and svg."
        raise InvalidParameterError(message)
    answer = answers.Answer(opened, name, chosen, values, against)
    if form == "csv":
        return answer.as_csv()
    return answer.as_svg() if form == "svg" else in_bytes(answer.as_json())


def _json(value: Any, status: int = 200) -> Response:
    return Response(in_bytes(value), status, media_type="application/json")


def _query_of(request: Request) -> dict[str, str]:
    return dict(request.query_params)


def _choice(request: Request) -> dict[str, Any]:
    return answers.choice(*(_optional(request, name) for name in ("epoch", "from", "to")))


def _parameters(request: Request) -> dict[str, list[str]]:
    """Return the parameters of an analysis: what begins with ``p.`` in an address."""
    names = {key for key in request.query_params if key.startswith("p.")}
    return {name.removeprefix("p."): request.query_params.getlist(name) for name in sorted(names)}


def _optional(request: Request, name: str) -> int | None:
    return _number(request, name) if name in request.query_params else None


def _number(request: Request, name: str, default: int | None = None) -> int:
    """Read a whole number of an address.

    Raises
    ------
    InvalidParameterError
        If it is absent or none.
    """
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    try:
        number = int(text or "")
    except ValueError:
        number = 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        message = f"{name} is {(text or '')[:40]!r}, and must be a whole number."
        raise InvalidParameterError(message)
    return number
