"""Profiles of TensorFlow on a CPU: time by operator, as JAX's own reader of xplanes has it, and steps."""

import re
from collections import Counter
from pathlib import Path

import pytest

from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis

PROFILE = Path(__file__).parent / "data" / "tensorflow_cpu" / "tensorflow.xplane.pb"


def test_operators_and_steps_are_those_that_another_reader_finds() -> None:
    profiler = pytest.importorskip("jax.profiler")
    calls: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    steps: list[float] = []
    for plane in profiler.ProfileData.from_file(str(PROFILE)).planes:
        for event in (event for line in plane.lines for event in line.events):
            if match := re.fullmatch(r"[\w/]+:([A-Z_]\w*)", event.name):
                calls[match[1]] += 1
                spent[match[1]] += event.duration_ns
            steps += [event.duration_ns] if event.name == "train" else []
    (answer,) = analyze([PROFILE])
    assert isinstance(answer, RunAnalysis)
    assert (answer.framework, answer.activity, answer.collectives) == ("tensorflow", "cpu", [])
    (rank,) = answer.ranks
    assert rank.steps == len(steps) == 4 and sum(steps) / 1e6 <= rank.window_ms <= 1.1 * sum(steps) / 1e6
    found = {one.name: one for one in answer.kernels}
    assert {name: one.calls * 4 for name, one in found.items()} == {name: calls[name] for name in found}
    assert {"_MklMatMul", "Relu", "ReluGrad"} <= found.keys()
    for name, one in found.items():
        assert one.ms * 4 == pytest.approx(spent[name] / 1e6, abs=0.004)
    assert not answer.advice and not any(one.remedy for one in answer.findings)
