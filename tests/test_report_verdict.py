"""The verdict is plain sentences with the study's own figures."""

import re
from typing import Literal

import msgspec
import pytest

from scalescope.records.rows import SweepRow
from scalescope.report.drawing.numbers import capitalized, figure, milliseconds, rate, size
from scalescope.report.sentences import loss_sentence, sweep_verdict
from scalescope.report.text.cures.words import cure_text
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import study_verdicts
from scalescope.report.views import waterfall_steps, waterfall_table
from scalescope.scaling.answer import Quality, Replay, RunAnalysis, Straggler
from scalescope.scaling.answer_rows import WaterfallPart
from scalescope.scaling.finding.figures import IN_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.cuts import remedies_of_cuts
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.study_answer import ScalingPoint, StudyAnalysis, Waterfall
from tests.report_samples import LAUNCHING, RUNS, grown_study, run_answer, spread_study, study_answer, sweep_rows


def study() -> StudyAnalysis:
    return study_answer("h200", RUNS)


def answers() -> list[RunAnalysis]:
    return [run_answer(name, n) for name, n in zip(RUNS, (1, 2, 4), strict=True)]


def test_a_study_leads_with_speedup_and_efficiency_and_says_where_the_loss_went() -> None:
    verdict = study_verdicts(study(), answers())[0]
    assert verdict.headline == "gpt_small: 4 GPUs do 3.77× the work of one: 94.3% weak scaling efficiency."
    assert verdict.sentences[0] == (
        "Of the 3.8 ms by which a step grew (64.0 ms to 67.8 ms in the mean of the traces), 52% are slower compute, "
        "24% exposed transfer, 13% exposed wait, 8% more compute and 3% the rest."
    )
    assert verdict.level == "good"
    assert verdict.advice.startswith("collectives that overlap take multiprocessors")
    assert "1,932,316 tokens/s" in verdict.text and "43.1%" in verdict.text


def test_the_shares_of_a_loss_are_those_of_its_parts() -> None:
    fall = study().waterfall[-1]
    assert sum(ms for _, ms in waterfall_steps(fall)) == pytest.approx(fall.growth_ms)
    assert [part.name for part, _ in waterfall_steps(fall)][:2] == ["slower compute", "more compute"]


def test_what_became_shorter_is_said_as_given_back() -> None:
    parts = [WaterfallPart(part="exposed_transfer", ms=3.0), WaterfallPart(part="idle_launch", ms=-1.0)]
    fall = Waterfall(series="s", from_world_size=1, to_world_size=2, from_step_ms=10.0, to_step_ms=12.0, growth_ms=2.0,
                     parts=parts)  # fmt: skip
    assert loss_sentence(fall) == (
        "A step grew by 2.0 ms (10.0 ms to 12.0 ms in the mean of the traces): 3.0 ms exposed transfer; "
        "1.0 ms idle (host late) came back."
    )
    shrunk = msgspec.structs.replace(fall, growth_ms=-2.0, to_step_ms=8.0)
    assert loss_sentence(shrunk) == "The profiled step did not grow (10.0 ms to 8.0 ms in the mean of the traces)."
    assert all(row[2] is None for row in waterfall_table(shrunk).rows)  # nothing of what did not grow is a share
    still = msgspec.structs.replace(fall, growth_ms=0.002, to_step_ms=10.002)
    assert loss_sentence(still) == "The profiled step did not grow (10.0 ms to 10.0 ms in the mean of the traces)."


def test_ranks_on_cpus_are_not_called_gpus() -> None:
    runs = [msgspec.structs.replace(run, activity="cpu") for run in answers()]
    verdict = study_verdicts(study(), runs)[0]
    assert "4 CPU ranks do 3.77× the work of one" in verdict.headline
    assert "share its cores" in verdict.advice and "GPU" not in verdict.text and "NCCL" not in verdict.text


SLOW_LINK = Finding(code="slow_transfer", ms=30.0, low_ms=20.0, high_ms=40.0, fraction=0.2, backed="replay",
                    remedy=Remedy(cure="look_at_links"))  # fmt: skip


def with_findings(activity: Literal["cpu", "gpu"], *findings: Finding) -> list[RunAnalysis]:
    runs = [msgspec.structs.replace(run, activity=activity) for run in answers()]
    keep(runs[-1], list(findings))
    return runs


def test_what_a_study_grew_by_comes_before_a_finding_that_brings_far_less() -> None:
    """*Launch less: at most 4%* was the advice where half of the growth was ranks that share two cores."""
    verdict = study_verdicts(grown_study(52.7), with_findings("cpu", LAUNCHING))[0]
    assert verdict.headline.endswith("weak scaling efficiency; 69% of the step's growth is slower compute.")
    assert verdict.advice.startswith(
        "more cores or memory bandwidth a rank, which the ranks of a machine share: 52.7 ms of the 76.0 ms by which a "
        "step grew are slower compute. What one can change: launch less"
    )
    assert verdict.advice.endswith("(speeds the step, not the scaling).")
    assert len(verdict.advice.split()) < 55, "80 words stood there, what one can change behind all of them"
    on_gpus = study_verdicts(grown_study(52.7), with_findings("gpu", LAUNCHING))[0].advice
    assert on_gpus.startswith(
        "52.7 ms of the 76.0 ms by which a step grew are slower compute: collectives that overlap"
    )
    assert "beyond that, launch less" in on_gpus and "cores" not in on_gpus


def test_a_study_says_what_cutting_the_compiled_graph_costs_and_that_fewer_cuts_are_to_be_tried() -> None:
    """On four H200s 2.4 of 7.2 ms were the cuts, larger buckets brought 2.8, and *faster kernels* was the advice."""
    cut = grown_study(1.4)
    (fall,) = cut.waterfall
    fall.from_step_ms, fall.to_step_ms, fall.growth_ms, fall.measured_growth_ms = 107.8, 115.0, 7.2, 8.9
    fall.noise_ms, fall.compute_more_work_ms, fall.only_larger_cut = 5.0, 2.4, True
    fall.parts = [WaterfallPart(part="compute", ms=3.8), WaterfallPart(part="exposed_transfer", ms=3.4)]
    runs = with_findings("gpu")
    runs[-1].origin = "job"
    verdict = study_verdicts(cut, runs)[0]
    assert verdict.headline.endswith(
        "; up to 33% of the step's growth is what cutting the compiled graph at gradient buckets costs."
    )
    fewer, none = (cure_text(one) for one in remedies_of_cuts("job"))
    assert verdict.advice.startswith(f"{fewer}, or {none}; ")
    assert "strategy.bucket_mib=100" in verdict.advice and "strategy.compile_by_bucket=false" in verdict.advice
    assert "up to 2.4 ms a step, less what all-reduces that begin later lay bare: try both" in verdict.advice
    runs[-1].origin = "script"
    elsewhere = study_verdicts(cut, runs)[0].advice
    assert "strategy." not in elsewhere and "bucket_cap_mb=100" in elsewhere and "optimize_ddp" in elsewhere
    for change in ({"only_larger_cut": False}, {"noise_ms": 9.0}, {"compute_more_work_ms": 1.0}):
        other = msgspec.structs.replace(cut, waterfall=[msgspec.structs.replace(fall, **change)])
        verdict = study_verdicts(other, with_findings("gpu"))[0]
        assert "cut" not in verdict.headline + verdict.advice, change


BUCKETS = Finding(code="small_buckets", ms=4.1, low_ms=0.0, high_ms=4.1, fraction=0.025, backed="bound", at_most=True,
                  remedy=Remedy(cure="larger_buckets", size=5))  # fmt: skip


def test_what_the_step_of_one_rank_has_as_well_is_no_advice_on_scaling() -> None:
    """*Launch less: at most 8.1 ms* came first of a growth of 35 ms, 1.0 of which is hosts that are late."""
    launching = msgspec.structs.replace(LAUNCHING, ms=8.1, high_ms=8.4, fraction=0.049)
    advice = study_verdicts(spread_study(1.0), with_findings("cpu", launching, BUCKETS))[0].advice
    assert advice.startswith("more cores or memory bandwidth a rank")
    can = advice.partition("What one can change: ")[2]
    assert can.startswith("use larger gradient buckets") and "; launch less: compile the step: at most 8.1 ms" in can
    assert can.endswith("4.9% (speeds the step, not the scaling).")
    grew = study_verdicts(spread_study(6.0), with_findings("cpu", launching, BUCKETS))[0].advice
    assert grew.startswith("launch less") and "scaling" not in grew, "three quarters of it came with the ranks"
    little = study_verdicts(spread_study(0.5, 10.0), with_findings("cpu", launching, BUCKETS))[0].advice
    assert little.startswith("launch less") and little.endswith("(speeds the step, not the scaling).")
    on_gpus = study_verdicts(spread_study(1.0), with_findings("gpu", launching, BUCKETS))[0].advice
    assert "are slower compute: collectives that overlap" in on_gpus
    assert on_gpus.index("use larger gradient buckets") < on_gpus.index("launch less")


def test_a_finding_that_may_bring_as_much_as_half_of_the_growth_stays_first() -> None:
    verdict = study_verdicts(grown_study(52.7), with_findings("cpu", SLOW_LINK))[0]
    assert verdict.advice.startswith("see over which interface") and "slower compute." in verdict.headline


def test_no_noise_follows_what_a_study_grew_by() -> None:
    noise = msgspec.structs.replace(LAUNCHING, rank=1, code="slower_compute", low_ms=0.0, at_most=False)
    verdict = study_verdicts(grown_study(52.7), with_findings("cpu", noise))[0]
    assert verdict.advice.endswith("are slower compute.")


@pytest.mark.parametrize("inflation_ms", [30.0, 37.9])
def test_a_growth_that_no_part_is_most_of_is_not_summed_up_by_one(inflation_ms: float) -> None:
    spread = grown_study(inflation_ms)
    (fall,) = spread.waterfall
    fall.parts[1:] = [
        WaterfallPart(part="exposed_wait", ms=30.0),
        WaterfallPart(part="idle_launch", ms=46 - inflation_ms),
    ]
    verdict = study_verdicts(spread, with_findings("cpu", LAUNCHING))[0]
    assert verdict.headline.endswith("efficiency.") and verdict.advice.startswith("launch less")


def test_strong_scaling_names_the_perfect_split_instead_of_a_growth() -> None:
    points = [
        ScalingPoint(series="s", model="m", world_size=n, scaling="strong", run=f"r{n}", step_ms=step, samples_per_s=n,
                     tokens_per_s=None, speedup=40 / step, efficiency=40 / step / n, compute_factor=None,
                     parallel_factor=None)
        for n, step in ((1, 40.0), (4, 16.0))
    ]  # fmt: skip
    verdict = study_verdicts(StudyAnalysis(name="s", efficiency=points), [])[0]
    assert "62.5% strong scaling efficiency" in verdict.headline and verdict.level == "poor"
    assert "16.0 ms where 10.0 ms would be a perfect split of 40.0 ms" in verdict.text


@pytest.mark.parametrize("half", [20.0, 60.0])
def test_a_loss_whose_cause_noise_hides_says_so_and_what_would_tell(half: float) -> None:
    """*2 CPU ranks do 1.56× the work of one: 77.9%* was all, with nothing of what it goes to."""
    told = grown_study(52.7)
    (fall,) = told.waterfall
    fall.noise_ms = 100.0
    told.efficiency[-1].efficiency = 0.78
    runs = with_findings("cpu")
    for run, step in ((runs[0], 80.0), (runs[-1], 120.0)):
        assert run.step_times is not None
        run.step_times = msgspec.structs.replace(
            run.step_times, measured_step_ms=step, measured_low_ms=step - half, measured_high_ms=step + half
        )
    verdict = study_verdicts(told, runs)[0]
    known = "its cause cannot be told: the profiled steps grew by no more than noise."
    nothing = "within noise the loss may be nothing, and its cause cannot be told."
    interval = "78% (63% to 102%)" if half < 30 else "78% (46% to 266%)"
    assert verdict.headline.endswith(f"{interval} weak scaling efficiency; {known if half < 30 else nothing}")
    tells = "measure in more windows: that tells what the step grew by."
    sure, *rest = verdict.advice.split(" Whatever that is: ")
    assert sure == tells and all("at most" not in one for one in rest), "no advice rests on what may be nothing"
    fall.unsteady = True
    unsteady = study_verdicts(told, runs)[0]
    assert "cause cannot be told" in unsteady.headline and unsteady.advice.startswith("measure again")
    told.efficiency[-1].efficiency = 0.99
    assert "cannot be told" not in study_verdicts(told, runs)[0].headline, "there is no loss to speak of"


def test_more_than_perfect_scaling_is_doubted() -> None:
    points = [msgspec.structs.replace(point, efficiency=1.82, speedup=3.64) for point in study().efficiency]
    verdict = study_verdicts(msgspec.structs.replace(study(), efficiency=points), answers())[0]
    assert verdict.level == "unknown" and "measure again on a quiet machine" in verdict.text


def test_profiled_steps_unlike_the_measured_ones_are_said() -> None:
    run = run_answer("r", 4)
    assert run.step_times is not None
    times = msgspec.structs.replace(run.step_times, profiling_overhead_fraction=-0.28)
    text = run_verdict(msgspec.structs.replace(run, step_times=times)).text
    assert "On 4 GPUs the profiled steps are 28% shorter than the measured ones" in text


def test_growths_that_contradict_each_other_are_said_before_anything_else() -> None:
    (fall, *_) = study().waterfall
    measured = fall.growth_ms + 0.3
    even = msgspec.structs.replace(
        fall, measured_growth_ms=measured, noise_ms=0.5, measured_growth_low_ms=measured - 0.4,
        measured_growth_high_ms=measured + 0.4,
    )  # fmt: skip
    told = "Measured outside the traces it grew by 2.2 ms (1.8 ms to 2.6 ms)."
    assert loss_sentence(even) == f"{loss_sentence(fall)} {told}", "many steps tell it better than a window's few"
    beside = msgspec.structs.replace(
        even, noise_ms=1.5, measured_growth_ms=fall.growth_ms - 1.2, measured_growth_low_ms=fall.growth_ms - 1.6,
        measured_growth_high_ms=fall.growth_ms - 0.8,
    )  # fmt: skip
    assert loss_sentence(beside).endswith("; the profiled steps are few, and tell their own growth to ± 1.5 ms only.")
    shorter = msgspec.structs.replace(
        even, noise_ms=20.0, measured_growth_ms=-1.0, measured_growth_low_ms=-2.5, measured_growth_high_ms=0.5
    )
    assert "Measured outside the traces it became 1.0 ms shorter (-0.5 ms to 2.5 ms)" in loss_sentence(shorter)
    apart = [
        msgspec.structs.replace(one, measured_growth_ms=-9.0, noise_ms=0.5, unsteady=True) for one in study().waterfall
    ]
    verdict = study_verdicts(msgspec.structs.replace(study(), waterfall=apart), answers())[0]
    assert verdict.level == "unknown"
    assert verdict.headline.startswith("gpt_small: the machine was unsteady. 4 GPUs do 3.77× the work of one")
    assert verdict.sentences[1].startswith("The measured step became 9.0 ms shorter and the profiled one grew by"), (
        "the headline says of what"
    )
    assert verdict.advice.startswith("measure again on a quiet machine")


def test_what_unsteady_steps_say_is_no_firm_advice() -> None:
    run = run_answer("gpt_small-n2", 2)
    assert run.step_times is not None
    run.findings = [Finding(code="host_stall", rank=1, ms=3.0, low_ms=2.0, high_ms=4.0, fraction=0.05,
                            remedy=Remedy(cure="look_at_host"), backed="replay")]  # fmt: skip
    assert not run_verdict(run).advice.startswith("measure again")
    run.step_times = msgspec.structs.replace(
        run.step_times, profiling_overhead_ms=-20.0, profiling_overhead_fraction=-0.3, placebo_ms=1.0
    )
    assert run_verdict(run).advice.startswith("measure again on a quiet machine")
    assert ". Of the profiled steps alone: " in run_verdict(run).advice


def test_what_may_cost_nothing_names_nobody_firmly() -> None:
    run = run_answer("gpt_small-n2", 2)
    late = Finding(code="host_stall", rank=1, ms=2.7, low_ms=0.0, high_ms=6.8, fraction=0.05,
                   remedy=Remedy(cure="look_at_host"), backed="replay")  # fmt: skip
    sure = Finding(code="copies", ms=1.0, low_ms=0.5, high_ms=1.5, remedy=Remedy(cure="copy_ahead"), backed="replay")
    keep(run, [late])
    verdict = run_verdict(run)
    assert ": no rank stands out from the noise: " in verdict.headline and "step is compute" in verdict.headline
    assert "rank 1" not in verdict.headline and verdict.text.count("step is compute") == 1
    assert verdict.sentences[0].startswith("Rank 1 may cost 2.7 ms (0.00 ms to 6.8 ms) of the")
    assert verdict.sentences[0].count("or nothing") == verdict.advice.count("or nothing") == 1
    assert "rank 1 costs" not in verdict.text.lower() and run.stragglers == []
    run.findings = [sure, late]
    assert (
        run_verdict(run).text.count("Rank 1 may cost 2.7 ms (0.00 ms to 6.8 ms) of the 65.9 ms step, or nothing: ") == 1
    )
    run.findings = [late, sure]
    assert run_verdict(run).advice.startswith("take copies out of the step: 1.0 ms"), "what is sure is to be done first"
    assert ": exposed copies cost 1.0 ms" in run_verdict(run).headline
    now_and_then = (EvidenceRow(kind="figure", name=IN_STEPS, ms=8.1, calls=1.0, value=3.0),)
    run.findings = [msgspec.structs.replace(late, evidence=now_and_then)]
    assert (
        ": no rank is late for sure; rank 1 may cost 2.7 ms (0.00 ms to 6.8 ms) a step in the mean, or nothing"
        in run_verdict(run).headline
    )
    run.findings = [msgspec.structs.replace(late, low_ms=1.0)]
    assert ": rank 1 costs 2.7 ms (1.0 ms to 6.8 ms) of the" in run_verdict(run).headline
    run.findings = [msgspec.structs.replace(sure, low_ms=0.0, at_most=True)]
    assert "exposed copies cost at most 1.0 ms" in run_verdict(run).headline, "a bound says so already"


def test_one_count_alone_claims_no_scaling_and_tells_where_its_step_goes() -> None:
    """A study on one GPU ended with its throughput alone."""
    alone = msgspec.structs.replace(study(), efficiency=study().efficiency[:1], waterfall=[])
    verdict = study_verdicts(alone, answers())[0]
    assert verdict.headline == run_verdict(answers()[0]).headline and verdict.advice
    assert "There is no other count to compare with." in verdict.notes and "efficiency" not in verdict.text
    untraced = study_verdicts(alone, [])[0]
    assert untraced.level == "unknown" and "1 GPU does" in untraced.headline
    assert "no other count to compare with" in untraced.headline


def test_an_empty_study_says_so_with_its_reasons() -> None:
    empty = StudyAnalysis(name="s", reasons=["no run was analysed"])
    assert study_verdicts(empty, [])[0].text == "This study holds no analysed run yet. no run was analysed."


def test_a_straggler_and_bad_traces_are_in_the_verdict() -> None:
    run = msgspec.structs.replace(
        run_answer("r", 4),
        stragglers=[Straggler(rank=2, lost_ms=8.06, verdict="its own delay between backward and optimizer")],
        quality=Quality(verdict="degraded", reasons=["rank 3 is cut off"]),
    )
    text = run_verdict(run).text  # an answer of schema 1 holds its words
    assert "Rank 2 of 4 GPUs costs the others 8.1 ms of exposed wait a step: its own delay" in text
    assert "are degraded: rank 3 is cut off." in text


def test_a_run_says_what_its_step_is_made_of() -> None:
    verdict = run_verdict(run_answer("r", 4))
    assert verdict.headline.startswith("gpt_small · ddp · 4 GPUs: 95.3% of the 67.8 ms step is compute")
    assert "1.5 ms idle (queued)" in verdict.text and "0.93 ms exposed transfer" in verdict.text


def test_a_remedy_does_not_contradict_the_replay() -> None:
    run = run_answer("r", 4)
    assert run_verdict(run).advice.endswith("fewer dependencies between streams.")
    run.replay = Replay(traced_ms=67.8, replayed_ms=67.8, error=0.0, unexplained_ms=0.0, faithful=True)
    assert run_verdict(run).advice.endswith("No setting that the replay can try is sure to bring 0.5% of the step.")


def test_traces_that_say_nothing_give_no_figure() -> None:
    run = msgspec.structs.replace(
        run_answer("r", 4), ranks=[], quality=Quality(verdict="unusable", reasons=["no step"])
    )
    verdict = run_verdict(run)
    assert verdict.level == "unknown" and "do not say where its time goes" in verdict.headline


def test_the_sweep_is_judged_at_its_largest_group_under_the_ceiling_it_assumes() -> None:
    verdict = sweep_verdict(sweep_rows())
    assert verdict.headline == (
        "all_reduce reaches 356.5 GB/s busbw at 1 GiB on 4 ranks, 79.2% of the 450 GB/s that the links allow "
        "(switch, ring); its shortest call, of 16 B, takes 8.6 µs."
    )
    assert "1 of 85 points was not measured: 17.2 GB do not fit twice." in verdict.text
    assert verdict.level == "good"


def test_a_point_of_a_sweep_has_the_digits_of_its_interval_and_says_where_that_is_wide() -> None:
    """*Its shortest call takes 690.8 µs* was told of 8 B, known within a sixth, where 32 B took 1.8 ms."""
    wide = SweepRow("all_reduce", 8, "float32", 2, "measured", time_us=552.49, interval_us=(463.5, 641.4),
                    bus_gb_s=1.437, wrong=0)  # fmt: skip
    known = msgspec.structs.replace(wide, bytes=2**25, time_us=23268.0, interval_us=(22000.0, 24500.0), bus_gb_s=14.42)
    told = sweep_verdict([wide, known]).headline
    assert told == (
        "all_reduce reaches 14.4 GB/s busbw at 32 MiB on 2 ranks; its shortest call, of 8 B, takes 552 µs "
        "(± 16%, wide)."
    )
    assert "(± 16%, wide) at 8 B" in sweep_verdict([wide]).headline, "how fast it is is known no better"


def test_wrong_results_are_never_good() -> None:
    row = SweepRow("all_reduce", 2**30, "float32", 4, "measured", time_us=1.0, alg_gb_s=1.0, bus_gb_s=440.0,
                   ceiling_gb_s=450.0, wrong=17)  # fmt: skip
    verdict = sweep_verdict([row])
    assert verdict.level == "poor" and "17 elements of the results were wrong" in verdict.text


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (milliseconds(0.4249), "0.42 ms"), (milliseconds(3.84), "3.8 ms"), (milliseconds(12345.6), "12,346 ms"),
        (rate(450.0), "450"), (rate(356.52), "356.5"), (rate(1932316.4), "1,932,316"), (rate(4.214), "4.21"),
        (capitalized("aten::sort, 9 ms"), "aten::sort, 9 ms"), (capitalized("spin_kernel"), "spin_kernel"),
        (capitalized("rank 1"), "Rank 1"),
        (size(8), "8 B"), (size(2**30), "1 GiB"), (size(3 * 2**19), "1.50 MiB"), (figure(-0.0001, 2), "0.00"),
    ],
)  # fmt: skip
def test_figures_read_the_same_everywhere(shown: str, expected: str) -> None:
    assert shown == expected


def test_parts_of_the_step_are_told_in_what_its_compute_is() -> None:
    """*96.5% of the 80.5 ms step is compute; 1.3 ms idle (queued), 0.64 ms exposed transfer*: nobody could add up."""
    run = run_answer("r", 2)
    keep(run, [Finding(code="copies", ms=9.0, low_ms=8.5, high_ms=9.5, remedy=Remedy(cure="copy_ahead"),
                       backed="replay")])  # fmt: skip
    (told,) = (one for one in run_verdict(run).sentences if " step is compute" in one)
    step, *parts = (float(one.replace(",", "")) for one in re.findall(r"([\d.]+) ms", told))
    assert sum(parts) == pytest.approx(step, rel=0.02), told
