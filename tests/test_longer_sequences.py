"""One rank's longer sequences are one cause: what its loops run oftener, and what else is longer for them."""

import gzip
from pathlib import Path

import msgspec
import pytest

from scalescope.report.text.findings import because, first_sentence
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import ON_THE_DEVICE
from scalescope.scaling.finding.figures import INPUTS, ROUNDS
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.verdicts.stragglers import times_all_inputs
from tests.gloo_traces import GlooJob, analysed

#: A convolution, a GRU and a head over gloo on two cores that others used, too: rank 1's sequences are 36 for 24 long.
LONGER = Path(__file__).parent / "data" / "cpu_longer_sequences_n2"


def of_computing(analysis: RunAnalysis) -> list[Finding]:
    """Return what is found of the ranks' computing, each by itself."""
    return [one for one in analysis.findings if one.code in ON_THE_DEVICE]


def without_shapes(folder: Path) -> Path:
    for trace in LONGER.glob("*.json.gz"):
        told = gzip.decompress(trace.read_bytes()).replace(b'"Input Dims"', b'"Unread"')
        (folder / trace.name).write_bytes(gzip.compress(told, 1))
    return folder


@pytest.mark.parametrize("shapes", [True, False], ids=["shapes", "no shapes"])
def test_longer_sequences_are_one_cause_with_the_load_to_even_out(tmp_path: Path, shapes: bool) -> None:
    """*rank 1, work of its own: AddmmBackward0 … that the others do not make*, and slower compute beside it."""
    (analysis,) = analyze([LONGER if shapes else without_shapes(tmp_path)], jobs=1)
    assert isinstance(analysis, RunAnalysis)
    (found,) = of_computing(analysis)
    assert (found.code, found.rank) == ("more_work", 1)
    assert found.remedy is not None and found.remedy.cure == "even_out_lengths"
    rounds = next(row for row in found.evidence if row.name == ROUNDS)
    assert rounds.calls is not None and rounds.value is not None and rounds.calls - rounds.value == 6
    inputs = [row.value for row in found.evidence if row.name == INPUTS]
    assert inputs == ([1.5] if shapes else [])
    told = "1.50× as much data as the others, as of longer sequences" if shapes else "its loops go round more often"
    assert told in because(found)


def longer_sequences(rounds: int, times: float) -> GlooJob:
    """Return a job whose rank 1 goes round its loops `rounds` times for 20, and computes `times` as long besides."""
    job = GlooJob()
    for number in range(3, 9):
        job.step(number)
        for rank, often, longer in ((0, 20, 1.0), (1, rounds, times)):
            job.compute(10.0 * longer, "aten::gru", rank)
            for _ in range(often):
                job.compute(0.6, "AddmmBackward0", rank)
                job.compute(0.4, "SigmoidBackward0", rank)
            job.compute(10.0 * longer, "ConvolutionBackward0", rank)
        job.all_reduce(1.0)
        job.compute(2.0, "Optimizer.step#SGD.step")
    return job


def test_what_longer_sequences_cost_holds_what_is_longer_and_what_is_launched_oftener(tmp_path: Path) -> None:
    analysis = analysed(longer_sequences(30, 1.5).write(tmp_path))
    (found,) = of_computing(analysis)
    assert (found.code, found.rank) == ("more_work", 1)
    assert found.ms == pytest.approx(20.0, abs=1.5), "10 ms of further rounds, and 10 that operators take longer"
    assert found.ms is not None and found.low_ms is not None and found.high_ms is not None
    assert 0 < found.low_ms <= 10.5, "the further rounds are counted; what is longer may have another reason"
    assert found.ms <= found.high_ms <= 22.0, "a third of what the rank computes, which is half as much again"


def test_loops_of_other_ranks_steps_are_not_told_to_be_longer(tmp_path: Path) -> None:
    analysis = analysed(longer_sequences(20, 1.0).write(tmp_path))
    assert not of_computing(analysis)


def test_a_teachers_products_on_one_rank_are_work_of_its_own(tmp_path: Path) -> None:
    """They are called as the student's are, and have no backward pass."""
    job = GlooJob()
    for number in range(3, 9):
        job.step(number)
        job.compute(10.0, "aten::linear", calls=20)
        job.compute(5.0, "aten::gelu", calls=20)
        job.compute(5.0, "aten::linear", 1, calls=10)
        job.compute(2.5, "aten::gelu", 1, calls=10)
        job.compute(30.0, "AddmmBackward0", calls=20)
        job.all_reduce(1.0)
    (found,) = of_computing(analysed(job.write(tmp_path)))
    assert (found.code, found.rank) == ("own_work", 1)


def test_larger_inputs_are_told_where_loops_are_called_oftener_and_not_where_one_layer_is() -> None:
    others = {"aten::convolution": (6, 6_000), "aten::addmm": (183, 18_300)}
    longer = {"aten::convolution": (6, 9_000), "aten::addmm": (273, 27_300)}
    assert times_all_inputs({0: others, 1: longer}, 1) == 1.5, "what is called as often says how much"
    another_layer = {"aten::convolution": (6, 6_000), "aten::addmm": (273, 27_300)}
    assert times_all_inputs({0: others, 1: another_layer}, 1) is None
    assert times_all_inputs({0: others, 1: longer}, 0) is None, "the others are none that have more"


def test_two_parts_of_one_ranks_computing_are_a_sum_and_no_rivals() -> None:
    """*rank 1 costs 16.4 ms …; rank 1 may cost as much, 12.0 ms*: both were its, and neither was all of it."""
    longer = EvidenceRow(kind="activity", name="recurrent layers", ms=23.8, others_ms=16.9)
    own = EvidenceRow(kind="activity", name="aten::matmul", ms=12.4, calls=6.0)
    slower = Finding(
        code="slower_compute", rank=1, ms=16.4, low_ms=10.9, high_ms=22.2, backed="replay", evidence=(longer,)
    )
    alone = Finding(code="own_work", rank=1, ms=12.0, low_ms=8.8, high_ms=19.3, backed="replay", evidence=(own,))
    told = first_sentence([slower, alone], 112.4, 2)
    assert "ts compute costs 12.0 ms (8.8 ms to 19.3 ms) beside that" in told and "may cost as much" not in told
    rival = msgspec.structs.replace(alone, rank=0)
    assert "rank 0 may cost as much" in first_sentence([slower, rival], 112.4, 2)
