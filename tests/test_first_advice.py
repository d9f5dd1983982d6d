"""What to do first is one thing: on a terminal, on a page, in its cards and in analysis.json's order."""

from io import StringIO
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from rich.console import Console

from scalescope.records.statistics import with_ranges
from scalescope.report.drawing.parts import BY_KEY
from scalescope.report.panels.advice import advice_panels
from scalescope.report.report_data import read_report_data
from scalescope.report.terminal.study import print_study
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import study_verdicts
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import Replay, RunAnalysis
from scalescope.scaling.finding.figures import IN_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from tests.report_samples import run_answer, run_with_traces, write_study

LATE = Finding(code="late_bucket", ms=32.0, low_ms=-17.4, high_ms=70.9, fraction=0.044, backed="replay",
               remedy=Remedy(cure="smaller_buckets", size=10))  # fmt: skip
SLOW = Finding(code="slow_transfer", ms=15.8, low_ms=10.5, high_ms=35.3, fraction=0.022, backed="replay",
               remedy=Remedy(cure="look_at_links"))  # fmt: skip
REPLAYED = Replay(traced_ms=67.8, replayed_ms=67.8, error=0.0, unexplained_ms=0.0, faithful=True)
INTERFACES = ("interface", "IFNAME")


def with_findings(*findings: Finding, hosts: int | None = None) -> RunAnalysis:
    run = msgspec.structs.replace(run_answer("gpt_small-n4", 4), activity="cpu", replay=REPLAYED, hosts=hosts)
    keep(run, findings)
    return run


def test_what_is_sure_stands_before_what_noise_may_have_made() -> None:
    """The list began with 32.0 ms within noise, the page with 15.8 ms that are sure."""
    run = with_findings(LATE, SLOW)
    assert [one.code for one in run.findings] == [one.code for one in run.advice] == ["slow_transfer", "late_bucket"]
    verdict = run_verdict(run)
    assert ": slow transfers cost 15.8 ms" in verdict.headline and verdict.advice.startswith("see over which interface")
    assert sum("Late buckets may cost 32.0 ms" in one for one in verdict.sentences) == 1


def test_what_noise_may_have_made_is_measured_again_before_it_is_mended() -> None:
    run = with_findings(LATE)
    assert run_verdict(run).advice.startswith(
        "profile more steps (active=20), since these do not tell whether anything is wrong; if it is, use "
    )


@pytest.mark.parametrize("unsteady", [False, True])
def test_a_study_has_one_first_advice(unsteady: bool, tmp_path: Path) -> None:
    data = read_report_data(write_study(tmp_path / "s"))
    assert data.study is not None
    run = with_findings(LATE, SLOW, hosts=1)
    for answer in data.answers:
        if answer.name == run.name:
            answer.replay, answer.activity, answer.hosts = run.replay, run.activity, run.hosts
            keep(answer, [LATE, SLOW])
    for fall in data.study.waterfall:
        fall.unsteady = unsteady
    first = "measure again on a quiet machine" if unsteady else "leave cores to the threads that move the data"
    verdict = next(one for one in study_verdicts(data.study, data.answers) if one.subject == "gpt_small")
    assert verdict.advice.startswith(first)
    panel = next(one for one in advice_panels(data) if one.key == f"advice-{run.name}")
    assert panel.sentence.index(first) < panel.sentence.index("Of the profiled" if unsteady else "15.8 ms")
    shown = StringIO()
    print_study(data.study, data.answers, [], Console(file=shown, width=2000))
    listed = shown.getvalue().partition("What costs the step, and what to do")[2]
    assert ("First measure again" in listed.partition("1. ")[0]) == unsteady
    assert listed.partition("1. ")[2].startswith("slow transfers")


@pytest.mark.parametrize("cure", ["look_at_links", "send_less"])
@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize("backend", [None, "gloo", "mpi", "nccl"])
def test_on_one_host_nobody_is_sent_to_the_interfaces_between_hosts(
    cure: Literal["look_at_links", "send_less"], on_cpu: bool, backend: str | None
) -> None:
    remedy = Remedy(cure=cure, on_cpu=on_cpu, backend=backend)
    alone = msgspec.structs.replace(remedy, one_host=True)
    told = f"{cure_text(alone)} {cure_elsewhere(alone)}"
    assert not any(one in told for one in INTERFACES), told
    if on_cpu:
        assert "IFNAME" in cure_elsewhere(remedy)
    elif cure == "send_less":  # gloo's interface is none of what moves data between GPUs otherwise
        assert ("GLOO_SOCKET_IFNAME" in cure_elsewhere(remedy)) == (backend not in ("nccl", "mpi"))


def test_the_remedy_of_a_part_knows_how_many_hosts_there_are() -> None:
    told = {hosts: BY_KEY["exposed_transfer"].remedy_for("cpu", hosts=hosts) for hosts in (None, 1, 2)}
    assert "GLOO_SOCKET_IFNAME" in told[2] == told[None] and "IFNAME" not in told[1]


def test_a_run_s_folder_tells_how_many_hosts_its_ranks_are_on(tmp_path: Path) -> None:
    folder, _ = run_with_traces(tmp_path / "run", Path(__file__).parent / "data" / "cpu_tiny_buckets_n2")
    for hosts, known in ((["a"], 1), (["a", "b"], 2)):
        info = folder.read_info()
        info.hosts = hosts
        folder.write_info(info)
        (answer,) = analyze([folder.path], jobs=1)
        assert isinstance(answer, RunAnalysis) and answer.hosts == known
        assert all(one.remedy.one_host == (known == 1) for one in answer.findings if one.remedy is not None)


def test_windows_that_assume_other_figures_assume_it_once() -> None:
    """*Transfers under compute at 0.44 …; collectives …; transfers under compute at 0.58 …* stood in one line."""
    texts = ["at 0.58 of their own rate", "× 1.05 as in the trace", "none (0 to 0.35)", "at 0.44 of their own rate",
             "none (0 to 0.35)", "× 1.05 as in the trace"]  # fmt: skip
    assert with_ranges(texts) == ["at 0.44 to 0.58 of their own rate", "× 1.05 as in the trace", "none (0 to 0.35)"]
    assert with_ranges([]) == []


def test_the_first_advice_is_against_what_the_first_sentence_names() -> None:
    """*Launch less* was advised where the first sentence told a stall of 66.2 ms in 1 of 6 steps."""
    stall = Finding(code="host_stall", rank=0, ms=11.0, low_ms=0.0, high_ms=37.3, fraction=0.11, backed="replay",
                    evidence=(EvidenceRow(kind="figure", name=IN_STEPS, ms=66.2, calls=1.0, value=6.0),),
                    remedy=Remedy(cure="look_at_host"))  # fmt: skip
    launching = Finding(code="host_bound", ms=7.5, low_ms=7.0, high_ms=7.5, fraction=0.076, backed="replay",
                        at_most=True, remedy=Remedy(cure="compile"))  # fmt: skip
    run = msgspec.structs.replace(run_answer("gpt_small-n4", 4), replay=REPLAYED, findings=[stall, launching])
    verdict = run_verdict(run)
    assert "one step of 6 took 66.2 ms longer on rank 0" in verdict.headline
    assert verdict.advice.startswith("profile more steps (active=20), ") and verdict.advice.endswith(", or nothing.")
    assert "find what holds that host up: 11.0 ms" in verdict.advice and "aunch less" not in verdict.advice
