"""No number that a run could make nothing of gets past the config, whichever key it is set at."""

import shlex
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from scalescope.cli import front_door, sweep, train
from scalescope.launch.compose import compose_job
from scalescope.launch.devices import DeviceChoice
from scalescope.launch.freeze import plan_job
from scalescope.records.errors import UserError
from scalescope.train.models.config import ModelConfig
from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.models.resnet.config import ResNetConfig
from scalescope.train.script.config import ScriptConfig, script_config

VERBS = {"train": train.verb(), "sweep": sweep.verb()}
JOBS: list[tuple[str, list[str], type[ModelConfig] | None]] = [
    ("train", ["model=gpt_tiny"], GptConfig),
    ("train", ["model=resnet50"], ResNetConfig),
    ("sweep", [], None),
]
WRONG: dict[type, tuple[float, ...]] = {
    float: (float("nan"), float("inf"), float("-inf"), -5.0),
    int: (-5, 10**30),
}


def numbers(schema: type[Any], prefix: str = "") -> Iterator[tuple[str, type, bool]]:
    """Yield (key, type, whether it is a list) for every number that a schema types."""
    for field in fields(schema):
        hint = typing.get_type_hints(schema)[field.name]
        kind = next((each for each in typing.get_args(hint) if typing.get_origin(hint) is not list), hint)
        is_list = typing.get_origin(kind) is list
        kind = typing.get_args(kind)[0] if is_list else kind
        if is_dataclass(kind):
            yield from numbers(typing.cast(type, kind), f"{prefix}{field.name}.")
        elif kind in WRONG:
            yield f"{prefix}{field.name}", kind, is_list


def with_value(composed: DictConfig, key: str, value: object) -> DictConfig:
    config = composed.copy()
    OmegaConf.update(config, key, value)
    return config


@pytest.mark.parametrize(("verb", "overrides", "model"), JOBS)
def test_no_job_is_planned_with_a_senseless_number(
    verb: str, overrides: list[str], model: type[ModelConfig] | None
) -> None:
    composed = compose_job(verb, overrides)
    keys = list(numbers(model, "model.")) if model else []
    if model is not ResNetConfig:  # whose other keys are those of a job of a GPT
        keys += numbers(VERBS[verb].schema)
    assert len(keys) >= 2
    for key, kind, is_list in keys:
        for value in WRONG[kind]:
            config = with_value(composed, key, [value, value] if is_list else value)
            with pytest.raises(UserError) as refused:
                plan_job(VERBS[verb], config)
            number = f"{value:g}" if kind is float else str(value)
            shown = f"[{number},{number}]" if is_list else number
            assert str(refused.value).startswith(f"{key}={shown}: "), (key, value, refused.value)


def test_no_script_is_measured_with_a_senseless_number() -> None:
    keys = list(numbers(ScriptConfig))
    assert len(keys) > 10
    for full_key, kind, is_list in keys:
        key = full_key.removeprefix("profiler.")
        for value in WRONG[kind]:
            if (key, value) == ("parameters", 10**30):
                continue  # no model is too large
            with pytest.raises(UserError, match=rf"{key}=.*must be "):
                script_config("loop", {key: [value] if is_list else value})


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("train optimizer.learning_rate=nan", "optimizer.learning_rate=nan: must be a finite number"),
        ("train optimizer.betas=[0.9,1]", "optimizer.betas=[0.9,1]: must be below 1"),
        ("train profiler.max_mib=inf", "profiler.max_mib=inf: must be a finite number, or null for no limit"),
        ("train model.heads=0", "model.heads=0: must be at least 1"),
        ("train model.layers=1.5", "model.layers=1.5: must be a whole number"),
        ("train steps=null", "steps=null: cannot be null"),
        ("train logger.wandb.finish_timeout_s=nan", "logger.wandb.finish_timeout_s=nan: must be a finite number"),
        ("train launch.device=cpu launch.ranks=1000000", "1000000 ranks on "),
        ("sweep budget_s=nan", "budget_s=nan: must be a finite number"),
        ("sweep group_sizes=[true]", "True is no group size"),
        ("sweep group_sizes=1.5", "1.5 is no group size"),
        ("sweep channels=nan", "nan is none; write a number from 1 to 128"),
        ("sweep sizes='8B..1GiB xnan'", "the factor must be above 1"),
        ("sweep sizes='8B..1GiB +1B'", "take longer steps"),
        ("sweep sizes='8B..1GiB x1.00000001'", "take longer steps"),
        (f"sweep sizes={'9' * 400}", "more than any memory holds"),
        ("study launch.step_limit_s=nan", "launch.step_limit_s=nan: must be a finite number"),
        ("study logger.wandb.finish_timeout_s=-1", "logger.wandb.finish_timeout_s=-1: must be at least 0"),
        ("study gpu_counts=[true]", "gpu_counts=[True]: give auto, or a list"),
        ("study optimizer.learning_rate=nan", "optimizer.learning_rate=nan"),
        ("study model=gpt_tiny sweep.budget_s=nan", "budget_s=nan"),
        ("submit train seed=1,2 optimizer.learning_rate=nan --dry-run", "optimizer.learning_rate=nan"),
        ("submit study optimizer.learning_rate=nan --dry-run", "optimizer.learning_rate=nan"),
    ],
)
def test_it_is_one_line_that_names_the_key_and_nothing_is_left(
    argv: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert front_door.main(shlex.split(argv)) == 2
    out, err = capfd.readouterr()
    assert len(err.strip().splitlines()) == 1 and says in err and out == "", (out, err)
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_share_cores_are_told_how_long_they_take_to_begin() -> None:
    many = DeviceChoice(device="cpu", backend="gloo", ranks=64, threads_per_rank=1)
    said = many.crowding(2)
    assert said is not None and "64 ranks share 2 cores" in said and "about 128 s" in said
    assert many.crowding(64) is None
    assert DeviceChoice(device="cuda", backend="nccl", ranks=8, threads_per_rank=1).crowding(4) is None
