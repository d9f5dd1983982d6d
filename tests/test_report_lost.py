"""`analyze --against`: what a run lost against an undisturbed one, on the terminal, in the answer and in the page."""

import html
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from scalescope.cli import front_door
from scalescope.records.folder import RunFolder
from scalescope.report.html import page_of
from scalescope.report.markdown import for_an_issue
from scalescope.report.of_traces import data_of_traces
from scalescope.report.panels.lost import beside_cause, lost_clause, lost_panels, lost_table, lost_title, noise_sentence
from scalescope.report.report_data import read_report_data
from scalescope.report.terminal.run import print_run
from scalescope.report.top.colours import meaning
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze, analyze_against, analyze_run
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.answer_rows import AsMeasured, SurePart, WaterfallPart
from scalescope.scaling.answer_steps import RecurringSteps, StepTimes
from scalescope.scaling.compare.answer import AmountChange, Comparison, CountedWork, PartChange
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.lost import other_calls, other_work, sure_parts
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.trace.kernel_kinds import ELEMENTWISE
from tests import data_parallel
from tests.data_parallel import MS, Disturbance
from tests.report_samples import write_run

DATA = Path(__file__).parent / "data"


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    return data_parallel.run(tmp_path / "calm", Disturbance())


@pytest.fixture
def late(tmp_path: Path) -> Path:
    """Rank 2 spins for 4 ms a step, and the others, which wait for it, compute 2% slower."""
    slower = dict.fromkeys([0, 1, 3], 1.02)
    return data_parallel.run(tmp_path / "late", Disturbance(spin={2: 4 * MS}, slower=slower))


def test_the_terminal_says_what_was_lost_and_a_row_adds_up(
    calm: Path, late: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = tmp_path / "answer.json"
    assert front_door.main(["analyze", str(late), "--against", str(calm), "--json", str(answer)]) == 0
    said = capsys.readouterr().out
    first = said.strip().splitlines()[0]
    assert (
        "a step is 4.0 ms longer than “calm”'s (26.5 ms to 30.5 ms; 95%: 3.19 to 4.81 ms): on rank 2, for which the "
        "others come to wait, 4.0 ms more compute. By its own steps alone: rank 2 costs 1.7 ms" in first
    )
    table = said[said.index("What a profiled step lost against “calm”, a rank, recording included\n") :].splitlines()
    rows = [[float(word) for word in line.split()] for line in table if re.match(r"\s+\d\s+26\.50", line)]
    assert [row[0] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert sum(row[4:]) == pytest.approx(row[3], abs=0.03)
        assert row[3] == pytest.approx(4.0, abs=0.01)
    assert "more compute = compute kernels that the reference does not have, or has fewer of." in said
    losses = json.loads(answer.read_text())["lost"]
    assert [one["rank"] for one in losses] == [0, 1, 2, 3]
    compared = compare_paths([calm], [late])
    assert {(one["step_change_ms"], one["step_low_ms"]) for one in losses} == {(compared.change_ms, compared.low_ms)}
    assert json.loads(answer.read_text())["findings"][0]["rank"] == 2


def test_which_of_the_two_is_slower_is_said_first_and_what_one_does_by_itself_after_it(calm: Path, late: Path) -> None:
    faster, same = run_verdict(analyze_against(calm, [late])), run_verdict(analyze_against(calm, [calm]))
    assert (
        "a step is 4.0 ms shorter than “late”'s (30.5 ms to 26.5 ms; 95%: 3.19 to 4.81 ms): on rank 2, for which the "
        "others waited, gone are 4.0 ms more compute. By its own steps alone: " in faster.headline
    )
    assert "a step is as long as “calm”'s, within noise (26.5 ms to 26.5 ms; 95%: " in same.headline
    assert "). By its own steps alone: " in same.headline and "rank 2" not in same.headline
    assert run_verdict(analyze_against(late, [calm])).level == "fair"


def test_an_edge_has_the_colour_of_what_is_said_beside_the_reference(calm: Path, late: Path) -> None:
    """A card kept the colour of the run's own steps: *more than 30% is lost* above a cause of a tenth of them."""
    run = analyze_against(late, [calm])

    def told(change: float, low: float, high: float) -> str:
        for loss in run.lost:
            loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = change, low, high
        verdict = run_verdict(run)
        assert verdict.is_beside
        return verdict.level

    assert [told(1.0, 0.5, 1.5), told(4.0, 3.0, 5.0), told(14.0, 9.0, 19.0)] == ["good", "fair", "poor"]
    assert [told(-4.0, -5.0, -3.0), told(0.5, -1.0, 2.0)] == ["good", "good"]
    assert told(4.0, -9.0, 17.0) == "unknown", "what may be noise is no loss, and none is not known"
    cause, other = (replace(run.findings[0], ms=ms, low_ms=0.9 * ms, high_ms=1.1 * ms, fraction=ms / 30.5)
                    for ms in (4.0, 9.0))  # fmt: skip
    run.findings = [replace(cause, reference_ms=0.0), replace(other, reference_ms=9.0)]
    assert "There is no such cause in “calm”" in run_verdict(run).headline
    assert told(4.0, -9.0, 17.0) == "fair", "by the cause that is new, and not by one that the reference has, too"
    whole, run.findings = run.findings, [replace(run.findings[0], ms=0.4, low_ms=0.3, high_ms=0.5, fraction=0.013)]
    assert [told(4.0, -9.0, 17.0), told(0.6, -1.0, 2.0)] == ["unknown", "good"], "a step 15% longer is not well"
    run.findings = whole
    data = data_of_traces([run], str(late))
    (colour,) = (one for one in page_of(data).colours if "reference" in one.label)
    assert (colour.colour, colour.label) == ("var(--fair)", meaning("fair", "reference"))
    assert meaning("fair", "reference").startswith("more than 10% of the step is lost beside the reference: ")
    assert all("reference" in meaning(level, "reference") for level in ("good", "poor", "unknown"))


def test_steps_without_a_profiler_are_compared_first_and_doubt_is_of_the_profiled_ones(calm: Path, late: Path) -> None:
    """*The machine was unsteady. Of the profiled steps alone: a step is 9.0 ms longer* was told of 11.2 ms of others,
    and that a rank waits *for a core that others have*, where the job ran alone.
    """
    run = analyze_against(late, [calm])
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = 5.0, 3.0, 7.0
        loss.from_measured_ms, loss.to_measured_ms = 27.0, 32.0
        loss.from_run_delay_ms, loss.to_run_delay_ms = 1.0, 3.0
    told = run_verdict(run).headline
    assert (
        "a step is 5.0 ms longer than “calm”'s (27.0 ms to 32.0 ms, medians without a profiler; 95%: 3.0 to 7.0 ms) "
        "(ranks wait, in the mean, 2.0 ms more of a step for a core, which other processes or the job's own threads "
        "have): in the profiled steps that is mostly 4.0 ms more compute on rank 2, for which the others come to wait. "
        "By its own steps alone: rank 2 costs 1.7 ms"
    ) in told
    run.step_times = StepTimes(
        measured_step_ms=32.0, measured_step_p95_ms=36.0, measured_steps=40, window_step_ms=30.5,
        profiling_overhead_ms=-6.0, profiling_overhead_fraction=-0.19, placebo_ms=9.0,
    )  # fmt: skip
    assert (
        ". By its own steps alone: rank 2 costs 1.7 ms" in run_verdict(run).headline
    )  # a kernel of its own no machine makes
    run.findings = [replace(run.findings[0], code="slower_compute", evidence=())]
    assert (
        ". By its own steps alone: the machine was unsteady. Of the profiled steps alone: rank 2"
        in run_verdict(run).headline
    )


def test_what_steps_as_run_changed_by_is_not_told_of_the_profiled_ones(calm: Path, late: Path) -> None:
    """*Of the profiled steps: a step cannot be told in length from A's* was told of the median of those between."""
    run = analyze_against(late, [calm])
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = -1.5, -25.0, 20.0
        loss.from_measured_ms, loss.to_measured_ms = 139.3, 137.8
    run.recurring = RecurringSteps(every=5, phase=4, phases=[4], rank=None, longer_ms=118.7, longer_low_ms=111.0,
                                   longer_high_ms=126.0, usual_ms=137.8, mean_ms=23.7)  # fmt: skip
    told = run_verdict(run)
    assert "every 5th step takes 118.7 ms (111.0 ms to 126.0 ms) longer" in told.headline
    (profiled,) = [one for one in told.sentences if "Of the profiled steps: " in one]
    assert "cannot be told" not in profiled and "calm" not in profiled
    between = (
        "Between the longer steps a step cannot be told in length from “calm”'s, within noise (139.3 ms to 137.8 ms; "
    )
    assert any(one.startswith(f"{between}95%: -25 to 20 ms)") for one in told.sentences)


def test_what_all_ranks_do_more_of_is_no_ranks_own(calm: Path, late: Path) -> None:
    run = analyze_against(late, [calm])
    for loss in run.lost:
        loss.compute_inflation_ms = loss.compute_more_work_ms = None
        waits = WaterfallPart(part="exposed_wait", ms=-3.0 if loss.rank == 2 else 1.0)
        loss.parts = [WaterfallPart(part="idle_data", ms=4.0), waits]
    assert "; 95%: 3.19 to 4.81 ms): 4.0 ms idle (loading data). By its own steps alone: " in run_verdict(run).headline


@pytest.mark.parametrize(("off_ms", "told"), [(2.0, "is as long as"), (4.0, "cannot be told in length from")])
def test_a_step_that_may_well_be_longer_is_not_called_as_long(calm: Path, off_ms: float, told: str) -> None:
    """*A step is as long as off's, within noise (32.8 ms to 53.2 ms; 95%: 0 to 40 ms)* was told of 26 ms more."""
    run = analyze_against(calm, [calm])
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = off_ms / 2, -0.1, off_ms
    assert f"a step {told} “calm”'s, within noise (26.5 ms to 26.5 ms; 95%: " in run_verdict(run).headline


def test_what_a_run_is_told_by_itself_is_what_it_is_told_alone() -> None:
    """Without a replay a cause was told that recording may be: of traces of which that cannot be told."""
    none = DATA / "gpt8_ddp_none_n2"
    told, (alone,) = analyze_against(none, [none]), analyze([none], jobs=1)
    assert isinstance(alone, RunAnalysis) and (told.findings, told.as_run) == (alone.findings, alone.as_run)


def test_several_references_count_as_their_mean(calm: Path, late: Path) -> None:
    (one, *_) = analyze_against(late, [calm, late]).lost
    assert one.growth_ms == pytest.approx(2.0, abs=0.01)
    assert one.reference == "calm, late"


def test_a_run_folders_answer_and_page_hold_it(calm: Path, late: Path, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 4)
    late.rename(folder.traces)
    assert front_door.main(["analyze", str(folder.path), "--against", str(calm)]) == 0
    losses = read_run_answer(folder.analysis).lost
    page = html.unescape((folder.path / "report-against-calm.html").read_text())
    assert "What was lost against a reference" in page and "4 GPUs, against “calm”" in page
    (section,) = (one for one in page_of(read_report_data(folder)).sections if one.key == "lost")
    (panel,) = section.panels
    assert [row[3] for row in panel.table.rows] == [loss.growth_ms for loss in losses]
    (chart,) = panel.charts
    bars = chart["data"]["values"]
    assert sum(row["ms"] for row in bars if row["label"] == "rank 1") == pytest.approx(losses[1].growth_ms, abs=0.01)
    assert {row["part"] for row in bars} >= {"slower compute", "more compute", "exposed wait"}


def test_the_page_beside_a_reference_leaves_the_run_s_own_and_any_of_somebody_else_s(
    calm: Path, late: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", 4)
    late.rename(folder.traces)
    assert front_door.main(["analyze", str(folder.path)]) == 0
    own = folder.report.read_bytes()
    argv = ["analyze", str(folder.path), "--against", str(calm)]
    beside = folder.path / "report-against-calm.html"
    beside.write_text("<html><title>mine</title></html>")
    assert front_door.main(argv) == 2
    assert "would be overwritten; name another FILE with --html" in capsys.readouterr().err
    assert "mine" in beside.read_text()
    beside.unlink()
    for _ in range(2):  # its own it writes again
        assert front_door.main(argv) == 0
        assert capsys.readouterr().out.strip().endswith(f"report: {beside}")
        assert folder.report.read_bytes() == own and "What was lost against a reference" in beside.read_text()
    beside.unlink()
    assert front_door.main([*argv, "--html", str(page := tmp_path / "page.html")]) == 0
    assert page.is_file() and not beside.exists() and folder.report.read_bytes() == own


def test_a_growth_within_noise_is_of_profiled_steps_and_no_part_of_it_is_a_finding(
    calm: Path, late: Path, tmp_path: Path
) -> None:
    """*Growth +13.95 ms, slower compute +16.11* stood without a word below a step that was 3.4 ms shorter, in noise."""
    folder = write_run(tmp_path / "run", 4)
    late.rename(folder.traces)
    run = analyze_against(folder.path, [calm])
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = -3.0, -19.0, 10.0
        loss.from_measured_ms, loss.to_measured_ms = 73.9, 70.5
    noise = (
        "The step as run, the median of those without a profiler, changed by -3 ms (95%: -19 to 10 ms), within noise: "
        "no part of the growth as profiled is a finding."
    )
    console = Console(file=(said := io.StringIO()), width=200)
    print_run(run, console)
    below = said.getvalue().split("What a profiled step lost against “calm”, a rank, recording included: within noise")[
        1
    ]
    assert noise in below.split("What costs the step")[0]
    (panel,) = lost_panels(data_of_traces([run], "run"))
    assert panel.sentence == (
        f"Against “calm” a profiled step of the mean rank is 4.0 ms longer (26.5 ms to 30.5 ms). {noise}"
    )
    for loss in run.lost:
        loss.step_low_ms = loss.step_high_ms = -3.0
    (beyond,) = lost_panels(data_of_traces([run], "run"))
    assert "beyond noise" in beyond.sentence and "a finding" not in beyond.sentence


def test_a_step_that_is_longer_as_measured_is_told_so_with_what_it_is_without_waits_for_cores(
    calm: Path, late: Path
) -> None:
    """*45.7 ms longer, within noise* was told beside *rank 1 costs 48.6 ms (23.3 to 50.3)*."""
    sure = AsMeasured(low_ms=21.0, high_ms=70.0, free_ms=2.3, free_low_ms=-18.0, free_high_ms=23.0)
    without = "2 ms longer, within noise (95%: -18 to 23 ms), without what ranks waited for cores"
    run = analyze_against(late, [calm])
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms, loss.as_measured = 45.7, -18.0, 66.0, sure
    clause = f"45.7 ms longer than “calm”'s as measured (26.5 ms to 30.5 ms; 95%: 21 to 70 ms), and {without}"
    assert lost_clause(run) == f"a step is {clause}"
    assert beside_cause(run) == "against “calm” the step is " + clause.replace(" than “calm”'s", "")
    assert "changed by 46 ms (95%: 21 to 70 ms) as measured, and is " + without in noise_sentence(run.lost)
    assert "within noise" not in lost_title(run.lost)
    shorter = AsMeasured(low_ms=-70.0, high_ms=-21.0, free_ms=-2.3, free_low_ms=-23.0, free_high_ms=18.0)
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms, loss.as_measured = -45.7, -66.0, 18.0, shorter
    assert "ms to 30.5 ms; 95%: 21 to 70 ms), and 2 ms shorter, within noise (95%: -23 to 18 ms), " in lost_clause(run)


def test_what_a_step_is_longer_by_beside_a_sure_cause_is_told_and_not_all_of_it_as_noise(
    calm: Path, late: Path
) -> None:
    """*Stalled hosts cost 13.4 ms (12.7 to 14.1) … against good the step is 19.5 ms longer, within noise*."""
    run = analyze_against(late, [calm])
    run.findings = [Finding(code="host_stall", rank=None, ms=13.4, low_ms=12.7, high_ms=14.1, backed="replay",
                            remedy=None)]  # fmt: skip
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = 19.5, -0.6, 39.7
    told = "against “calm” the step is 19.5 ms longer, and without that cause 6.1 ms longer, within noise ("
    assert beside_cause(run) == f"{told}26.5 ms to 30.5 ms; 95%: -14 to 26 ms)"
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = 3.0, -17.0, 23.0
    assert beside_cause(run).startswith("against “calm” the step is 3.0 ms longer, within noise (")


def test_each_length_below_says_of_which_step_it_is_as_profiled_or_as_run(calm: Path, late: Path) -> None:
    """*A step of the mean rank is 42.3 ms longer. Compared as steps of one job the change is 24 ms*: of which steps?"""
    run = analyze_against(late, [calm])
    (panel,) = lost_panels(data_of_traces([run], "run"))
    assert panel.sentence.startswith("Against “calm” a profiled step of the mean rank is 4.0 ms longer (26.5 ms to ")
    assert panel.sentence.endswith(". The step as run changed by 4.00 ms (95%: 3.19 to 4.81 ms), beyond noise.")
    for loss in run.lost:
        loss.step_change_ms, loss.step_low_ms, loss.step_high_ms = 8.0, 4.0, 12.0
        loss.from_measured_ms, loss.to_measured_ms = 24.0, 32.0
    (panel,) = lost_panels(data_of_traces([run], "run"))
    assert panel.sentence.endswith(
        ". The step as run, the median of those without a profiler, changed by 8.0 ms (24.0 ms to 32.0 ms; 95%: 4.0 to "
        "12.0 ms), beyond noise."
    )
    assert panel.table is not None and panel.table.note.endswith("Profiled steps of both, recording included.")
    assert [column.title for column in panel.table.columns[1:3]] == ["reference's profiled step", "profiled step"]
    folded = for_an_issue([run])
    assert "<summary>What a profiled step lost against “calm”, a rank, recording included</summary>" in folded
    assert "reference's profiled step" in folded


def test_parts_that_are_zero_everywhere_are_named_instead_of_shown(calm: Path, late: Path) -> None:
    table, gone = lost_table(analyze_against(late, [calm]).lost)
    titles = [column.title for column in table.columns]
    assert "idle (loading data)" in gone and not set(titles) & set(gone)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["{late}", "{late}", "--against", "{calm}"], "--against tells what one run lost; name one PATH"),
        (["{late}", "--against", "{calm}/nowhere"], "nowhere does not exist"),
        (["{study}", "--against", "{calm}"], "is a study, and lost time is told of one training run"),
        (["{calm}", "--against", "{two}"], "two ran on 2 ranks and calm on 4"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(
    argv: list[str], says: str, calm: Path, late: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = RunFolder.create(tmp_path / "study", "study", "{}\n")
    two = data_parallel.run(tmp_path / "two", Disturbance(), world_size=2)
    named = [word.format(late=late, calm=calm, study=study.path, two=two) for word in argv]
    assert front_door.main(["analyze", *named]) == 2
    assert says in capsys.readouterr().err


def test_a_reference_of_one_rank_is_said_to_be_and_neither_its_waits_nor_its_causes_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Waits that it does not tell came as transfer that had grown, and what its other rank does as no cause of its."""
    job, part = DATA / "cpu_ddp_n2", tmp_path / "part"
    part.mkdir()
    shutil.copy(job / "rank0.3.pt.trace.json.gz", part)
    found = analyze_against(job, [part])
    (loss,) = found.lost
    assert (loss.rank, loss.reference_lacks) == (0, [1]) and found.findings[0].rank == 1
    changed = {one.part: one.ms for one in loss.parts}
    assert max(map(abs, changed.values())) == 0.0 and loss.growth_ms == 0.0, "it is the same trace"
    assert found.findings[0].reference_ms is None
    assert front_door.main(["analyze", str(job), "--against", str(part)]) == 0
    said = capsys.readouterr().out
    assert (
        "“part” has no trace of rank 1, of 2 ranks: who waits for whom is not known there, so waits cannot be compared,"
        " and the parts of a step only on rank 0." in said
    )
    assert "no such cause in “part”" not in said
    whole = analyze_against(job, [job])
    assert whole.lost[0].reference_lacks == [] and "has no trace of" not in str(run_verdict(whole))


def test_a_side_of_one_rank_is_compared_of_that_rank_alone(tmp_path: Path) -> None:
    """The mean of two ranks, of which one stands still, laid beside the other one had changed by half of that."""
    job, part = DATA / "cpu_ddp_n2", tmp_path / "part"
    part.mkdir()
    shutil.copy(job / "rank0.3.pt.trace.json.gz", part)
    found = compare_paths([job], [part], analysis_of=analyze_run)
    assert {one.name: one.change_ms for one in found.parts}["idle_launch"] == pytest.approx(0.0, abs=0.01)
    assert "only of rank 0 both sides have traces: the parts of the step are compared of rank 0 alone" in found.notes
    assert found.alone == [], "the rank whose trace is missing may stand still as well"


def test_a_part_beyond_noise_is_told_of_a_step_whose_length_is_not(calm: Path, late: Path) -> None:
    """*No part of the growth as profiled is a finding* stood under 12.8 and 12.3 ms more idle of two ranks, of which
    a comparison of the same runs said that it is beyond noise.
    """
    run = analyze_against(late, [calm])
    for at, loss in enumerate(run.lost):
        run.lost[at] = replace(loss, step_change_ms=13.0, step_low_ms=-24.0, step_high_ms=49.0)
    assert noise_sentence(run.lost).endswith("within noise: no part of the growth as profiled is a finding.")
    sure = SurePart(part="idle_launch", change_ms=12.9, low_ms=3.1, high_ms=23.5)
    for at, loss in enumerate(run.lost):
        run.lost[at] = replace(loss, sure_parts=[sure, SurePart(part="matmul", change_ms=-1.0, low_ms=-2, high_ms=-0.1,
                                                                rank=1)])  # fmt: skip
    told = lost_clause(run)
    assert told.startswith(
        "a step has 13 ms more idle (host late) and 1.00 ms less matmul on rank 1 than “calm”'s; "
    ), told
    assert "its length cannot be told from that, within noise" in told
    assert noise_sentence(run.lost).endswith("within noise. Beyond noise idle (host late) and matmul changed.")
    assert not lost_title(run.lost).endswith("within noise")


def test_parts_are_sure_where_a_comparison_has_them_beyond_noise() -> None:
    idle, matmul = (
        PartChange(name=name, change_ms=12.9, low_ms=low, high_ms=23.5, baseline_ms=10.5, other_ms=23.4)
        for name, low in (("idle_launch", 3.1), ("matmul", -3.1))
    )
    found = Comparison(kind="run", baseline="a", other="b", verdict="same", change_ms=13.0, low_ms=-24.0, high_ms=49.0,
                       baseline_ms=142.8, parts=[matmul, idle])  # fmt: skip
    assert [(one.part, one.change_ms) for one in sure_parts(found)] == [("idle_launch", 12.9)]
    assert not sure_parts(replace(found, low_ms=1.0)), "of a step that grew for sure its growth is told"


def test_work_that_differs_is_said_before_a_length_that_cannot_be_told(calm: Path, late: Path) -> None:
    """*A step cannot be told in length from A's, within noise. Nothing between the ranks is wrong* was told of a step
    with 34 ms more compute on both ranks, of which `compare` said that it does not do the same work.
    """
    work = CountedWork(baseline_calls=601, other_calls=858, change_ms=33.7, low_ms=18.0, high_ms=49.0)
    within = PartChange(name=ELEMENTWISE, change_ms=5.0, low_ms=-40.0, high_ms=50.0, baseline_ms=20.7, other_ms=25.7,
                        work=work)  # fmt: skip
    beyond = replace(within, change_ms=32.1, low_ms=15.9, high_ms=48.2)
    as_often = replace(within, work=CountedWork(baseline_calls=601, other_calls=601))
    found = Comparison(baseline="A", other="B", verdict="same", change_ms=41.0, low_ms=-17.0, high_ms=97.0,
                       baseline_ms=232.8, other_ms=273.8, basis="untraced", parts=[within])  # fmt: skip
    assert [(one.change_ms, one.low_ms) for one in other_work(found)] == [(33.7, 18.0)], "what more operators take"
    assert [(one.change_ms, one.low_ms) for one in other_work(replace(found, parts=[beyond]))] == [(32.1, 15.9)]
    assert not other_work(replace(found, parts=[as_often])) and not other_work(replace(found, low_ms=1.0))
    run = analyze_against(late, [calm])
    told = {"step_change_ms": 41.0, "step_low_ms": -17.0, "step_high_ms": 97.0, "from_own_ms": 3.9, "to_own_ms": 28.3}
    run.lost = [replace(one, **told, other_work=other_work(replace(found, parts=[beyond]))) for one in run.lost]
    assert noise_sentence(run.lost).endswith("Beyond noise elementwise and reductions changed.")
    assert not lost_title(run.lost).endswith("within noise")
    first = run_verdict(run).headline
    assert (
        "a step does not do the same work as “calm”'s: elementwise and reductions 858 calls a step for 601 (32 ms more;"
        " 95%: 16 to 48 ms); its length cannot be told from that, within noise (" in first
    )
    runs = ", by what one run of a job differs from the next: by their own steps they are known to ± 3.9 ms and ± 28.3"
    assert f"95%: -17 to 97 ms{runs} ms)" in first
    assert " does not do the same work as “calm”'s: elementwise" in beside_cause(run), "beside a cause that leads, too"
    amount = AmountChange(amount="collectives", operation="all_reduce", baseline=8.0, other=2.0)
    calls = other_calls(replace(found, amounts=[amount]))
    assert not other_calls(replace(found, amounts=[amount], low_ms=1.0))
    run.lost = [replace(one, other_calls=calls) for one in run.lost]
    both = (
        "a step does not do the same work as “calm”'s: 2 all_reduce calls a step for 8 and elementwise and reductions"
    )
    assert both in run_verdict(run).headline
    run.lost = [replace(one, to_own_ms=57.0, other_calls=[]) for one in run.lost]
    assert runs[:40] not in run_verdict(run).headline, "its own steps leave as much open"
