"""A server's iterations as steps of two kinds: prefill, which reads prompts, and decode, which makes a token each.

vLLM names an iteration `execute_context_1(888)_generation_0(0)` after how many requests of each kind it holds (and how
many tokens), in some versions with a number before; SGLang `step[EXTEND bs=15 toks=15360]` or `step[DECODE bs=32]`. An
iteration of both kinds is `mixed`: chunks of prompts that ride along with decoding.
"""

import re

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.trace.trace import Trace

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"

_BY_REQUESTS = re.compile(r"execute_(?:\d+_)?context_(\d+)(?:\([^)]*\))?_generation_(\d+)")
_BY_MODE = re.compile(r"step\[(EXTEND|DECODE|MIXED|IDLE)\b")
_MODES = {"EXTEND": PREFILL, "DECODE": DECODE, "MIXED": MIXED, "IDLE": DECODE}


def kind_of_iteration(name: str) -> str | None:
    """Return the kind of a server's iteration by its annotation's name; None where it is none."""
    if match := _BY_REQUESTS.match(name):
        prompts, tokens = int(match[1]), int(match[2])
        return MIXED if prompts and tokens else PREFILL if prompts else DECODE
    if match := _BY_MODE.match(name):
        return _MODES[match[1]]
    return None


def by_iterations(trace: Trace) -> Steps | None:
    """Return a server's iterations; None where the trace holds none."""
    spans = trace.annotations
    for pattern in (_BY_REQUESTS, _BY_MODE):  # where one holds the other, the outer one holds all that is launched
        named = np.array([pattern.match(name) is not None for name in trace.names], bool)
        rows = np.flatnonzero(named[spans.name]) if len(spans) else np.empty(0, np.int64)
        if not rows.size:
            continue
        rows = rows[np.argsort(spans.start[rows], kind="stable")]
        thread = int(spans.thread[rows[0]])
        rows = rows[spans.thread[rows] == thread]
        kinds = tuple(kind_of_iteration(trace.names[name]) or "" for name in spans.name[rows].tolist())
        return numbered(spans.start[rows], spans.end[rows], thread, "iteration", kinds)
    return None
