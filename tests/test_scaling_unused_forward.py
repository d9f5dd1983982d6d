"""Forward work that leads to no gradient, on CPUs: which operators are such, and what is told of them.

tests/data/unused: a small network beside another one on two ranks, by tests/unused_job.py.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.rank.records.own_code.unused_forward import unused_forward
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.communication_args import number_of
from scalescope.scaling.trace.intervals import EMPTY
from tests.gloo_traces import analysed
from tests.recorded import records_of

RECORDED = Path(__file__).parent / "data" / "unused"


def _of(answer: RunAnalysis) -> list[Finding]:
    return [one for one in answer.findings if one.code == "unused_forward"]


@pytest.mark.parametrize("case", ["nowhere", "target"])
def test_a_tower_whose_result_no_gradient_comes_back_to_is_told(case: str) -> None:
    """Of a 163.2 ms step 20.7 went into a tower whose outputs went nowhere, which was as much longer without recording;
    *an unfused optimizer costs 6.4 ms* was the first sentence, and no finding told of the tower.
    """
    answer = analysed(RECORDED / case)
    (one,) = _of(answer)
    assert answer.findings[0] is one and "unused forward work costs at most" in run_verdict(answer).headline
    assert (one.rank, one.ranks, one.at_most, one.backed) == (None, (), True, "replay")
    assert one.ms is not None and one.fraction is not None and 0.05 < one.fraction < 0.4
    told = because(one)
    assert "(7 operators, most of it aten::linear and aten::gelu) leads to no gradient" in told
    assert "the loss does not use its result, or takes it as a fixed value" in told
    assert one.remedy is not None and "run it without gradients" in cure_text(one.remedy)
    assert "torch.no_grad()" in cure_elsewhere(one.remedy)


@pytest.mark.parametrize("case", ["nowhere", "target"])
def test_all_of_a_branch_is_found_in_each_step(case: str) -> None:
    for record in records_of(f"unused/{case}").values():
        names = [record.name[at] for at in record.unused]
        assert names == 5 * [*3 * ["aten::linear", "aten::gelu"], "aten::linear"]
        assert {record.step[at] for at in record.unused} == set(record.steps)


def test_a_pass_behind_the_update_whose_result_is_looked_at_is_told() -> None:
    """A validation loss in each step took a quarter of it, and nothing was told of it, but in front of the update."""
    answer = analysed(RECORDED / "validated")
    (one,) = _of(answer)
    assert (one.rank, one.at_most) == (None, True) and one.fraction is not None and 0.1 < one.fraction < 0.5
    for record in records_of("unused/validated").values():
        names = [record.name[at] for at in record.unused]
        assert names.count("aten::linear") == 4 * 8, "of both towers, in each step that a next one bounds"


@pytest.mark.parametrize(
    "case",
    [
        "no_grad",  # a target without gradients
        "teacher",  # … of weights that are frozen, with gradients switched on: nothing is recorded
        "backbone",  # layers of such weights in front of others that learn
        "unpacked",  # what is computed again in the backward pass
        "adversary",  # what one backward pass takes as a fixed value, and the next one does not
        "critic",  # what another network learns from, detached, in a critic's turns alone
        "alone",  # … not detached: the same layers lead to gradients in a turn of their own
        "penalty",  # gradients of gradients
        "validated_no_grad",  # a pass behind the update that records none
    ],
)
def test_what_a_backward_pass_takes_up_or_is_not_recorded_for_one_is_not_told(case: str) -> None:
    assert not any(record.unused for record in records_of(f"unused/{case}").values())
    assert not _of(analysed(RECORDED / case))


@pytest.mark.parametrize("job", ["cpu_ddp_n2", "cpu_fsdp2_n2", "cpu_sparse_n2", "cpu_tiny_buckets_n2"])
def test_recorded_jobs_have_none(job: str) -> None:
    assert not any(record.unused for record in records_of(job).values())


@pytest.mark.parametrize(("text", "number"), [(b"17", 17), (b"", -1), (b"-1", -1), (b'"7"', -1), (b"1" * 30, -1)])
def test_a_number_of_autograds_is_read_where_it_is_one(text: bytes, number: int) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize(("looked_at", "unused"), [(4, []), (5, [5, 6, 7, 8])])
def test_frozen_layers_before_what_is_only_looked_at_are_recorded_by_none(looked_at: int, unused: list[int]) -> None:
    """Each tells the number of what is recorded next: a teacher was told as unused where that was logged alone."""
    linear, number = "aten::linear", looked_at
    rows = [(linear, at) for at in range(4)]
    rows += [(linear, 4)] * 5 if looked_at == 4 else [(linear, 4), *((linear, 10 + at) for at in range(4))]
    rows += [("aten::mul", number)] if looked_at == 4 else []
    rows += [("AddmmBackward0", at) for at in range(5 if looked_at == 5 else 4)]
    count = len(rows)
    starts = np.array([1000 * at for at in range(count)])
    names = sorted({name for name, _ in rows})
    trace: Any = SimpleNamespace(
        operators=SimpleNamespace(
            start=starts, end=starts + 900, thread=np.ones(count, int), name=np.array([names.index(n) for n, _ in rows])
        ),
        header=SimpleNamespace(base_ns=0),
        names=names,
        numbered=SimpleNamespace(row=np.arange(count), number=np.array([own for _, own in rows])),
    )
    record = RankRecord(
        rank=0, host="h", device=None, activity="cpu", count=count, start=starts.tolist(), end=(starts + 900).tolist(),
        kind=[COMPUTE] * count, stream=[0] * count, step=[3] * count, name=[name for name, _ in rows],
        collective=[-1] * count, collectives=[], calls=[], data=EMPTY, edges=[0, 1000 * count], steps=[3], phases=[],
    )  # fmt: skip
    assert unused_forward(trace, record, 1) == unused
