"""A beside B and B beside A are one comparison: the same parts, as sure, with their signs turned."""

import random
from pathlib import Path

import pytest

from scalescope.report.compare.noise import cores_more_ms, is_wide
from scalescope.report.compare.parts import moved
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.kernels.alignment import align
from scalescope.scaling.compare.kernels.matching import match_tables
from scalescope.scaling.compare.kernels.operators import Call, CallTable, Kernel
from tests.gloo_traces import GlooJob, in_steps
from tests.test_compare_cores import beside_others, rewritten


def both_ways(one: Path, other: Path) -> tuple[Comparison, Comparison]:
    return compare_paths([one], [other]), compare_paths([other], [one])


def sums(job: GlooJob) -> None:
    job.compute(60.0)
    job.compute(3.0, "aten::add", calls=20)
    job.all_reduce(2.0)


def more_sums(job: GlooJob) -> None:
    job.compute(61.0)
    job.compute(9.0, "aten::add", calls=70)
    job.compute(4.0, "aten::gelu", rank=1)
    job.all_reduce(2.0)


def assert_turned(forth: Comparison, back: Comparison) -> None:
    assert (forth.change_ms, forth.low_ms, forth.high_ms) == pytest.approx(
        tuple(-(ms or 0.0) for ms in (back.change_ms, back.high_ms, back.low_ms))
    )
    there = {one.name: one for one in back.parts}
    for one in forth.parts:
        turned = there[one.name]
        assert (one.change_ms, one.low_ms, one.high_ms) == pytest.approx(
            (-turned.change_ms, -turned.high_ms, -turned.low_ms)
        ), one.name
        assert (one.rank, one.within_noise, one.more_done, forth.is_sure(one)) == (
            turned.rank, turned.within_noise, turned.more_done, back.is_sure(turned)
        ), one.name  # fmt: skip
    assert {one.name for one in moved(forth)} == {one.name for one in moved(back)}
    assert is_wide(forth) == is_wide(back)


def test_parts_of_a_comparison_and_of_its_reverse_are_one(tmp_path: Path) -> None:
    """*Sure of its parts* had three of A beside B and one of B beside A."""
    assert_turned(
        *both_ways(in_steps(tmp_path / "A", range(1, 7), sums), in_steps(tmp_path / "B", range(1, 7), more_sums))
    )


def test_waits_for_cores_are_the_cause_in_both_directions_or_in_none(tmp_path: Path) -> None:
    """They were a share of the baseline's step, so that the shorter side had the cause, and the longer one had none."""
    forth, back = both_ways(
        rewritten(tmp_path / "A", beside_others(0.0)), rewritten(tmp_path / "B", beside_others(0.17))
    )
    assert_turned(forth, back)
    more_ms = cores_more_ms(forth)
    assert more_ms is not None and cores_more_ms(back) == pytest.approx(-more_ms)


def test_calls_have_the_same_counterparts_whichever_step_is_asked_about() -> None:
    dice = random.Random(5)

    def step(calls: int) -> list[Call]:
        names = [dice.choice(["aten::add", "aten::mul", "aten::mm"]) for _ in range(calls)]
        return [Call(name, (Kernel(name, dice.random(), None),)) for name in names]

    for _ in range(40):
        here, there = step(dice.randint(5, 12)), step(dice.randint(5, 12))
        for forth, back in zip(align(here, there), align(there, here), strict=True):
            assert sorted(forth) == sorted((left, right) for right, left in back)


def test_calls_that_got_smaller_are_so_in_both_directions() -> None:
    """Another operator at a call's place counted to the one's size, and in the reverse to the other's."""

    def table(*calls: tuple[str, float]) -> CallTable:
        return CallTable([Call(name, (Kernel(name, us, None),)) for name, us in calls], 5, None)

    here = table(("aten::add", 100.0), ("aten::mul", 3.0), ("aten::add", 90.0))
    there = table(("aten::mul", 40.0), ("aten::mul", 3.0), ("aten::mul", 30.0), ("aten::mul", 30.0))
    forth, back = match_tables(here, there), match_tables(there, here)
    assert forth.resized == back.resized
    assert forth.alone_us == {kind: us[::-1] for kind, us in back.alone_us.items()}
