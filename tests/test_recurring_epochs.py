"""Steps that begin an epoch: what their hosts are in loaders for, and why, is in one sentence."""

from typing import Any

import pytest

from scalescope.records.rows import StepRow
from scalescope.report.panels.advice import findings_table
from scalescope.report.text.recurring import recurring_advice, recurring_clause
from scalescope.scaling.answer_rows import PARTS, StepSplit
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps, with_epochs_of_traces
from scalescope.scaling.verdicts.step_rows.steady import measured_steps
from tests.report_samples import run_answer

LONGER = "every 15th step takes 178.9 ms (178.9 ms to 179.0 ms) longer than the others' 88.0 ms"


def rows(begin_ms: float, loads_ms: float, started: list[int] | None = None, at: tuple[int, ...] = ()) -> list[StepRow]:
    """Return 75 steps of 88 ms on two ranks, 4 of them in their loaders; every 15th is `begin_ms` longer, of which the
    hosts are `loads_ms` longer in these. `started`: what rows tell of workers there, and at these steps.
    """
    made = []
    for step in range(1, 76):
        begins = step % 15 == 0
        ms = 88.0 + step % 3 - 1 + begin_ms * begins
        loads = 4.0 + loads_ms * begins
        told = started if started is not None and (begins or step in at) else []
        made.append(StepRow(step=step, phase="steady", step_ms=[ms, ms], samples_per_s=1.0,
                            loading_ms=[loads, loads - 0.5], workers_started=told))  # fmt: skip
    return made


def found(
    begin_ms: float, loads_ms: float, started: list[int] | None = None, at: tuple[int, ...] = ()
) -> RecurringSteps:
    recurs = recurring_steps(rows(begin_ms, loads_ms, started, at))
    assert recurs is not None and (recurs.every, recurs.phase) == (15, 0)
    return recurs


def test_workers_that_each_epoch_starts_anew_are_told_with_what_hosts_are_in_their_loaders_for() -> None:
    """*Every 15th step takes 181.0 ms longer than the others' 87.4 ms* was all of it, with *see what every 15th step
    does beside training*.
    """
    recurs = found(180.0, 72.0, started=[2, 2])
    assert (recurs.loader_entered, recurs.workers_started) == (True, 2)
    assert recurs.loading_ms == pytest.approx(72.0)
    there = "72.0 ms of it in the loader, which starts its workers anew there"
    assert recurring_clause(recurs) == f"{LONGER}, {there}: 11.9 ms a step in the mean"
    advice = recurring_advice(recurs)
    keep = "keep the loader's workers from one epoch to the next (persistent_workers=True)"
    assert advice.startswith(f"{keep}; and see what else every 15th step does")
    run = run_answer("r", 2)
    run.recurring = recurs
    assert any("of a loader that is made once" in str(row[-1]) for row in findings_table(run).rows)
    all_of_it = found(180.0, 178.0, started=[2, 2])
    assert ", all of it in the loader, which starts its workers anew there: " in recurring_clause(all_of_it)
    assert "see what" not in recurring_advice(all_of_it)


def test_workers_that_are_kept_start_none_and_a_loader_that_nothing_tells_of_is_no_epochs_begin() -> None:
    kept = found(180.0, 72.0, started=[0, 0])
    assert ", 72.0 ms of it in the loader, which is entered anew there: " in recurring_clause(kept)
    for recurs in (found(180.0, 72.0), found(180.0, 72.0, started=[2, 2], at=(3, 11))):
        assert not recurs.loader_entered and ", 72.0 ms of it in the loader: " in recurring_clause(recurs)
        assert recurring_advice(recurs).startswith("see what every 15th step does")
    little = found(180.0, 20.0, started=[2, 2])
    assert "loader" not in recurring_clause(little) and recurring_advice(little).startswith("see what every 15th step")


def test_traces_tell_an_epochs_begin_by_a_batch_that_is_asked_for_in_vain() -> None:
    """Rows of earlier versions do not tell when a loader is entered; a window that met such a step does."""
    recurs = found(180.0, 72.0)

    def windows(there: int | None, ranks: int = 2) -> list[StepSplit]:
        names = [f"{part}_ms" for part in PARTS if part != "compute"]
        parts: dict[str, Any] = dict.fromkeys(names, 0.0)
        return [
            StepSplit(rank=rank, step=step, window_ms=88.0, compute_ms=88.0, open_ended=step == 32, **parts,
                      batches=there if step == 30 else 1)
            for rank in range(ranks) for step in range(28, 33)
        ]  # fmt: skip

    told = with_epochs_of_traces(recurs, windows(2))
    assert told is not None and told.loader_entered and told.workers_started == 0
    assert "which is entered anew there" in recurring_clause(told)
    for other in (windows(1), windows(None), [one for one in windows(2) if one.step < 30]):
        assert with_epochs_of_traces(recurs, other) == recurs
    assert with_epochs_of_traces(None, windows(2)) is None


def test_long_steps_that_begin_an_epoch_are_those_and_no_loader_that_is_too_slow() -> None:
    """*In 5 of 75 steps the hosts wait 170.0 ms for a batch, which its loader makes too slowly* was told of workers
    that are started anew, and more of them were advised.
    """
    slow = measured_steps(rows(170.0, 168.0))
    assert slow.recurring is None and slow.long is not None and slow.long.cause == "loading"
    anew = measured_steps(rows(170.0, 168.0, started=[2, 2]))
    assert anew.recurring is not None and anew.recurring.workers_started == 2 and anew.long is None
    assert not any(row.workers_started for row in anew.steady)
