"""Loads that differ by rank and step are told from cores that others use, and from one rank that has more."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from scalescope.records.rows import StepRow
from scalescope.report.text.findings import because
from scalescope.scaling.finding.figures import COUNTED_LOADS, LATE_RANK
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_counted
from scalescope.scaling.findings.bounds.differing_load import with_differing_load
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.of_rows.loads_by_turns import with_loads_by_turns
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.verdicts.step_rows.late import last_in_steps
from scalescope.scaling.verdicts.step_rows.steady import add_steps
from tests.gloo_traces import GlooJob, analysed
from tests.report_samples import run_answer


@dataclass
class Launched:
    """What one rank launched in one step, as the detector reads it."""

    activity: list[int]
    place: np.ndarray
    work_ns: np.ndarray


def scene_of(
    load: list[list[float]], count: int = 6, name: str = "aten::mm", each_ns: float = 1e6, longer: int = 6,
    step_ms: float = 20.0, counted: list[list[int]] | None = None,
) -> Any:  # fmt: skip
    """Products on each rank and step that take so many times as long, or so many of them; one is interrupted."""
    launches = {
        (rank, step): Launched(
            list(range(count)),
            np.arange(count),
            np.array([each_ns * (times if at < longer else 1.0) * (1.0 if at else 4.0) for at in range(count)]),
        )
        for rank, own in enumerate(load)
        for step, times in enumerate(own)
    }
    side = SimpleNamespace(ranks=list(range(len(load))), steps=list(range(len(load[0]))), launches=launches)
    numbers = [7 + one for one in side.steps]
    graph = SimpleNamespace(activities=[SimpleNamespace(name=name)] * count, step_numbers=numbers)
    records = {
        rank: SimpleNamespace(loads=dict(zip(numbers, counted[rank], strict=True)) if counted else {})
        for rank in side.ranks
    }
    own = [
        SimpleNamespace(rank=rank, step=numbers[step], by_itself_ms=one.work_ns.sum() / 1e6)
        for (rank, step), one in launches.items()
    ]
    analysis = SimpleNamespace(steps=own, ranks=[], experts=[])
    replayer = SimpleNamespace(graph=graph, records=records)
    return SimpleNamespace(side=side, replayer=replayer, step_ms=step_ms, analysis=analysis)


def by_turns() -> Candidate:
    return Candidate(code="slower_compute", rank=0, removals=(Removal("slow", 0),))


def test_loads_that_differ_are_told_once_and_cost_what_evening_them_out_brings(tmp_path: Path) -> None:
    """Before, they were unsteady steps first, at what the step would be if all had the least: 26 of 41 ms."""
    job = GlooJob()
    loads = [[1, 4, 1, 2, 4, 1], [4, 1, 2, 1, 1, 4]]
    for step in range(6):
        job.step(3 + step)
        for rank, own in enumerate(loads):
            job.compute(12.0 * own[step], rank=rank, calls=12)
        job.all_reduce(2.0)
    (found,) = analysed(job.write(tmp_path)).findings
    told = [12.0 * abs(one - two) / 2 for one, two in zip(*loads, strict=True)][:-1]  # the last one ends with the trace
    assert found.code == "alternating_load" and found.ms == pytest.approx(sum(told) / len(told), rel=0.02)


def test_loads_that_differ_by_rank_and_step_are_no_other_process_on_the_cores() -> None:
    """Before, `another process has its cores by turns`: none makes all products shorter than in other steps."""
    (found,) = with_differing_load(scene_of([[1, 4, 1, 2, 4, 1], [4, 1, 2, 1, 1, 4]]), [by_turns()])
    assert found.code == "alternating_load" and found.remedy is not None and found.remedy.cure == "even_out"
    assert found.gain_ms is not None and found.gain_ms[0] == pytest.approx(9 * (1.5 * 4 + 0.5 * 2) / 6, rel=0.01)


def test_shapes_count_loads_that_take_turns_though_one_rank_has_more_in_most_steps() -> None:
    """*Rank 1 computes on 1.21 times as much data* was told of lengths that both ranks draw."""
    drawn = [[774, 1927, 1045, 900, 2121, 830, 829], [816, 1705, 986, 1349, 1573, 2103, 1104]]
    times = [[load / 800 for load in own] for own in drawn]
    (found,) = with_differing_load(scene_of(times, counted=drawn), [by_turns()])
    assert found.code == "alternating_load" and is_counted(found.evidence)
    lost = [abs(one - two) / 2 / 800 * 9 for one, two in zip(*drawn, strict=True)]
    assert found.gain_ms is not None and found.gain_ms[0] == pytest.approx(sum(lost) / 7, rel=0.01)
    assert [row.value for row in found.evidence if row.name == "late_rank"] == [0, 1]


def test_what_a_router_gives_experts_is_no_load_that_takes_turns() -> None:
    drawn = [[774, 1927, 1045, 900], [816, 1705, 986, 1349]]
    scene = scene_of([[load / 800 for load in own] for own in drawn], counted=drawn)
    told = [by_turns()]
    assert with_differing_load(scene, told) != told
    scene.analysis.experts = [object()]
    assert with_differing_load(scene, told) == told


def test_a_window_s_last_step_counts_though_nothing_tells_how_long_it_is() -> None:
    """Of lengths that both ranks draw 3 steps were recorded, and *no single cause of it is found* was told."""
    drawn = [[867, 750, 717], [464, 680, 843]]
    scene = scene_of([[load / 700 for load in own] for own in drawn], counted=drawn)
    scene.side.steps = scene.side.steps[:2]
    (found,) = with_differing_load(scene, [by_turns()])
    assert found.code == "alternating_load" and found.gain_ms is not None
    assert found.gain_ms[0] == pytest.approx(9 * (867 - 464 + 750 - 680) / 4 / 700, rel=0.01)


def test_what_shapes_count_alike_takes_no_turns_however_long_it_takes() -> None:
    told = [by_turns()]
    assert with_differing_load(scene_of(BY_TURNS, counted=[[9] * 6, [9] * 6]), told) == told


def test_ranks_whose_cores_others_take_now_here_and_now_there_take_no_turns(tmp_path: Path) -> None:
    """Before, an undisturbed job on shared cores began with `alternating load costs 35.7 ms (30.7 ms to 39.3 ms)`."""
    job = GlooJob()
    for step, late in enumerate((0, 1, 1, 0, 1, 0)):
        job.step(3 + step)
        job.compute(60.0, calls=12)
        job.compute(6.0, "aten::_fused_sgd_")
        job.compute(18.0, "aten::_fused_sgd_", rank=late)
        job.compute(6.0, "aten::_fused_sgd_", rank=1 - late)
        job.all_reduce(2.0)
    assert not {one.code for one in analysed(job.write(tmp_path)).findings} & {"alternating_load", "unsteady"}


def test_a_rank_that_has_more_in_each_step_but_now_more_and_now_less_is_an_alternating_load_too() -> None:
    (found,) = with_differing_load(scene_of([[1.0] * 6, [2.0, 4.0] * 3]), [by_turns()])
    assert found.code == "alternating_load"
    ranks = [row.value for row in found.evidence if row.name == "late_rank"]
    assert ranks == [1], "which the sentence says in the singular"


def test_a_rank_that_has_more_in_each_step_has_so_though_others_take_the_cores_in_one() -> None:
    """Before, *ranks 1 have more to compute by turns*: most products of one step were longer on another rank, too."""
    scene = scene_of([[1.0] * 6, [2.6] * 6])
    scene.side.launches[0, 2].work_ns[2:] *= 1.6  # the quickest of them are as ever
    scene.side.launches[1, 4].work_ns[2:] *= 1.5
    own = by_turns()
    assert with_differing_load(scene, [own]) == [own]


BY_TURNS = [[1.0, 4.0, 1.0, 2.0, 4.0, 1.0], [4.0, 1.0, 2.0, 1.0, 1.0, 4.0]]


@pytest.mark.parametrize(
    "scene",
    [
        scene_of(BY_TURNS, longer=4),
        scene_of([[1.0, 4.0, 1.0, 1.0, 4.0, 1.0], [1.0, 4.0, 1.0, 1.0, 4.0, 2.0]]),
        scene_of(BY_TURNS, step_ms=10_000.0),
        scene_of(BY_TURNS, name="aten::add_"),
        scene_of(BY_TURNS, each_ns=5_000.0, step_ms=0.1),
        scene_of(BY_TURNS, count=2),
        scene_of([own[:2] for own in BY_TURNS]),
    ],
    ids=["some products alone, as beside another process", "on all ranks in the same steps", "of a long step",
         "nothing that multiplies", "too short to tell", "too few products", "too few steps"],
)  # fmt: skip
def test_loads_are_told_by_most_products_of_most_steps_alone(scene: Any) -> None:
    told = [by_turns()]
    assert with_differing_load(scene, told) == told


@pytest.mark.parametrize(
    "load",
    [
        [[1.0] * 6, [1.05] * 6],
        [[1.0] * 6, [3.0] * 6],
        [[1.8] + [1.0] * 5, [3.0] * 6],
        [[1.0] * 6, [2.9] * 6, [3.0] * 6],
        [[1.8] + [1.0] * 5, [2.9] * 6, [3.0] * 6],
    ],
    ids=["alike", "one has more", "one has more, and a step of another's was disturbed", "two have more",
         "two have more, and a step of another's was disturbed"],
)  # fmt: skip
def test_loads_that_are_alike_or_one_ranks_own_do_not_alternate(load: list[list[float]]) -> None:
    told = [by_turns()]
    assert with_differing_load(scene_of(load), told) == told


def test_a_rank_that_has_twice_as_much_is_named_though_others_hold_up_its_longest_operators(tmp_path: Path) -> None:
    """Before, nothing, or `rank 1 has more to compute, now more and now less` at half of what it cost."""
    job = GlooJob()
    held_up = [[0, 11, 0, 0, 9, 0, 10, 2], [8, 0, 2, 9, 0, 4, 0, 0]]
    for step in range(8):
        job.step(3 + step)
        for rank, times in enumerate((1.0, 2.0)):
            job.compute(6.0 * times, calls=6, rank=rank)
            job.compute(3.0 * times + held_up[rank][step], "aten::convolution_backward", rank=rank)
            job.compute(3.0 * times + held_up[rank][step], "aten::native_batch_norm", rank=rank)
            job.compute(4.0, "aten::_fused_sgd_", calls=2, rank=rank)
        job.all_reduce(2.0)
    first, *others = analysed(job.write(tmp_path)).findings
    assert (first.code, first.rank) == ("slower_compute", 1) and first.low_ms is not None and first.low_ms > 0
    assert not {one.code for one in others} & {"alternating_load", "host_starved"}


DRAWN = np.random.default_rng(5).uniform(50.0, 150.0, (40, 2)).tolist()


def drawn_steps(delay_ms: float = 0.0) -> list[StepRow]:
    """Steps whose ranks draw loads of 50 to 150 ms each, and all wait for a core in every other one."""
    rows = []
    for step, own in enumerate(DRAWN):
        delay = delay_ms * (step % 2)
        rows.append(
            StepRow(
                step=step, phase="steady", step_ms=[max(own) + delay] * 2, job_step_ms=max(own) + delay,
                samples_per_s=1.0, own_ms=[one + delay for one in own], run_delay_ms=[delay] * 2,
                own_run_delay_ms=[delay] * 2,
            )
        )  # fmt: skip
    return rows


def counted(ms: float, low_ms: float, high_ms: float) -> Finding:
    return Finding(
        code="alternating_load", ms=ms, low_ms=low_ms, high_ms=high_ms, fraction=ms / 130, backed="measured",
        evidence=(
            EvidenceRow(kind="figure", name=COUNTED_LOADS, value=2.7),
            *(EvidenceRow(kind="figure", name=LATE_RANK, value=rank) for rank in (0, 1)),
        ),
        remedy=Remedy(cure="even_out"),
    )  # fmt: skip


@pytest.mark.parametrize("delay_ms", [0.0, 30.0])
def test_all_steps_tell_what_loads_cost_that_take_turns(delay_ms: float) -> None:
    """Of seven steps it was 14 ms (0.5 to 28), of all 27 it is 17 (13 to 21)."""
    run = run_answer("mlp", 2)
    run.activity = "cpu"
    add_steps(run, drawn_steps(delay_ms))
    last = run.step_times.last if run.step_times is not None else None
    assert last is not None and last.low_ms < last.ms < last.high_ms
    assert last.ms == pytest.approx(sum(abs(one - two) / 2 for one, two in DRAWN) / 40)
    (sized,) = with_loads_by_turns([counted(14.0, 0.5, 27.6)], run)
    assert (sized.ms, sized.low_ms, sized.high_ms) == (last.ms, last.low_ms, last.high_ms)
    assert because(sized).endswith("times as much in one step as in another, and all 40 steps tell what it costs")
    assert with_loads_by_turns([sized], run) == [sized]
    run.experts, run.pipelines = [], []
    keep(run, [counted(14.0, 0.5, 27.6)])
    assert [(one.code, one.ms) for one in run.findings] == [("alternating_load", last.ms)]
    known = counted(14.0, 13.0, 15.0)
    assert with_loads_by_turns([known], run) == [known], "better than all steps tell it"
    stall = msgspec.structs.replace(known, code="host_stall", rank=1, evidence=())
    both = [counted(14.0, 0.5, 27.6), stall]
    assert with_loads_by_turns(both, run) == both, "which makes a rank the last, too"
    assert last_in_steps([msgspec.structs.replace(row, run_delay_ms=[]) for row in drawn_steps()]) is None
    assert last_in_steps(drawn_steps()[:7]) is None
