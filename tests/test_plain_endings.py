"""The end of what a terminal shows, and what is said plainly: no steps profiled, growth within noise, strays."""

import gzip
from pathlib import Path

import msgspec
import pytest

from scalescope.records.errors import UserError
from scalescope.report.sentences import loss_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.report.views import waterfall_table
from scalescope.scaling.answer import Quality, RunAnalysis
from scalescope.scaling.answer_rows import WaterfallPart
from scalescope.scaling.answer_steps import GrowingSteps
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.order import worth_telling
from scalescope.scaling.run import _name_of
from scalescope.scaling.study_answer import Waterfall
from scalescope.scaling.trace.sources import find_sources


def finding(ms: float, low_ms: float, rank: int) -> Finding:
    row = EvidenceRow(kind="figure", name="interruptions", ms=ms)
    return Finding(code="host_starved", rank=rank, ms=ms, low_ms=low_ms, high_ms=2 * ms, evidence=(row,),
                   backed="replay")  # fmt: skip


def test_what_noise_may_have_made_is_not_told_beside_something_far_larger() -> None:
    large, small = finding(186.0, 169.0, 0), finding(4.6, 0.0, 1)
    assert worth_telling([large, small]) == [large]
    assert worth_telling([small]) == [small]
    assert worth_telling([large, finding(4.6, 4.2, 1)])[1:]


def test_a_host_that_was_seen_to_stand_still_is_told_whatever_noise_makes_of_its_cost() -> None:
    """A stall of 6.7 ms in each of five steps cost 6.5 of 22, and nothing was told but launching, at most 13.2."""
    gap = EvidenceRow(kind="figure", name="gap_before AddBackward0", ms=6.7, others_ms=0.0)
    stands = msgspec.structs.replace(finding(2.5, 0.0, 1), code="host_stall", evidence=(gap,))
    launching = finding(13.2, 7.0, 0)
    assert worth_telling([launching, stands]) == [launching, stands]
    assert worth_telling([launching, stands], on_cpus=True) == [launching]


def test_a_growth_within_noise_says_so_first_and_has_no_shares() -> None:
    parts = [WaterfallPart(part="exposed_transfer", ms=11.8), WaterfallPart(part="idle_launch", ms=-6.7)]
    fall = Waterfall(series="s", from_world_size=1, to_world_size=2, from_step_ms=70.0, to_step_ms=75.1,
                     growth_ms=5.1, measured_growth_ms=45.3, noise_ms=43.5, parts=parts)  # fmt: skip
    assert loss_sentence(fall).startswith("In the traces a step grew by no more than noise: 5.1 ms")
    assert all(row[2] is None for row in waterfall_table(fall).rows)
    assert any(row[2] for row in waterfall_table(msgspec.structs.replace(fall, noise_ms=1.0)).rows)


def test_a_run_without_a_profiler_lacks_no_traces() -> None:
    quality = Quality(verdict="unusable", reasons=["no step was profiled (profiler=none)"], unprofiled=True)
    verdict = run_verdict(RunAnalysis(name="r", world_size=1, activity="gpu", quality=quality))
    assert "no step was profiled (profiler=none)" in verdict.headline
    assert not any("unusable" in note for note in verdict.notes)


def test_what_rows_tell_of_a_run_without_a_profiler_is_not_followed_by_that_nothing_tells_it() -> None:
    """Before, steps that grow were told, and then that nothing tells where their time goes."""
    growing = GrowingSteps(first=5, last=95, from_ms=30.0, to_ms=66.0, a_step_ms=0.4, low_ms=0.38, high_ms=0.42,
                           known_by="rows")  # fmt: skip
    quality = Quality(verdict="unusable", reasons=["no step was profiled (profiler=none)"], unprofiled=True)
    verdict = run_verdict(RunAnalysis(name="r", world_size=1, activity="gpu", quality=quality, growing=growing))
    assert "0.400 ms" in verdict.headline
    assert not any("nothing tells" in told for told in (verdict.headline, *verdict.sentences))


@pytest.mark.parametrize("folder", ["tb", "log", "profiler", "traces"])
def test_traces_are_called_by_what_holds_their_folder(tmp_path: Path, folder: str) -> None:
    assert _name_of(tmp_path / "my_job" / folder) == "my_job"


def test_a_run_that_is_called_as_folders_of_traces_are_has_its_own_name(tmp_path: Path) -> None:
    """The traces of the run `runs/log` were titled *runs*, which holds it."""
    run = tmp_path / "runs" / "log"
    (run / "traces").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    assert _name_of(run / "traces") == _name_of(run) == "log"


def test_beside_folders_of_traces_a_stray_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"accuracy": 0.9}')
    (tmp_path / "before").mkdir()
    with gzip.open(tmp_path / "before" / "rank0.pt.trace.json.gz", "wt") as file:
        file.write('{"traceEvents": []}')
    with pytest.raises(UserError, match=r"results\.json is none\): name one of .*before"):
        find_sources(tmp_path)
    (tmp_path / "results.json").write_text('{"traceEvents": []}')
    assert [one.path.name for one in find_sources(tmp_path)] == ["results.json"]
