"""A late rank is in the drawings, too: what it alone does, and where the others wait for it."""

import re
from pathlib import Path

import msgspec
import pytest

from scalescope.report.html import write_traces_report
from scalescope.report.text.late.rank import late_rank, splits_of
from scalescope.report.timeline.layout import lay_out
from scalescope.report.timeline.marks import marks_of
from scalescope.report.timeline.payload import payload
from scalescope.report.timeline.svg import picture
from scalescope.report.top.bars import run_bars
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.report_browser import needs_chromium, open_page

DATA = Path(__file__).parent / "data"


def analysed(name: str) -> RunAnalysis:
    (run,) = analyze([DATA / name])
    assert isinstance(run, RunAnalysis)
    return run


@pytest.fixture(scope="module")
def delayed() -> RunAnalysis:
    """Two H200s, of which rank 1 runs a kernel of 4 ms of its own in each step."""
    return analysed("gpt8_ddp_delay4ms_rank1_n2")


def test_the_bar_of_the_late_rank_says_how_much_of_it_nobody_else_does(delayed: RunAnalysis) -> None:
    bars = run_bars(delayed)
    assert bars is not None
    assert [bar.label for bar in bars.bars][-2:] == ["rank 1, late", "rank 0"]
    late, other = bars.bars[-2:]
    alone = late.stretches[0]
    assert alone.label == "rank 1 alone 4.1 ms" and "repeating-linear-gradient" in alone.colour
    assert alone in bars.legend and "what rank 1 alone does" in bars.title
    step_ms = splits_of(delayed)[1].window_ms
    assert float(alone.weight) == pytest.approx(100 * 4.1 / step_ms, rel=0.05)
    assert sum(float(one.weight) for one in late.stretches) == pytest.approx(100, abs=1)
    waits = [one for one in other.stretches if one.label.startswith("exposed wait")]
    assert waits and not [one for one in late.stretches if one.label.startswith("exposed wait")]


def test_the_drawn_step_frames_its_kernel_and_the_longest_wait_for_it(delayed: RunAnalysis) -> None:
    timeline = delayed.timeline
    assert timeline is not None
    layout = lay_out(timeline)
    waits, alone = marks_of(timeline, layout, late_rank(delayed))
    assert (waits.text, alone.text) == ("waits for rank 1", "rank 1 alone")
    assert (alone.end - alone.start) / 1e6 == pytest.approx(4.1, rel=0.05)
    assert waits.end - waits.start > 0.5 * (alone.end - alone.start)
    marks = [waits, alone]
    svg = picture(timeline, layout, marks)
    assert svg.count("<rect") == 2 and ">rank 1 alone<" in svg and ">waits for rank 1<" in svg
    data = payload(timeline, layout, marks)
    assert [one[-1] for one in data["marks"]] == ["waits for rank 1", "rank 1 alone"]
    start, end, *_ = data["marks"][1]
    assert (end - start) * data["unit"] == pytest.approx(alone.end - alone.start, rel=0.01)


def test_a_host_that_stands_still_is_framed_where_it_does() -> None:
    run = analysed("cpu_ddp_n2")  # rank 1 sleeps for 10 ms a step
    late = late_rank(run)
    assert late is not None and (late.ranks, late.part) == ((1,), "idle_launch")
    assert run.timeline is not None
    marks = marks_of(run.timeline, lay_out(run.timeline), late)
    (alone,) = [one for one in marks if one.text == "rank 1 alone"]
    assert (alone.end - alone.start) / 1e6 == pytest.approx(10, rel=0.1)


def test_where_nobody_is_late_for_sure_nothing_is_pointed_out(delayed: RunAnalysis) -> None:
    quiet = analysed("gpt8_ddp_none_n2")
    assert late_rank(quiet) is None
    bars = run_bars(quiet)
    assert bars is not None and not [bar for bar in bars.bars if bar.label.startswith("rank")]
    doubtful = msgspec.structs.replace(delayed, findings=[msgspec.structs.replace(delayed.findings[0], low_ms=0.0)])
    assert late_rank(doubtful) is None


@pytest.mark.job
@needs_chromium
def test_the_page_that_is_zoomed_into_draws_the_frames(delayed: RunAnalysis, tmp_path: Path) -> None:
    page = write_traces_report([delayed], "d4", tmp_path / "report.html")
    act = """
      document.querySelector("#timeline details").open = true;
      const figure = document.querySelector(".timeline"), canvas = figure.querySelector("canvas");
      const data = Object.values(JSON.parse(document.getElementById("timelines").textContent))[0];
      figure.dispatchEvent(new KeyboardEvent("keydown", {key: "0"}));
      const ratio = canvas.width / canvas.clientWidth, pen = canvas.getContext("2d");
      figure.dataset.framed = data.marks.map(([begin, over, top, height]) => {
        const x = data.left + (begin + over) / 2 / data.length * (canvas.clientWidth - data.left);
        return [top - 1, top + height + 1].map((y) => pen.getImageData(x * ratio, y * ratio, 1, 1).data[0] < 60);
      }).flat().join(" ");
    """
    seen = open_page(page, act=act)
    (framed,) = re.findall(r'data-framed="([^"]*)"', seen.dom)
    assert framed == "true true true true"
