"""Which function of a script calls an operator, or launches a kernel: of those that stacks show, the innermost."""

from collections import Counter

import numpy as np

from scalescope.scaling.rank.records.record import LAUNCH, RankRecord
from scalescope.scaling.trace.trace import Trace


def callers_of(trace: Trace, record: RankRecord) -> dict[str, str]:
    """Return by what runs on a rank the function that calls it most, `job.py(23): dashboard`; none without stacks."""
    if not len(trace.lines):
        return {}
    base = trace.header.base_ns
    called: dict[str, Counter[int]] = {}
    for thread in np.unique(trace.lines.thread).tolist():
        own = np.flatnonzero(trace.lines.thread == thread)
        own = own[np.lexsort((-trace.lines.end[own], trace.lines.start[own]))]
        spans = list(zip((trace.lines.start[own] + base).tolist(), (trace.lines.end[own] + base).tolist(),
                         trace.lines.name[own].tolist(), strict=True))  # fmt: skip
        open_ones: list[tuple[int, int]] = []  # (end, name), the innermost last
        at = 0
        for call in record.calls:  # ascending
            if call.kind != LAUNCH or call.activity < 0 or (record.activity != "cpu" and call.thread != thread):
                continue
            while at < len(spans) and spans[at][0] <= call.start:
                open_ones.append(spans[at][1:])
                at += 1
            while open_ones and open_ones[-1][0] < call.start:
                open_ones.pop()
            if open_ones:
                called.setdefault(record.name[call.activity], Counter())[open_ones[-1][1]] += 1
    return {name: trace.names[lines.most_common(1)[0][0]] for name, lines in called.items()}
