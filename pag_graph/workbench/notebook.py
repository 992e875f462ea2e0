"""A window of a run as a widget for notebooks: the page in one file, in a frame that may do nothing but draw."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pag_graph.errors import MissingExtraError
from pag_graph.workbench.bundle import static
from pag_graph.workbench.page import page

if TYPE_CHECKING:
    from collections.abc import Sequence

    import anywidget

    from pag_graph.api import Pag


def view(pag: Pag, epochs: Sequence[int] = (), panels: Sequence[str] = (), *, height: int = 720) -> anywidget.AnyWidget:
    """Return a widget that shows windows of a run.

    Parameters
    ----------
    pag, epochs, panels
        As for `page`.
    height
        In pixels.

    Returns
    -------
    anywidget.AnyWidget
        It holds the page, and asks the kernel nothing.

    Raises
    ------
    MissingExtraError
        If anywidget is not installed.
    """  # noqa: DOC501  (the constructor of an error is taken for one)
    if find_spec("anywidget") is None:
        raise MissingExtraError.from_extra(what="`Pag.view`", extra="notebook")
    import anywidget
    import traitlets

    class WindowView(anywidget.AnyWidget):
        """The page, and how high it is drawn."""

        _esm = static("widget.js")
        page = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)

    return WindowView(page=page(pag, epochs, panels), height=height)
