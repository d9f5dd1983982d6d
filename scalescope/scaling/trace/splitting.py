"""Where one event of a trace ends and the next begins, in text that comes in blocks.

A trace as Kineto writes it separates events by `\\n  },\\n  {`: the last one in a block is found at once. A trace that
another program wrote again is separated as that program likes; there a scan that follows strings and braces finds
the events. Neither can miscount: a cut in a wrong place leaves text that is no JSON, and such text is looked at again.
"""

import numpy as np

NATIVE = b"\n  },\n  {"
#: How much of NATIVE belongs to the event before it.
NATIVE_END = len(b"\n  }")

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (ord(sign) for sign in '"\\{}[]')


class Found:
    """What a scan of the text after an event array's `[` found: events as (start, end), and where the array ends."""

    def __init__(self, events: list[tuple[int, int]], array_end: int | None) -> None:
        self.events = events
        self.array_end = array_end  # the position of the closing `]`, None where the text ends before it


def scan(text: bytes) -> Found:
    """Find the whole events in text that begins between two events, following strings, escapes, braces and brackets."""
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    if quotes.size:
        quotes = quotes[~_escaped(data, quotes)]
    signs = np.flatnonzero((data == _OPEN) | (data == _CLOSE) | (data == _OPEN_LIST) | (data == _CLOSE_LIST))
    # an even number of quotes before a sign: it stands outside of strings
    signs = signs[np.searchsorted(quotes, signs) % 2 == 0]
    kinds = data[signs]
    opens = (kinds == _OPEN) | (kinds == _OPEN_LIST)
    depth = np.cumsum(np.where(opens, 1, -1))
    below = np.flatnonzero(depth < 0)
    array_end = None
    if below.size:
        array_end = int(signs[below[0]])
        signs, kinds, opens, depth = signs[: below[0]], kinds[: below[0]], opens[: below[0]], depth[: below[0]]
    starts = signs[opens & (depth == 1) & (kinds == _OPEN)]
    ends = signs[~opens & (depth == 0) & (kinds == _CLOSE)] + 1
    count = min(starts.size, ends.size)
    return Found(list(zip(starts[:count].tolist(), ends[:count].tolist(), strict=True)), array_end)


def _escaped(data: np.ndarray, quotes: np.ndarray) -> np.ndarray:
    """Tell which quotes stand behind an odd number of backslashes."""
    escaped = np.zeros(quotes.size, bool)
    candidates = np.flatnonzero((quotes > 0) & (data[np.maximum(quotes - 1, 0)] == _BACKSLASH))
    for index in candidates.tolist():
        at = int(quotes[index]) - 1
        run = 0
        while at >= 0 and data[at] == _BACKSLASH:
            run, at = run + 1, at - 1
        escaped[index] = run % 2 == 1
    return escaped
