"""Steps by tokens: of one call of a model that generates text, from one choice of a token to the next.

What chooses runs once a token, behind everything else that makes it: no layer does. The prompt is read before the first
choice, in one pass of another kind, and is no step; nor is what comes after the last one.
"""

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.rank.step_sources.work import Work, are_alike
from scalescope.scaling.trace.trace import Trace

#: Operators that choose a token by its probability: the likeliest, or by chance.
_CHOOSING = ("aten::argmax", "aten::multinomial")
#: Fewer tokens are no recurrence.
_LEAST = 3
#: Fewer kernels a token are a search among values, such as a codebook's.
_LEAST_KERNELS = 8
#: By so much may the kernels of most tokens differ: a cache that has grown, a check for the end of the text.
_TOLERANCE = 0.02
#: Of the tokens, so many are alike. The others are the first of another prompt, which is read before it.
_MOST = 0.6


def by_tokens(trace: Trace, work: Work) -> Steps | None:
    """Return the steps from one token's choice to the next one's; None where none are chosen."""
    spans = trace.operators
    for operator in _CHOOSING:
        named = np.array([name == operator for name in trace.names], bool)
        rows = np.flatnonzero(named[spans.name]) if len(spans) else np.empty(0, np.int64)
        if rows.size <= _LEAST:
            continue
        rows = rows[spans.thread[rows] == spans.thread[rows[0]]]
        cuts = np.sort(spans.end[rows])
        kernels = np.diff(np.searchsorted(work.launch, cuts))
        usual = float(np.median(kernels)) if kernels.size >= _LEAST else 0.0
        even = abs(kernels - usual) <= _TOLERANCE * usual
        if usual >= _LEAST_KERNELS and even.mean() >= _MOST and are_alike(work, cuts[:-1], int(cuts[-1])):
            return numbered(cuts[:-1], cuts[1:], int(spans.thread[rows[0]]), "token")
    return None
