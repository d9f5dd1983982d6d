"""CPU traces that are cut off before what gloo's threads did, which a profiler may write last."""

import json
from pathlib import Path

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.gloo_traces import GlooJob

STEPS, COMPUTE_MS, LOADS_MS, TRANSFER_MS = 5, 20.0, 6.0, 3.0


def cut_job(folder: Path) -> RunAnalysis:
    made = GlooJob()
    for number in range(STEPS):
        made.step(number + 3)
        for rank in (0, 1):
            begin = made.now[rank]
            made.sleep(rank, LOADS_MS)
            made._event(rank, "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin,
                        made.now[rank])  # fmt: skip
        made.compute(COMPUTE_MS, calls=20)
        made.all_reduce(TRANSFER_MS)
        made.compute(1.0, "aten::_fused_adamw_")
    made.end_step()
    for rank in (0, 1):
        trace = made._trace(rank)
        trace["traceEvents"].sort(key=lambda one: (one["name"].startswith("gloo:"), one["ts"]))
        text = json.dumps(trace)
        (folder / f"rank{rank}.json").write_text(text[: text.index('"gloo:')])
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


def test_what_the_loops_computed_and_loaded_is_told_and_the_rest_is_not_split(tmp_path: Path) -> None:
    answer = cut_job(tmp_path)
    assert [one.steps for one in answer.ranks] == [STEPS - 1] * 2, "the last one may not be whole"
    for rank in answer.ranks:
        assert rank.part_ms("compute") / rank.steps == pytest.approx(COMPUTE_MS + 1.0, rel=0.02)
        assert rank.part_ms("idle_data") / rank.steps == pytest.approx(LOADS_MS, rel=0.02)
        assert rank.part_ms("exposed_unsplit") / rank.steps == pytest.approx(TRANSFER_MS, rel=0.1)
        assert rank.part_ms("exposed_transfer") == rank.part_ms("exposed_wait") == 0
    (one,) = answer.findings
    assert (one.code, one.rank, one.backed) == ("data_loading", None, "measured")
    assert answer.unpriced is not None and "cut off before what its collectives did" in answer.unpriced.text
    assert "cut off; 4 whole steps left" in run_verdict(answer).headline
