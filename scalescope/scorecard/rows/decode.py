"""Decoding one sequence: each token reads all weights and the cache once, so that the memory's speed bounds it.

tokens/s = measured bytes/s of a copy ÷ the bytes of weights and cache (llama.cpp's bound). What the memory does not
hold is refused.
"""

from collections.abc import Iterator

import psutil

from scalescope.hardware.claims.language_models import LANGUAGE_MODELS
from scalescope.hardware.detect import describe
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest
from scalescope.scorecard.rows.memory import copy_bytes_s

_BITS = (16.0, 8.0, 4.82)  # the last: llama.cpp's Q4_K_M
_CONTEXT = 1024


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield a row a model and quantisation."""
    speed = copy_bytes_s(machine)
    memory_gb = (describe(0, machine.device).memory_bytes or psutil.virtual_memory().total) / 1e9
    for name, model in LANGUAGE_MODELS.items():
        cache_gb = model.cache_bytes_per_token * _CONTEXT / 1e9
        for bits in _BITS:
            weights_gb = model.weights_gb(bits)
            what = f"{name} at {bits:g} bit, {_CONTEXT} tokens of context"
            conditions = Conditions(
                model=name, bits_per_weight=bits, batch=1, context=_CONTEXT, memory_gb=round(memory_gb, 3)
            )
            if weights_gb + cache_gb > memory_gb:
                reason = f"{weights_gb + cache_gb:.1f} GB of weights and cache, above {memory_gb:.1f} GB of memory"
                yield machine.missing("decode", "decode", what, "tokens/s", reason, conditions)
                continue
            rate = speed / (weights_gb + cache_gb) / 1e9
            yield machine.row("decode", "decode", what, "tokens/s", (rate, rate, rate), conditions)
