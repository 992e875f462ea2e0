"""Alerts from answers, commit after commit: each opens once and is resolved once."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.standing import ANSWERS, decoded
from pag_graph.model.enums import AlertEvent
from pag_graph.model.live_tables import HELD
from pag_graph.motif.alerts import FRONTIER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from pag_graph.analyses.standing import Query
    from pag_graph.graph.run import Run
    from pag_graph.motif.alerts import Rule
    from pag_graph.store.delta import StoreInfo

_RECENT, _OPEN = "recent", "open"
_EVIDENCE = ("src", "dst", "observed", "limit", "learned")


@dataclass(kw_only=True)
class Watch:
    """Looks at answers for one rule, and makes its alerts.

    What it remembers from commit to commit is what matched in the last answered epochs, and which alerts are open.
    """

    rule: Rule
    """The rule."""
    query: Query | None
    """None of a rule about the frontier."""
    run: Run
    """The run that is about to be committed."""
    recent: deque[tuple[int, frozenset[str]]]
    """Per epoch of the last ones answered: subjects that matched."""
    open: dict[str, tuple[int, str]]
    """Per subject with an open alert: its first epoch and id."""
    base: StoreInfo | None
    """The state before, which has the alerts so far."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `ALERTS`, without their commit and coverage."""

    @classmethod
    def of(cls, rule: Rule, query: Query | None, run: Run, base: StoreInfo | None, memory: pl.DataFrame) -> Watch:
        """Go on from what was remembered.

        Parameters
        ----------
        rule
            The rule.
        query
            The query that it watches; None of one about the frontier.
        run
            The run that is about to be committed.
        base
            The state that the commit adds to, if there is one.
        memory
            Rows of `STANDING`, of all rules and queries.

        Returns
        -------
        Watch
            Of the last `rule.resolve_after` answered epochs.

        Raises
        ------
        InvalidParameterError
            If the rule does not fit the columns of its query.
        """
        rule.condition(HELD if query is None else query.schema)
        remembered = memory.filter(pl.col("owner") == rule.name)
        recent: dict[int, set[str]] = {}
        alerts = {}
        for row in remembered.sort("epoch").iter_rows(named=True):
            if row["part"] == _OPEN:
                alerts[row["key"]] = (row["epoch"], row["value"])
            else:
                # A row without a subject says that the epoch was answered.
                recent.setdefault(row["epoch"], set()).update({row["key"]} - {""})
        recent_matches = deque(
            ((epoch, frozenset(subjects)) for epoch, subjects in recent.items()), maxlen=rule.resolve_after
        )
        return cls(rule=rule, query=query, run=run, recent=recent_matches, open=alerts, base=base)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows that it looks at."""
        return HELD if self.query is None else self.query.schema

    def memory(self) -> list[dict[str, Any]]:
        """Return what is to be remembered.

        Returns
        -------
        list of dict
            Rows of `STANDING`: one per epoch and subject that matched, and per open alert.
        """
        rows = [(_RECENT, epoch, subject, "") for epoch, subjects in self.recent for subject in ["", *sorted(subjects)]]
        rows += [(_OPEN, first, subject, id_) for subject, (first, id_) in sorted(self.open.items())]
        names = ("part", "epoch", "key", "value")
        return [{"owner": self.rule.name, **dict(zip(names, row, strict=True))} for row in rows]

    def look(self, epochs: Iterable[int], now: pl.DataFrame, before: pl.DataFrame) -> None:
        """Look at the answers of some epochs, ascending.

        Parameters
        ----------
        epochs
            The epochs.
        now
            Their answers now (`ANSWERS`).
        before
            What the answers were, of epochs that were answered before.
        """
        matches = self._matches(now)
        matches_before = self._matches(before)
        for epoch in epochs:
            matches_now = matches.get(epoch, {})
            if not self.recent or epoch > self.recent[-1][0]:
                self._answered(epoch, matches_now)
            else:
                self._revised(epoch, matches_now, set(matches_before.get(epoch, {})))

    def hold(self, held: Mapping[str, Any]) -> None:
        """Look at what holds the frontier now.

        Parameters
        ----------
        held
            A row of `HELD`. Of an epoch and a subject one alert opens.
        """
        epoch = int(held["epoch"])
        row = pl.DataFrame({"epoch": [epoch], "row": [json.dumps(dict(held))]}, schema=ANSWERS)
        for subject, matching_row in self._matches(row).get(epoch, {}).items():
            if subject not in self.open and not self._known(subject, epoch):
                self._open(subject, epoch, matching_row)

    def let_go(self, answered: int) -> None:
        """Resolve the alerts about epochs that are answered by now.

        Parameters
        ----------
        answered
            The last epoch whose answers hold.
        """
        for subject, (first, id_) in sorted(self.open.items()):
            if first <= answered:
                del self.open[subject]
                self._event(AlertEvent.RESOLVED, id_, subject, first, first, {})

    def _matches(self, answers: pl.DataFrame) -> dict[int, dict[str, dict[str, Any]]]:
        """Return per epoch and subject the first row that matches."""
        if not answers.height:
            return {}
        rows = decoded(answers.with_columns(_row="row"), self.schema)
        matching = self.rule.matching(rows, self.schema)
        first_rows: dict[int, dict[str, dict[str, Any]]] = {}
        for row in matching.unique(["epoch", "_subject"], keep="first", maintain_order=True).iter_rows(named=True):
            first_rows.setdefault(row["epoch"], {})[row["_subject"]] = row
        return first_rows

    def _answered(self, epoch: int, rows_of_subjects: Mapping[str, dict[str, Any]]) -> None:
        for subject, row in rows_of_subjects.items():
            if subject not in self.open:
                self._open(subject, epoch, row)
        self.recent.append((epoch, frozenset(rows_of_subjects)))
        self._resolve(epoch)

    def _revised(self, epoch: int, rows_of_subjects: Mapping[str, dict[str, Any]], before: set[str]) -> None:
        for subject, row in rows_of_subjects.items():
            if subject not in before and subject not in self.open and not self._known(subject, epoch):
                self._open(subject, epoch, row)
        for place, (recent_epoch, _) in enumerate(self.recent):
            if recent_epoch == epoch:
                self.recent[place] = (epoch, frozenset(rows_of_subjects))
        self._resolve(epoch)

    def _resolve(self, epoch: int) -> None:
        """Resolve the open alerts of which nothing was seen in the last epochs."""
        recent_subjects = frozenset[str]().union(*(subjects for _, subjects in self.recent))
        for subject in [subject for subject in self.open if subject not in recent_subjects]:
            first, id_ = self.open.pop(subject)
            self._event(AlertEvent.RESOLVED, id_, subject, first, epoch, {})

    def _open(self, subject: str, epoch: int, row: dict[str, Any]) -> None:
        id_ = self.rule.alert_id(str(self.run.info.run["run_id"]), subject, epoch)
        self.open[subject] = (epoch, id_)
        self._event(AlertEvent.OPENED, id_, subject, epoch, epoch, row)

    def _known(self, subject: str, epoch: int) -> bool:
        """Say whether an alert with this first epoch was opened before: rows that went and came again open no other."""
        id_ = self.rule.alert_id(str(self.run.info.run["run_id"]), subject, epoch)
        if any(event["id"] == id_ for event in self.events):
            return True
        if self.base is None:
            return False
        can_hold_epoch = (pl.col("max_first_epoch") >= epoch) & (pl.col("min_first_epoch") <= epoch)
        return bool(self.base.scan("alerts", can_hold_epoch).filter(pl.col("id") == id_).head(1).collect().height)

    def _event(self, event: AlertEvent, id_: str, subject: str, first: int, epoch: int, row: Mapping[str, Any]) -> None:
        self.events.append(
            {
                "id": id_,
                "event": str(event),
                "rule": self.rule.name,
                "query": FRONTIER if self.query is None else self.query.id,
                "severity": self.rule.severity,
                "subject": subject,
                "first_epoch": first,
                "epoch": epoch,
                **{name: row.get(name) for name in _EVIDENCE},
                "row": row.get("_row"),
            }
        )
