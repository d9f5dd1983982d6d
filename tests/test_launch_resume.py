"""A run goes on with other settings where they decide nothing of what is measured, also one of an earlier version."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from scalescope.cli import sweep, train
from scalescope.launch.compose import compose_job, thaw
from scalescope.launch.former_keys import with_present_names
from scalescope.launch.freeze import Plan, plan_job
from scalescope.launch.keys import former_names
from scalescope.records.errors import UserError
from scalescope.train.strategies.registry import STRATEGIES

TRAIN, SWEEP = train.verb(), sweep.verb()
FIXED = ("launch.device=cpu", "launch.ranks=2", "logger=none")

#: What every frozen config held for its strategy before each kind had keys of its own.
FORMER_STRATEGY = {
    "sends": ["all_reduce"],
    "bucket_mb": 12.5,
    "gradient_as_bucket_view": True,
    "static_graph": False,
    "compile_by_bucket": True,
    "gradient_dtype": "fp32",
    "reshard_after_forward": True,
    "prefetch": 3,
    "stage": 2,
}


def planned(runs: Path, *overrides: str) -> Plan:
    argv = ["model=gpt_tiny", *FIXED, f"runs={runs}", "name=one", *overrides]
    return plan_job(TRAIN, compose_job("train", argv))


def goes_on(plan: Plan) -> None:
    replace(plan, resume=True).make_folder()


def test_a_run_goes_on_with_other_settings_that_decide_nothing(tmp_path: Path) -> None:
    planned(tmp_path, "checkpoint_every=5").make_folder()
    goes_on(planned(tmp_path, "checkpoint_every=7", "data.workers=2", "launch.threads_per_rank=3", "logger=tensorboard",
                    "launch.step_limit_s=5", "memory_history=true", "study=other"))  # fmt: skip


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (["steps=50"], "steps: 50 (was 60)"),
        (["model.layers=3"], "model.layers: 3 (was 4)"),
        (["data.validation_samples=8"], "data.validation_samples: 8 (was 128)"),
        (["strategy=fsdp2"], "strategy.kind: fsdp2 (was ddp)"),
        (["strategy.bucket_mib=5"], "strategy.bucket_mib: 5 (was 25)"),
        (["launch.ranks=1"], "launch.ranks: 1 (was 2)"),
        (["optimizer.warmup_steps=3"], "optimizer.warmup_steps: 3 (was 10)"),
    ],
)
def test_a_run_does_not_go_on_as_another_one(other: list[str], says: str, tmp_path: Path) -> None:
    planned(tmp_path).make_folder()
    with pytest.raises(UserError) as refused:
        goes_on(planned(tmp_path, *other))
    assert says in str(refused.value) and "made with another config" in str(refused.value)


@pytest.mark.parametrize("recorded", [True, False])
def test_a_run_of_before_there_was_auto_goes_on(recorded: bool, tmp_path: Path) -> None:
    """Its config has what was the default then, or what was asked for; whoever asks for auto asks for neither."""
    asked = f"strategy.compile_by_bucket={str(recorded).lower()}"
    planned(tmp_path, asked).make_folder()
    goes_on(planned(tmp_path))
    goes_on(planned(tmp_path, asked))
    with pytest.raises(UserError, match=r"strategy\.compile_by_bucket"):
        goes_on(planned(tmp_path, f"strategy.compile_by_bucket={str(not recorded).lower()}"))


def test_how_many_steps_are_recorded_decides_what_is_measured(tmp_path: Path) -> None:
    """A run that had recorded three steps went on where five were asked for, and no word was said."""
    planned(tmp_path, "profiler.active=3").make_folder()
    goes_on(planned(tmp_path))  # which was the default before each device had its own
    with pytest.raises(UserError, match=r"profiler\.active: 5 \(was 3\)"):
        goes_on(planned(tmp_path, "profiler.active=5"))


def test_with_a_fixed_global_batch_it_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    planned(tmp_path, "global_batch_size=8").make_folder()
    goes_on(planned(tmp_path, "global_batch_size=8", "launch.ranks=1"))
    with pytest.raises(UserError, match="global_batch_size: 16"):
        goes_on(planned(tmp_path, "global_batch_size=16", "launch.ranks=1"))


def test_a_sweep_writes_its_table_elsewhere_when_it_goes_on(tmp_path: Path) -> None:
    argv = [*FIXED, f"runs={tmp_path}", "name=one"]
    plan_job(SWEEP, compose_job("sweep", argv)).make_folder()
    goes_on(plan_job(SWEEP, compose_job("sweep", [*argv, "csv=other.csv"])))
    with pytest.raises(UserError, match=r"sizes: 8B \(was auto\)"):
        goes_on(plan_job(SWEEP, compose_job("sweep", [*argv, "sizes=8B"])))


def test_a_sweep_whose_config_still_says_path_goes_on(tmp_path: Path) -> None:
    plan = plan_job(SWEEP, compose_job("sweep", [*FIXED, f"runs={tmp_path}", "name=one"]))
    plan.make_folder().config.write_text(plan.text.replace("transport: c10d", "path: c10d"))
    goes_on(plan)


def test_a_run_of_another_kind_does_not_go_on(tmp_path: Path) -> None:
    plan_job(SWEEP, compose_job("sweep", [*FIXED, f"runs={tmp_path}", "name=one"])).make_folder()
    with pytest.raises(UserError, match="is a sweep run"):
        goes_on(planned(tmp_path))


@pytest.mark.parametrize("kind", [kind for kind in STRATEGIES if kind not in ("tensor", "pipeline")])
def test_a_frozen_config_from_before_strategies_had_keys_of_their_own_goes_on(kind: str, tmp_path: Path) -> None:
    own = {"ddp": ["strategy.bucket_mib=12.5", "strategy.compile_by_bucket=true"], "fsdp2": ["strategy.prefetch=3"],
           "zero": ["strategy.bucket_mib=12.5", "strategy.stage=2"]}.get(kind, [])  # fmt: skip
    plan = planned(tmp_path, f"strategy={'zero1' if kind == 'zero' else kind}", *own)
    folder = plan.make_folder()
    config = yaml.safe_load(plan.text)
    config["strategy"] = {"kind": kind, **FORMER_STRATEGY}
    folder.config.write_text(yaml.safe_dump(config, sort_keys=False))
    goes_on(plan)
    assert thaw(folder.config.read_text(), TRAIN.schema, TRAIN.variants) == thaw(
        plan.text, TRAIN.schema, TRAIN.variants
    )


def test_a_key_that_there_never_was_is_still_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    plan.make_folder().config.write_text(plan.text.replace("  bucket_mib:", "  bucket_gib:"))
    with pytest.raises(UserError, match="bucket_gib"):
        goes_on(plan)


def test_a_former_name_is_taken_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert former_names(SWEEP.schema, SWEEP.variants) == {"path": "transport"}
    assert former_names(TRAIN.schema, TRAIN.variants) == {"strategy.bucket_mb": "strategy.bucket_mib"}
    argv = with_present_names(["strategy.bucket_mb=1,5", "+strategy.bucket_mb=2", "steps=5", "--flag"], TRAIN)
    assert argv == ["strategy.bucket_mib=1,5", "+strategy.bucket_mib=2", "steps=5", "--flag"]
    assert capsys.readouterr().err.count("strategy.bucket_mb is called strategy.bucket_mib now") == 2


def test_another_strategys_key_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown config key 'strategy\.bucket_mib'"):
        compose_job("train", ["strategy=fsdp2", "strategy.bucket_mib=5"])


def test_a_kind_is_chosen_with_the_rest_of_its_keys(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"strategy\.kind=fsdp2: the rest is ddp's"):
        planned(tmp_path, "strategy.kind=fsdp2")
