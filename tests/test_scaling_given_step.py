"""A step that is given and cannot be the traces' own is said to be so first, and nothing rests on it."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scalescope.cli import front_door
from scalescope.records.errors import UserError
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import AsRun, RunAnalysis, read_run_answer
from scalescope.scaling.as_run.step import step_as_run, take_recording_out
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.findings.prices.others_recorded import as_others_are_recorded
from scalescope.scaling.findings.prices.pricing import beside_the_known_step
from scalescope.scaling.findings.prices.recorded_devices import beside_full_devices
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.replay.whatif import unchanged
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.run import explain_run
from tests.gloo_traces import GlooJob, analysed
from tests.host_traces import HostTrace, backward, forward, plain_step
from tests.report_samples import run_with_steps

DATA = Path(__file__).parent / "data"
JOB = DATA / "gpt8_ddp_none_n2"  # traced 48.5 ms a step, of which its devices compute for 24.1
#: 2×H200 on a slow host: bound by the devices, and by the host of rank 1 while it was recorded.
SLOW_HOST = DATA / "gpt_slow_host_n2"
UNTRACED_MS = max(json.loads((SLOW_HOST / "truth.json").read_text())["step_ms_unprofiled"])


def with_step(folder: Path, step_ms: float | None) -> RunAnalysis:
    (answer,) = analyze([folder], jobs=1, untraced=given_steps([step_ms], [folder]) if step_ms else None)
    assert isinstance(answer, RunAnalysis)
    return answer


def demand_more_of_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no replay be near enough, as one is not that leaves out what a rank does."""
    monkeypatch.setattr(unchanged, "FAITHFUL", -1.0)
    monkeypatch.setattr(unchanged, "NEAR", -1.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("step_ms", "contradicts", "why"),
    [
        (10.0, "too_short", "without all that recording can cost, their 48.5 ms step still takes 24.1 ms"),
        (80.0, "too_long", "there the step takes 48.5 ms, and recording only lengthens it"),
    ],
)
def test_a_step_that_cannot_be_is_said_first_and_not_used(step_ms: float, contradicts: str, why: str) -> None:
    """With what the traces allow, and what to do."""
    told, plain = with_step(JOB, step_ms), with_step(JOB, None)
    assert told.as_run is not None and plain.as_run is not None
    assert told.as_run.contradicts == contradicts and plain.as_run.contradicts is None
    assert (told.as_run.step_ms, told.as_run.low_ms, told.as_run.source) == (
        (plain.as_run.step_ms, plain.as_run.low_ms, plain.as_run.source)
    )
    assert told.findings == plain.findings
    verdict = run_verdict(told)
    assert f": --step-ms {step_ms:.1f} ms contradicts the traces: {why}." in verdict.headline
    assert verdict.level == "unknown" and verdict.text.count("contradicts the traces") == 1
    assert told.as_run.allows_from_ms == pytest.approx(24.1, abs=0.1)
    assert told.as_run.allows_to_ms == pytest.approx(48.5, abs=0.1)
    assert "the traces allow 24.1 ms to 48.5 ms: give a step of this very job, or leave" in verdict.headline


@pytest.mark.long
@pytest.mark.parametrize(("step_ms", "far"), [(21.0, "shorter"), (54.0, "longer")])
def test_a_step_of_another_minute_does_not_stand_before_what_the_traces_tell(step_ms: float, far: str) -> None:
    """A seventh beyond what they allow: jobs' own steps were, measured before and after their window."""
    told, plain = with_step(JOB, step_ms), with_step(JOB, None)
    assert told.as_run is not None and told.as_run.contradicts is not None and told.as_run.nearly_allowed
    assert told.findings == plain.findings
    verdict = run_verdict(told)
    assert verdict.headline == run_verdict(plain).headline
    assert f"--step-ms {step_ms:.1f} ms is " in verdict.text and f"% {far} than the " in verdict.text
    assert "contradicts the traces" not in verdict.text


@pytest.mark.long
def test_a_step_that_may_be_is_used() -> None:
    told = with_step(JOB, 35.0)
    assert told.as_run is not None and told.as_run.contradicts is None and told.as_run.source == "given"
    assert told.as_run.step_ms == pytest.approx(35.0, rel=0.01)
    assert "contradicts" not in run_verdict(told).text


@pytest.mark.long
@pytest.mark.parametrize(("step_ms", "contradicts"), [(10.0, "too_short"), (35.0, None), (80.0, "too_long")])
def test_traces_that_cannot_be_replayed_contradict_it_too(
    step_ms: float, contradicts: str | None, tmp_path: Path
) -> None:
    shutil.copytree(JOB, folder := tmp_path / "job")
    file = folder / "rank1.json.gz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    told = with_step(folder, step_ms)
    assert told.replay is None and told.as_run is not None and told.as_run.contradicts == contradicts
    assert ("contradicts the traces" in run_verdict(told).headline) == (contradicts is not None)


@pytest.mark.parametrize(("step_ms", "contradicts"), [(0.4, "too_short"), (2.2, None), (4.0, "too_long")])
def test_a_small_jobs_too(step_ms: float, contradicts: str | None) -> None:
    told = with_step(DATA / "gather_sm_n2", step_ms)
    assert told.as_run is not None and told.as_run.contradicts == contradicts
    assert ("contradicts the traces" in run_verdict(told).headline) == (contradicts is not None)


@pytest.mark.parametrize(
    ("folder", "allows"),
    [
        ("onnxruntime_mlp", "their 0.43 ms step still takes 0.41 ms"),
        ("cpu_now_and_then_n2", "still takes 15.6 ms"),  # a stall in two of six steps: their mean is known by its half
    ],
)
def test_ranks_on_cpus_compute_for_as_long_as_recorded_but_for_what_that_costs(folder: str, allows: str) -> None:
    told = with_step(DATA / folder, 0.05)
    assert told.as_run is not None and told.as_run.contradicts == "too_short"
    headline = run_verdict(told).headline
    assert "--step-ms 0.05 ms contradicts the traces: " in headline and allows in headline
    assert told.as_run.allows_from_ms is not None and told.as_run.allows_to_ms is not None
    assert 0.05 < told.as_run.allows_from_ms < told.as_run.allows_to_ms


@pytest.mark.parametrize(("share", "said"), [(1.0, False), (1.25, True)])
def test_a_step_that_the_traces_do_not_come_to_is_not_passed_over(tmp_path: Path, share: float, said: bool) -> None:
    """Of 40.6 ms given beside uneven steps of 31.0 in the mean the answer held not a word."""
    job = GlooJob()
    for number, ms in enumerate((20.0, 44.0, 24.0, 48.0, 20.0, 44.0, 30.0), 2):
        job.step(number)
        job.compute(ms, calls=10)
        job.all_reduce(1.0)
    folder = job.write(tmp_path)
    step_ms = analysed(folder).replay
    assert step_ms is not None
    told = analysed(folder, share * step_ms.traced_ms)
    assert told.as_run is not None and told.as_run.contradicts is None
    assert ("that the profiled steps come to, by no more than they differ by" in run_verdict(told).text) is said


@pytest.mark.parametrize(("share", "said"), [(1.0, False), (0.95, True)])
def test_what_cannot_be_replayed_is_told_of_the_profiled_steps_and_says_so(
    share: float, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 129 ms given beside 178 that were recorded, of a loop over a tensor's numbers, nothing was told."""
    demand_more_of_replays(monkeypatch)
    folder = DATA / "onnxruntime_mlp"
    window = max(one.window_ms / one.steps for one in with_step(folder, None).ranks)
    told = with_step(folder, share * window)
    assert told.as_run is not None and (told.as_run.reason, told.as_run.contradicts) == ("not_replayed", None)
    assert ("All figures are of the profiled steps" in run_verdict(told).text) is said


def test_what_cannot_be_replayed_allows_no_step_shorter_than_its_ranks_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    demand_more_of_replays(monkeypatch)
    told = with_step(DATA / "onnxruntime_mlp", 0.05)
    assert told.as_run is not None and told.as_run.contradicts == "too_short"
    assert "there a rank computes for 0.29 ms of each step" in run_verdict(told).headline


def test_devices_whom_recording_does_not_slow_allow_one_step() -> None:
    headline = run_verdict(with_step(DATA / "gather_ce_n2", 0.05)).headline
    assert "step is as long whatever recording costs" in headline and "the traces allow about 1.7 ms" in headline


def test_a_sweeps_folder_has_no_step(tmp_path: Path) -> None:
    shutil.copytree(DATA / "runs_v0.1" / "sweep", folder := tmp_path / "sweep")
    with pytest.raises(UserError, match=r"is of one training run, and .* is a sweep"):
        with_step(folder, 5.0)


def test_of_a_known_mean_step_a_cause_is_known_as_well_as_what_it_leaves(tmp_path: Path) -> None:
    """Copies of 1 to 3 ms in steps that are even without them: three steps told them as 2 ms (0 to 4.5)."""
    lengths = iter((1_000.0, 3_000.0, 2_000.0, 2_000.0))

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, 60.0)
        trace.kernel("aten::copy_", next(lengths), "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
        backward(trace, 60.0)
        trace.synchronise("DeviceSynchronize")

    HostTrace().steps(4, step).write(tmp_path)
    replayer, change = Replayer(read_records(tmp_path)), Change(without=(Removal("copies"),))
    alone = replayer.predict(change)
    replayer.known_ns = Interval(replayer.base_ns, 0.99 * replayer.base_ns, 1.01 * replayer.base_ns)
    known = replayer.predict(change)
    assert alone.low_ms is not None and known.low_ms is not None and known.high_ms is not None
    assert known.change_ms == alone.change_ms == pytest.approx(-2.0, rel=0.02)
    assert alone.low_ms < -4 and known.low_ms > -2.3 and known.high_ms < -1.7
    # off by what the replayed steps are off the known mean
    replayer.known_ns = Interval(0.9 * replayer.base_ns, 0.9 * replayer.base_ns, 0.9 * replayer.base_ns)
    off = replayer.predict(change)
    assert off.low_ms is not None and off.low_ms == pytest.approx(-2.0 - 0.1 * replayer.base_ns / 1e6, rel=0.05)


@pytest.mark.parametrize(("given_ms", "contradicts"), [(1.4, "too_short"), (2.2, None), (7.0, "too_long")])
@pytest.mark.parametrize("steady_ms", [2.3, 2.2])
def test_a_step_that_is_given_does_not_silence_the_jobs_own(
    steady_ms: float, given_ms: float, contradicts: str | None, tmp_path: Path
) -> None:
    """Its rows told 2.3 ms, and of 2.2 that was given, and taken, nothing was said."""
    folder = run_with_steps(tmp_path / "run", DATA / "gather_sm_n2", steady_ms, 2.2)
    told = with_step(folder, given_ms)
    assert told.as_run is not None and told.as_run.contradicts == contradicts
    another = (given_ms, steady_ms) != (2.2, 2.2)
    own = told.as_run.own_untraced_ms
    assert (own is not None) == another and (own is None or own.value == pytest.approx(steady_ms, rel=0.01))
    verdict = run_verdict(told)
    assert ("the job's own steps without a profiler" in verdict.sentences[0].lower()) == another
    assert ("--step-ms 2.2 ms stands in place of the job's own" in verdict.text) == (another and contradicts is None)


def test_what_traces_allow_is_the_same_from_below_and_from_above(tmp_path: Path) -> None:
    """136.3 to 198.4 ms it was of a step that is too short, and 163.0 to 201.3 of one that is too long."""
    job = GlooJob()
    for number, ms in enumerate((20.0, 24.0, 22.0, 27.0, 20.0, 24.0, 23.0), 2):
        job.step(number)
        job.compute(ms, calls=10)
        job.all_reduce(1.0)
    uneven = job.write(tmp_path)
    for folder in (uneven, DATA / "gather_sm_n2", DATA / "onnxruntime_mlp"):
        short, long = (with_step(folder, ms).as_run for ms in (0.01, 4000.0))
        assert short is not None and long is not None
        assert (short.contradicts, long.contradicts) == ("too_short", "too_long")
        assert (short.allows_from_ms, short.allows_to_ms) == (long.allows_from_ms, long.allows_to_ms)


def test_what_comes_unevenly_costs_what_the_known_step_has_beyond_one_without_it(tmp_path: Path) -> None:
    """Six steps of a loader's 4 to 28 ms are 15.4 ms long in the mean, the job's many 18; without it each is 4.0."""
    waits_ms = [20.0, 4.0, 28.0, 4.0, 24.0, 4.0, 4.0]

    def step(trace: HostTrace, number: int) -> None:
        with trace.inside("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
            trace.idle(1e3 * waits_ms[number])
        plain_step(trace, 60.0)
        trace.item()

    HostTrace().steps(len(waits_ms), step).write(tmp_path)
    few, many = (with_step(tmp_path, step_ms).findings[0] for step_ms in (None, 18.0))
    assert few.code == many.code == "data_loading" and few.ms is not None and few.high_ms is not None
    assert many.ms == pytest.approx(18.0 - (15.4 - few.ms), abs=0.1)
    assert many.high_ms is not None and many.high_ms > few.high_ms, "as far as the step that is known reaches"


@pytest.mark.parametrize("hosts_ms", [0.0, 1.0])
def test_what_recording_cost_in_a_cause_goes_with_it_where_it_cannot_be_taken_out(hosts_ms: float) -> None:
    """A replay of 18.5 ms without 6 of them is the devices' 12.5; in a step of 16.5 ms the cause has 4.

    Of what hosts have of the rest, recording may have cost some as well.
    """

    def predict(change: Change, **_: bool) -> SimpleNamespace:
        return SimpleNamespace(change_ms=-6.0 - (hosts_ms if change.host_free else 0.0))

    replayer = SimpleNamespace(
        left_ns=lambda _: 12.5e6, known_ns=Interval(16.5e6, 16.4e6, 16.6e6),
        replay=SimpleNamespace(error=0.0), work_out=lambda *_, **__: None, predict=predict,
    )  # fmt: skip
    scene: Any = SimpleNamespace(
        replayer=replayer, analysis=SimpleNamespace(as_run=AsRun(step_ms=16.5, source="given", reason="not_replayed"))
    )
    whole = Gain(Candidate(code="allocation"), 6.0, 5.7, 6.3)
    (found,) = beside_the_known_step(scene, [whole], Change())
    assert found.ms == pytest.approx(4.0)
    assert found.low_ms == pytest.approx(3.8, abs=0.05)
    assert found.high_ms == pytest.approx((4.0 + hosts_ms) * 1.05, abs=0.05)


@pytest.mark.parametrize(
    ("step_ms", "idle_ms", "is_bound"), [(22.9, 0.5, True), (22.9, 0.7, False), (22.4, 0.5, False), (22.4, 0.0, True)]
)
def test_what_hosts_cost_is_a_bound_in_a_step_that_devices_fill(step_ms: float, idle_ms: float, is_bound: bool) -> None:
    """Of waits for devices 0.69 ms were told in a step of 22.9 ms as run, of which those idle for 0.5.

    So they fill the 22.4 ms that it takes without recording.
    """
    replayer = SimpleNamespace(on_cpu=False, known_ns=Interval(22.4e6, 22.2e6, 22.6e6))
    as_run = AsRun(step_ms=step_ms, source="given")
    idle = {"idle_launch": 0.8 * idle_ms, "idle_data": 0.2 * idle_ms}
    scene: Any = SimpleNamespace(
        replayer=replayer, step_ms=step_ms, share_ms=idle.__getitem__, analysis=SimpleNamespace(as_run=as_run)
    )
    codes: tuple[Code, ...] = ("synchronising", "more_work", "copies", "double_precision")
    waits, *others = beside_full_devices(scene, [Gain(Candidate(code=one), 0.69, 0.65, 0.99) for one in codes])
    assert (waits.candidate.at_most, waits.ms, waits.low_ms) == (is_bound, 0.69, 0.0 if is_bound else 0.65)
    assert not any(one.candidate.at_most or one.low_ms < 0.65 for one in others)


def test_answers_of_schema_1_are_read(tmp_path: Path) -> None:
    answer = msgspec.to_builtins(explain_run(DATA / "gpt_ddp_n1").analysis)
    assert answer["schema"] == 2
    del answer["as_run"]
    answer["schema"] = 1
    file = tmp_path / "analysis.json"
    file.write_text(json.dumps(answer))
    read = read_run_answer(file)
    assert isinstance(read, RunAnalysis) and read.as_run is None
    step, ranks = step_as_run(read)
    assert step.value == pytest.approx(read.ranks[0].window_ms / read.ranks[0].steps)
    assert [one.rank for one in ranks] == [0]


def test_the_step_that_a_user_gives_is_in_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    argv = ["analyze", str(SLOW_HOST), "--step-ms", "24.7", "--json", str(file)]
    assert front_door.main(argv) == 0
    analysis = msgspec.json.decode(file.read_bytes(), type=RunAnalysis)
    assert analysis.as_run is not None and analysis.as_run.source == "given"
    step, ranks = step_as_run(analysis)
    assert 24.7 in step and step.value < 26
    assert all(one.window_ms == pytest.approx(step.value, rel=0.01) for one in ranks)
    assert not any("rank 1" in one.what for one in analysis.advice), "recording made it late"


def test_one_step_is_given_for_trace_files_of_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """*Gives 1 step for 2 paths; give one for each* was said, and of two *name the run's folder of traces*."""
    files, out = [str(one) for one in sorted(SLOW_HOST.glob("rank*"))], tmp_path / "answer.json"
    assert len(files) == 2 and front_door.main(["analyze", *files, "--step-ms", "24.7", "--json", str(out)]) == 0
    told = msgspec.json.decode(out.read_bytes(), type=RunAnalysis)
    assert told.as_run is not None and told.as_run.source == "given" and told.world_size == 2
    of_folder = with_step(SLOW_HOST, 24.7)
    assert [(one.code, one.rank, one.ms) for one in told.findings] == [
        (one.code, one.rank, one.ms) for one in of_folder.findings
    ]
    capsys.readouterr()
    assert front_door.main(["analyze", *files, "--step-ms", "24.7", "--step-ms", "24.8"]) == 2
    assert "--step-ms gives 2 steps for 2 trace files, which are one run together; give one" in capsys.readouterr().err


def test_a_given_step_beside_references_is_refused_with_what_to_leave_out() -> None:
    with pytest.raises(UserError, match="without --against; leave one of the two out"):
        analyze([SLOW_HOST], jobs=1, references=[SLOW_HOST], untraced=given_steps([24.7], [SLOW_HOST]))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--step-ms", "nan"], "give it in ms"),
        (["--step-ms", "-3"], "give it in ms"),
        (["--step-ms", "3", "--step-ms", "4"], "one for each"),
    ],
)
def test_steps_that_cannot_be_are_refused_in_a_line(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(["analyze", str(SLOW_HOST), *argv]) == 2
    said = capsys.readouterr().err
    assert says in said and len(said.strip().splitlines()) == 1


def test_without_an_untraced_step_only_what_holds_at_any_cost_of_recording_is_claimed() -> None:
    answer = with_step(SLOW_HOST, None)
    assert answer.as_run is not None and answer.as_run.source == "range"
    first = answer.findings[0]
    assert (first.code, first.rank, first.ms) == ("profiler_cost", None, None)
    assert all(one.low_ms is None or one.low_ms > 0 for one in answer.findings)
    headline = run_verdict(answer).headline
    assert "cannot be told from this trace" in headline and "--step-ms" in headline


def test_with_its_untraced_step_nothing_is_left_untold() -> None:
    answer = with_step(SLOW_HOST, UNTRACED_MS)
    assert not [one for one in answer.findings if one.code in ("profiler_cost", "host_bound", "host_starved")]


def test_a_cause_brings_more_where_recording_costs_those_who_wait_for_it_more() -> None:
    """The untraced step tells what recording costs the rank that stands still; without that others bound the step."""
    records = read_records(DATA / "cuda_only_stalled_host_n2")
    replayer, untold = Replayer(records), Replayer(records)
    as_run = take_recording_out(replayer, Untraced(Interval(22.91, 22.7, 23.1), "given"))
    stall = Change(without=(Removal("gaps", 1),))
    known = -(replayer.predict(stall, quick=True, near=True).change_ms or 0.0)
    alike, dear, dearer = (replayer.gained_if_others(stall, (1,), times) for times in (1.0, 1.3, 2.0))
    assert as_run is not None and as_run.source == "given" and known == pytest.approx(6.8, rel=0.05)
    assert alike == pytest.approx(known, rel=0.01)
    assert dear is not None and dearer is not None and known <= dear <= dearer
    take_recording_out(untold, None)
    assert untold.gained_if_others(stall, (1,), 1.3) is None


@pytest.mark.parametrize(("dear_ms", "high_ms"), [(6.0, 6.0), (2.0, 3.2), (None, 3.2)])
def test_a_ranks_cause_may_cost_what_it_would_if_recording_cost_the_others_more(
    dear_ms: float | None, high_ms: float
) -> None:
    """A stall of 6.3 ms was told as 3.0 (2.8 to 3.2): by the untraced step the other host bounded the step without."""

    def predict(change: Change, **_: bool) -> SimpleNamespace:
        return SimpleNamespace(change_ms=-3.0)

    replayer = SimpleNamespace(predict=predict, gained_if_others=lambda change, ranks, times: dear_ms)
    scene: Any = SimpleNamespace(replayer=replayer)
    stall = Gain(Candidate(code="host_stall", rank=1, removals=(Removal("gaps", 1),)), 3.0, 2.8, 3.2)
    found = as_others_are_recorded(scene, stall)
    assert (found.ms, found.low_ms) == (3.0, 2.8) and found.high_ms == pytest.approx(high_ms)
    of_all = msgspec.structs.replace(stall, candidate=Candidate(code="host_stall", removals=(Removal("gaps"),)))
    assert as_others_are_recorded(scene, of_all) is of_all, "what all ranks do, no other hides"


@pytest.mark.parametrize(("long", "share", "is_told"), [(True, 0.4, True), (False, 0.4, False), (True, 2.0, False)])
def test_a_mean_may_hold_fewer_long_steps_than_the_traces(
    long: bool, share: float, is_told: bool, tmp_path: Path
) -> None:
    """*It is another job's, or the job does not run evenly* was told of the mean of forty, beside a window of six."""
    job = GlooJob()
    for number in range(2, 10):
        job.step(number)
        job.compute(20.0, calls=10)
        job.sleep(0, 40.0 if long and number in (4, 6, 7) else 0.0)
        job.compute(1.0, "aten::add")
        job.all_reduce(1.0)
    folder = job.write(tmp_path)
    step_ms = analysed(folder).replay
    assert step_ms is not None
    told = analysed(folder, share * step_ms.traced_ms)
    assert told.as_run is not None and told.as_run.contradicts is not None
    text = run_verdict(told).text
    assert ("or a mean with fewer long steps than the traces have: in 3 of 8 of these" in text) is is_told
    assert ("the job does not run evenly" in text) is not is_told
    # 97.8 ms, which were true, beside steps of 166 that fresh pages made so long
    assert ("or recording took memory in whose place" in text) is (not long)
