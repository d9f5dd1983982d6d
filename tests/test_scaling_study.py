"""What a study answers: efficiency over rank counts, where the step's growth went, and who is to blame."""

import json
import shutil
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import pytest

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow, SweepRow, TrainFacts
from scalescope.report.html import page_of
from scalescope.report.report_data import read_report_data
from scalescope.report.sentences import loss_sentence
from scalescope.scaling.analyze import analyze, analyze_run, analyze_study
from scalescope.scaling.answer import Quality, RunAnalysis, read_run_answer
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.rank.partition import total
from scalescope.scaling.replay.load import find_targets, open_replayer
from scalescope.scaling.study_answer import StudyAnalysis, Waterfall, read_study_answer, without_timeline, write_answer
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.verdicts.efficiency import efficiency_of
from scalescope.scaling.verdicts.growth import add_measured_growth
from scalescope.scaling.verdicts.waterfall import compute_split, mean_step, waterfall
from tests import oracle, synthetic
from tests.recorded import explained_of
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"


def add_run(
    study: Path,
    name: str,
    traces: str | None,
    world_size: int,
    step_ms: float,
    batch: int = 16,
    model: str = "gpt_small",
) -> RunFolder:
    folder = RunFolder.create(study / name, "train", "model: x", study=study.name)
    info = folder.read_info()
    info.world_size, info.status = world_size, "done"
    folder.write_info(info)
    folder.write_facts(
        TrainFacts(model=model, strategy="ddp", precision="bf16", parameters=1, flops_per_sample=1.0, flops_formula="",
                   samples_per_rank_step=batch)
    )  # fmt: skip
    if traces is not None:
        folder.traces.mkdir()
        for source in find_sources(DATA / traces):
            assert source.rank is not None
            shutil.copy(source.path, folder.trace_of(source.rank, 3))
    with folder.step_writer() as writer:
        for step in range(20):
            phase: Literal["warmup", "steady", "profile"] = (
                "warmup" if step < 3 else "profile" if 8 <= step < 12 else "steady"
            )
            # the profiled and the warm-up steps are slow: nothing that is reported may come from them
            slow = 1.0 if phase == "steady" else 3.0
            times = [step_ms * slow - rank for rank in range(world_size)]
            writer.append(
                StepRow(step=step, phase=phase, step_ms=times, samples_per_s=batch * world_size * 1e3 / times[0],
                        loss=9.0 - step / 10)
            )  # fmt: skip
    return folder


@pytest.fixture
def study(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "study", "study", "verb: study")
    add_run(folder.path, "gpt-1", "gpt_ddp_n1", 1, 49.0)
    add_run(folder.path, "gpt-2", "gpt_ddp_n2", 2, 51.0)
    return folder


def test_weak_scaling_compares_measured_throughput_and_the_traces_factors(study: RunFolder) -> None:
    answer, runs = analyze_study(study)
    one, two = answer.efficiency
    assert (one.world_size, one.scaling, one.speedup, one.efficiency) == (1, "weak", 1.0, 1.0)
    assert two.speedup == pytest.approx(2 * 49 / 51) and two.efficiency == pytest.approx(49 / 51)
    assert two.step_ms == 51.0
    # T1/Tn of the traces is the product of the two factors
    small, large = answer.waterfall[0].from_step_ms, answer.waterfall[0].to_step_ms
    assert two.compute_factor is not None and two.parallel_factor is not None
    assert two.compute_factor * two.parallel_factor == pytest.approx(small / large, rel=1e-4)
    assert [run.model for run in runs] == ["gpt_small", "gpt_small"]
    assert runs[0].step_times is not None and runs[0].throughput is not None
    assert runs[0].step_times.measured_step_ms == 49.0 and runs[0].step_times.measured_steps == 13
    profiled = [step.window_ms for step in runs[0].steps if not step.open_ended]
    assert runs[0].step_times.profiling_overhead_ms == pytest.approx(median(profiled) - 49.0)
    assert runs[0].step_times.placebo_ms == 0 and not runs[0].step_times.unsteady
    assert runs[0].throughput.first_loss == 9.0 and runs[0].throughput.last_loss == pytest.approx(7.1)


def test_a_job_cut_at_bucket_edges_on_several_ranks_alone_is_one_job_of_which_the_largest_run_is_replayed(
    study: RunFolder,
) -> None:
    for name, cut in (("gpt-1", False), ("gpt-2", True)):
        run = RunFolder.open(study.path / name)
        facts = run.read_facts()
        assert facts is not None
        run.write_facts(msgspec.structs.replace(facts, compiled=True, compiled_by_bucket=cut))
    (target,) = find_targets(study.path)
    assert target.name == "gpt-2"
    assert any("cut the compiled graph elsewhere" in one for one in open_replayer(target).assumptions)
    answer, _ = analyze_study(study)
    assert [(fall.to_world_size, fall.only_larger_cut) for fall in answer.waterfall] == [(2, True)]


def test_the_parts_of_the_waterfall_add_up_to_the_growth_of_the_step(study: RunFolder) -> None:
    answer, _ = analyze_study(study)
    (fall,) = answer.waterfall
    assert (fall.from_world_size, fall.to_world_size) == (1, 2)
    assert [part.part for part in fall.parts] == list(PARTS)
    assert sum(part.ms for part in fall.parts) == pytest.approx(fall.growth_ms, abs=1e-9)
    assert fall.growth_ms == pytest.approx(fall.to_step_ms - fall.from_step_ms, abs=1e-9)
    assert fall.compute_inflation_ms is not None and fall.compute_more_work_ms is not None
    assert fall.compute_inflation_ms + fall.compute_more_work_ms == pytest.approx(fall.parts[0].ms, abs=1e-9)
    # the same kernels take longer beside collectives, and DDP adds kernels that fill its buckets
    assert 0.5 < fall.compute_inflation_ms < 1.2 and 0.2 < fall.compute_more_work_ms < 0.6


def test_the_traced_growth_stands_beside_the_measured_one_and_what_steps_differ_by(study: RunFolder) -> None:
    (fall,) = analyze_study(study)[0].waterfall
    assert fall.measured_growth_ms == 2.0 and fall.noise_ms == 0.0 and not fall.unsteady, "profiling may cost as much"


@pytest.mark.parametrize(
    ("growth", "activity", "profiled", "unsteady"),
    [
        (12.0, "cpu", 101.0, False),  # within what steps differ by, and what recording costs
        (40.0, "cpu", 130.0, True),
        (40.0, "gpu", 130.0, False),  # recording slows the hosts of GPUs
        (-40.0, "gpu", 50.0, True),  # and shortens no step
    ],
)
def test_growths_too_far_apart_are_an_unsteady_machines(
    growth: float, activity: Literal["cpu", "gpu"], profiled: float, unsteady: bool
) -> None:
    def run(measured: float, window: float) -> RunAnalysis:
        times = StepTimes(measured_step_ms=measured, measured_step_p95_ms=measured, measured_steps=30,
                          window_step_ms=window, profiling_overhead_ms=window - measured,
                          profiling_overhead_fraction=window / measured - 1, placebo_ms=3.0)  # fmt: skip
        return RunAnalysis(name="r", world_size=1, activity=activity, quality=Quality(verdict="good"), step_times=times)

    fall = Waterfall(series="s", from_world_size=1, to_world_size=2, from_step_ms=90, to_step_ms=90 + growth,
                     growth_ms=growth, parts=[])  # fmt: skip
    add_measured_growth(fall, run(90.0, 90.0), run(100.0, profiled))
    assert fall.measured_growth_ms == 10.0
    assert fall.noise_ms == pytest.approx(18**0.5 + (2.0 if activity == "cpu" else 0.0))
    assert fall.unsteady == unsteady


@pytest.mark.parametrize(("activity", "unsteady"), [("cpu", True), ("gpu", False)])
def test_growths_agree_in_vain_where_both_ends_were_profiled_in_a_bad_moment(
    activity: Literal["cpu", "gpu"], unsteady: bool
) -> None:
    """On one rank the profiled steps took 92 ms for 76 and on two 184 for 171: the growths were alike."""

    def run(measured: float, window: float) -> RunAnalysis:
        times = StepTimes(measured_step_ms=measured, measured_step_p95_ms=measured, measured_steps=30,
                          window_step_ms=window, profiling_overhead_ms=window - measured,
                          profiling_overhead_fraction=window / measured - 1, placebo_ms=20.0)  # fmt: skip
        return RunAnalysis(name="r", world_size=1, activity=activity, quality=Quality(verdict="good"), step_times=times)

    fall = Waterfall(series="s", from_world_size=1, to_world_size=2, from_step_ms=92, to_step_ms=184, growth_ms=92,
                     parts=[])  # fmt: skip
    add_measured_growth(fall, run(76.0, 92.0), run(171.0, 184.0))
    assert fall.unsteady == unsteady
    assert ("on 1 or 2 ranks the profiled steps are far from the measured ones" in loss_sentence(fall)) == unsteady


def test_a_growth_that_is_lost_in_what_steps_differ_by_is_not_claimed() -> None:
    def run(measured: float) -> RunAnalysis:
        times = StepTimes(measured_step_ms=measured, measured_step_p95_ms=measured, measured_steps=30,
                          window_step_ms=measured, profiling_overhead_ms=0.0, profiling_overhead_fraction=0.0,
                          placebo_ms=40.0)  # fmt: skip
        return RunAnalysis(name="r", world_size=1, activity="gpu", quality=Quality(verdict="good"), step_times=times)

    fall = Waterfall(series="s", from_world_size=1, to_world_size=2, from_step_ms=90, to_step_ms=115, growth_ms=25,
                     parts=[])  # fmt: skip
    add_measured_growth(fall, run(100.0), run(130.0))
    assert fall.unsteady


def test_the_waterfall_is_exact_and_equals_the_slow_account() -> None:
    explained = {name: explained_of(name) for name in ("gpt_ddp_n1", "gpt_ddp_n2")}
    means = {name: mean_step(list(one.partitions.values())) for name, one in explained.items()}
    for name, mean in means.items():
        assert sum(mean.parts) == mean.window
        slow = oracle.account_of(DATA / name)
        for number, part in enumerate(oracle.PARTS):
            of_ranks = [Fraction(sum(step[part] for step in steps.values()), len(steps)) for steps in slow.values()]
            assert mean.parts[number] == sum(of_ranks) / len(of_ranks)
    kernels = [list(one.kernels.values()) for one in explained.values()]
    split = compute_split(*kernels)
    assert split is not None
    assert sum(split) == means["gpt_ddp_n2"].parts[0] - means["gpt_ddp_n1"].parts[0]


def test_kernels_of_another_program_are_not_called_inflated() -> None:
    eager, compiled = (explained_of(name) for name in ("gpt_ddp_n1", "gpt_ddp_compile_n4"))
    fall = waterfall("gpt", *((n, mean_step(list(one.partitions.values())), list(one.kernels.values()))
                              for n, one in ((1, eager), (4, compiled))))  # fmt: skip
    assert fall.compute_inflation_ms is None and fall.compute_more_work_ms is None
    assert sum(part.ms for part in fall.parts) == pytest.approx(fall.growth_ms, abs=1e-9)


def test_equal_global_batch_is_strong_scaling(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "study", "study", "verb: study")
    add_run(folder.path, "a", "gpt_ddp_n1", 1, 48.0, batch=32)
    add_run(folder.path, "b", "gpt_ddp_n2", 2, 32.0, batch=16)
    answer, _ = analyze_study(folder)
    assert [point.scaling for point in answer.efficiency] == ["strong", "strong"]
    assert answer.efficiency[1].efficiency == pytest.approx(48 / (2 * 32))
    # the same kernel has half as much to do: that it takes less time makes it no faster
    (fall,) = answer.waterfall
    assert (fall.compute_inflation_ms, fall.compute_more_work_ms, fall.kinds) == (None, None, [])
    assert not any("too few kernels match" in reason for reason in answer.reasons)


def test_models_of_one_name_in_two_sizes_are_two_series(study: RunFolder) -> None:
    larger = add_run(study.path, "gpt-2-deep", None, 2, 99.0)
    facts = larger.read_facts()
    assert facts is not None
    larger.write_facts(msgspec.structs.replace(facts, parameters=300_000_000))
    answer, _ = analyze_study(study)
    assert [(point.series, point.world_size) for point in answer.efficiency] == [
        ("gpt_small 1e-06M parameters", 1), ("gpt_small 1e-06M parameters", 2), ("gpt_small 300M parameters", 2)
    ]  # fmt: skip
    assert not any("same job, same size" in reason for reason in answer.reasons)


def test_what_a_run_measured_before_it_failed_counts_and_is_said_to(study: RunFolder) -> None:
    RunFolder(study.path / "gpt-2").set_status("failed", "rank 1 was killed")
    answer, _ = analyze_study(study)
    assert [point.world_size for point in answer.efficiency] == [1, 2]
    assert (
        "gpt-2 ended as failed: rank 1 was killed; its 13 steady steps until then count all the same" in answer.reasons
    )
    assert answer.unfinished == ["gpt-2"]
    write_answer(study.analysis, answer)
    assert [note for note in page_of(read_report_data(study)).notes if "gpt-2 ended as" in note] == [
        reason for reason in answer.reasons if "gpt-2 ended as" in reason
    ], "once, as the study says it"


def test_runs_that_failed_or_were_not_traced_are_named_and_the_others_compared(study: RunFolder) -> None:
    failed = RunFolder.create(study.path / "gpt-4", "train", "x: 1", study="study")
    failed.set_status("failed", "CUDA out of memory")
    add_run(study.path, "gpt-8", None, 8, 60.0)
    broken = add_run(study.path, "gpt-16", None, 16, 61.0)
    (broken.path / "run.json").write_text("{")
    answer, runs = analyze_study(study)
    assert [point.world_size for point in answer.efficiency] == [1, 2, 8]
    assert answer.efficiency[2].compute_factor is None
    assert any("gpt-4" in reason and "CUDA out of memory" in reason for reason in answer.reasons)
    assert any("gpt-8" in reason and "holds no traces" in reason for reason in answer.reasons)
    assert any("gpt-16" in reason for reason in answer.reasons)
    assert len(answer.waterfall) == 1
    untraced = next(run for run in runs if run.name == "gpt-8")
    assert untraced.quality.verdict == "unusable" and untraced.ranks == [] and untraced.throughput is not None


def test_traces_that_say_nothing_are_compared_with_none(study: RunFolder) -> None:
    for path in (study.path / "gpt-2" / "traces").iterdir():
        trace = unpacked(path)
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") != "kernel"]
        path.write_bytes(packed(trace))
    answer, runs = analyze_study(study)
    assert runs[1].quality.verdict == "unusable"
    assert answer.efficiency[1].efficiency == pytest.approx(49 / 51)  # its steps were measured all the same
    assert (answer.efficiency[1].compute_factor, answer.efficiency[1].parallel_factor) == (None, None)
    assert answer.waterfall == []
    assert any("gpt-2: its traces are left out of all comparisons" in reason for reason in answer.reasons)


def test_a_collective_in_training_is_held_against_the_sweeps_time_for_it(study: RunFolder) -> None:
    sweep = RunFolder.create(study.path / "sweep", "sweep", "x: 1", study="study")
    with sweep.sweep_writer() as writer:
        for size, time_us in ((1 << 20, 40.0), (1 << 24, 100.0), (1 << 26, 360.0)):
            writer.append(SweepRow("all_reduce", size, "float32", 2, "measured", time_us=time_us))
    _, runs = analyze_study(study)
    large = [one for one in runs[1].collectives if one.bytes == 28351488]
    # between 16 and 64 MiB the time is 100 · (size / 16 MiB)^(log 3.6 / log 4)
    alone = 100.0 * (28351488 / (1 << 24)) ** 0.924
    assert large
    for one in large:
        assert one.in_situ_efficiency == pytest.approx(alone / (one.transfer_us or 1), rel=1e-3)
    assert all(one.in_situ_efficiency is None for one in runs[1].collectives if (one.bytes or 0) < 1 << 20)


def test_analyze_writes_the_answers_where_they_belong(study: RunFolder) -> None:
    answers = analyze([study.path])
    assert isinstance(answers[0], StudyAnalysis) and [one.name for one in answers[1:]] == ["gpt-1", "gpt-2"]
    assert read_study_answer(study.analysis) == answers[0]
    read = read_run_answer(study.path / "gpt-2" / "analysis.json")
    assert read == without_timeline(answers[2])
    written = json.loads((study.path / "gpt-2" / "analysis.json").read_text())
    assert written["schema"] == 2 and {"quality", "ranks", "collectives", "stragglers"} <= written.keys()


def test_a_plain_trace_folder_stays_as_it_is(tmp_path: Path) -> None:
    folder = shutil.copytree(DATA / "cpu_ddp_n2", tmp_path / "traces of mine")
    before = sorted(folder.iterdir())
    (answer,) = analyze([folder])
    assert isinstance(answer, RunAnalysis) and answer.name == "traces of mine"
    assert sorted(folder.iterdir()) == before


def test_trace_files_named_one_by_one_are_one_run() -> None:
    (answer,) = analyze(sorted((DATA / "gpt_ddp_n2").iterdir()))
    assert [answer] == analyze([DATA / "gpt_ddp_n2"])


@pytest.mark.parametrize("name", ["gpt_ddp_n1", "gpt_ddp_n2", "gpt_ddp_compile_n4"])
def test_every_factor_of_the_efficiency_equals_the_one_from_the_slow_account(name: str) -> None:
    ranks = [
        {part: sum(step[part] for step in steps.values()) for part in (*oracle.PARTS, "window")}
        for steps in oracle.account_of(DATA / name).values()
    ]
    compute = [rank["compute"] for rank in ranks]
    serial = [rank["compute"] + rank["wait"] for rank in ranks]
    talking = [u + rank["transfer"] + rank["unsplit"] for u, rank in zip(serial, ranks, strict=True)]
    active = [a + rank["memory"] for a, rank in zip(talking, ranks, strict=True)]
    window = sum(rank["window"] for rank in ranks) / len(ranks)
    found = analyze_run(DATA / name).efficiency
    assert found is not None
    assert found.parallel == pytest.approx(sum(compute) / len(ranks) / window, rel=1e-12)
    assert found.load_balance == pytest.approx(sum(compute) / len(ranks) / max(compute), rel=1e-12)
    assert found.serialisation == pytest.approx(max(compute) / max(serial), rel=1e-12)
    assert found.transfer == pytest.approx(max(serial) / max(talking), rel=1e-12)
    assert found.memory == pytest.approx(max(talking) / max(active), rel=1e-12)
    assert found.orchestration == pytest.approx(max(active) / window, rel=1e-12)


def test_a_step_that_one_ranks_trace_lacks_is_no_imbalance(tmp_path: Path) -> None:
    traces = synthetic.make(synthetic.Job(2, [(0, 1)], steps=4, collectives=3, kernels=20, seed=5))
    last = max(event["ts"] for event in traces[1]["traceEvents"] if event["name"].startswith("ProfilerStep"))
    late = {event["args"].get("correlation") for event in traces[1]["traceEvents"]
            if event["cat"] == "cuda_runtime" and event["ts"] >= last}  # fmt: skip
    traces[1]["traceEvents"] = [
        event for event in traces[1]["traceEvents"]
        if event["args"].get("correlation") not in late and not (event["cat"] != "kernel" and event["ts"] >= last)
    ]  # fmt: skip
    run = analyze_run(synthetic.write(traces, tmp_path / "short"))
    assert [rank.steps for rank in run.ranks] == [3, 3]  # of the steps that both hold
    assert run.efficiency is not None
    compute = [sum(step.compute_ms for step in run.steps if step.rank == rank and step.step < 6) for rank in (0, 1)]
    assert run.efficiency.load_balance == pytest.approx(sum(compute) / 2 / max(compute))
    assert run.efficiency.orchestration < 1


def test_without_any_compute_there_is_no_efficiency() -> None:
    part = total(next(iter(explained_of("gpt_ddp_n1").partitions.values())))
    assert efficiency_of([type(part)(**dict.fromkeys(part.__struct_fields__, 0))]) is None


@pytest.mark.parametrize("name", ["gpt_ddp_n1", "gpt_ddp_n2", "gpt_ddp_compile_n4", "resnet50_ddp_n4"])
def test_undisturbed_sets_have_no_straggler(name: str) -> None:
    assert analyze_run(DATA / name).stragglers == []


@pytest.mark.parametrize("name", ["cpu_ddp_n2", "cpu_fsdp2_n2"])
def test_the_rank_that_sleeps_is_named_with_what_it_did(name: str) -> None:
    (found,) = analyze([DATA / name], jobs=1)
    assert isinstance(found, RunAnalysis)
    assert [(one.rank, one.code) for one in found.stragglers] == [(1, "host_stall")]


@pytest.mark.parametrize("content", [[], ["notes.txt"], ["run.json"]])
def test_a_folder_without_traces_is_refused_in_one_line(tmp_path: Path, content: list[str]) -> None:
    for name in content:
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match="holds no traces") as error:
        analyze_run(tmp_path)
    assert "\n" not in str(error.value)


def test_a_missing_path_and_two_jobs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        analyze_run(tmp_path / "nowhere")
    for number, name in enumerate(("cpu_ddp_n2", "cpu_fsdp2_n2")):
        shutil.copy(DATA / name / "rank0.3.pt.trace.json.gz", tmp_path / f"worker{number}.pt.trace.json.gz")
    with pytest.raises(UserError, match="traces of 2 jobs"):
        analyze_run(tmp_path)


def test_of_several_windows_the_latest_that_all_ranks_have_is_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        source = DATA / "cpu_ddp_n2" / f"rank{rank}.3.pt.trace.json.gz"
        shutil.copy(source, tmp_path / f"rank{rank}.3.pt.trace.json.gz")
        shutil.copy(source, tmp_path / f"rank{rank}.103.pt.trace.json.gz")
    shutil.copy(DATA / "cpu_ddp_n2" / "rank0.3.pt.trace.json.gz", tmp_path / "rank0.203.pt.trace.json.gz")
    assert [source.path.name for source in find_sources(tmp_path)] == [
        "rank0.103.pt.trace.json.gz",
        "rank1.103.pt.trace.json.gz",
    ]


def test_torchs_own_tensorboard_names_are_read_and_the_header_tells_the_rank(tmp_path: Path) -> None:
    for rank, worker in ((0, "host_77"), (1, "host_12")):
        source = DATA / "cpu_ddp_n2" / f"rank{rank}.3.pt.trace.json.gz"
        shutil.copy(source, tmp_path / f"{worker}.17000000{rank}.pt.trace.json.gz")
    answer = analyze_run(tmp_path)
    assert [one.rank for one in answer.ranks] == [0, 1]
    assert answer.ranks == analyze_run(DATA / "cpu_ddp_n2").ranks


def test_a_file_that_is_no_trace_costs_its_own_rank_only(tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(DATA / "gpt_ddp_n2" / f"rank{rank}.json.gz", tmp_path / f"rank{rank}.json.gz")
    whole = analyze_run(tmp_path)
    (tmp_path / "settings.json").write_text('{"model": "gpt"}')
    beside = analyze_run(tmp_path)
    assert beside.ranks == whole.ranks
    assert any("left aside, as no trace" in reason and "settings.json" in reason for reason in beside.quality.reasons)
    (tmp_path / "rank1.json.gz").write_bytes(b"disk full")
    broken = analyze_run(tmp_path)
    assert [one.rank for one in broken.ranks] == [0] and broken.quality.missing_ranks == [1]
    assert broken.quality.verdict == "degraded"


def test_jobs_that_are_compiled_in_one_graph_and_by_bucket_are_said_to_differ(tmp_path: Path) -> None:
    """One rank is one graph by default, and the cuts of the others are no communication."""
    study = RunFolder.create(tmp_path / "study", "study", "gpu_counts: [1, 2]\n")
    runs = [add_run(study.path, f"n{ranks}", None, ranks, 100.0) for ranks in (1, 2)]
    cut: list[tuple[tuple[bool | None, ...], int]] = [((None, None), 0), ((True, True), 0), ((False, True), 1)]
    for graphs, said in cut:
        for run, by_bucket in zip(runs, graphs, strict=True):
            facts = run.read_facts()
            assert facts is not None
            run.write_facts(msgspec.structs.replace(facts, compiled=True, compiled_by_bucket=by_bucket))
        answer, _ = analyze_study(study)
        assert sum("compiled alike" in reason for reason in answer.reasons) == said, answer.reasons
