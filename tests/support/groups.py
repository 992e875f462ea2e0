"""Which process runs which tests: those of one group run in one process, one after the other.

xdist's own ``--dist loadgroup`` writes the group into the name of a test, which pytest 9.2 no longer lets it do: every
test would be a group of its own, without a word. So the processes that run tests write their groups to a file, and the
process that hands tests out reads it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest
    from xdist.remote import Producer

MARK = "xdist_group"


def group_of(item: pytest.Item) -> str:
    """Return the name of a test's group."""
    marker = item.get_closest_marker(MARK)
    assert marker is not None, f"{item.nodeid} has no group"
    return str(marker.args[0])


def write_groups(items: Iterable[pytest.Item], file: Path) -> None:
    """Write the group of each test to a file; processes that do so at the same time write the same."""
    own_file = file.with_name(f"{file.name}.{os.getpid()}")
    own_file.write_text(json.dumps({item.nodeid: group_of(item) for item in items}))
    own_file.replace(file)


class GroupScheduling(LoadScopeScheduling):
    """Hands out groups of tests whole, in the order in which the tests are.

    Parameters
    ----------
    config, log
        Of the process that hands tests out.
    file
        That `write_groups` wrote before tests are handed out.
    """

    def __init__(self, config: pytest.Config, log: Producer, file: Path) -> None:
        super().__init__(config, log)
        self._file = file
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        """Hand out the first groups; called when all processes know their tests."""
        if not self._groups:
            self._groups = json.loads(self._file.read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
