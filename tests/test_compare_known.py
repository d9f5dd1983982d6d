"""Comparisons with a known answer: in which order jobs are trained, what is kept of them, how answers are scored."""

import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from comparisons import making  # noqa: E402
from comparisons.cases import ON_CPU, ON_GPUS, SAME, Case, Run, case_of, runs_in_turns  # noqa: E402
from comparisons.rows import ROWS, read_rows, side, traces_alone, write_rows  # noqa: E402
from comparisons.scoring import apart, same_twice, scored  # noqa: E402

from scalescope.report.compare.noise import noise_sentence  # noqa: E402
from scalescope.scaling.compare.answer import AmountChange, Comparison, KernelChange, PartChange  # noqa: E402
from scalescope.scaling.compare.chosen import change_by_choice  # noqa: E402
from scalescope.scaling.compare.compare import compare  # noqa: E402
from scalescope.scaling.compare.measurement import KEYS  # noqa: E402
from scalescope.scaling.trace.kernel_kinds import KINDS, RECURRENT  # noqa: E402

KEPT = ROOT / "benchmarks" / "results" / "2026-11-23_2_cores" / ROWS
ON_H200 = ROOT / "benchmarks" / "results" / "2026-11-23_2xH200_H"


def test_the_undisturbed_job_comes_twice_a_turn_and_every_other_once() -> None:
    runs = list(runs_in_turns(["gpt_small", "resnet50"], ON_GPUS, 2, 2))
    turn = [run.name for run in runs if run.model == "gpt_small"][: len(ON_GPUS) + 1]
    assert turn[0] == "same-0" and turn[4] == "same-1" and turn[-1] == "device_late_3-0"
    assert len({(run.model, run.name) for run in runs}) == len(runs) == 2 * (8 + 7), "a layer more is GPT's alone"
    few = Counter(run.case.name for run in runs_in_turns(["gpt_small"], ON_GPUS, 5, 2))
    assert few.pop(SAME) == 10 and set(few.values()) == {2}, "where they come in two of the turns"


def test_a_comparison_of_kept_rows_is_that_of_the_runs(tmp_path: Path) -> None:
    rows = read_rows(KEPT)
    assert {row.case for row in rows} == {case.name for case in ON_CPU}
    write_rows(tmp_path / ROWS, rows[:3])
    again = read_rows(tmp_path / ROWS)
    assert again == rows[:3]
    found, back = (compare([side("a", [one[0].repeat])], [side("b", [one[1].repeat])]) for one in (rows, again))
    assert found == back and found.parts
    twice = same_twice("same", [row.repeat for row in rows if row.case == SAME][:4], 1)
    assert twice is not None and twice.of == 6 and twice.right and same_twice("same", [], 1) is None


def test_rows_of_former_kinds_of_kernels_are_read_by_their_names() -> None:
    """A window's figures have no names of their own: two kinds more put the products' time under others."""
    for row in read_rows(ON_H200 / ROWS)[:3]:
        window = row.repeat.windows[0]
        told = dict(zip(KEYS, window.ranks[0], strict=True))
        compute = sum(told[kind] for kind in KINDS)
        assert told["optimiser"] / compute == pytest.approx(row.repeat.identity.kinds["optimiser"], rel=0.1)
        assert told[RECURRENT] == 0 and told["exposed_transfer"] > 0 and len(window.calls[0]) == len(KINDS)


def test_windows_of_one_run_a_side_do_not_tell_how_runs_differ() -> None:
    """Their own five windows differ by 0.05%, the runs by 0.14%: 22 of these 28 pairs were called different."""
    rows = read_rows(ON_H200 / ROWS)
    undisturbed = [row.repeat for row in rows if row.case == SAME and row.model == "resnet50"]
    twice = same_twice("traces", [traces_alone(one) for one in undisturbed], 1)
    assert twice is not None and twice.of == 28 and twice.right
    assert 0.5 < twice.half_interval_percent < 2
    assert twice.a_part_in <= 2, "of 17 products or convolutions were called different: cuDNN had chosen other kernels"
    pairs = same_twice("runs", undisturbed, 4)
    assert pairs is not None and pairs.right and pairs.half_interval_percent < 0.5, "several runs a side tell more"


def test_kernels_that_a_library_chose_anew_are_told_as_such_and_other_products_as_a_change() -> None:
    """Products' 13% and convolutions' 5% between runs of one job were beyond noise in 59 of 100 pairs on one H200."""
    rows = [row for row in read_rows(ON_H200 / ROWS) if row.model == "resnet50"]
    same = [row.repeat for row in rows if row.case == SAME]
    answer = compare([side("a", same[:1])], [side("b", same[2:3])])
    chosen = {one.name: one for one in answer.parts if one.chosen_ms is not None}
    assert chosen.keys() == {"matmul", "convolution"} and all(one.within_noise for one in chosen.values())
    assert chosen["matmul"].change_ms == pytest.approx(chosen["matmul"].chosen_ms, abs=0.1)
    assert "Other kernels do the same operators' work" in noise_sentence(answer)
    tf32 = [row.repeat for row in rows if row.case == "tf32"][:1]
    assert change_by_choice(side("a", same[:1]), side("b", tf32)) == {}, "all of them take longer"
    gpt = [row.repeat for row in read_rows(ON_H200 / ROWS) if row.model == "gpt_small" and row.case == SAME]
    assert change_by_choice(side("a", gpt[:1]), side("b", gpt[1:2])) == {}, "its products are chosen by rule"
    identity = msgspec.structs.replace(same[2].identity, device="NVIDIA H100 80GB HBM3")
    elsewhere = [msgspec.structs.replace(same[2], identity=identity)]
    assert change_by_choice(side("a", same[:1]), side("b", elsewhere)) == {}, "the device makes kernels faster, too"
    several = compare([side("a", same[:4])], [side("b", same[4:])])
    assert all(one.chosen_ms is None for one in several.parts), "four runs a side tell how the choice falls"


def test_of_many_runs_pairs_are_drawn_and_those_that_share_none_are_told_apart() -> None:
    """Of 30 runs there are 10¹⁰ splits into five and five, and three pairs without a run in common."""
    own = [row.repeat for row in read_rows(ON_H200 / ROWS) if row.case == SAME and row.model == "gpt_small"]
    drawn = same_twice("runs", 3 * own, 5)
    assert drawn is not None and (drawn.of, drawn.a_side) == (100, 5) and drawn.narrow == 100
    for in_turns in (True, False):
        alone = apart("runs", own, 5, in_turns=in_turns)
        assert alone is not None and alone.of == 1 and alone.right
    assert apart("runs", own[:9], 5, in_turns=True) is None


def known(name: str) -> Case:
    found = case_of(name, "gpt_small")
    assert found is not None
    return found


def test_an_answer_is_right_where_size_and_name_are() -> None:
    part = PartChange(name="matmul", change_ms=2.0, low_ms=1.5, high_ms=2.5, baseline_ms=9.0, other_ms=11.0)
    kernel = KernelChange(operator=None, kind="matmul", matched_by="name", baseline_name="a", other_name="a", ratio=1.2,
                          baseline_calls=1, other_calls=1, baseline_us=9000.0, other_us=11000.0, share=1.0)  # fmt: skip
    found = Comparison(baseline="a", other="b", verdict="slower", change_ms=2.0, low_ms=1.6, high_ms=2.4,
                       baseline_ms=20.0, other_ms=22.0, parts=[part], kernels=[kernel])  # fmt: skip
    assert scored("x", found, (2.1, 2.3, 2.5), known("tf32")).right
    assert not scored("x", found, (3.0, 3.0, 3.0), known("tf32")).size_right
    assert scored("x", found, (1.8, 1.8, 1.8)).size_right, "within a tenth"
    assert not scored("x", found, (2.0, 2.0, 2.0), known("one_channel")).named
    assert not scored("x", found, (2.0, 2.0, 2.0), known("small_buckets")).named
    found.amounts = [AmountChange(amount="collectives", operation="all_reduce", baseline=13, other=49)]
    assert scored("x", found, (2.0, 2.0, 2.0), known("small_buckets")).named
    assert not scored("x", found, (2.0, 2.0, 2.0), known("tf32"), [True, False]).right


def test_what_is_finished_is_kept_and_what_fails_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def train(_: object, out: Path, run: Run, *__: object, **___: object) -> str | None:
        made.append(run.name)
        return "no memory" if run.case.name == "wider" else None

    monkeypatch.setattr(making, "gpus", lambda: 0)
    monkeypatch.setattr(making, "finished", lambda folder: folder.name in made and not folder.name.startswith("wider"))
    monkeypatch.setattr(making, "_train", train)
    assert making.make(tmp_path, 1, 1, None, ["same", "wider"], (), 60) == 1
    assert made == ["same-0", "wider-0", "same-1"]
    assert making.make(tmp_path, 1, 1, None, ["same", "wider"], (), 60) == 1 and made[3:] == ["wider-0"]
    assert making.make(tmp_path, 1, 1, None, ["wider"], (), -1) == 0 and made[4:] == [], "nothing that would end later"
