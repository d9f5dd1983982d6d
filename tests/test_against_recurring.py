"""Steps that recur in one run alone are told by `analyze --against`, whichever of the two runs that is."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope.report.text.reference import recurs_beside, recurs_first
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_against
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.compare.compare import compare_paths

RUN = Path(__file__).parent / "data" / "runs_v0.1" / "train"


def run(folder: Path, saves_ms: float, steps: int = 65) -> Path:
    """Return a run of which rank 0 saves for so long before each 10th step."""
    shutil.copytree(RUN, folder, ignore=shutil.ignore_patterns("checkpoints"))
    rows = [json.loads(line) for line in (RUN / "steps.jsonl").read_text().splitlines()]
    steady = next(row for row in rows if row["phase"] == "steady")
    own = [row for row in rows if row["phase"] != "steady"]
    dice = random.Random(folder.name)
    first = max((row["step"] for row in own), default=0) + 1
    for step in range(first, first + steps):
        ms = 60.0 + 0.2 * dice.random() + (saves_ms + 0.5 * (step % 3) if step % 10 == 9 and saves_ms else 0.0)
        own.append(steady | {"step": step, "step_ms": [ms] * len(steady["step_ms"])})
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    return folder


def sentences(found: RunAnalysis) -> str:
    told = run_verdict(found)
    return " ".join([told.headline, *told.sentences])


@pytest.fixture
def saving(tmp_path: Path) -> Path:
    return run(tmp_path / "saving", 80.0)


def test_what_one_of_both_alone_saves_is_told_both_ways(saving: Path, tmp_path: Path) -> None:
    """Of a checkpoint that RUN alone has nothing was said beside GOOD, nor of one that it has no more."""
    not_saving = run(tmp_path / "not saving", 0.0)
    new, gone = analyze_against(saving, [not_saving]), analyze_against(not_saving, [saving])
    for found, none, sign in ((new, "not saving", "+"), (gone, "not saving", "−")):
        words = (
            rf"In “saving” every 10th step takes 80\.\d ms longer, and in “{none}” none does: [{sign}]8\.\d ms \(95%: "
        )
        assert re.search(words, run_verdict(found).headline), "it is most of what the mean step changed by"
    assert " in the mean step. Between these steps, a step cannot be told in length from “saving”'s" in sentences(gone)
    compared = compare_paths([not_saving], [saving]).recurring
    assert compared is not None and new.lost[0].recurring == compared, "a comparison tells the same"
    first, second = (found.lost[0].recurring for found in (new, gone))
    assert first is not None and second is not None and first.change_ms == pytest.approx(-second.change_ms)


def test_what_both_save_and_what_a_short_run_need_not_have_shown_are_not_told(saving: Path, tmp_path: Path) -> None:
    too_short = run(tmp_path / "short", 0.0, steps=25)  # its steps 9 and 19 alone would have shown it
    for other in (run(tmp_path / "alike", 80.0), too_short):
        assert recurs_beside(analyze_against(saving, [other])) == ""
        assert recurs_beside(analyze_against(other, [saving])) == ""


def test_it_comes_first_where_nothing_else_is_as_sure_and_as_much(saving: Path, tmp_path: Path) -> None:
    found = analyze_against(run(tmp_path / "calm", 0.0), [saving])
    assert recurs_first(found) and "every 10th step" in run_verdict(found).headline
    longer = [replace(loss, step_change_ms=20.0, step_low_ms=10.0, step_high_ms=30.0) for loss in found.lost]
    found.lost = longer
    told = run_verdict(found)
    assert not recurs_first(found) and "every 10th step" not in told.headline
    assert told.sentences[0].startswith("In “saving” every 10th step takes ")
