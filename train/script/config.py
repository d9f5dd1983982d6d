"""What `profile_steps` takes: typed, with the defaults of conf/script.yaml. Hydra stays out of it, since the
user's script may use it."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from scalescope.launch.bounds import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, POSITIVE, SECONDS, check_numbers
from scalescope.launch.keys import key
from scalescope.records.errors import UserError
from scalescope.records.package import CONF
from scalescope.train.settings import ProfilerConfig


@dataclass
class ScriptConfig:
    """conf/script.yaml: one training loop of the user's. Samples, tokens and FLOPs are those of one rank's step."""

    what: str = key()
    name: str | None = key()
    runs: str = key()
    study: str | None = key()
    samples: int | None = key()
    tokens_per_sample: int | None = key()
    flops_per_sample: float | None = key()
    flops_formula: str = key()
    parameters: int | None = key()
    strategy: str = key()
    precision: str | None = key()
    first_step: int = key()
    warmup_steps: int = key()
    logger: dict[str, Any] = key()
    analyze: bool = key()
    timeout_s: float = key()
    profiler: ProfilerConfig = key()

    def __post_init__(self) -> None:
        check_numbers(
            self,
            "profile_steps: ",
            samples=COUNT,
            tokens_per_sample=COUNT,
            flops_per_sample=POSITIVE,
            parameters=NOT_NEGATIVE,
            first_step=COUNT_OR_NONE,
            warmup_steps=COUNT_OR_NONE,
            timeout_s=SECONDS,
        )
        if self.precision not in (None, "fp32", "tf32", "bf16", "fp16", "fp8"):
            raise UserError(f"profile_steps: precision={self.precision}: choose one of fp32, tf32, bf16, fp16, fp8")
        if self.profiler.wait is None or self.profiler.wait < 1:
            raise UserError("profile_steps: wait must be at least 1: the first step tells where the script runs")
        if not self.what or "/" in self.what or self.what.startswith("."):
            raise UserError(f"profile_steps: {self.what!r} becomes part of a folder's name; say it in a plain word")


def script_config(what: str, settings: Mapping[str, Any]) -> tuple[ScriptConfig, str]:
    """Return the config that keyword arguments make, and its text to be frozen.

    Raises TypeError for a keyword that there is not, and UserError for a value that cannot be.
    """
    of_profiler = {field.name for field in fields(ProfilerConfig)}
    known = {field.name for field in fields(ScriptConfig)} - {"what", "profiler"} | of_profiler
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known))}"
            raise TypeError(f"profile_steps() got an unexpected keyword argument {name!r}; {hint}")
    defaults = cast(DictConfig, OmegaConf.load(CONF / "script.yaml"))
    window = OmegaConf.load(CONF / "profiler" / "window.yaml")
    plain = {key: _plain(value) for key, value in settings.items()}
    chosen: dict[str, Any] = {key: value for key, value in plain.items() if key not in of_profiler}
    chosen |= {
        "what": what,
        "profiler": {key: plain[key] for key in plain if key in of_profiler},
        "logger": _sinks(plain.get("logger", defaults.logger)),
    }
    try:
        merged = OmegaConf.merge(
            OmegaConf.structured(ScriptConfig), {"profiler": window}, _without(defaults, "logger"), chosen
        )
        return cast(ScriptConfig, OmegaConf.to_object(merged)), OmegaConf.to_yaml(merged, resolve=True)
    except OmegaConfBaseException as error:
        cause = error.__cause__ or error
        raise UserError(f"profile_steps: {' '.join(str(cause).split())}") from error


def _without(config: DictConfig, key: str) -> DictConfig:
    return OmegaConf.masked_copy(config, [str(other) for other in config if other != key])


def _plain(value: Any) -> Any:
    """Return a number of numpy's or torch's as Python's own; a path as text; everything else as it is."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if hasattr(value, "item") else value


def _sinks(choice: str | Sequence[str] | Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sinks of `logger="wandb"`, `logger=["wandb", "tensorboard"]` or `logger={"wandb": {…}}`."""
    if isinstance(choice, str):
        choice = [choice]
    sinks: dict[str, Any] = {}
    for name in choice:
        path = CONF / "logger" / f"{name}.yaml"
        if not path.is_file():
            raise UserError(f"profile_steps: logger={name!r}: choose one of "
                            f"{', '.join(sorted(found.stem for found in path.parent.glob('*.yaml')))}")  # fmt: skip
        nodes = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.load(path)))
        for other in nodes.pop("defaults", ()):
            sinks |= _sinks(other)
        sinks |= nodes
        if isinstance(choice, Mapping):
            if unknown := set(choice[name]) - set(nodes[name]):
                raise UserError(f"profile_steps: logger {name} has no {sorted(unknown)[0]!r}; it takes "
                                f"{', '.join(nodes[name])}")  # fmt: skip
            sinks[name] = {**nodes[name], **choice[name]}
    return sinks
