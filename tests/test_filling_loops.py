"""Loops of Python that fill tensors element by element are told as that, and no log's advice given against them."""

from pathlib import Path

import pytest

from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed

#: As `mask[i, j] = 0.0` runs, and as `mask[i, j] = tensor`; a norm of each parameter that a log reads.
ASSIGNED, FILLED = ("aten::lift_fresh", "aten::select", "aten::select", "aten::copy_"), ("aten::select", "aten::fill_")
NORMS = ("aten::linalg_vector_norm", "aten::item")


def _findings(
    folder: Path,
    names: tuple[str, ...],
    times: int,
    rank: int | None,
    frame: str = "",
    of_all: int = 0,
    all_run: tuple[str, ...] = (),
) -> list[Finding]:
    """`of_all`: so many times all ranks run `all_run`, or what the one does."""
    job = GlooJob()
    for step in range(6):
        job.step(3 + step)
        for _ in range(of_all):
            for name in all_run or names:
                job.compute(0.006, name)
        begun = job.now[1]
        for _ in range(times):
            for name in names:
                job.compute(0.006, name, rank)
                for one in (0, 1) if rank is None else (rank,):
                    job.sleep(one, 0.004)
        if frame:
            job.stack(1, frame, begun - 100, job.now[1] - 100)
        job.compute(60.0, calls=20)
        job.all_reduce(2.0)
    return analysed(job.write(folder)).findings


@pytest.mark.parametrize("names", [ASSIGNED, FILLED])
def test_a_rank_that_fills_a_mask_element_by_element_is_told_so(names: tuple[str, ...], tmp_path: Path) -> None:
    """The advice was to look for logging under `if rank == …`."""
    times = 1_200 // len(names)
    first = _findings(tmp_path, names, times, rank=1)[0]
    assert (first.code, first.rank) == ("own_work", 1) and first.remedy is not None
    assert f"element by element in a loop of Python, which the others do not, by {times * len(names):,} op" in because(
        first
    )
    assert first.remedy.cure == "fill_at_once"
    assert "if rank ==" not in cure_elsewhere(first.remedy) and "torch.tril" in cure_elsewhere(first.remedy)


@pytest.mark.parametrize(("names", "times"), [(ASSIGNED, 300), (ASSIGNED, 40), (FILLED, 150)])
def test_where_all_ranks_fill_the_one_that_does_so_for_longer_is_told_as_that(
    names: tuple[str, ...], times: int, tmp_path: Path
) -> None:
    """A rank that filled twice as much as the other was said to fill *which the others do not*."""
    first = _findings(tmp_path, names, 300, rank=1, of_all=times)[0]
    assert (first.code, first.rank) == ("more_work", 1) and first.remedy is not None
    assert first.remedy.cure == "fill_at_once"
    more = 300 * len(names)
    assert f"in a loop of Python for longer than the others, by {more:,} operators a step" in because(first)


@pytest.mark.parametrize("all_run", [("aten::select", "aten::mm", "aten::fill_"), ("aten::copy_",)])
def test_what_the_others_run_of_such_operators_elsewhere_is_no_loop(all_run: tuple[str, ...], tmp_path: Path) -> None:
    first = _findings(tmp_path, FILLED, 300, rank=1, of_all=50, all_run=all_run)[0]
    assert first.code == "own_work" and "which the others do not" in because(first)


def test_its_function_is_told_where_stacks_tell_one(tmp_path: Path) -> None:
    first = _findings(tmp_path, ASSIGNED, 300, 1, frame="model.py(9): causal_mask")[0]
    assert first.remedy is not None and first.remedy.line == "model.py(9): causal_mask"
    assert cure_text(first.remedy).startswith("look at model.py(9): causal_mask: fill tensors at once there")
    assert "called in model.py(9): causal_mask" in because(first)


@pytest.mark.parametrize(("names", "times"), [(NORMS, 300), (ASSIGNED, 8)])
def test_figures_that_are_read_and_a_few_assignments_are_no_such_loop(
    names: tuple[str, ...], times: int, tmp_path: Path
) -> None:
    found = [one for one in _findings(tmp_path, names, times, rank=1) if one.rank == 1]
    assert all(one.remedy is not None and one.remedy.cure != "fill_at_once" for one in found)
    assert times < 100 or "if rank ==" in "".join(cure_elsewhere(one.remedy) for one in found if one.remedy)


def test_of_all_ranks_the_loop_is_what_launching_is_made_of(tmp_path: Path) -> None:
    one = next(one for one in _findings(tmp_path, ASSIGNED, 300, rank=None) if one.code == "host_bound")
    assert one.remedy is not None and one.remedy.cure == "fill_at_once"
    assert "1,200 of which are run by a loop of Python" in because(one)
