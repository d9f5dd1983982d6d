"""Each kernel's counters beside its recorded times on two devices: what it is bound by, and what that leads to expect.

A kernel is bound by memory where its bytes, at the rate of a plain copy under the same counters, take 91% of its time
in the job's trace; by products where its matrix units are busy for 73% of what a large product keeps them busy; else by
neither alone. Time is the trace's: under ncu a kernel runs alone, at the clocks of a device that is cool.

What is expected of the other device, where only the memory is faster: of a kernel bound by memory the ratio r of the
two measured copy bandwidths, of one bound by products that of the measured products. Of one that is bound by neither,
whose bytes take the share u of its time at the copy's rate here, its ratio lies between two: where moving bytes and the
rest of its work follow one another, 1 / (1 - u + u / r); where they overlap wholly, min(1, r / u). The shares that say
bound are those from which on these lie within 10% of the ratio expected: r / u of r from u = 1 / 1.1 on; and where what
products leave of the time is all spent with memory, within 10% of the products' ratio from 73% on.
"""

import difflib
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from measured.table import Table, figure, percent, signed

from bounds.counters import BUSY, ELAPSED, ISSUED, READ, TENSOR, TIME, WAVES, WRITTEN, Launch, read_launches
from scalescope.scaling.compare.kernels.operators import Call, CallTable
from scalescope.scaling.compare.kernels.sizes import size_classes
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION
from scalescope.scaling.trace.kernel_names import short_name
from scalescope.scaling.verdicts.top_kernels import kernel_label

COMPARISONS = Path(__file__).resolve().parent.parent / "results" / "2026-11-22_2xH200_D"
JOBS = {"gpt_small": ("gpt", "GPT"), "resnet50": ("resnet50", "ResNet-50")}
#: What `scalescope scorecard` measured on the two devices of these comparisons: TB/s of copies, TFLOP/s of products.
_COPY_TB_S, _PRODUCT_TFLOPS = (2.93, 4.12), (775.0, 781.0)
MEMORY_RATIO, PRODUCT_RATIO = _COPY_TB_S[0] / _COPY_TB_S[1], _PRODUCT_TFLOPS[0] / _PRODUCT_TFLOPS[1]
NEAR = 0.1
MEMORY_BOUND = 1 / (1 + NEAR)
PRODUCT_BOUND = 1 - NEAR / (1 - NEAR) / (1 / MEMORY_RATIO - 1)
#: A row of the comparison and a group of calls, a kernel here and under ncu, and the calls of a group that were counted
#: and all of it are the same only if they take about as long: a normalisation's grid is that of many sizes.
_ALIKE = 0.25
#: Kernels as short as this differ by more.
_SHORT_US = 20.0
SUMMARY = "Kernels of at least 0.1 ms a call, by what they are bound by:"


class Counted(msgspec.Struct, frozen=True):
    """Counters of some kernels together: bytes and µs are sums, shares are means over their time."""

    bytes: float
    us: float
    tensor: float | None  # percent of the matrix units' peak
    issued: float | None
    busy: float | None  # share of the time for which the mean multiprocessor had a block
    waves: float


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the comparison with what was counted of its calls on one device."""

    job: str
    operator: str
    kind: str
    name: str
    calls: int
    before_ms: float  # on the first device, of all its calls
    after_ms: float
    traced_us: float  # a call, in the trace that was recorded with the counters
    counted_us: float  # a call, under ncu
    memory: float  # its bytes over its time in the trace, as a share of a copy's
    tensor: float | None  # of a large product's
    issued: float | None  # percent
    busy: float | None
    waves: float

    @property
    def ratio(self) -> float:
        return self.after_ms / self.before_ms

    @property
    def bound(self) -> str:
        if self.memory >= MEMORY_BOUND:
            return "memory"
        return "products" if self.tensor is not None and self.tensor >= PRODUCT_BOUND else "neither"

    @property
    def expected(self) -> tuple[float, float]:
        """Return the lowest and the highest ratio that is expected."""
        if self.bound == "memory":
            return MEMORY_RATIO, MEMORY_RATIO
        if self.bound == "products":
            return PRODUCT_RATIO, PRODUCT_RATIO
        one_by_one = 1 / (1 - self.memory + self.memory / MEMORY_RATIO)
        return one_by_one, max(one_by_one, min(1.0, MEMORY_RATIO / self.memory if self.memory else 1.0))

    @property
    def near(self) -> bool:
        low, high = self.expected
        return (1 - NEAR) * low <= self.ratio <= (1 + NEAR) * high


def joined(folder: Path, beside: Path = COMPARISONS) -> list[Kernel]:
    """Return the rows of the comparisons of which calls were counted; those of most time first."""
    ceilings = list(chain.from_iterable(_files(folder, "ceilings")))
    copies = [one for one in ceilings if "elementwise" in one.name and READ in one.counted]
    products = [one.counted[TENSOR] for one in ceilings if "elementwise" not in one.name and TENSOR in one.counted]
    copy = max(_bytes(one) / one.counted[TIME] for one in copies)  # bytes a ns
    found: list[Kernel] = []
    for model, (short, job) in JOBS.items():
        path = folder / f"{model}.calls.json.gz"
        if not path.exists():
            continue
        calls = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=CallTable).calls
        with gzip.open(beside / f"h100_beside_h200_{short}.json.gz", "rt", encoding="utf-8") as text:
            rows = json.load(text)["kernels"]
        counters = counters_of(calls, list(_files(folder, model)))
        found += _of_job(job, calls, counters, rows, copy, max(products, default=None))
    return sorted(found, key=lambda one: -one.before_ms)


def _files(folder: Path, name: str) -> Iterator[list[Launch]]:
    yield from (read_launches(path) for path in sorted(folder.glob(f"{name}.*.csv.gz")))


def _bytes(launch: Launch) -> float:
    return launch.counted[READ] + launch.counted[WRITTEN]


def counters_of(calls: Sequence[Call], runs: Sequence[Sequence[Launch]]) -> list[Counted | None]:
    """Return what was counted of each call; None where not all of its kernels were found in ncu's answer.

    `runs`: the kernels of the same step, launched in the same order, each run with other counters.
    """
    kernels = [(at, kernel) for at, call in enumerate(calls) for kernel in call.kernels
               if not kernel.name.startswith(("Memcpy", "Memset"))]  # fmt: skip
    merged: list[dict[str, float]] = [{} for _ in kernels]
    for launches in runs:
        for one, other in _aligned([(kernel.name, kernel.blocks) for _, kernel in kernels],
                                   [(launch.name, launch.blocks) for launch in launches]):  # fmt: skip
            counted, us = launches[other].counted, kernels[one][1].us
            if us < _SHORT_US or abs(counted.get(TIME, 0.0) / 1e3 / us - 1) <= _ALIKE:
                merged[one] = {**counted, **merged[one]}
    by_call: list[list[dict[str, float]]] = [[] for _ in calls]
    for (at, _), counted in zip(kernels, merged, strict=True):
        by_call[at].append(counted)
    return [_counted(own) for own in by_call]


def _aligned(here: Sequence[tuple[str, int | None]], there: Sequence[tuple[str, int | None]]) -> Iterator[
    tuple[int, int]
]:  # fmt: skip
    """Yield the places of the same kernels: of one name and grid in order; between them, of one grid."""
    tokens = [[(_function(name), blocks) for name, blocks in side] for side in (here, there)]
    matcher = difflib.SequenceMatcher(None, tokens[0], tokens[1], autojunk=False)
    for what, first, last, start, end in matcher.get_opcodes():
        if what == "equal" or (what == "replace" and last - first == end - start):
            for one, other in zip(range(first, last), range(start, end), strict=True):
                # libraries' names may be mangled on one side
                if what == "equal" or (here[one][1] == there[other][1] and "_Z" in here[one][0] + there[other][0]):
                    yield one, other


def _function(name: str) -> str:
    return short_name(name.replace("<unnamed>::", ""))


def _counted(kernels: Sequence[Mapping[str, float]]) -> Counted | None:
    if not kernels or any(READ not in one or TIME not in one for one in kernels):
        return None
    whole = sum(one[TIME] for one in kernels)

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return sum(value * one[TIME] for value, one in zip(known, kernels, strict=True)) / whole

    busy = [one[BUSY] / one[ELAPSED] if BUSY in one and one.get(ELAPSED) else None for one in kernels]
    return Counted(
        bytes=sum(one[READ] + one[WRITTEN] for one in kernels), us=whole / 1e3,
        tensor=mean([one.get(TENSOR) for one in kernels]), issued=mean([one.get(ISSUED) for one in kernels]),
        busy=mean(busy), waves=max(one.get(WAVES, 0.0) for one in kernels),
    )  # fmt: skip


def _of_job(
    job: str,
    calls: Sequence[Call],
    counters: Sequence[Counted | None],
    rows: Sequence[Mapping[str, Any]],
    copy: float,
    product: float | None,
) -> Iterator[Kernel]:
    """Yield a comparison's rows with the counters of the group of calls that each is."""
    sizes, _ = size_classes(calls, [])
    groups: dict[tuple[str | None, str, str, int], list[int]] = {}
    for at, (call, size) in enumerate(zip(calls, sizes, strict=True)):
        groups.setdefault((call.operator, call.kind, kernel_label(call.main.name), size), []).append(at)
    pairs = sorted(_candidates(calls, groups, rows), key=lambda pair: pair[0])
    taken: set[object] = set()
    for _, at, key in pairs:
        own = groups[key]
        known = [one for place in own if (one := counters[place]) is not None]
        in_trace = sum(calls[place].us for place in own if counters[place] is not None)
        whole = sum(calls[place].us for place in own)
        if at in taken or key in taken or not known or abs(in_trace * len(own) / len(known) / whole - 1) > _ALIKE:
            continue
        taken |= {at, key}
        row, us = rows[at], sum(one.us for one in known)
        tensor = _mean_of([one.tensor for one in known], known)
        yield Kernel(
            job=job, operator=row["operator"] or "", kind=row["kind"], name=row["other_name"],
            calls=row["other_calls"], before_ms=row["baseline_us"] / 1e3, after_ms=row["other_us"] / 1e3,
            traced_us=whole / len(own), counted_us=us / len(known),
            memory=sum(one.bytes for one in known) / (1e3 * in_trace) / copy,
            tensor=tensor / product if tensor is not None and product else None,
            issued=_mean_of([one.issued for one in known], known), busy=_mean_of([one.busy for one in known], known),
            waves=max(one.waves for one in known),
        )  # fmt: skip


def _mean_of(values: Sequence[float | None], of: Sequence[Counted]) -> float | None:
    if any(value is None for value in values):
        return None
    return sum((value or 0.0) * one.us for value, one in zip(values, of, strict=True)) / sum(one.us for one in of)


_Key = tuple[str | None, str, str, int]


def _candidates(
    calls: Sequence[Call], groups: Mapping[_Key, Sequence[int]], rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[float, int, _Key]]:
    """Yield how far apart a row and a group of one operator and kernel are, and both."""
    for at, row in enumerate(rows):
        if not (row["baseline_calls"] and row["other_calls"]):
            continue
        per_call = row["other_us"] / row["other_calls"]
        for key, places in groups.items():
            if key[:3] != (row["operator"], row["kind"], row["other_name"]):
                continue
            apart = abs(sum(calls[place].us for place in places) / len(places) / per_call - 1)
            if apart <= _ALIKE:
                yield apart + (len(places) != row["other_calls"]), at, key


def rows_of(kernels: Sequence[Kernel], least_ms: float) -> Table:
    """Return every kernel of so many ms a call on the first device, and whether it is as expected."""
    header = ("job", "operator", "kernel", "calls", "H100 ms", "H200 ms", "ratio", "DRAM, of a copy's",
              "matrix units, of a product's", "bound by", "expected", "within 10%")  # fmt: skip
    rows = [
        (one.job, one.operator, _short(one.name), str(one.calls), figure(one.before_ms, 2), figure(one.after_ms, 2),
         figure(one.ratio, 2), percent(one.memory, 0), "" if one.tensor is None else percent(one.tensor, 0), one.bound,
         _span(one.expected), "yes" if one.near else "no")
        for one in kernels if one.before_ms >= least_ms * one.calls
    ]  # fmt: skip
    return Table(header, rows)


def _short(name: str, most: int = 48) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _span(bounds: tuple[float, float]) -> str:
    low, high = (figure(one, 2) for one in bounds)
    return low if low == high else f"{low} to {high}"


def summary_of(kernels: Sequence[Kernel], least_ms: float = 0.1) -> Table:
    """Return by what kernels are bound, and how many of them, and of their time, are as expected."""
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for one in kernels:
        if one.before_ms >= least_ms * one.calls:
            groups.setdefault((one.bound, one.kind), []).append(one)
    rows = []
    for (bound, kind), own in sorted(groups.items()):
        before, after = (sum(getattr(one, side) for one in own) for side in ("before_ms", "after_ms"))
        near = [one for one in own if one.near]
        rows.append((bound, kind, figure(before, 2), figure(after, 2), figure(after / before, 2),
                     _span((min(one.expected[0] for one in own), max(one.expected[1] for one in own))),
                     f"{len(near)} of {len(own)}",
                     percent(sum(one.before_ms for one in near) / before, 0)))  # fmt: skip
    return Table(("bound by", "kind", "H100 ms", "H200 ms", "ratio", "expected", "within 10%", "of their time"), rows)


def covered_of(kernels: Sequence[Kernel], beside: Path = COMPARISONS, least_ms: float = 0.1) -> Table:
    """Return how much of the compute, and of its change, the kernels make up whose counters were read."""
    rows = []
    for short, job in JOBS.values():
        with gzip.open(beside / f"h100_beside_h200_{short}.json.gz", "rt", encoding="utf-8") as text:
            every = [row for row in json.load(text)["kernels"] if row["kind"] != COMMUNICATION]
        before, after = (sum(row[f"{side}_us"] for row in every) / 1e3 for side in ("baseline", "other"))
        for what, own in (("all", [one for one in kernels if one.job == job]),
                          (f"{least_ms} ms a call or more", [one for one in kernels if one.job == job
                                                             and one.before_ms >= least_ms * one.calls])):  # fmt: skip
            here, there = (sum(getattr(one, side) for one in own) for side in ("before_ms", "after_ms"))
            rows.append((job, what, figure(before, 1), figure(here, 1), percent(here / before, 0),
                         signed(after - before, 2), signed(there - here, 2)))  # fmt: skip
    return Table(("job", "kernels", "H100's compute ms", "of it counted ms", "share", "its change ms",
                  "of it counted, ms"), rows)  # fmt: skip
