"""The benchmark of known causes: its jobs lose what they are told to, and its score is fair."""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "benchmarks" / "known_causes.py"
sys.path.insert(0, str(SCRIPT.parent))

from causes.cases import all_cases  # noqa: E402
from causes.scoring import Score, score  # noqa: E402
from causes.truth import Truth, cost  # noqa: E402

INJECTED_MS = 80.0


def run(*arguments: str, timeout: float = 240) -> "subprocess.CompletedProcess[str]":
    """Run the benchmark on CPUs."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def truth(**facts: Any) -> Truth:
    """Return the truth of a case in which rank 1 costs 2 ms of a 20 ms step, but for some facts."""
    undisturbed, disturbed = [[[18.0] * 5] * 3] * 2, [[[20.0] * 5] * 2] * 2
    known: dict[str, Any] = {
        **{"case": "made_up", "launch": "gpu_bound", "code": "own_work", "codes": [], "rank": 1, "world_size": 2},
        **{"model": "gpt", "strategy": "ddp", "batch": "gpu_bound", "samples": 8, "loading": "resident"},
        **{"varies": False, "recording": {}, "amount": {}, "injected_ms": 2.0, "limits": {}},
        **{"step_ms_untraced_undisturbed": undisturbed, "step_ms_untraced": disturbed},
        **{"cost_ms": 2.0, "cost_low_ms": 1.9, "cost_high_ms": 2.1, "step_ms_before_window": [[20.0] * 5] * 2},
    }
    return Truth(**(known | facts))


def finding(code: str, rank: int | None, ms: float, low: float, high: float) -> dict[str, Any]:
    return {"code": code, "rank": rank, "ms": ms, "low_ms": low, "high_ms": high}


NOTHING: dict[str, Any] = {"findings": [{"code": "nothing", "rank": None, "ms": None}]}


def scored(reported: list[dict[str, Any]], **facts: Any) -> Score:
    return score("gpu_bound/made_up", truth(**facts), {"findings": reported}, NOTHING)


def test_the_right_cause_of_the_right_size_passes_everything() -> None:
    verdict = scored([finding("own_work", 1, 2.1, 1.8, 2.4)])
    assert (verdict.first_right, verdict.found, verdict.size_right, verdict.covered, verdict.narrow) == (True,) * 5
    assert not verdict.accused


@pytest.mark.parametrize(
    ("reported", "accused"),
    [
        (finding("own_work", 0, 2.0, 1.8, 2.2), True),  # another rank
        (finding("host_stall", 1, 2.0, 1.8, 2.2), False),  # another cause
        (finding("own_work", None, 2.0, 1.8, 2.2), False),  # nobody
    ],
)
def test_a_wrong_first_finding_is_wrong_and_an_innocent_rank_is_accused(
    reported: dict[str, Any], accused: bool
) -> None:
    verdict = scored([reported])
    assert verdict.first_right is False
    assert bool(verdict.accused) is accused


def test_a_size_off_by_a_fifth_a_wide_interval_and_one_that_misses_are_each_told() -> None:
    assert scored([finding("own_work", 1, 2.4, 1.9, 2.9)]).size_right is False
    assert scored([finding("own_work", 1, 2.0, 1.0, 3.0)]).narrow is False
    assert scored([finding("own_work", 1, 2.2, 2.15, 2.3)]).covered is False


def test_a_cost_that_is_hardly_known_judges_neither_a_size_nor_a_width() -> None:
    """No interval is both narrower than the cost is known and right."""
    hardly = {"cost_low_ms": 1.3, "cost_high_ms": 2.7}
    verdict = scored([finding("own_work", 1, 2.6, 1.2, 3.9)], **hardly)
    assert verdict.covered is True and verdict.size_right is None and verdict.narrow is None


def test_what_costs_nothing_must_not_be_found() -> None:
    hidden = {"cost_ms": 0.02, "cost_low_ms": -0.1, "cost_high_ms": 0.1}
    verdict = scored([finding("own_work", 1, 2.0, 1.8, 2.2)], **hidden)
    assert verdict.first_right is False and verdict.accused
    assert scored(NOTHING["findings"], **hidden).first_right is True


def test_a_truth_that_steps_could_not_settle_judges_nobody() -> None:
    unsettled = {"cost_ms": 0.5, "cost_low_ms": -1.0, "cost_high_ms": 2.0, "amount": {"share": 0.1}}
    verdict = scored([finding("own_work", 1, 2.0, 1.8, 2.2)], **unsettled)
    assert verdict.first_right is None and verdict.size_right is None and not verdict.accused
    assert scored([finding("own_work", 0, 2.0, 1.8, 2.2)], **unsettled).accused


def test_a_host_bound_job_may_be_called_that_first_but_not_only() -> None:
    bound = [{"code": "host_bound", "rank": None, "cost_ms": 5.0}]
    first = finding("host_bound", None, 5.0, 4.5, 5.5)
    both = scored([first, finding("own_work", 1, 2.0, 1.8, 2.2)], others=bound)
    assert both.first_right and both.found
    alone = scored([first], others=bound)
    assert alone.first_right and not alone.found


def test_which_of_two_causes_costs_more_is_known_no_better_than_they_are() -> None:
    """A stall of 5.4 ms (4.4 to 7.7) came first where launching cost 6.9, and 4.5 to 8.4 in the stretches beside it."""
    limits = {"samples": 8, "step_ms": [14.0, 14.2], "host_ms": [14.5, 14.1], "device_ms": 7.1, "no_sync_ms": None}
    stall: dict[str, Any] = {"cost_ms": 5.4, "cost_low_ms": 4.4, "cost_high_ms": 7.7, "limits": limits}
    steps = {pace: [[[ms] * 5 for ms in (pace, pace + 2.0, pace)]] * 2 for pace in (11.6, 16.6)}
    found = [finding("own_work", 1, 5.4, 4.4, 7.7), finding("host_bound", None, 6.9, 6.0, 7.5)]
    assert scored(found, **stall, step_ms_untraced_undisturbed=steps[11.6]).first_right is True
    assert scored(found[::-1], **stall, step_ms_untraced_undisturbed=steps[11.6]).first_right is True
    dear = {**limits, "step_ms": [17.0, 17.0]}
    sure = {**stall, "limits": dear, "step_ms_untraced_undisturbed": steps[16.6]}
    assert scored(found, **sure).first_right is False


def test_a_job_that_nothing_disturbs_and_whose_hosts_bound_it_is_host_bound() -> None:
    limits = {"samples": 8, "step_ms": [20.6, 20.8], "host_ms": [20.0, 21.2], "device_ms": 12.9, "no_sync_ms": None}
    facts: dict[str, Any] = {"code": "nothing", "rank": None, "cost_ms": 0.0, "cost_low_ms": 0.0, "cost_high_ms": 0.0}
    found = [finding("host_bound", None, 5.0, 4.0, 6.0)]
    assert scored(found, **facts, limits=limits).first_right is True
    assert scored(NOTHING["findings"], **facts, limits=limits).first_right is False
    assert scored(found, **facts, limits={**limits, "device_ms": 20.7}).first_right is False
    # hosts that are ahead of their devices bound no step, whatever another moment's clocks make of its length
    ahead = {**limits, "host_ms": [14.0, 15.0], "device_ms": 19.9}
    assert scored(found, **facts, limits=ahead).first_right is False
    assert scored(NOTHING["findings"], **facts, limits=ahead).first_right is True


def test_a_cause_that_changed_its_pace_costs_what_it_did_right_before_the_window() -> None:
    """A traced step of 16 ms, shorter than all of 20 ms that were measured, was run at another pace."""
    near: dict[str, Any] = {
        "step_ms_undisturbed_before_window": [[14.0] * 5] * 2,
        "step_ms_before_window": [[15.0] * 5] * 2,
    }
    changed = truth(**near, step_ms_traced=[[16.0] * 5] * 2).of_window
    assert (changed.cost_ms, changed.step_ms) == (1.0, 15.0)
    slower = {**near, "step_ms_before_window": [[18.0] * 5] * 2}
    recorded = truth(**slower, step_ms_traced=[[16.0] * 4 + [20.1]] * 2).of_window
    assert (recorded.cost_ms, recorded.step_ms) == (2.0, 20.0)


def test_a_host_that_was_at_another_pace_around_the_window_has_the_truth_of_then() -> None:
    """Steps of 13 ms in turns, and right before a window 17 without and 24 with the cause: 6.5 ms was told as wrong."""
    found = truth(
        step_ms_undisturbed_before_window=[[26.5] * 5] * 2,
        step_ms_before_window=[[33.0] * 5] * 2,
        step_ms_traced=[[35.0] * 5] * 2,
    ).of_window
    assert (found.cost_ms, found.step_ms) == (6.5, 33.0)


def test_untold_a_range_must_hold_the_untraced_step_and_no_innocent_rank_be_claimed() -> None:
    without_step = {"findings": [finding("own_work", 0, 2.0, 0.1, 4.0)], "as_run": {"low_ms": 15.0, "high_ms": 19.0}}
    verdict = score("gpu_bound/made_up", truth(), NOTHING, without_step)
    assert verdict.without_step_accused and verdict.range_right is False


def test_a_cost_is_the_difference_to_the_neighbouring_stretches() -> None:
    drifting = [[[10.0 + pair] * 10 for pair in range(4)]] * 2
    later = [[[10.5 + pair + 3.0] * 9 + [500.0] for pair in range(3)]] * 2  # and one hiccup a stretch
    found = cost(drifting, later, varies=False)
    assert found.ms == pytest.approx(3.0)
    assert found.low_ms <= 3.0 <= found.high_ms
    assert cost(drifting, later, varies=True).ms > 40  # where steps differ on purpose all of them count


def test_there_is_a_case_of_every_cause_that_a_run_can_have() -> None:
    codes = Counter(case.code for case in all_cases().values())
    assert set(codes) == set(
        "own_work slower_compute more_work data_loading host_stall host_starved host_bound synchronising copies "
        "small_buckets late_bucket slow_transfer late_root alternating_load recompilation allocation contention "
        "unsteady nothing".split()
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cases, made on two gloo ranks."""
    out = tmp_path_factory.mktemp("causes")
    done = run("make", str(out), "--only", "cpu/nothing,cpu/host_stall_backward,cpu/data_one_loader")
    assert done.returncode == 0, done.stderr + "".join(log.read_text() for log in out.glob("*.log"))
    return out / "cpu"


@pytest.mark.quiet
@pytest.mark.job
@pytest.mark.parametrize("case", ["host_stall_backward", "data_one_loader"])
def test_what_a_rank_sleeps_is_what_the_untraced_steps_lose(made: Path, case: str) -> None:
    known = Truth.read(made / case)
    assert known.rank == 1 and known.world_size == 2
    assert known.cost_low_ms <= known.cost_ms <= known.cost_high_ms
    undisturbed_ms = median(step for stretch in known.step_ms_untraced_undisturbed[0] for step in stretch)
    if undisturbed_ms < INJECTED_MS / 2:
        # a sleep is never shorter, and a core that slept wakes slowly, with cold caches
        assert 0.95 * INJECTED_MS < known.cost_ms < 1.35 * INJECTED_MS
    else:  # others compute here, too: while one rank sleeps the other has its core
        assert INJECTED_MS / 3 < known.cost_ms < 1.5 * INJECTED_MS
    undisturbed = Truth.read(made / "nothing")
    assert undisturbed.rank is None and undisturbed.cost_ms == 0


@pytest.mark.quiet
@pytest.mark.job
def test_every_rank_has_a_trace_of_five_steps_as_users_record_them(made: Path) -> None:
    for rank in range(2):
        with gzip.open(made / "data_one_loader" / f"rank{rank}.3.pt.trace.json.gz", "rt") as file:
            events = json.load(file)["traceEvents"]
        names = Counter(event["name"] for event in events if event.get("cat") == "user_annotation")
        assert sum(count for name, count in names.items() if name.startswith("ProfilerStep#")) == 5
        assert names["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == 5


@pytest.mark.quiet
@pytest.mark.job
def test_what_is_there_is_not_made_again(made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.glob("*/*")}
    assert run("make", str(made.parent), "--only", "cpu/nothing,cpu/data_one_loader").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in made.glob("*/*")} == before


@pytest.mark.quiet
@pytest.mark.job
def test_a_diagnosis_that_knows_the_truth_scores_full_marks_and_one_that_guesses_does_not(
    made: Path, tmp_path: Path
) -> None:
    knows = tmp_path / "knows.py"
    knows.write_text("""
import json, sys
from pathlib import Path
truth = json.loads(Path(sys.argv[1], "truth.json").read_text())
ms = truth["cost_ms"]
one = {"code": truth["code"], "rank": truth["rank"], "ms": ms, "low_ms": 0.9 * ms, "high_ms": 1.1 * ms}
if len(sys.argv) > 4:
    assert sys.argv[4] == "--step-ms" and float(sys.argv[5]) > 0
Path(sys.argv[3]).write_text(json.dumps({"findings": [one]}))
""")
    done = run("check", str(made.parent), "--analyze", f"{sys.executable} {knows}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 first findings right" in done.stdout
    guesses = tmp_path / "guesses.py"
    guesses.write_text(knows.read_text().replace('truth["rank"]', "0"))
    done = run("check", str(made.parent), "--analyze", f"{sys.executable} {guesses}", "--markdown")
    assert done.returncode == 1
    assert "0 of 3 windows blame no rank for nothing" not in done.stdout  # `nothing` accuses nobody, whatever its rank
    assert "1 of 3 windows blame no rank for nothing" in done.stdout


def test_a_case_that_is_none_is_refused_with_those_that_are(tmp_path: Path) -> None:
    done = run("make", str(tmp_path), "--only", "gpu_bound/own_wrk")
    assert done.returncode == 2
    assert "gpu_bound/own_work" in done.stderr
