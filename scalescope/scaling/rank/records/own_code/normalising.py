"""Which of a host's operators normalise activations one by one, where a built-in normalisation is one operator.

A chain of them takes a mean and a variance (or a deviation), centres by the one and divides by the root of the other,
and scales and shifts what comes of it. Each reads and writes as much as the whole does, and so do its nodes of the
backward pass. Nothing tells which tensors an operator has: a chain is known by the order of its operators, by how often
it comes in a step, and by the same order in the backward pass, the other way round. So neither a metric is one, nor a
batch that is standardised, an average of weights, or an optimizer, which nobody differentiates.

Losses centre and divide as well: correlations, standardised outputs, what masks leave. A network's normalisation
divides many values by each deviation, so that the deviation's gradient is summed; a correlation is one number over
another. And it has a weight or a shift that learns, whose gradient is there before that of the root; or its result goes
on into a layer before anything is averaged or summed, which a loss's does not.

What does not centre is left out (RMSNorm): on CPUs the built-in one runs operator after operator, too.
"""

import bisect
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from scalescope.scaling.rank.records.long_way import Chain
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: What chains are made of, a letter each: means, sums, variances, both at once; deviations, both at once; roots, …
_LETTERS = {
    "m": "mean", "s": "sum", "v": "var", "V": "var_?mean", "d": "std", "D": "std_?mean", "q": "sqrt", "r": "rsqrt",
    "i": "reciprocal", "-": "r?sub|subtract", "+": "add", "*": "mul|multiply", "/": "div|true_divide|divide",
    "p": "pow|square", "c": "clamp|clamp_?min|maximum", "a": "addcmul", "l": "lerp", "C": r"conv\w*",
}  # fmt: skip
#: What of views, copies and casts may lie within.
_BESIDE = re.compile(
    r"(_?unsafe_?)?view\w*|_?reshape\w*|expand\w*|unsqueeze|squeeze|permute|transpose|t|to|_?to_?copy|type_as|clone"
    r"|contiguous|flatten|unflatten|detach|alias|slice|select|as_?strided|empty\w*|lift_fresh",
    re.IGNORECASE,
)
_OTHER, _EXCHANGED = ".", "|"
_OPERATOR = re.compile(r"aten::(\w+?)_?")
_NODE = re.compile(r"(\w+?)Backward\d*")
#: What lies among a chain's nodes and is none of its: gradients on their way into buckets.
_OF_GRADIENTS = re.compile(r"torch::autograd::AccumulateGrad|torch::distributed::.*")

_MEAN = r"(?:m|s[/*])"
#: By a variance to which something is added, or that is clamped: of its root, or of a power of it, then over it.
_BY_VARIANCE = (
    rf"(?:{_MEAN}|[vV])[-+*/psmvVcl]{{0,12}}?[+c](?:q[-+*ml]{{0,8}}?(?:/|i\*)|r[-+ml]{{0,4}}?\*|p[-+ml]{{0,4}}?[*/])"
)
#: By a deviation, which is no zero as long as nothing is constant, then over it.
_BY_DEVIATION = rf"(?:{_MEAN}[-*+/l]{{0,3}}?d|d[-*+/l]{{0,3}}?{_MEAN}|D)[-*+lc]{{0,8}}?/"
#: … with the scale and the shift. Without those, right before a convolution, it most likely is of that one's weights.
_CHAIN = re.compile(rf"(?P<core>{_BY_VARIANCE}|{_BY_DEVIATION})(?P<affine>\*?\+|\*|a|(?!C))")
_CENTRES = "-"
#: How many statistics these take; it is a mean and a variance, or what that is a mean of.
_STATISTICS, _BOTH = {"m": 1, "s": 1, "v": 1, "d": 1, "V": 2, "D": 2}, 2
#: What keeps averages of the statistics is among a chain's operators, and nobody differentiates it.
_NOT_DIFFERENTIATED = "+*-l"
#: So many chains of one kind in a step are a network's layers; one or two may be a loss's, or of what it is given.
_PLACES = 3
#: What of a chain's nodes takes the root, in whatever way; what runs before it has to do with the result alone.
_ROOT = re.compile("[qrpdD]")
#: What sums a gradient where many values were divided by one, or scaled by one; and what a parameter's gradient is.
_SUM, _LEARNT = "aten::sum", "torch::autograd::AccumulateGrad"
#: Where what comes behind a chain is averaged or summed, it is a loss's; a few layers may be pooled.
_REDUCING, _MOSTLY = "msvVdD", 0.5
#: A teacher's forward pass, or one that runs again for the backward pass, has no backward pass of its own.
_DIFFERENTIATED = 0.5


class _Row(NamedTuple):
    """Operators, or nodes, of a step as letters, with the activity of each."""

    letters: str
    activities: list[int]


def normalising(record: RankRecord) -> list[Chain]:
    """Return the normalisations that a host runs operator by operator, with their backward passes, ascending."""
    handed = sorted(call.start for call in record.calls if call.in_collective)
    by_step: dict[int, list[int]] = {}
    for at, (step, kind, stream) in enumerate(zip(record.step, record.kind, record.stream, strict=True)):
        if step >= 0 and kind == COMPUTE and stream == 0:
            by_step.setdefault(step, []).append(at)
    found: list[Chain] = []
    for step, own in by_step.items():
        found += _of_step(record, step, own, handed)
    return sorted(found, key=lambda chain: chain.activities)


def _of_step(record: RankRecord, step: int, own: list[int], handed: list[int]) -> Iterator[Chain]:
    forward = _forward(record, own, handed)
    if not any(letter in forward.letters for letter in "msvVdD"):
        return
    alike: dict[str, list[re.Match[str]]] = {}
    for one in _CHAIN.finditer(forward.letters):
        if _CENTRES in one["core"] and sum(_STATISTICS.get(letter, 0) for letter in one["core"]) >= _BOTH:
            alike.setdefault(one["core"], []).append(one)
    nodes = _nodes(record, own) if alike else _Row("", [])
    known: set[int] = set()  # a row's nodes may look like another's, too
    for core, chains in alike.items():
        back = list(_reversed(core).finditer(nodes.letters))
        before = [_before_root(record, own, nodes, one) for one in back]
        back = [one for one, names in zip(back, before, strict=True) if _SUM in names]
        if len(back) < max(_PLACES, _DIFFERENTIATED * len(chains)):
            continue
        learnt = sum(_SUM in names and _LEARNT in names for names in before)
        if learnt <= _MOSTLY * len(back) and not _go_on(record, own, forward, chains):
            continue
        for one in chains:
            spanned = _between(own, forward.activities[one.start()], forward.activities[one.end() - 1])
            yield Chain(step, tuple(spanned), one.end() - one.start())
        for one in back:
            last = nodes.activities[one.end() - 1]
            spanned = _between(own, nodes.activities[one.start()], _with_sums(record, own, last))
            spanned = [at for at in spanned if at not in known and not _OF_GRADIENTS.fullmatch(record.name[at])]
            known.update(spanned)
            yield Chain(step, tuple(spanned), 0)


def _before_root(record: RankRecord, own: list[int], nodes: _Row, back: re.Match[str]) -> set[str]:
    """Return what runs of a chain's backward pass before the node of its root."""
    root = _ROOT.search(back[0])
    last = back.start() + (root.start() if root is not None else 0)
    return {record.name[at] for at in _between(own, nodes.activities[back.start()], nodes.activities[last])}


def _go_on(record: RankRecord, own: list[int], forward: _Row, chains: list[re.Match[str]]) -> bool:
    """Tell whether most of the chains' results go on into a layer before they are averaged or summed."""
    into = 0
    for one in chains:
        last = forward.activities[one.end() - 1]
        for at in own[bisect.bisect_right(own, last) :]:
            if is_layer := kind_of(record.name[at]) in MULTIPLYING:
                into += 1
            if is_layer or _of_node(record.name[at]) or _of_operator(record.name[at]) in tuple(_REDUCING):
                break
    return into > _MOSTLY * len(chains)


def _between(own: list[int], first: int, last: int) -> list[int]:
    return own[bisect.bisect_left(own, first) : bisect.bisect_right(own, last)]


def _with_sums(record: RankRecord, own: list[int], node: int) -> int:
    """Return the last operator behind a node that adds gradients up, or sums them; the node where none does."""
    last = node
    for at in own[bisect.bisect_right(own, node) :]:
        if _of_operator(record.name[at]) not in ("+", "s", ""):
            break
        last = at
    return last


def _reversed(core: str) -> re.Pattern[str]:
    """Return what the backward pass of a chain looks like; the scale's and the shift's nodes come first."""
    letters = (re.escape(one) + ("?" if one in _NOT_DIFFERENTIATED else "") for one in reversed(core))
    return re.compile(r"(?:\+?\*|a)?" + "".join(letters))


def _forward(record: RankRecord, own: list[int], handed: list[int]) -> _Row:
    """Return a step's operators that no node of the backward pass has called; what is exchanged stands between."""
    letters: list[str] = []
    activities: list[int] = []
    before = 0
    for at in own:
        if not (letter := _of_operator(record.name[at])):
            continue
        if bisect.bisect_left(handed, record.start[at]) > bisect.bisect_left(handed, before):
            letters.append(_EXCHANGED)
            activities.append(at)
        before = record.start[at]
        letters.append(letter)
        activities.append(at)
    return _Row("".join(letters), activities)


def _nodes(record: RankRecord, own: list[int]) -> _Row:
    letters: list[str] = []
    activities: list[int] = []
    for at in own:
        if letter := _of_node(record.name[at]):
            letters.append(letter)
            activities.append(at)
    return _Row("".join(letters), activities)


@cache
def _letter(name: str) -> str:
    """Return the letter of an operator, or of a node that goes by the same name; none of what may lie within."""
    if _BESIDE.fullmatch(name):
        return ""
    return next((one for one, names in _LETTERS.items() if re.fullmatch(names, name)), _OTHER)


@cache
def _of_operator(name: str) -> str:
    told = _OPERATOR.fullmatch(name)
    return _letter(told[1]) if told is not None else _OTHER


@cache
def _of_node(name: str) -> str:
    told = _NODE.fullmatch(name)
    return _letter(told[1].lower()) if told is not None else ""
