"""Interval sets are exact: every operation equals what counting single nanoseconds gives."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scalescope.scaling.trace.intervals import (
    Intervals,
    clip,
    covered_before,
    difference,
    intersect,
    intervals,
    is_among,
    length,
    split_by_priority,
    union,
)

LAST = 60
Pairs = list[tuple[int, int]]
pairs = st.lists(
    st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda pair: tuple(sorted(pair))), max_size=12
)


def instants(some: Intervals) -> set[int]:
    return {at for start, end in zip(*some, strict=True) for at in range(int(start), int(end))}


def is_disjoint(some: Intervals) -> bool:
    return bool((some.ends > some.starts).all() and (some.starts[1:] > some.ends[:-1]).all())


@given(pairs, pairs)
def test_union_intersection_and_difference_hold_the_instants_that_sets_hold(left: Pairs, right: Pairs) -> None:
    one, other = union(intervals(left)), union(intervals(right))
    here, there = instants(intervals(left)), instants(intervals(right))
    for result, should in (
        (one, here),
        (union(one, other), here | there),
        (intersect(one, other), here & there),
        (difference(one, other), here - there),
    ):
        assert instants(result) == should
        assert is_disjoint(result)
        assert length(result) == len(should)


@given(pairs, st.integers(0, LAST), st.integers(0, LAST))
def test_clipping_keeps_what_lies_inside(some: Pairs, start: int, end: int) -> None:
    inside = set(range(start, end))
    assert instants(clip(intervals(some), start, end)) == instants(intervals(some)) & inside


@given(pairs, st.lists(st.integers(-5, LAST + 5), min_size=1, max_size=6))
def test_time_covered_before_an_instant(some: Pairs, at: list[int]) -> None:
    disjoint = union(intervals(some))
    counted = [sum(instant < limit for instant in instants(disjoint)) for limit in at]
    assert covered_before(disjoint, np.array(at, np.int64)).tolist() == counted


@given(st.lists(pairs, min_size=1, max_size=5), st.lists(st.integers(0, LAST), min_size=2, max_size=5, unique=True))
def test_each_instant_counts_for_the_first_active_layer_and_windows_add_up(layers: list[Pairs], at: list[int]) -> None:
    edges = sorted(at)
    sets = [union(intervals(layer)) for layer in layers]
    shares = split_by_priority(np.array(edges, np.int64), sets)
    for window, (start, end) in enumerate(pairwise(edges)):
        counted = [0] * (len(sets) + 1)
        for instant in range(start, end):
            first = next((number for number, one in enumerate(sets) if instant in instants(one)), len(sets))
            counted[first] += 1
        assert shares[window].tolist() == counted
        assert shares[window].sum() == end - start


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_what_is_among_others(values: list[int], some: list[int]) -> None:
    found = is_among(np.array(values, np.int64), np.array(some, np.int32))
    assert found.tolist() == [value in some for value in values]
