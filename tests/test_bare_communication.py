"""Communication that nothing hides and nothing explains: how much is waits, whose for whom, and what tells more."""

from pathlib import Path

import msgspec
import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding import EXPOSED, EXPOSED_TRANSFER, EXPOSED_WAIT, ONE_WAITS
from tests.gloo_traces import GlooJob, analysed

#: Which rank computes longer in each step, now at this operator and now at that one, as others on the cores have it.
LATER = (1, 1, 0, 1, 0, 1, 1)
LONGER_MS = (9.0, 14.0, 8.0, 11.0, 13.0, 8.0, 12.0)


def _answer(folder: Path) -> RunAnalysis:
    job = GlooJob()
    for number, (later, ms) in enumerate(zip((*LATER, 1), (*LONGER_MS, 9.0), strict=True)):
        job.step(3 + number)
        for at in range(24):
            name = ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4]
            held_up = ms if at in ((5 * number) % 24, (5 * number + 7) % 24) else 0.0
            job.compute(3.5 + (held_up if later == 0 else 0.0), name, rank=0)
            job.compute(3.5 + (held_up if later == 1 else 0.0), name, rank=1)
        job.all_reduce(2.5)
    return analysed(job.write(folder))


def test_waits_and_transfer_that_nothing_explains_are_told_apart_with_who_waits_for_whom(tmp_path: Path) -> None:
    """*10.7 ms are communication that nothing hides* sounded like a network, and faster operators were advised."""
    answer = _answer(tmp_path)
    first = answer.findings[0]
    rows = {row.name: row for row in first.evidence}
    assert first.code == "nothing" and first.remedy is not None and first.remedy.cure == "profile_longer"
    wait, transfer = rows[EXPOSED_WAIT].ms or 0.0, rows[EXPOSED_TRANSFER].ms or 0.0
    assert wait + transfer == pytest.approx(rows[EXPOSED].ms) and wait > 0 and transfer > 0
    assert rows[ONE_WAITS].value == 0 and (rows[ONE_WAITS].others_ms or 0.0) < (rows[ONE_WAITS].ms or 0.0)
    verdict = run_verdict(answer)
    assert "waits of ranks for each other (" in verdict.headline and "transfer (" in verdict.headline
    assert ", and no single cause of it is found. Rank 0 waits " in verdict.headline
    assert verdict.advice.startswith("profile in more windows") and "all steps" in verdict.advice
    assert "compile" not in verdict.advice and "precision" not in verdict.advice


def test_ranks_that_wait_for_each_other_alike_are_not_told_apart(tmp_path: Path) -> None:
    answer = _answer(tmp_path)
    first = answer.findings[0]
    rest = tuple(row for row in first.evidence if row.name != ONE_WAITS)
    answer.findings[0] = msgspec.structs.replace(first, evidence=rest)
    assert run_verdict(answer).headline.endswith("that nothing hides, and no single cause of it is found.")
