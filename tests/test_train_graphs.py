"""Compiled under DDP a model is one graph where no gradients travel, and cut at buckets where they do."""

import json
from pathlib import Path

import pytest

from scalescope.train.strategies.ddp.config import DdpConfig
from tests.train_runs import compose
from tests.worlds import run_world

WORKER = str(Path(__file__).resolve().parent / "graphs_worker.py")


def test_auto_is_the_default_and_true_and_false_stay_what_they_were() -> None:
    cases = ((None, False, True, False), ("true", True, True, True), ("false", False, False, False))
    for asked, alone, together, by_nvlink in cases:
        options = compose(*([f"strategy.compile_by_bucket={asked}"] if asked else [])).strategy
        assert isinstance(options, DdpConfig)
        found = tuple(options.cuts_graph(ranks, False) for ranks in (1, 2, 8))
        assert found == (alone, together, together)
        assert options.cuts_graph(4, True) is by_nvlink


@pytest.mark.job
@pytest.mark.parametrize(("ranks", "cut"), [(1, False), (2, True)])
def test_auto_cuts_the_graph_where_gradients_travel(ranks: int, cut: bool) -> None:
    """In one process, in turn: what one strategy asks of Dynamo is not left to the next."""
    asked = [False, True, "auto"]
    done = run_world(ranks, [WORKER, json.dumps(asked)])
    assert done.returncode == 0, done.stderr
    found = [json.loads(line.removeprefix("GRAPHS ")) for line in done.stdout.splitlines() if "GRAPHS" in line]
    assert [by_bucket for by_bucket, _, _ in found] == [False, True, cut]
    for by_bucket, graphs, losses in found:
        assert graphs > 2 if by_bucket else graphs == 1, found
        assert losses == pytest.approx(found[0][2], rel=1e-5) and losses[1] < losses[0]
