"""A rank that computes longer in the few steps of one window, where nothing else tells of it."""

from pathlib import Path

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.kinds import is_within_noise
from tests.gloo_traces import GlooJob, analysed

#: By what two ranks alike differed in steps of one window, on two cores of a machine that others use, ms.
OF_TWO_ALIKE = (10.4, 2.0, 2.8, 6.4, 15.8, 14.0, 8.4)
EVENLY = (8.0, 8.6, 8.3, 9.1, 8.8, 7.9, 8.1)
MUCH = tuple(4 * ms for ms in EVENLY)
#: What the other one computes, which differs as well.
THEIRS_MS = (82.0, 84.0, 84.0, 82.0, 76.0, 78.0, 82.0)


def _answer(folder: Path, longer_ms: tuple[float, ...]) -> RunAnalysis:
    """Return what is told of a rank 0 that computes longer by so much a step, beside a rank 1 that stands still."""
    job = GlooJob()
    for step, (ms, theirs_ms) in enumerate([*zip(longer_ms, THEIRS_MS, strict=True), (longer_ms[-1], THEIRS_MS[-1])]):
        job.step(3 + step)
        for name in ("aten::mm", "aten::add_", "aten::native_batch_norm"):
            job.compute((theirs_ms + ms) / 3, name=name, rank=0, calls=20)
            job.compute(theirs_ms / 3, name=name, rank=1, calls=20)
        job.sleep(1, 31.7)
        job.all_reduce(2.0)
    return analysed(job.write(folder))


def test_a_rank_that_is_slower_by_no_more_than_steps_of_its_window_differ_is_not_named_for_sure(tmp_path: Path) -> None:
    """`rank 0 … 8.4 ms (7.5 ms to 9.4 ms)` was told of a job in which rank 1 alone had something the matter."""
    answer = _answer(tmp_path, OF_TWO_ALIKE)
    assert [(one.code, one.rank) for one in answer.stragglers] == [("host_stall", 1)]
    assert all(is_within_noise(one) for one in answer.findings if one.rank == 0)


def test_a_rank_that_is_slower_by_no_more_than_ranks_alike_are_is_not_named_for_sure(tmp_path: Path) -> None:
    """*Ranks 0 and 1 cost 18.0 ms together; rank 1: the same operators take 1.08×* was told where rank 0 loads."""
    answer = _answer(tmp_path, EVENLY)
    assert [(one.code, one.rank) for one in answer.stragglers] == [("host_stall", 1)]
    assert answer.findings[0].also_late is None and (answer.findings[0].ms or 0.0) > 20.0
    assert all(is_within_noise(one) for one in answer.findings if one.rank == 0)


def test_a_rank_that_is_slower_by_more_than_they_differ_is_named_with_what_they_differ_by(tmp_path: Path) -> None:
    (found,) = (one for one in _answer(tmp_path, MUCH).findings if one.code == "slower_compute")
    assert found.rank == 0 and not is_within_noise(found)
    assert found.ms is not None and found.low_ms is not None and found.high_ms is not None
    assert found.low_ms < 0.9 * found.ms and found.high_ms > 1.1 * found.ms
