"""A loop of the user's own has none of our keys: whatever is found in it, nothing that is said of it names one."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from scalescope.records.rows import TrainFacts
from scalescope.report.text import findings as finding_text
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.scaling import findings
from scalescope.scaling.finding.codes import CODES, Cure
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.candidate import Scene
from scalescope.train.script.config import script_config
from tests.config_tables import CONF, SECTIONS, settings_of

FINDINGS = Path(next(iter(findings.__path__)))
KINDS: tuple[Literal["activity", "operator", "annotation", "figure"], ...] = (
    "activity", "operator", "annotation", "figure",
)  # fmt: skip
#: Evidence as detectors give it: activities, figures with a cause's own names, what their others take.
EVIDENCE = [
    EvidenceRow(kind=kind, name=name, ms=1.0, calls=2.0, share=0.1, value=1.5, others_ms=0.5)
    for kind in KINDS
    for name in ("spin_kernel", "loading", "gap_before aten::mm", "host_ms", "late_rank", "times_as_long")
]


@cache
def our_keys() -> frozenset[str]:
    """Every key of conf/, as an override names it."""
    keys = {
        prefix + setting.key
        for _, prefix, files in SECTIONS
        if files != "script.yaml"  # its keys are the arguments of profile_steps, which such a loop does have
        for pattern in files.split()
        for path in sorted(CONF.glob(pattern))
        for setting in settings_of(path)
    }
    return frozenset(keys | {path.stem for path in CONF.iterdir() if path.is_dir()})  # a group is chosen like a key


@cache
def _patterns() -> re.Pattern[str]:
    dotted = "|".join(re.escape(key) for key in our_keys() if "." in key)
    plain = "|".join(re.escape(key) for key in our_keys() if "." not in key)
    return re.compile(rf"(?<![\w.])(?:(?:{dotted})\b|(?:{plain})=)")


def named_in(text: str) -> list[str]:
    """Return which of our keys a text names: with its group, or as an override."""
    return _patterns().findall(text)


def test_a_key_is_seen_where_one_is_named() -> None:
    assert {"strategy.bucket_mib", "data.workers", "compile", "precision"} <= our_keys()
    assert named_in("use larger gradient buckets with strategy.bucket_mib=25") and named_in("set compile=true")
    assert not named_in("DataLoader(num_workers=4); torch.compile(model), with a lower precision")


@pytest.mark.parametrize("cure", get_args(Cure))
def test_whatever_is_found_in_a_loop_of_ones_own_no_key_is_named(cure: Cure) -> None:
    said = [cure_text(Remedy(cure=cure))]
    for code in CODES:
        for evidence in [(), *((row,) for row in EVIDENCE), tuple(EVIDENCE)]:
            one = Finding(code=code, rank=1, ms=1.0, low_ms=0.5, high_ms=1.5, fraction=0.1, evidence=evidence,
                          remedy=Remedy(cure=cure, size=25.0), backed="replay")  # fmt: skip
            said += [finding_text.headline(one, 10.0, 2), finding_text.line(one), finding_text.because(one),
                     finding_text.todo(one), finding_text.todo_elsewhere(one)]  # fmt: skip
    assert not named_in("\n".join(dict.fromkeys(said)))


@pytest.mark.parametrize(("origin", "named"), [("script", ()), (None, ()), ("job", ("compile=true",))])
def test_only_a_job_of_ours_is_given_keys(origin: str | None, named: tuple[str, ...]) -> None:
    facts = TrainFacts("mine", "ddp", "fp32", 1, 0.0, "", 1, origin=origin)  # type: ignore[arg-type] # of the table
    scene = Scene.__new__(Scene)  # what it is asked needs no analysis and no replay
    object.__setattr__(scene, "facts", facts)
    assert scene.overrides("compile=true") == named


def test_no_detector_names_a_key_but_by_asking_whose_loop_it_is() -> None:
    loose, asked = [], 0
    for path in sorted(FINDINGS.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        behind = {
            inside
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "overrides"
            for inside in ast.walk(call)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and named_in(node.value):
                asked += node in behind
                loose += [f"{path.name}:{node.lineno}"] if node not in behind else []
    assert asked >= 5 and not loose


def test_what_one_rank_alone_launches_may_be_a_hook_and_how_its_line_is_seen_is_said() -> None:
    """Of a forward hook that rank 0 alone had, all that was said to look for was a branch on the rank."""
    told = cure_elsewhere(Remedy(cure="look_at_rank", on_cpu=True, origin="script"))
    assert told.startswith(
        "what only that rank runs inside the step: logging, checks or validation under `if rank == …`"
    )
    hooks = ("register_forward_hook", "register_full_backward_hook", "register_comm_hook", "register_hook")
    assert all(f"{hook}" in told for hook in hooks)
    assert all(hasattr(torch.nn.Module, hook) for hook in hooks[:2])
    assert hasattr(DistributedDataParallel, hooks[2]) and hasattr(torch.Tensor, hooks[3])
    assert "where it runs within the forward or backward pass, a hook" in told, "it need not be one elsewhere"
    assert "profile_steps(…, stacks=True)" in told and script_config("x", {"stacks": True})[0].profiler.stacks
    in_jax = cure_elsewhere(Remedy(cure="look_at_rank", jax=True))
    assert "hook" not in in_jax and "profile_steps" not in in_jax
