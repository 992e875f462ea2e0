"""Alert rules: which rows of a standing query are bad news, and about what.

A rule names a query, says with a filter of the motif language which of its rows match (``row.observed > ms(5)``), and
which columns name the subject. Columns of a motif that belong to its elements are written as in its own filter
(``m.duration_ns > ms(5)``). An alert is a rule and a subject; it opens with the first epoch in which a row about the
subject matches, and is resolved when none did for some answered epochs, or when the rows that did are gone.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import Severity
from pag_graph.motif.conditions import Column, replace_columns
from pag_graph.motif.filters import check, parse_filter
from pag_graph.motif.polars_conditions import of_row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

_ELEMENT = "row"
FRONTIER = "frontier"
"""What a rule watches instead of a query where it is about the frontier, while a run is followed: the row `HELD`."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of alerts: which rows of a query are bad news, and about what."""

    name: str
    """Tells its alerts from those of other rules."""
    query: str
    """The standing query, as `NAME:parameter=value`, or `FRONTIER`."""
    where: str = "true"
    """Filter of the motif language about the element ``row``."""
    subject: tuple[str, ...] = ()
    """Columns that name what an alert is about; the run as a whole where there are none."""
    severity: str = str(Severity.WARNING)
    """Out of `Severity`."""
    resolve_after: int = 3
    """Answered epochs without a matching row after which an alert is resolved."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Rule:
        """Return the rule of an entry of a file of rules.

        Parameters
        ----------
        entry
            As TOML or JSON give it; names of entries are those of the fields.

        Returns
        -------
        Rule
            Whether it fits its query is not checked yet; see `condition`.

        Raises
        ------
        InvalidParameterError
            If an entry is missing, unknown, or of another type.
        """
        kinds = {item.name: item for item in fields(cls)}
        rule_title = f"The alert rule {entry.get('name', '')!r}"
        if unknown := sorted(set(entry) - set(kinds)):
            message = f"{rule_title} has an entry {unknown[0]!r}; there are {', '.join(kinds)}."
            raise InvalidParameterError(message)
        values = {**entry, "subject": entry.get("subject", ())}
        texts = [values.get(name, "x") for name in ("where", "severity")] + [values.get("name"), values.get("query")]
        columns, after = values["subject"], values.get("resolve_after", 3)
        if not all(isinstance(text, str) and text for text in texts):
            message = f"{rule_title} must have texts as name, query, where and severity."
            raise InvalidParameterError(message)
        if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
            message = f"{rule_title} has the subject {columns!r}, and must have a list of names of columns."
            raise InvalidParameterError(message)
        if isinstance(after, bool) or not isinstance(after, int) or after < 1:
            message = f"{rule_title} has resolve_after = {after!r}, and must have a whole number, at least 1."
            raise InvalidParameterError(message)
        if values.get("severity", str(Severity.WARNING)) not in set(map(str, Severity)):
            message = f"{rule_title} has the severity {values['severity']!r}; there are {', '.join(Severity)}."
            raise InvalidParameterError(message)
        return cls(**{**values, "subject": tuple(columns)})

    @property
    def entry(self) -> dict[str, Any]:
        """The rule as an entry, for JSON."""
        return {**asdict(self), "subject": list(self.subject)}

    def condition(self, schema: pa.Schema) -> pl.Expr:
        """Return the filter for rows of a schema.

        Parameters
        ----------
        schema
            Columns of the query's answer, or of `HELD`.

        Returns
        -------
        Expr
            True of rows that match.

        Raises
        ------
        MotifSyntaxError
            If it is no filter, or speaks of a column that there is not.
        InvalidParameterError
            If the subject does.
        """
        missing = [name for name in self.subject if name not in schema.names]
        if missing:
            columns = ", ".join(schema.names)
            message = (
                f"{missing[0]!r}, a subject of the alert rule {self.name!r}, is no column of {self.query}: {columns}."
            )
            raise InvalidParameterError(message)
        types: dict[str, dict[str, pa.DataType]] = {_ELEMENT: {}}
        for column in schema:
            # Of a motif a column is one of an element: `z.worker`.
            element, dot, name = column.name.partition(".")
            of_element = types.setdefault(element, {}) if dot else types[_ELEMENT]
            of_element[name if dot else column.name] = column.type
        node = parse_filter(self.where)
        check(node, self.where, types)
        return of_row(replace_columns(node, lambda column: _as_in(schema, column)), schema)

    def matching(self, rows: pl.DataFrame, schema: pa.Schema) -> pl.DataFrame:
        """Return the rows that match.

        Parameters
        ----------
        rows
            Rows of the query's answer.
        schema
            Their columns.

        Returns
        -------
        DataFrame
            In the order of `rows`, with two more columns: ``_matches``, and ``_subject``, the subject's columns as
            JSON.

        Raises
        ------
        MotifSyntaxError
            As of `condition`.
        InvalidParameterError
            As of `condition`.
        """
        subject_text = pl.struct(self.subject).struct.json_encode() if self.subject else pl.lit("{}")
        # A literal as condition is one value for all rows.
        return rows.with_columns(_matches=self.condition(schema)).filter("_matches").with_columns(_subject=subject_text)

    def alert_id(self, run_id: str, subject: str, first_epoch: int) -> str:
        """Return the id of an alert of this rule.

        Parameters
        ----------
        run_id
            Identity of the run.
        subject
            As JSON.
        first_epoch
            First epoch in which a row about the subject matched.

        Returns
        -------
        str
            SHA-256 of these and the rule's name, in hexadecimal: the same whenever the alert is opened again.
        """
        text = json.dumps([run_id, self.name, subject, first_epoch])
        return hashlib.sha256(text.encode()).hexdigest()


def _as_in(schema: pa.Schema, column: Column) -> Column:
    """Return a column of an element as rows have it: with the element in its name, unless that is the row itself."""
    name = f"{column.element}.{column.name}"
    return Column(_ELEMENT, name if name in schema.names else column.name)


def read_rules(file: Path) -> list[Rule]:
    """Read a file of rules.

    Parameters
    ----------
    file
        TOML, with a table ``[[alert]]`` for each rule; ``built_in = true`` adds `BUILT_IN`.

    Returns
    -------
    list of Rule
        Built-in ones first.

    Raises
    ------
    InvalidParameterError
        If it cannot be read, is no TOML, or two rules have the same name; names the file.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"The alert rules {file} cannot be read: {error}."
        raise InvalidParameterError(message, "See docs/standing.md for an example.") from error
    if unknown := sorted(set(content) - {"alert", "built_in"}):
        message = f"{file} has an entry {unknown[0]!r}; there are built_in and tables [[alert]]."
        raise InvalidParameterError(message)
    entries = content.get("alert", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        message = f"{file}: alert must be written as tables [[alert]]."
        raise InvalidParameterError(message)
    rules = [*(BUILT_IN if content.get("built_in") is True else ()), *(Rule.of(entry) for entry in entries)]
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            message = f"{file} has two rules {name!r}; names tell alerts apart."
            raise InvalidParameterError(message)
    return rules


BUILT_IN: tuple[Rule, ...] = (
    *(
        Rule(
            name=name,
            query="invariants",
            where=f"row.invariant = '{name}'",
            subject=("invariant", "worker", "to_worker", "type", "operator", "channel"),
        )
        for name in ("epoch_max", "message_max", "operator_max", "progress_max", "some_progress")
    ),
    Rule(
        name="records_to_one_worker",
        query="skew",
        where="row.share = 1 and row.skew_ratio > 1",
        subject=("operator", "worker"),
    ),
    Rule(name="mostly_waiting", query="rounds", where="row.waiting_share > 0.9"),
    Rule(name="mostly_input", query="rounds", where="row.input_share > 0.9", severity=str(Severity.INFO)),
    Rule(name="low_coverage", query="rounds", where="row.coverage < 0.5"),
    Rule(name="frontier_held", query=FRONTIER, where="row.held_ns > s(60)", subject=("worker",)),
)
"""ST2's five invariants with learned limits, records that one worker alone gets, rounds in which workers mostly wait,
or nobody knows what they did, and a worker for which all answers wait since a minute. A run does without those whose
query cannot be a standing one of it."""
