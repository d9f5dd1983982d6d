"""Anybody's traces get the whole report, and a comparison between world sizes, without any run folder."""

from pathlib import Path

import pytest

from scalescope.cli import analyze as analyze_verb
from scalescope.cli import report as report_verb
from scalescope.records.errors import UserError
from scalescope.scaling.analyze import analyze_base
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import StudyAnalysis
from tests.host_traces import HostTrace, plain_step

DATA = Path(__file__).parent / "data"


def record(folder: Path, rank: int, ranks: int, kernel_us: float) -> None:
    """Write the traces of a rank's four steps."""
    HostTrace(rank, ranks).steps(4, lambda trace, _: plain_step(trace, kernel_us)).write(folder)


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A job's traces on one rank, on two where each kernel takes a tenth longer, and on two that share its work."""
    folder = tmp_path_factory.mktemp("sizes")
    for name, ranks, us in (("one", 1, 200.0), ("two", 2, 220.0), ("half", 2, 100.0)):
        for rank in range(ranks):
            record(folder / name, rank, ranks, us)
    return {1: folder / "one", 2: folder / "two", 0: folder / "half"}


def test_traces_get_a_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert report_verb.run([str(DATA / "gather_ce_n2"), "--html", str(page)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    text = page.read_text()
    assert "gather_ce_n2" in text and "Where a step goes" in text and "all_gather" in text
    assert "NVIDIA H200" in text, "the device stands in the traces"


def test_a_report_of_traces_lies_beside_them(sizes: dict[int, Path]) -> None:
    assert report_verb.run([str(sizes[1])]) == 0
    assert (sizes[1] / "report.html").is_file()
    assert report_verb.run([str(sizes[1])]) == 0, "and is not read as a trace"


def test_several_folders_are_on_one_page(sizes: dict[int, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert analyze_verb.run([str(sizes[1]), str(sizes[2]), "--html", str(page)]) == 0
    text = page.read_text()
    assert "one · 1 GPU" in text.replace("</span>", "") or ("one" in text and "two" in text)


def test_world_sizes_of_plain_traces_are_compared(sizes: dict[int, Path]) -> None:
    study, here, base = analyze_base(sizes[2], [sizes[1]], jobs=1)
    assert isinstance(study, StudyAnalysis) and isinstance(here, RunAnalysis) and isinstance(base, RunAnalysis)
    first, last = study.efficiency
    assert (first.world_size, last.world_size, last.scaling) == (1, 2, "weak")
    assert last.efficiency == pytest.approx(first.step_ms / last.step_ms)
    assert last.efficiency == pytest.approx(1 / 1.1, abs=0.03)  # the optimiser's kernels stay what they are
    assert last.compute_factor is not None and last.parallel_factor is not None
    assert last.efficiency == pytest.approx(last.compute_factor * last.parallel_factor, rel=1e-6)
    (fall,) = study.waterfall
    assert sum(part.ms for part in fall.parts) == pytest.approx(fall.growth_ms)
    assert fall.compute_inflation_ms == pytest.approx(fall.growth_ms, rel=0.1)
    assert last.samples_per_s is None


def test_ranks_that_share_the_work_scale_strongly(sizes: dict[int, Path]) -> None:
    study = analyze_base(sizes[0], [sizes[1]], jobs=1)[0]
    assert isinstance(study, StudyAnalysis)
    assert study.efficiency[-1].scaling == "strong"
    assert study.efficiency[-1].speedup == pytest.approx(2.0, abs=0.15)


def test_the_comparison_is_shown_and_reported(
    sizes: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert analyze_verb.run([str(sizes[2]), "--base", str(sizes[1]), "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "weak scaling efficiency" in text and "from 1 GPU to 2 GPUs" in text and f"report: {page}" in text
    assert "How it scales" in page.read_text()


def test_runs_of_one_size_are_no_bases(sizes: dict[int, Path]) -> None:
    with pytest.raises(UserError, match="--against"):
        analyze_base(sizes[2], [sizes[0]], jobs=1)


@pytest.mark.parametrize(
    ("here", "base", "says"),
    [
        ("gpt_ddp_n2", "resnet50_ddp_n4", "too little in common"),
        ("gpt8_ddp_delay4ms_rank1_n2", "gpt_ddp_n1", "times the blocks"),
    ],
)
def test_bases_of_other_work_are_refused(here: str, base: str, says: str) -> None:
    with pytest.raises(UserError, match=f"{here} is not {base}'s job: .*{says}"):
        analyze_base(DATA / here, [DATA / base], jobs=1)
