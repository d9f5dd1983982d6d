"""A study's outline: which jobs its words ask for, and a sweep of what those send."""

import re
from pathlib import Path

import pytest

from scalescope.cli import sweep, train
from scalescope.launch.compose import compose_job, thaw, typed
from scalescope.launch.config import register
from scalescope.launch.freeze import plan_job
from scalescope.launch.studies.outline import outline_study
from scalescope.launch.studies.run import PlannedStudy, plan_study, run_study
from scalescope.launch.world import World
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunStatus
from scalescope.scaling.analyze import analyze_run
from scalescope.train.config import TrainConfig

DATA = Path(__file__).parent / "data"


QUICK = ["profiler=none", "logger=none", "model.batch_size=2"]


@pytest.mark.parametrize(
    ("argv", "operations", "dtypes"),
    [
        ([], ["all_reduce"], ["float32"]),
        (["strategy.gradient_dtype=fp32,bf16"], ["all_reduce"], ["float32", "bfloat16"]),
        (["strategy=fsdp2"], ["all_gather", "reduce_scatter"], ["float32"]),
        (["strategy=zero1"], ["all_reduce", "all_gather"], ["float32", "bfloat16"]),
        (["strategy=ddp,fsdp2"], ["all_reduce", "all_gather", "reduce_scatter"], ["float32"]),
        (["strategy=local"], ["all_reduce"], ["float32"]),  # it sends nothing; the sweep's own choice stands
        (["strategy=fsdp2", "sweep.operations=[broadcast]", "sweep.dtypes=[int8]"], ["broadcast"], ["int8"]),
    ],
)
def test_a_study_sweeps_what_its_jobs_send(argv: list[str], operations: list[str], dtypes: list[str]) -> None:
    register()
    outline = outline_study(["model=gpt_tiny", *argv, "gpu_counts=[1,2]", "name=s"], train.verb(), sweep.verb())
    (member,) = [one for one in outline.members if one.verb.name == "sweep"]
    config = member.compose(outline.path)
    assert (list(config.operations), list(config.dtypes)) == (operations, dtypes)


def test_the_largest_job_comes_first_since_the_others_find_what_its_rank_0_compiled() -> None:
    register()
    words = ["model=gpt_tiny,resnet50_64px", "gpu_counts=[1,2,4]", "name=s", "with_sweep=false"]
    members = outline_study(words, train.verb(), sweep.verb()).members
    assert [one.ranks for one in members] == [4, 2, 1] * 2
    assert [one.name.rpartition("-n")[2] for one in members] == ["4", "2", "1"] * 2


def test_repeats_are_every_job_again_in_turns_and_launches_start_ranks_of_their_own() -> None:
    register()
    outline = outline_study(["model=gpt_tiny", "gpu_counts=[1,2]", "repeats=2", "name=s"], train.verb(), sweep.verb())
    names = [one.name for one in outline.members]
    assert names[3:] == [f"{name}-2" for name in names[:3]] and len(names) == 6
    with pytest.raises(UserError, match="repeats=0: must be at least 1"):
        outline_study(["model=gpt_tiny", "gpu_counts=[1]", "repeats=0"], train.verb(), sweep.verb())
    config = compose_job("sweep", ["launches=3", "launch.device=cpu", "launch.backend=gloo", "launch.ranks=2"])
    with pytest.raises(UserError, match="launches=3 starts ranks anew"):
        plan_job(sweep.verb(), config, World(0, 2, 0, 2, "torchrun"))


@pytest.mark.parametrize(("strategy", "traces"), [("ddp", "cpu_ddp_n2"), ("fsdp2", "cpu_fsdp2_n2")])
def test_what_a_strategy_is_said_to_send_is_what_its_traces_hold(strategy: str, traces: str) -> None:
    register()
    said = set(typed(compose_job("train", ["model=gpt_tiny", f"strategy={strategy}"]), TrainConfig).sent.operations)
    moved: dict[str, int] = {}
    for one in analyze_run(DATA / traces).collectives:
        moved[one.operation] = moved.get(one.operation, 0) + (one.bytes or 0)
    assert {operation for operation, size in moved.items() if size > 0.01 * sum(moved.values())} == said


def _study(tmp_path: Path, *more: str, name: str = "name=s") -> PlannedStudy:
    words = ["model=gpt_tiny", "gpu_counts=[1,2]", "launch.device=cpu", *more]
    return plan_study(outline_study([*words, name, f"runs={tmp_path}"], train.verb(), sweep.verb()))


def _again(tmp_path: Path, *more: str) -> PlannedStudy:
    return plan_study(outline_study(["name=s", f"runs={tmp_path}", "resume=true", *more], train.verb(), sweep.verb()))


@pytest.mark.job
def test_a_study_goes_on_with_the_jobs_that_are_not_done(tmp_path: Path) -> None:
    register()
    study = _study(tmp_path, "seed=3")
    study.outline.make_folder()
    ended: list[RunStatus] = ["done", "failed"]
    for plan, status in zip(study.jobs, ended, strict=False):  # the sweep has not begun
        plan.make_folder().set_status(status)
    for again in (_again(tmp_path), _study(tmp_path, "seed=3", "resume=true")):
        assert [(plan.path, plan.verb.name, plan.resume) for plan in again.jobs] == [
            (plan.path, plan.verb.name, True) for plan in study.jobs
        ]
        assert again.done == {"gpt_tiny-ddp-n2"}
        assert [thaw(plan.text, plan.verb.schema, plan.verb.variants).seed for plan in again.jobs] == [3, 3, 3]
    again.jobs[1].make_folder()
    again.outline.make_folder()
    assert RunFolder(study.outline.path).read_info().status == "running"


def test_a_study_is_not_gone_on_with_as_another(tmp_path: Path) -> None:
    register()
    folder = _study(tmp_path).outline.make_folder()
    with pytest.raises(UserError, match=r"consists of other jobs \(not of gpt_tiny-fsdp2-n2.*name=s resume=true"):
        _study(tmp_path, "strategy=fsdp2", "resume=true")
    with pytest.raises(UserError, match="resume=true needs name=STUDY"):
        _study(tmp_path, "resume=true", name="name=null")
    folder.jobs.unlink()  # as in those made before it was kept
    with pytest.raises(UserError, match="repeat the study's whole command"):
        _again(tmp_path)
    assert not _study(tmp_path, "resume=true").done


def test_there_may_be_no_study_to_go_on_with_yet(tmp_path: Path) -> None:
    register()
    assert not _study(tmp_path, "resume=true").outline.resumed


@pytest.mark.job
def test_after_each_job_but_the_last_a_study_says_how_long_the_others_take(tmp_path: Path) -> None:
    register()
    said: list[str] = []
    _, failed = run_study(_study(tmp_path, "steps=3", "warmup_steps=1", "with_sweep=false", *QUICK), said.append)
    first, second = (line.strip() for line in said if line.startswith("    done in "))
    assert not failed and re.fullmatch(r"done in \d+ s, about \d+ s left", first), said
    assert re.fullmatch(r"done in \d+ s", second), said
