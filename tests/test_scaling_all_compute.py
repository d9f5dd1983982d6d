"""A device that computes all the time has nothing around its compute to mend, whether its step replays or not."""

from pathlib import Path

import pytest

from scalescope import analyze
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.findings import add
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.gloo_traces import GlooJob

GPT = Path(__file__).parent / "data" / "gpt_ddp_n1"  # one GPU, which computes for 96.7% of the step


@pytest.mark.parametrize("much", [0.95, 0.98])
def test_a_step_that_is_all_compute_needs_no_replay(much: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of two models on two streams, whose kernels take longer beside each other than a replay can tell."""
    monkeypatch.setattr(Replayer, "is_good_for", lambda *_, **__: False)
    monkeypatch.setattr(add, "_ALL_COMPUTE", much)
    answer = analyze(GPT)
    assert answer.unpriced is not None and answer.unpriced.code == "unfaithful"
    assert [one.code for one in answer.findings] == (["nothing"] if much < 0.967 else [])
    assert ("nothing around the compute is wrong" in run_verdict(answer).headline) == (much < 0.967)


def test_a_rank_on_cpus_computes_while_it_waits_for_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = GlooJob(1)
    for number in range(4):
        job.step(number)
        job.compute(10.0, calls=4)
    job.end_step()
    job.write(tmp_path)
    assert [one.code for one in analyze(tmp_path).findings] == ["nothing"]
    monkeypatch.setattr(Replayer, "is_good_for", lambda *_, **__: False)
    assert analyze(tmp_path).findings == []
