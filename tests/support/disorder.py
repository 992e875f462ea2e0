"""Polars that keeps no order which it does not promise: whatever relies on one gives another answer then."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["disorder"]


@contextmanager
def disorder() -> Iterator[None]:
    """Shuffle, until it is left, what joins, groups and distinct rows return where no order is asked for.

    Sorts shuffle what is equal in their keys. Frames in memory do all this by way of lazy ones, which are replaced.
    """
    seeds = count(1)
    lazy = pl.LazyFrame
    join, group_by, unique, sort = lazy.join, lazy.group_by, lazy.unique, lazy.sort

    def shuffled(frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.select(pl.all().shuffle(seed=next(seeds)))

    def joined(self: pl.LazyFrame, *others: Any, **options: Any) -> pl.LazyFrame:
        rows = join(self, *others, **options)
        return shuffled(rows) if options.get("maintain_order") in {None, "none"} else rows

    def grouped(self: pl.LazyFrame, *keys: Any, maintain_order: bool = False, **named: Any) -> Any:
        groups = group_by(self, *keys, maintain_order=maintain_order, **named)
        agg = groups.agg
        if not maintain_order:
            groups.agg = lambda *sums, **more: shuffled(agg(*sums, **more))  # type: ignore[method-assign]
        return groups

    def distinct(
        self: pl.LazyFrame, subset: Any = None, *, keep: Any = "any", maintain_order: bool = False
    ) -> pl.LazyFrame:
        if maintain_order:
            return unique(self, subset, keep=keep, maintain_order=True)
        return shuffled(unique(shuffled(self) if keep == "any" else self, subset, keep=keep))

    def in_order(self: pl.LazyFrame, *keys: Any, maintain_order: bool = False, **options: Any) -> pl.LazyFrame:
        return sort(self if maintain_order else shuffled(self), *keys, maintain_order=True, **options)

    with patch.multiple(lazy, join=joined, group_by=grouped, unique=distinct, sort=in_order):
        yield
