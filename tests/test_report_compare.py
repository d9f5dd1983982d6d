"""Two studies side by side: what changed, by how much, where in the step, and what is different about them."""

import re
from pathlib import Path

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.report.compare import comparison, pairs_of, part_changes, write_comparison
from scalescope.report.report_data import read_report_data
from scalescope.scaling.answer import read_run_answer, write_answer
from tests.report_browser import needs_chromium, open_page
from tests.report_samples import write_run, write_study


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    """A baseline, and the same with 5 ms less exposed wait at 4 GPUs, 8% more throughput and another NCCL setting."""
    root = tmp_path_factory.mktemp("compare")
    before, after = write_study(root / "before"), write_study(root / "after")
    slow = before.path / "gpt_small-n4" / "analysis.json"
    answer = read_run_answer(slow)
    for rank in answer.ranks:
        rank.exposed_wait_ms += 5.0 * rank.steps
        rank.window_ms += 5.0 * rank.steps
    assert answer.throughput is not None
    answer.throughput.tokens_per_s = (answer.throughput.tokens_per_s or 0) / 1.08
    write_answer(slow, answer)
    changed = RunFolder(after.path / "gpt_small-n4")
    info = changed.read_info()
    assert info.environment is not None
    info.environment = msgspec.structs.replace(info.environment, variables={"NCCL_NVLS_ENABLE": "1"})
    changed.write_info(info)
    changed.config.write_text("model: gpt_small\nbucket_mb: 50\n")
    return before, after


@pytest.fixture(scope="module")
def written(studies: tuple[RunFolder, RunFolder], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_comparison(*studies, tmp_path_factory.mktemp("page") / "compare.html")


def page(written: Path) -> str:
    text = written.read_text()
    return re.sub(r"<script>.*?</script>", "", text, flags=re.S).replace("\N{NO-BREAK SPACE}", " ")


def test_the_verdict_says_how_much_and_where(written: Path) -> None:
    text = page(written)
    assert "gpt_small · 4 GPUs: after is 8.0% faster than before." in text
    assert "In the traces a step is 5.0 ms shorter: exposed wait −5.0 ms." in text
    assert "356.5 GB/s busbw, where before has 356.5 (+0.0%)" in text


def test_the_parts_changes_add_up_to_the_steps(studies: tuple[RunFolder, RunFolder]) -> None:
    left, right = (read_report_data(study) for study in studies)
    pair = next(pair for pair in pairs_of(left, right) if pair.world_size == 4)
    changes = part_changes(pair)
    assert changes is not None and pair.answers is not None
    windows = [sum(rank.window_ms / rank.steps for rank in run.ranks) / len(run.ranks) for run in pair.answers]
    assert sum(change for *_, change in changes) == pytest.approx(windows[1] - windows[0])


def test_what_differs_is_named(studies: tuple[RunFolder, RunFolder], written: Path) -> None:
    text = page(written)
    differences = text[text.index('<section id="configuration"') :].split("</section>")[0]
    assert "NCCL_NVLS_ENABLE" in differences and "bucket_mb: 50" in differences
    shown = comparison(read_report_data(studies[1]), read_report_data(studies[0]))
    assert any("slower" in card.verdict.headline for card in shown.cards), "the other way round it is slower"


def test_two_that_have_nothing_in_common_say_so(studies: tuple[RunFolder, RunFolder], tmp_path: Path) -> None:
    alone = write_run(tmp_path / "other", 2)
    shown = comparison(read_report_data(alone), read_report_data(RunFolder(studies[0].path / "sweep")))
    assert shown.cards[0].verdict.headline == "other and sweep have nothing in common to compare."
    assert shown.notes == ["only other has gpt_small at world size 2"]


def test_a_study_beside_itself_is_as_long_in_every_step(studies: tuple[RunFolder, RunFolder]) -> None:
    same = read_report_data(studies[1])
    text = " ".join(card.verdict.text for card in comparison(same, same).cards)
    assert "In the traces a step is as long." in text and "0.00 ms" not in text


@needs_chromium
def test_the_comparison_is_drawn_offline(written: Path) -> None:
    assert written.stat().st_size < 2_000_000
    seen = open_page(written, probe=True)
    marks = seen.marks()
    assert seen.console == [] and len(marks) == 8 and all(count > 0 for count in marks.values())
    assert 'data-overflow="0"' in seen.dom
