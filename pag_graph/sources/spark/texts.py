"""What is kept of the texts in a log: names of code and of Spark, and nothing that a person or a program wrote.

A job's description can be a whole SQL query with its literals, and so can the name of a plan node; the reason of a loss
can be any message. Unless somebody asks for all of it, only what has the shape of a name is taken in: call sites,
classes, plan operators, and phrases that Spark and its cluster managers say. The rest never leaves the reader.

Definitions stand in `docs/spark.md`, "Texts".
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LISTING", "OTHER", "TABLE_LOG", "Texts", "plain", "private"]

OTHER = "other"
"""Stands for a text that was not kept, where something must stand."""

LISTING = "Listing leaf files and directories"
"""How Spark describes jobs that list files; what follows it are their paths."""

TABLE_LOG = "Delta: the table's log"
"""What jobs are called that Delta Lake describes as work on a table's log; Delta says more, with names of tables."""

_LONGEST = 500
_REFLECTION = re.compile(
    r" at (?:<unknown>|(?:Native|Generated|DirectMethodHandle|Delegating)\w*Accessor\w*\.java)(?::-?\d+)?", re.ASCII
)
"""A place in the machinery that calls methods by name, as Python does; it says nothing of the program."""
_CLASS = re.compile(r"[A-Za-z_$][\w$.]{0,199}", re.ASCII)
_FILE = r"[\w$-]{1,80}(?:\.[\w$-]{1,40}){0,4}\.[A-Za-z]{1,7}|<[\w-]{1,40}>|null"
_CALL_SITE = re.compile(rf"([\w$<>.]{{1,120}}) at (?:[^\n]*[/\\])?({_FILE}):(-?\d{{1,9}})", re.ASCII)
"""A method, the folders of a file, the file, and a line in it."""
_NODE = re.compile(
    r"WholeStageCodegen \(\d{1,9}\)|(?:Scan|Execute) [A-Za-z][A-Za-z0-9]{0,60}(?=[\s(]|$)|[A-Za-z][A-Za-z0-9]{0,60}",
    re.ASCII,
)
"""The operator at the begin of a plan node's name; what follows are tables, files, queries, columns."""
_VERSION = re.compile(r"\d[\w.+-]{0,63}", re.ASCII)
_QUERY = re.compile(r"[0-9a-fA-F-]{8,36}")
_REASONS = frozenset(
    {
        *("Success", "Resubmitted", "FetchFailed", "ExceptionFailure", "TaskResultLost", "TaskKilled"),
        *("TaskCommitDenied", "ExecutorLostFailure", "UnknownReason"),
    }
)
_PHRASES = re.compile(
    r"command exited with code -?\d{1,4}|exit(?:ed with)? (?:status|code):?(?: is)? -?\d{1,4}|killed by driver|"
    r"killed by external signal|exceed\w* (?:physical |virtual )?memory limits|out ?of ?memory|oom[ -]?kill\w*|"
    r"heartbeat timed out after \d{1,12} ms|remote rpc client disassociated|(?:worker|slave|executor process) lost|"
    r"(?:another|other) attempt succeeded|stage (?:was )?cancelled|preempted|evicted|idle|decommission(?:ed|ing)?|"
    r"finished|shut ?down|unable to create executor|missing an output location for shuffle \d{1,9}",
    re.IGNORECASE | re.ASCII,
)
"""What Spark and its cluster managers say of executors, attempts and blocks."""


_FAILURE = re.compile(
    r"job aborted due to stage failure|failed \d{1,9} times|(?:job \d{1,12} |stage )?cancell?ed|"
    r"because (?:killed all executors|sparkcontext was shut ?down)|sparkcontext was (?:shut ?down|stopped)|"
    r"java heap space|gc overhead limit exceeded|unable to acquire \d{1,20} bytes of memory|metaspace|"
    r"total size of serialized results|is bigger than spark\.driver\.maxresultsize|"
    r"could not recover from a failed barrier|"
    r"(?:[a-z_]\w{0,60}\.){1,12}[a-z$_]\w{0,80}(?:error|exception)\b|"
    r"(?:(?<=executor \d\): )|(?<=executor \d\d\): )|(?<=executor \d\d\d\): )|(?<=executor driver\): ))"
    r"(?:[a-z_]\w{0,60}\.){1,12}[a-z$_]\w{0,80}(?=:|$)|"
    r"(?:(?<=: )|(?<=^))[a-z]\w{0,60}(?:error|exception)(?=:|$)",
    re.IGNORECASE | re.ASCII | re.MULTILINE,
)
"""What Spark says of jobs that failed, and classes of exceptions."""


def plain(text: str) -> str:
    """Return the text of a call site or description without markup of Spark's pages and places that say nothing.

    Examples
    --------
    >>> plain("showString at NativeMethodAccessorImpl.java:0"), plain("orders<br/>id = 1<br/>batch = 7")
    ('showString', 'orders id = 1 batch = 7')
    """
    return " ".join(re.sub(r"<br ?/?>", " ", _REFLECTION.sub("", text)).split())


@dataclass(frozen=True, slots=True)
class Texts:
    """Decides what of a log's texts is taken in.

    Parameters
    ----------
    keep
        Whether to keep all of them, as far as they are not longer than some hundred characters.

    Examples
    --------
    >>> texts = Texts()
    >>> texts.call_site("collect at /srv/ada/etl.py:12"), texts.call_site("SELECT * FROM t WHERE pin = 1234")
    ('collect at etl.py:12', '')
    >>> texts.node("Scan JDBCRelation((select pin from t) x)"), texts.reason("Exit status: 137. /srv/ada")
    ('Scan JDBCRelation', 'Exit status: 137')
    """

    keep: bool = False

    def call_site(self, text: Any) -> str:
        """Return a call site without the folders of its file; empty for any other text.

        Listings of files and work on a Delta table's log have names of their own: `LISTING`, `TABLE_LOG`.
        """
        line = str(text or "")[:_LONGEST]
        if self.keep:
            return plain(line)
        if line.startswith(LISTING):
            return LISTING
        if line.startswith("Delta: "):
            return TABLE_LOG
        site = _CALL_SITE.fullmatch(line)
        return plain(f"{site[1]} at {site[2]}:{site[3]}") if site else ""

    def node(self, text: str) -> str:
        """Return the operator of a plan node, or the scope of an RDD; `OTHER` if it has no such shape."""
        if self.keep:
            return text[:200]
        operator = _NODE.match(text)
        return operator[0] if operator else OTHER

    def reason(self, text: Any) -> str:
        """Return why something went, from the first line of what the log says.

        Only phrases of Spark and its cluster managers are kept; what holds none of them is ``other reason``.
        """
        line = str(text or "").split("\n", 1)[0][:_LONGEST]
        if self.keep or not line:
            return line
        return ", ".join(_PHRASES.findall(line)) or "other reason"

    def failure(self, text: Any) -> str:
        """Return why a job failed: what Spark says of it, and the classes of exceptions; empty without any."""
        message = str(text or "")[:20_000]
        if self.keep:
            return message.split("\n", 1)[0][:_LONGEST]
        return ", ".join(dict.fromkeys(_FAILURE.findall(message)))[:_LONGEST]

    def task_end(self, reason: dict[str, Any]) -> str:
        """Return why a task ended, in one line; `reason` is the ``Task End Reason`` of an event."""
        name = str(reason.get("Reason", "unknown"))[:200]
        if not self.keep and name not in _REASONS:
            return "other reason"
        detail_key = {
            "ExecutorLostFailure": "Loss Reason",
            "TaskKilled": "Kill Reason",
            "FetchFailed": "Message",
            "ExceptionFailure": "Class Name",
        }.get(name)
        stated = reason.get(detail_key) if detail_key else None
        detail = self.class_name(stated) if detail_key == "Class Name" else self.reason(stated)[:200]
        return f"{name}: {detail}" if detail else name

    def class_name(self, text: Any) -> str:
        """Return the name of a class, such as that of an event or an exception; `OTHER` for what is no such name."""
        line = str(text or "").split("\n", 1)[0][:200]
        return line if self.keep or not line or _CLASS.fullmatch(line) else OTHER

    def version(self, text: Any) -> str:
        """Return a version of Spark; empty for what is none."""
        line = str(text or "")[:64]
        return line if self.keep or _VERSION.fullmatch(line) else ""

    def query(self, text: Any) -> str | None:
        """Return the id of a stream's query, None without one; of what is no id a mark, so that queries stay apart."""
        if text is None:
            return None
        line = str(text)[:_LONGEST]
        is_shown = self.keep or _QUERY.fullmatch(line)
        return line if is_shown else hashlib.sha256(line.encode(errors="replace")).hexdigest()[:8]


@contextmanager
def private(texts: bool) -> Iterator[None]:  # noqa: FBT001 the one thing that it depends on
    """Make files that are written in the block nobody else's to read if they hold `texts`, whatever the umask is.

    The umask is that of the whole process while the block runs.
    """
    if not texts:
        yield
        return
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
