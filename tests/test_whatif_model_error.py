"""A change that sends other things has an interval that holds what the replay was wrong by of such changes."""

import math
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope.cli import front_door
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.findings.prices.pricing import is_worth_it
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.whatif.model_error import MODEL_ERROR
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.recorded import records_of

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).parent / "data"
sys.path.append(str(ROOT / "benchmarks"))

from measured.whatif import MACHINES, RESULTS, half_of, made, residuals, whatif  # noqa: E402


@pytest.fixture(scope="module")
def gpt() -> Replayer:
    return Replayer(records_of("gpt_ddp_n2"))


def test_the_models_error_is_that_of_all_changes_on_record() -> None:
    known = [one for name in MACHINES for one in residuals(RESULTS / name)]
    assert len(known) == 12
    assert half_of(known) <= MODEL_ERROR < 1.005 * half_of(known)


def test_of_twelve_changes_on_record_eleven_are_inside_by_what_others_tell_where_three_were() -> None:
    by_machine = {name: made(RESULTS / name) for name in MACHINES}
    before = after = 0
    for name, own in by_machine.items():
        error = half_of([one for other in MACHINES if other != name for one in residuals(RESULTS / other)])
        for predicted, low, high, came, step in own:
            before += low <= came <= high
            after += abs(came - predicted) <= error * step
    assert (before, after) == (3, 11)


@pytest.mark.parametrize(("name", "before"), [(MACHINES[0], 1), (MACHINES[1], 0), (MACHINES[2], 2)])
def test_a_page_lays_both_intervals_side_by_side(name: str, before: int) -> None:
    table = whatif(RESULTS / name)
    shown = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    sent = [one for one in shown if one["inside then"]]
    assert [one["inside"] for one in sent].count("yes") == before
    assert {one["inside then"] for one in sent} == {"yes"}


@pytest.mark.parametrize("change", [Change(bucket_mib=100), Change(gradients="bf16"), Change(overlap="none")])
def test_what_sends_otherwise_is_known_no_better_than_such_changes_were(gpt: Replayer, change: Change) -> None:
    found = gpt.predict(change)
    assert found.change_ms is not None and found.low_ms is not None and found.high_ms is not None
    least = MODEL_ERROR * gpt.base_ns / 1e6
    assert found.change_ms - found.low_ms >= least and found.high_ms - found.change_ms >= least


def test_taking_a_known_delay_off_is_known_as_well_as_it_was(gpt: Replayer) -> None:
    found = gpt.predict(Change(no_straggler=1))
    assert found.change_ms is not None and found.low_ms is not None
    assert not Change(no_straggler=1).sends_otherwise and math.isfinite(found.low_ms)
    assert found.change_ms - found.low_ms < MODEL_ERROR * gpt.base_ns / 1e6


def test_the_first_sentence_says_which_changes_may_make_the_step_longer(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["whatif", str(DATA / "gpt_ddp_n2"), "--bucket-mib", "50,100", "--link", "0.1"]
    assert front_door.main(argv) == 0
    said = " ".join(capsys.readouterr().out.split())
    told = "It cannot be told whether the step would be shorter or longer: buckets of 50 MiB; buckets of 100 MiB."
    assert told in said and said.index(told) < said.index("replays in")


@pytest.mark.parametrize(("low_ms", "advised"), [(-0.1, False), (0.1, True)])
def test_what_may_make_the_step_longer_is_not_advised(gpt: Replayer, low_ms: float, advised: bool) -> None:
    scene = Scene(analyze_run(DATA / "gpt_ddp_n2"), gpt, step_ms=100.0)
    cut = Candidate(code="small_buckets", change=Change(bucket_mib=100))
    assert is_worth_it(scene, Gain(cut, 2.0, low_ms, 4.0)) is advised
    launching = replace(cut, code="contention", change=Change(no_inflation=True))
    assert is_worth_it(scene, Gain(launching, 2.0, low_ms, 4.0))


def test_bf16_gradients_cost_an_eager_step_more_than_their_transfers_bring(gpt: Replayer) -> None:
    """1.5 ms came of 1,150 launches a step, eager, three times of three (A, U, Q), and none in a compiled step."""
    found = gpt.predict(Change(gradients="bf16"), quick=True)
    assert found.change_ms is not None and 1.0 < found.change_ms < 2.2
    compiled = Replayer(records_of("gpt_ddp_compile_n4")).predict(Change(gradients="bf16"), quick=True)
    assert compiled.change_ms is not None and abs(compiled.change_ms) < 0.5
