"""Steps that recur are compared by themselves: the step's change is a median's, of those between."""

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.report.compare.sentences import further, headline, recurring_sentence, verdict_sentences
from scalescope.report.compare.terminal import print_comparison
from scalescope.scaling.answer_steps import RecurringChange
from scalescope.scaling.compare.answer import Comparison, PartChange
from scalescope.scaling.compare.measurement import Identity, Measurement, Repeat
from scalescope.scaling.compare.read import read_side
from scalescope.scaling.compare.rows.recurring import recurring_change
from scalescope.scaling.verdicts.step_rows.recurring import recurring_steps
from scalescope.scaling.verdicts.step_rows.steady import measured_steps
from tests.report_samples import write_run

DATA = Path(__file__).parent / "data"
RUN = DATA / "runs_v0.1" / "train"
NOISE = np.random.default_rng(11)
NAMELESS = Identity(world_size=1, activity="gpu", device=None)


def side(*runs: Callable[[int], float], steps: range = range(5, 85)) -> Measurement:
    return Measurement(name="side", repeats=[repeat({step: (run(step),) for step in steps}) for run in runs])


def repeat(times: dict[int, tuple[float, ...]]) -> Repeat:
    rows = [StepRow(step=step, phase="steady", step_ms=list(ms), samples_per_s=1.0) for step, ms in times.items()]
    return Repeat(name="run", path=Path(), identity=NAMELESS, steady_steps=times, recurring=recurring_steps(rows))


def validating(every: int, ms: float) -> Callable[[int], float]:
    """Return steps of 12 ms, of which every so many validate."""
    return lambda step: 12.0 + 0.1 * float(NOISE.standard_normal()) + (
        ms * (1 + 0.02 * float(NOISE.standard_normal())) if step % every == every - 1 else 0.0
    )  # fmt: skip


def changed(baseline: Measurement, other: Measurement, noise_share: float = 0.01) -> RecurringChange | None:
    return recurring_change(baseline, other, 12.0, noise_share)


def test_a_dearer_validation_is_told_and_one_that_is_as_dear_is_not() -> None:
    dearer = changed(side(validating(10, 100.0)), side(validating(10, 200.0)))
    assert dearer is not None and dearer.differs and (dearer.baseline_every, dearer.other_every) == (10, 10)
    assert dearer.change_ms == pytest.approx(10.0, rel=0.05) and dearer.low_ms < 10.0 < dearer.high_ms
    alike = changed(side(validating(10, 100.0)), side(validating(10, 100.0)))
    assert alike is not None and not alike.differs and alike.low_ms < 0 < alike.high_ms


def test_more_often_and_not_at_all_are_told() -> None:
    often = changed(side(validating(10, 100.0)), side(validating(5, 100.0)))
    assert often is not None and often.differs and (often.baseline_every, often.other_every) == (10, 5)
    assert often.change_ms == pytest.approx(10.0, rel=0.05)
    none = changed(side(validating(10, 100.0)), side(validating(10, 0.0)))
    assert none is not None and none.differs and none.other_every is None
    assert none.change_ms == pytest.approx(-10.0, rel=0.05)
    assert changed(side(validating(10, 0.0)), side(validating(10, 0.0))) is None


def test_a_run_too_short_to_show_how_often_it_saves_is_not_told_to_save_nothing(tmp_path: Path) -> None:
    """Its rows hold three saves of half a second, and *in B none does* was told of it."""
    read = []
    for name, last in (("long", 200), ("short", 65)):
        folder = write_run(tmp_path / name, 2)
        rows = [
            StepRow(step=step, phase="steady", step_ms=[100.0 + step % 3] * 2, samples_per_s=1.0,
                    saving_ms=[500.0 + step % 7] * 2 if step % 20 == 0 else [])
            for step in range(5, last)
        ]  # fmt: skip
        folder.steps.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        read += read_side([folder.path])
    baseline, other = read
    change = recurring_change(baseline, other, 100.0, 0.01)
    assert change is not None and not change.differs and change.baseline_each_ms == pytest.approx(503.0, abs=5.0)


def test_steps_that_nobody_found_on_a_noisy_side_are_not_said_to_be_none() -> None:
    """*In both every 10th step takes 89.6 ms longer, and in nohist none does* of two runs with one checkpoint each."""

    def noisy(every: int, ms: float, spread: float) -> Callable[[int], float]:
        return lambda step: 12.0 + spread * float(NOISE.standard_normal()) + (ms if step % every == every - 1 else 0.0)

    calm, beside = side(validating(10, 6.0)), side(noisy(10, 6.0, 1.5))
    unfound = [msgspec.structs.replace(one, recurring=None) for one in beside.repeats]  # as beside a few longer ones
    found = changed(calm, msgspec.structs.replace(beside, repeats=unfound))
    assert found is not None and not found.differs and (found.baseline_every, found.other_every) == (10, 10)
    apart = side(lambda step: 12.0 + (8.0 if step % 20 == 9 else -8.0 if step % 20 == 19 else 0.01 * (step % 7)))
    unfound = [msgspec.structs.replace(one, recurring=None) for one in apart.repeats]
    assert changed(calm, msgspec.structs.replace(apart, repeats=unfound)) is None, "none would have stood out there"


def test_a_hundredth_of_what_the_other_side_s_take_is_none() -> None:
    """*In B every 10th step takes 0.27 ms longer* was told of a run that saves nothing, beside one of 80.7 ms."""
    beside = side(lambda step: 12.0 + 0.02 * float(NOISE.standard_normal()) + (0.5 if step % 10 == 9 else 0.0))
    unfound = msgspec.structs.replace(
        beside, repeats=[msgspec.structs.replace(one, recurring=None) for one in beside.repeats]
    )
    found = changed(side(validating(10, 100.0)), unfound)
    assert found is not None and found.differs and found.other_every is None


def test_a_side_too_short_to_have_any_tells_nothing() -> None:
    assert changed(side(validating(10, 100.0)), side(validating(10, 0.0), steps=range(5, 25))) is None
    assert changed(side(validating(10, 100.0)), Measurement(name="traces", repeats=[])) is None


def test_repeats_tell_how_they_differ() -> None:
    spread = changed(
        side(validating(10, 80.0), validating(10, 100.0), validating(10, 120.0)), side(validating(10, 130.0))
    )
    assert spread is not None and not spread.differs  # 3 ms more, where repeats are 2 ms apart


def told(change: RecurringChange | None, *parts: PartChange) -> Comparison:
    return Comparison(
        baseline="before", other="after", verdict="same", change_ms=0.02, low_ms=-0.3, high_ms=0.3, baseline_ms=12.0,
        other_ms=12.02, basis="untraced", recurring=change, parts=list(parts),
    )  # fmt: skip


def test_it_is_said_once_with_its_bounds_in_the_first_sentence_or_within_noise_in_a_line_of_its_own() -> None:
    """*Every 6th step takes 79.0 ms longer* stood in the first sentence, and in the next again."""
    dearer = told(changed(side(validating(10, 100.0)), side(validating(10, 200.0))))
    assert headline(dearer).startswith("In “after” every 10th step takes ")
    assert re.search(r"\+(9|10)\.\d+ ms \(95%: \d+\.\d+ to 1\d\.\d+\) in the mean step\.", headline(dearer))
    assert further(dearer).startswith("The typical (median) step: +0.02 ms"), "which says nothing of the mean one"
    assert recurring_sentence(dearer) == ""
    out = io.StringIO()
    print_comparison(dearer, Console(file=out, width=500))
    assert out.getvalue().lower().count("every 10th step takes") == 1
    alike = told(changed(side(validating(10, 100.0)), side(validating(10, 100.0))))
    assert "10th" not in " ".join(verdict_sentences(alike))
    assert recurring_sentence(alike).startswith("In “after” every 10th step takes ")
    assert ", within noise, " in recurring_sentence(alike)
    gone = told(changed(side(validating(10, 100.0)), side(validating(10, 0.0))))
    assert re.match(r"In “before” every 10th step takes (9[89]|10[0-2])\.", headline(gone))
    assert recurring_sentence(gone) == ""
    assert "and in “after” none does" in headline(gone)
    slower = msgspec.structs.replace(dearer, verdict="slower", change_ms=0.5, low_ms=0.2, high_ms=0.8)
    assert headline(slower) == headline(dearer)
    assert further(slower).startswith("Between these steps “after” is 4.2% slower")


def test_a_part_beyond_noise_is_named_though_the_step_is_as_long() -> None:
    late = PartChange(name="idle_launch", change_ms=0.5, low_ms=0.3, high_ms=0.7, baseline_ms=1.0, other_ms=1.5)
    less = PartChange(name="exposed_wait", change_ms=-0.5, low_ms=-1.0, high_ms=0.1, baseline_ms=1.0, other_ms=0.5)
    tiny = PartChange(name="exposed_memory", change_ms=0.004, low_ms=0.002, high_ms=0.006, baseline_ms=0.0,
                      other_ms=0.004)  # fmt: skip
    assert (
        further(told(None, late, less, tiny)) == "In “after” a step has 0.50 ms more idle (host late) than in “before”."
    )
    assert further(told(None, less, tiny)) == ""
    wide = msgspec.structs.replace(told(None, late, less), change_ms=1.0, low_ms=-2.0, high_ms=4.0)
    assert verdict_sentences(wide) == [
        "In “after” a step has 0.50 ms more idle (host late) than in “before”.",
        "The whole step: +1.0 ms of 12.0 ms (95%: −2.0 to +4.0 ms), within noise.",
    ]
    recurring = msgspec.structs.replace(
        wide, recurring=changed(side(validating(10, 100.0)), side(validating(10, 200.0)))
    )
    first, second, third = verdict_sentences(recurring)
    assert first.startswith("In “after” every 10th step"), "it costs more than the part"
    assert second.startswith("In “after” a step has 0.50 ms more idle (host late)"), "far less than these cost"
    assert third.startswith("The typical (median) step: +1.0 ms")


def test_what_a_step_that_recurs_costs_is_the_figure_of_the_analysis_and_no_part_says_it_again(tmp_path: Path) -> None:
    """`analyze` told 141.0 ms of a checkpoint for which `compare` told 148.2, which took its steps' hiccups for it."""
    rows = [json.loads(line) for line in (DATA / "validating_again.jsonl").read_text().splitlines()]
    run = shutil.copytree(RUN, tmp_path / "run", ignore=shutil.ignore_patterns("traces", "checkpoints"))
    (run / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = measured_steps(RunFolder(run).read_steps()).recurring
    assert own is not None
    found = changed(side(lambda step: 12.0), read_side([run])[0])
    assert found is not None and (found.other_each_ms, found.change_ms) == (own.longer_ms, own.mean_ms)
    part = PartChange(name="idle_launch", change_ms=found.change_ms, low_ms=0.9 * found.change_ms,
                      high_ms=1.1 * found.change_ms, baseline_ms=1.0, other_ms=1.0 + found.change_ms)  # fmt: skip
    wide = msgspec.structs.replace(told(found, part), change_ms=1.0, low_ms=-2.0, high_ms=4.0)
    assert headline(wide).startswith("In “after” every ") and "idle" not in " ".join(verdict_sentences(wide))
    longer = msgspec.structs.replace(part, change_ms=1.7 * found.change_ms, low_ms=0.6 * found.change_ms,
                                     high_ms=2.8 * found.change_ms)  # fmt: skip
    by_chance = " ".join(verdict_sentences(msgspec.structs.replace(wide, parts=[longer])))
    assert "idle" not in by_chance, "a window that holds more of them is within their bounds"
