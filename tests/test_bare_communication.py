"""Communication that nothing hides and nothing explains: how much is waits, whose for whom, and what tells more."""

from pathlib import Path

import msgspec
import pytest

from scalescope.report.text.findings import todo
from scalescope.report.text.listed import bare_transfer, listed
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import EXPOSED, EXPOSED_TRANSFER, EXPOSED_WAIT, ONE_WAITS
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


def _with_launching(folder: Path, later_ms: float) -> RunAnalysis:
    """Of 70.7 ms, 8 are transfer and 10 what hosts do between 700 operators; ranks are late by turns."""
    job = GlooJob()
    for number in range(8):
        job.step(3 + number)
        job.compute(40.0, calls=400)
        for rank in (0, 1):
            job.compute(1.0 + later_ms * (number % 2 == rank), "aten::mul", rank=rank)
            for _ in range(300):
                job.compute(0.03, "aten::add", rank=rank)
                job.sleep(rank, 0.03)
        job.all_reduce(8.0)
        job.compute(4.0, "Optimizer.step#SGD.step")
    return analysed(job.write(folder))


def test_transfer_that_nothing_explains_is_told_without_waits_and_the_advice_is_about_it(tmp_path: Path) -> None:
    """*14.6 ms are transfer* stood above *13.2 ms exposed transfer and 1.3 ms exposed wait*, and what may help most was
    to *make the operators themselves faster*.
    """
    answer = _with_launching(tmp_path, 1.2)
    first = answer.findings[0]
    rows = {row.name: row.ms or 0.0 for row in first.evidence}
    assert first.code == "nothing" and first.remedy is not None and first.remedy.cure == "send_less"
    assert 0.3 < rows[EXPOSED_WAIT] < 0.1 * rows[EXPOSED]
    verdict = run_verdict(answer)
    told = f"{rows[EXPOSED_TRANSFER]:.1f} ms"
    assert f": {told} of the " in verdict.headline and " step are transfer that nothing hides" in verdict.headline
    assert f"{told} exposed transfer" in verdict.sentences[0]
    assert f"send less, or less often: at most {told} a step, " in verdict.advice
    assert "launch less: " in verdict.advice and "no fault is found" not in verdict.advice


@pytest.mark.parametrize("more", [1.5, 1.0])
def test_the_advice_begins_with_what_is_listed_first(more: float, tmp_path: Path) -> None:
    """*Send less: at most 12.7 ms; beyond that, launch less: at most 14.3 ms* stood above a list of launching alone."""
    answer = _with_launching(tmp_path, 1.2)
    at = next(at for at, one in enumerate(answer.findings) if one.code == "host_bound")
    launching = answer.findings[at]
    answer.findings[at] = msgspec.structs.replace(launching, ms=more * (launching.ms or 0.0), low_ms=0.0)
    sent, first = bare_transfer(answer.findings[0]), listed(answer)[0]
    assert sent is not None and [one.code for one in listed(answer)].count("exposed_transfer") == 1
    assert (first.code == "host_bound") is ((answer.findings[at].ms or 0.0) > (sent.ms or 0.0)) is (more > 1)
    assert run_verdict(answer).advice.startswith(todo(first, answer))


def test_of_waits_alone_no_transfer_is_told_as_waits(tmp_path: Path) -> None:
    answer = _answer(tmp_path)
    first = answer.findings[0]
    split = {EXPOSED_WAIT: 10.0, EXPOSED_TRANSFER: 0.9, EXPOSED: 10.9}
    rest = tuple(msgspec.structs.replace(row, ms=split.get(row.name, row.ms)) for row in first.evidence)
    answer.findings[0] = msgspec.structs.replace(first, evidence=rest)
    assert ": 10.0 ms of the " in run_verdict(answer).headline


def test_ranks_that_wait_for_each_other_alike_are_not_told_apart(tmp_path: Path) -> None:
    answer = _answer(tmp_path)
    first = answer.findings[0]
    rest = tuple(row for row in first.evidence if row.name != ONE_WAITS)
    answer.findings[0] = msgspec.structs.replace(first, evidence=rest)
    assert run_verdict(answer).headline.endswith("that nothing hides, and no single cause of it is found.")
