"""What a loop does behind the optimizer's step in some of a window's steps, and records nothing of: what it costs, of
which step that is a share, and what it is likely to be."""

import random
from pathlib import Path

import pytest

from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because, line
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed

STEPS, SAVES_MS, TURN_MS = 10, 60.0, 40.0


def saving(folder: Path, saves: tuple[int, ...], turn: int | None = None, layers: int = 10) -> RunAnalysis:
    """Return the answer for a loop whose rank 0 saves behind some steps; in the step `turn` it waits for a core."""
    chance, made = random.Random(4), GlooJob()
    for number in range(STEPS):
        made.step(number + 22)
        begun = list(made.now.values())
        for layer in range(layers):
            for rank in (0, 1):
                made.sleep(rank, TURN_MS if (rank, layer, number) == (0, 4, turn) else 0.02)
                made.compute(4.0 + chance.uniform(-0.1, 0.1), "aten::linear", rank)
        for rank in (0, 1):
            made.annotate(rank, "DistributedDataParallel.forward", begun[rank], made.now[rank])
        made.compute(40.0, "aten::mm", calls=10)
        made.all_reduce(3.0)
        begun = list(made.now.values())
        made.compute(4.0, "aten::_fused_adamw_", calls=2)
        for rank in (0, 1):
            made.annotate(rank, "Optimizer.step#AdamW.step", begun[rank], made.now[rank])
        if number in saves:
            made.sleep(0, SAVES_MS)
        made.compute(0.1, "aten::detach")
    return analysed(made.write(folder))


def of_host(answer: RunAnalysis) -> Finding:
    (found,) = (one for one in answer.findings if one.code == "host_stall" and one.rank is not None)
    return found


@pytest.mark.parametrize("turn", [None, 1])
def test_what_comes_back_in_some_steps_costs_what_they_take_longer_over_all_of_them(
    turn: int | None, tmp_path: Path
) -> None:
    """*20.2 ms a step in the mean* was told beside *63.1 ms in 2 of 9 steps*, which are 14.0: a third step's wait for a
    core, elsewhere, was told as a save.
    """
    found = of_host(saving(tmp_path, (3, 8), turn))
    assert (found.rank, found.evidence[0].place) == (0, "optimizer_to_forward")
    assert found.ms == pytest.approx(SAVES_MS * 2 / STEPS, rel=0.02)
    assert found.low_ms is not None and found.high_ms is not None
    assert found.low_ms < SAVES_MS / 5 < found.high_ms


def test_what_comes_back_behind_the_optimizer_is_told_as_what_a_loop_does_beside_training(tmp_path: Path) -> None:
    """*Find what holds that host up: py-spy, gc.freeze()* was advised of a checkpoint in each fifth step."""
    found = of_host(saving(tmp_path / "two", (3, 8)))
    assert because(found).endswith("before the next forward pass (before aten::detach), as where it saves or logs")
    assert "(the 4th and 9th, 5 steps apart)" in because(found)
    assert found.remedy is not None and found.remedy.cure == "do_less_often"
    assert "what those steps do beside training" in cure_text(found.remedy)
    row = saving(tmp_path / "row", (4, 5))
    found = of_host(row)
    assert found.remedy is not None and found.remedy.cure == "look_at_host", "two in a row come back for nothing"
    assert "saves" not in because(found) and line(found, row)
