"""Runs whose steps take other numbers of samples: scaled by each rank's share, or told as they are, by both verbs."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from scalescope.records.errors import UserError
from scalescope.report.compare.markdown import summary
from scalescope.report.compare.sentences import further, headline
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_against
from scalescope.scaling.compare.alike.samples import samples_of_steps
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.measurement import Identity

SCRIPT = Path(__file__).parent / "data" / "runs_v0.1" / "script"


def run_of(folder: Path, *samples: int, longer: float = 1.0) -> Path:
    """Return a script's run of two ranks that take so many samples a step, in steps so many times as long."""
    shutil.copytree(SCRIPT, folder)
    facts = json.loads((folder / "facts.json").read_text())
    facts |= {"samples_per_rank_step": round(sum(samples) / len(samples)), "samples_by_rank": samples}
    (folder / "facts.json").write_text(json.dumps(facts))
    rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    for row in rows:
        row["step_ms"] = [longer * ms for ms in row["step_ms"]]
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize(
    ("baseline", "other", "rate"),
    [
        ((8, 8), (16, 16), 0.5),
        ((8,), (16, 16), 0.5),  # a rank's share, on however many
        ((11, 8), (22, 16), 0.5),  # each rank's work is twice what it was
        ((11, 8), (16, 22), 0.5),  # … whichever rank has most
        ((8, 8), (11, 8), None),  # 9.5 in the mean, and one rank has no more than before
        ((10, 9), (11, 8), None),  # as many in all
        ((11, 8), (11, 8, 8), None),
    ],
)
def test_steps_are_scaled_by_samples_only_where_each_rank_s_share_is_as_many_times_what_it_was(
    baseline: tuple[int, ...], other: tuple[int, ...], rate: float | None
) -> None:
    """The step was scaled by the ranks' rounded mean: by 0.8 where one of two ranks had 11 samples for 8."""
    here, there = (Identity(world_size=len(own), activity="cpu", device=None, samples_by_rank=own)
                   for own in (baseline, other))  # fmt: skip
    told = samples_of_steps(here, there)
    assert told is not None and told.rate == rate
    assert samples_of_steps(here, here) is None
    assert samples_of_steps(here, msgspec.structs.replace(there, samples_by_rank=())) is None


def test_steps_of_ranks_that_share_samples_out_otherwise_are_compared_as_they_are_and_that_is_said(
    tmp_path: Path,
) -> None:
    """*10 samples a rank's step for 8* was told of ranks that have 11 and 8, and times were scaled by that."""
    even, uneven = run_of(tmp_path / "even", 8, 8), run_of(tmp_path / "uneven", 11, 8)
    found = compare_paths([even], [uneven])
    assert (found.by_rate, found.reason, found.change_ms) == (None, "another_split", 0.0)
    assert [(one.baseline, one.other) for one in found.amounts if one.amount == "samples"] == [(8.0, 9.5)]
    why = (
        "A step takes 19 samples in all here and 16 there, shared out otherwise: steps are compared as they are, not a "
        "sample, as they wait for the rank that has most to do."
    )
    assert why in summary(found)
    longer = compare_paths([even], [run_of(tmp_path / "longer", 11, 8, longer=3.0)])
    assert " a sample" not in headline(longer)
    shares = "The ranks of “longer” take other shares of a step's samples: 11 on rank 0 and 8 on rank 1, for 8 on each"
    assert shares in further(longer)
    as_many = compare_paths([run_of(tmp_path / "nearly", 10, 9)], [uneven])
    assert "A step takes 19 samples in all on both sides, shared out otherwise: " in summary(as_many)
    assert not any(one.amount == "samples" for one in as_many.amounts)


def test_against_a_reference_of_other_samples_says_what_a_comparison_of_both_says(tmp_path: Path) -> None:
    """It told of the profiled steps, unscaled and without noise, where `compare` told of measured ones, scaled."""
    even, uneven = run_of(tmp_path / "even", 8, 8), run_of(tmp_path / "uneven", 11, 8, longer=3.0)
    found, run = compare_paths([even], [uneven]), analyze_against(uneven, [even])
    for loss in run.lost:
        assert loss.samples == found.samples
        assert (loss.step_change_ms, loss.step_low_ms, loss.step_high_ms) == (
            found.change_ms, found.low_ms, found.high_ms,
        )  # fmt: skip
        assert (loss.from_compared_ms, loss.to_compared_ms) == (found.baseline_ms, found.other_ms)
        assert loss.compared_by == found.basis
    assert any(one.startswith("A step takes 19 samples in all here and 16 there") for one in run_verdict(run).sentences)
    twice = run_of(tmp_path / "twice", 16, 16)
    assert compare_paths([even], [twice]).by_rate == 0.5
    with pytest.raises(
        UserError, match="a rank's step takes 16 samples for 8; give a run of the same batch, or compare"
    ):
        analyze_against(twice, [even])


def test_ranks_that_changed_places_are_said_to_and_the_step_is_as_long(tmp_path: Path) -> None:
    """Nothing said that not rank 0 but rank 1 has most to do now: the step is as long, whichever it is."""
    there, here = run_of(tmp_path / "there", 11, 8), run_of(tmp_path / "here", 8, 11)
    found = compare_paths([there], [here])
    assert (found.verdict, found.samples, found.by_rate) == ("same", None, None)
    told = "The ranks changed places: rank 1 has most to do here (11 samples a step), and rank 0 there."
    assert told in summary(found) and "rank" not in headline(found)
    twice = compare_paths([there], [run_of(tmp_path / "twice", 16, 22)])
    assert "rank 1 has most to do here (22 samples a step), and rank 0 there (11)." in summary(twice)
    against = analyze_against(here, [there])
    assert all(one.places == found.places for one in against.lost), "as --against tells it"
    assert told in run_verdict(against).sentences
    for same in ((11, 8), (22, 16), (8, 8), (7, 12)):
        other = run_of(tmp_path / f"{same}", *same)
        assert compare_paths([there], [other]).places is None, same
