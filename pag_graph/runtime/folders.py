"""Where this user's caches and data are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(folder: Path | None = None) -> Path:
    """Return the folder of caches.

    Parameters
    ----------
    folder
        The one that was asked for, if any was.

    Returns
    -------
    Path
        Absolute: `folder`, else ``$PAG_CACHE``, else ``pag-graph`` in the user's caches. It need not exist.
    """
    return _folder(folder, "PAG_CACHE", "XDG_CACHE_HOME", ".cache")


def data_folder() -> Path:
    """Return the folder of data.

    Returns
    -------
    Path
        Absolute: ``$PAG_HOME``, else ``pag-graph`` in the user's data folder. It need not exist.
    """
    return _folder(None, "PAG_HOME", "XDG_DATA_HOME", ".local/share")


def _folder(folder: Path | None, variable: str, xdg_variable: str, fallback: str) -> Path:
    given_folder = folder or os.environ.get(variable)
    if given_folder:
        return Path(given_folder).expanduser().resolve()
    return Path(os.environ.get(xdg_variable) or Path.home() / fallback).resolve() / "pag-graph"
