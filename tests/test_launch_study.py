"""A study's outline: which jobs its words ask for, and a sweep of what those send."""

from pathlib import Path

import pytest

from scalescope.cli import sweep, train
from scalescope.launch.compose import compose_job, typed
from scalescope.launch.config import register
from scalescope.launch.study import outline_study
from scalescope.scaling.analyze import analyze_run
from scalescope.train.config import TrainConfig

DATA = Path(__file__).parent / "data"


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


@pytest.mark.parametrize(("strategy", "traces"), [("ddp", "cpu_ddp_n2"), ("fsdp2", "cpu_fsdp2_n2")])
def test_what_a_strategy_is_said_to_send_is_what_its_traces_hold(strategy: str, traces: str) -> None:
    register()
    said = set(typed(compose_job("train", ["model=gpt_tiny", f"strategy={strategy}"]), TrainConfig).sent.operations)
    moved: dict[str, int] = {}
    for one in analyze_run(DATA / traces).collectives:
        moved[one.operation] = moved.get(one.operation, 0) + (one.bytes or 0)
    assert {operation for operation, size in moved.items() if size > 0.01 * sum(moved.values())} == said
