"""What plan nodes' texts show that the nodes' names do not; the texts themselves are not kept."""

from __future__ import annotations

import re

__all__ = ["UNPUSHED", "UNSPLITTABLE", "is_unsplittable", "traits"]

UNSPLITTABLE = "unsplittable"
"""A scan of files that one task each must read as a whole."""
UNPUSHED = "unpushed"
"""A scan to whose files no condition goes but that values are there."""
_SEEN = 20_000
"""Characters of a text that are looked at."""
_LONG = 1_000
"""A condition that takes more characters is long."""
_FILES = re.compile(r"\.(?:gz|zip|xz|deflate)(?![\w.])", re.ASCII | re.IGNORECASE)
_PUSHED = re.compile(r"\bPushedFilters: \[([^\]]{0,2000})\]")
_KNOWN_ONLY = re.compile(r"(?:(?:IsNotNull|isnotnull)\([^()]{0,200}\)(?:, )?)*", re.ASCII)
_DEAR = {
    "regular expressions": re.compile(r"\b(?:regexp_\w{1,20}|r?like)\(|\bRLIKE\b", re.ASCII),
    "JSON": re.compile(r"\b(?:from_json|get_json_object|json_tuple|jsontostructs|parse_json)\(", re.ASCII),
    "XML": re.compile(r"\b(?:xpath\w{0,20}|from_xml)\(", re.ASCII),
}


def is_unsplittable(text: str) -> bool:
    """Return whether a text names files in a form that one task must read as a whole; the text itself is not kept.

    Examples
    --------
    >>> is_unsplittable("/in/orders.csv.gz MapPartitionsRDD"), is_unsplittable("[file:/in/part-0.gz.parquet]")
    (True, False)
    """
    return _FILES.search(text[:2_000]) is not None


def traits(name: str, text: str) -> list[str]:
    """Return what a node's text shows.

    Parameters
    ----------
    name, text
        Of a node, as Spark writes them.

    Returns
    -------
    list of str
        `UNSPLITTABLE` and `UNPUSHED` of scans; of nodes that compute what takes long for each row: ``regular
        expressions``, ``JSON``, ``XML``, ``a long condition``.

    Examples
    --------
    >>> traits("Scan parquet", "FileScan parquet [id#1] PushedFilters: [IsNotNull(id)], ReadSchema: struct<id:bigint>")
    ['unpushed']
    >>> traits("Project", "Project [regexp_replace(name#3, a, b, 1) AS clean#4]")
    ['regular expressions']
    """
    text = text[:_SEEN]
    if "Scan" in name:
        pushed = _PUSHED.search(text)
        bare = pushed is not None and _KNOWN_ONLY.fullmatch(pushed[1]) is not None
        return [trait for trait, applies in ((UNSPLITTABLE, is_unsplittable(text)), (UNPUSHED, bare)) if applies]
    if name not in _COMPUTING:
        return []
    costly = [trait for trait, pattern in _DEAR.items() if pattern.search(text)]
    return [*costly, "a long condition"] if name == "Filter" and len(text) > _LONG else costly


_COMPUTING = ("Filter", "Project", "Generate")
