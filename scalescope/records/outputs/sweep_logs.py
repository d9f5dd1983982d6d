"""What is a log of nccl-tests or rccl-tests: the lines that they begin with, in their order; and what only quotes one.

Pages that tell of such a log name its lines and columns, and may hold a whole one: none of them is a log.
"""

import re
from pathlib import PurePath

#: The lines that a text begins with, in order; older versions write fewer, and a job's launcher writes between them.
_HEAD = tuple(
    re.compile(line, re.MULTILINE)
    for line in (
        rb"^# (?:nccl|rccl)-tests version \S",
        rb"^# Collective test starting: \w+_perf\b",
        rb"^# nThread \d+ nGpus \d+ ",
        rb"^# Using devices\s*$",
        rb"^#\s+Rank\s+\d+ .*\bdevice\s",
        rb"^#\s+size\s+count\s+type\b",
    )
)
#: One of them alone may be anybody's comment.
_LEAST_LINES = 2
_JSON_KEYS = (b'"nccl_version"', b'"rccl_version"', b'"nranks"', b'"bus_bw"', b'"busBw"')
#: A column of rccl-tests' CSV, which has many.
_CSV_COLUMN, _LEAST_COMMAS = b"numCycle", 6
_PAGES = (".md", ".markdown", ".mdx", ".rst", ".adoc")
#: Between such lines a page quotes; a log has none.
_FENCE = re.compile(rb"^\s*(?:```|~~~)", re.MULTILINE)


def is_log(head: bytes) -> bool:
    """Tell by its first bytes whether a file is a log of nccl-tests or rccl-tests, as text, JSON or CSV."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith((b"{", b"[")):
        return any(key in text for key in _JSON_KEYS)
    first = text.partition(b"\n")[0]
    if _CSV_COLUMN in first and first.count(b",") >= _LEAST_COMMAS:
        return True
    found = [match.start() for line in _HEAD if (match := line.search(text)) is not None]
    return len(found) >= _LEAST_LINES and found == sorted(found) and not quotes(text)


def quotes(text: bytes) -> bool:
    """Tell whether a text has lines that fence in what it quotes, as Markdown's."""
    return _FENCE.search(text) is not None


def is_named_as_page(name: str) -> bool:
    """Tell whether a file has the name of a page of text, such as Markdown's."""
    return PurePath(name).suffix.lower() in _PAGES
