"""What a build did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pag_graph.builder.commit import commit_derived
from pag_graph.model.tables import PAG_FINDINGS

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.builder.commit import Derive
    from pag_graph.store.delta import StoreInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build did."""

    store: StoreInfo
    """The committed state."""
    rows: dict[str, int]
    """Rows of every table."""
    committed: bool
    """False where this very state was committed before, so that there was nothing to do."""

    @property
    def findings(self) -> pa.Table:
        """Rows of `PAG_FINDINGS`, read when they are asked for."""
        return self.store.scan("findings").collect().to_arrow().cast(PAG_FINDINGS)


def nothing_to_do(base: StoreInfo, derive: Derive) -> BuildReport:
    """Report of a state that was committed before.

    Parameters
    ----------
    base
        The state.
    derive
        Makes what is committed beside the graph: if that is new, the state is committed once more.

    Returns
    -------
    BuildReport
        `committed` says whether it was.
    """
    now = commit_derived(base, derive)
    info = now or base
    rows = {name: sum(part.rows for part in info.parts(name)) for name in info.tables}
    return BuildReport(store=info, rows=rows, committed=now is not None)
