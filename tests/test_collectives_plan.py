"""Sizes and axes as users write them, and the points that come of them."""

import pytest

from scalescope.collectives.checks import check
from scalescope.collectives.plan import placed
from scalescope.collectives.sizes import format_size, parse_sizes
from scalescope.records.errors import UserError
from tests.collectives_runs import compose, planned


def test_sizes_are_ranges_steps_and_lists() -> None:
    assert parse_sizes("8B..8GiB x2") == [2**power for power in range(3, 34)]
    assert parse_sizes("1MiB..4MiB +1MiB") == [1 << 20, 2 << 20, 3 << 20, 4 << 20]
    assert parse_sizes("4KiB, 1MB, 2kB") == [2000, 4096, 10**6]
    assert parse_sizes(["1.5KiB", 512, "8B..32B x2"]) == [8, 16, 32, 512, 1536]
    assert [format_size(size) for size in (8, 2048, 1 << 30, 1000)] == ["8B", "2KiB", "1GiB", "1000B"]


@pytest.mark.parametrize(
    ("sizes", "argv"),
    [
        ("8Q", "is no size"),
        ("1KB", "KiB or kB"),
        ("1MiB..8MiB", "has no step"),
        ("8MiB..1MiB x2", "runs downwards"),
        ("1MiB..8MiB x1", "must be above 1"),
        ("0B", "above 0"),
        ("1.5B", "whole number"),
    ],
)
def test_a_wrong_size_is_named_with_the_way_out(sizes: str, argv: str) -> None:
    with pytest.raises(UserError, match=argv):
        check(compose(f'sizes="{sizes}"'), world_size=2)


@pytest.mark.parametrize(
    ("override", "argv"),
    [
        ("operations=[allreduce]", "there is no 'allreduce'; did you mean all_reduce"),
        ("operations=[]", "operations is empty"),
        ("dtypes=[bf16]", "did you mean bfloat16"),
        ("reductions=[mean]", "there is no 'mean'"),
        ("modes=[inplace]", "did you mean in_place"),
        ("transport=directly", "did you mean direct"),
        ("group_sizes=[2,8]", "a group of 8 in a world of 4 ranks"),
        ("group_sizes=[1]", "no group has two ranks"),
        ("group_sizes=[two]", "'two' is no group size"),
        ("relative_interval=0", "must be above 0"),
        ("min_iterations=50000", "above max_iterations"),
    ],
)
def test_a_wrong_axis_is_named_before_anything_starts(override: str, argv: str) -> None:
    with pytest.raises(UserError, match=argv):
        check(compose(override), world_size=4)


def test_a_world_of_one_has_no_collective() -> None:
    with pytest.raises(UserError, match="at least 2 ranks"):
        check(compose(), world_size=1)


def test_all_group_sizes_are_the_powers_of_two_and_the_world() -> None:
    assert {point.group_size for point in planned(6, "sizes=[8B]")} == {2, 4, 6}
    assert {point.group_size for point in planned(6, "sizes=[8B]", "group_sizes=[1,3]")} == {3}


def test_every_combination_is_one_point_and_none_comes_twice() -> None:
    points = planned(4, "operations=[all_reduce,broadcast,barrier]", "sizes=[1KiB,2KiB]", "dtypes=[float32,int64]",
                     "reductions=[sum,max]", "modes=[in_place,out_of_place]")  # fmt: skip
    groups, sizes, dtypes, modes, reductions = 2, 2, 2, 2, 2
    assert len(points) == len(set(points))
    by_name = {
        name: sum(point.operation == name for point in points) for name in ("all_reduce", "broadcast", "barrier")
    }
    assert by_name == {
        "all_reduce": groups * sizes * dtypes * modes * reductions,
        "broadcast": groups * sizes * dtypes * modes,
        "barrier": groups,
    }


def test_split_operations_are_cut_as_nccl_tests_cuts_them() -> None:
    # nccl-tests: chunk = (count / n) rounded down to 16 bytes, S = chunk × n; 3 ranks cannot share 1 MiB evenly
    sizes = [point.bytes for point in planned(3, "operations=[all_gather]", "sizes=[1MiB]", "group_sizes=[3]")]
    assert sizes == [1048576 // 4 // 3 // 4 * 4 * 3 * 4]
    # 8 B and 16 B are both one float32 a rank of four, and so one point
    assert [point.bytes for point in planned(4, "operations=[all_to_all]", "sizes=[8B,16B]", "group_sizes=[4]")] == [16]


def test_spread_goes_round_the_hosts_and_packed_fills_one_after_another() -> None:
    hosts = ["a", "a", "a", "a", "b", "b", "b", "b"]
    assert placed(4, hosts, "packed") == (0, 1, 2, 3)
    assert placed(4, hosts, "spread") == (0, 1, 4, 5)
    assert placed(3, hosts, "spread") == (0, 1, 4)
