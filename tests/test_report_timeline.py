"""The step of all ranks in the page: a picture without scripts, to zoom with them, small, and trusting no name."""

import re
from html import unescape
from pathlib import Path

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.report.html import write_report, write_traces_report
from scalescope.report.page import inline_json
from scalescope.report.redaction.pseudonyms import Pseudonyms
from scalescope.report.redaction.structs import redacted
from scalescope.report.timeline.drawn import timeline_sentence, timeline_table
from scalescope.report.timeline.layout import lay_out
from scalescope.report.timeline.payload import payload
from scalescope.report.timeline.svg import picture
from scalescope.scaling.run import explain_run
from scalescope.scaling.step_timeline import StepTimeline, write_timeline
from scalescope.scaling.timelines.merge import bounded
from scalescope.scaling.timelines.one_step import step_timeline
from tests.report_browser import needs_chromium, open_page
from tests.report_samples import run_answer, write_run
from tests.test_report_html import HOSTILE
from tests.test_scaling_timeline import dense

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def timeline() -> StepTimeline:
    explained = explain_run(DATA / "gpt8_ddp_delay4ms_rank1_n2", for_replay=True)
    found = step_timeline(explained.analysis, explained.records, explained.ready)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def page(timeline: StepTimeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("page") / "run", 2)
    write_timeline(folder.timeline, timeline)
    return write_report(folder)


def test_a_run_folders_timeline_is_in_its_page_and_one_that_is_damaged_is_said(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    assert '<section id="timeline"><details class="fold">' in text and "<canvas" not in text.split("<script")[0]
    folder = write_run(tmp_path / "run", 2)
    folder.timeline.write_bytes(b"none")
    text = unescape(write_report(folder).read_text())
    assert 'id="timeline"' not in text and "timeline.json.gz" in text and "make it anew" in text
    assert "96." in text, "the rest of the page stands"


def test_plain_traces_have_it_too(timeline: StepTimeline, tmp_path: Path) -> None:
    answer = msgspec.structs.replace(run_answer("traces", 2), timeline=timeline)
    text = write_traces_report([answer], "traces", tmp_path / "page.html").read_text()
    assert 'id="timeline"' in text and "spin_kernel" in text


def test_it_says_which_step_and_which_ranks(timeline: StepTimeline) -> None:
    assert timeline_sentence(timeline).startswith(
        f"Step {timeline.step}, 80.7 ms with recording: of 2 steps that all ranks recorded whole, "
    )
    of_many = timeline_sentence(msgspec.structs.replace(timeline, steps=8), 10)
    assert ": of the first 8 of the 10 profiled steps, " in of_many, "the others are as whole"
    assert "Both ranks are drawn" in timeline_sentence(timeline)
    many = bounded(dense(8, 20_000))
    many.left_out = 56
    many.ranks[3].why, many.ranks[0].why = ["late"], ["first"]
    said = timeline_sentence(many)
    assert "8 of 64 ranks are drawn; rank 0 comes first and rank 3 comes late in it; 56 are left out." in said
    assert re.search(r"Neighbours within \d+ µs are drawn as one\.", said)
    for row in timeline_table(timeline).rows:
        assert sum(float(cell or 0) for cell in row[4:]) == pytest.approx(float(row[3] or 0))


def test_the_picture_shows_each_ranks_time_in_proportion(timeline: StepTimeline) -> None:
    layout = lay_out(timeline)
    svg = picture(timeline, layout)
    widths: dict[str, float] = {}
    first = min(lane.top + lane.height / 2 for lane in layout.lanes if lane.kind == "parts")
    for path, colour in re.findall(r'<path d="([^"]+)" stroke="var\(--part-([a-z-]+)\)"', svg):
        lines = re.findall(r"M[\d.]+ ([\d.]+)h([\d.]+)", path)
        widths[colour] = widths.get(colour, 0.0) + sum(float(w) for y, w in lines if float(y) == first)
    whole = sum(widths.values())
    compute, length = timeline.ranks[0].parts_ns[0], timeline.ranks[0].length
    assert widths["compute"] / whole == pytest.approx(compute / length, abs=0.03)
    assert svg.count('class="rank"') == 2 and "DistributedDataParallel" in svg


def test_it_takes_less_than_a_mb_of_a_page_whatever_runs() -> None:
    crowded = bounded(dense(8, 20_000))
    layout = lay_out(crowded)
    in_page = len(inline_json(payload(crowded, layout)).encode()) + len(picture(crowded, layout).encode())
    assert in_page < 1_000_000


def test_the_scripts_data_hold_the_times_of_the_spans(timeline: StepTimeline) -> None:
    layout = lay_out(timeline)
    data = payload(timeline, layout)
    for lane, told in zip(layout.lanes, data["lanes"], strict=True):
        begin, starts = 0, []
        for gap in told["spans"][::3]:
            begin += gap
            starts.append(begin * data["unit"])
        assert starts == pytest.approx([at + lane.begin for at in lane.spans.start], abs=data["unit"])
        assert told["spans"][2::3] == lane.spans.what


def hostile(timeline: StepTimeline) -> StepTimeline:
    names = [f"{HOSTILE}{at}" for at in range(len(timeline.names))]
    return msgspec.structs.replace(timeline, run=HOSTILE, names=names)


def test_its_names_are_text_in_the_picture_and_in_the_data(timeline: StepTimeline, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 2)
    write_timeline(folder.timeline, hostile(timeline))
    text = write_report(folder).read_text()
    assert "<img src=x" not in text and "<script>document.title" not in text
    assert "&lt;/script&gt;" in text, "a phase's name stands in the picture"


def test_a_redacted_page_names_no_path_in_it(timeline: StepTimeline) -> None:
    secret = msgspec.structs.replace(timeline, names=["/home/carol/model.py(12): forward", *timeline.names[1:]])
    known = Pseudonyms()
    assert "carol" not in "".join(redacted(secret, known).names)


@pytest.mark.job
@needs_chromium
def test_it_is_drawn_zoomed_and_told_by_mouse_and_keyboard(page: Path) -> None:
    still = open_page(page)
    assert still.console == []
    assert (
        '<figure class="timeline live"' in still.dom
        and "From the first rank's begin to the last one's end, 80.7" in still.dom
    )
    act = """
      const figure = document.querySelector(".timeline"), canvas = figure.querySelector("canvas");
      document.querySelector("#timeline details").open = true;
      const before = canvas.toDataURL();
      for (const key of ["+", "+", "ArrowRight"]) figure.dispatchEvent(new KeyboardEvent("keydown", {key}));
      figure.dataset.changed = canvas.toDataURL() !== before;
      const box = canvas.getBoundingClientRect();
      canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 400, clientY: box.top + 52}));
      figure.dataset.told = figure.querySelector(".tip").textContent;
      const wheel = new WheelEvent("wheel", {deltaY: 240, shiftKey: true, clientX: box.left + 400, clientY: box.top});
      figure.dataset.zoomed = figure.querySelector(".range").textContent;
      canvas.dispatchEvent(wheel);
      figure.dataset.wheeled = figure.querySelector(".range").textContent;
      figure.dispatchEvent(new KeyboardEvent("keydown", {key: "0"}));
    """
    seen = open_page(page, act=act)
    told = {
        name: unescape(value) for name, value in re.findall(r'data-(changed|told|zoomed|wheeled)="([^"]*)"', seen.dom)
    }
    assert seen.console == [] and told["changed"] == "true"
    assert re.search(r"[\d.]+ ms to [\d.]+ ms: 29\.0\d ms of it", told["zoomed"]), told
    assert re.search(r": 64\.\d+ ms of it", told["wheeled"]), told
    assert re.search(r"µs at|ms at", told["told"]), told
    assert "From the first rank's begin to the last one's end, 80.7" in seen.dom


@pytest.mark.job
@needs_chromium
def test_hostile_names_do_no_harm_in_its_tooltips(timeline: StepTimeline, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 2)
    write_timeline(folder.timeline, hostile(timeline))
    act = """
      const figure = document.querySelector(".timeline"), canvas = figure.querySelector("canvas");
      document.querySelector("#timeline details").open = true;
      const box = canvas.getBoundingClientRect();
      for (let y = 0; y < box.height; y += 4)
        canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 400, clientY: box.top + y}));
      canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 400, clientY: box.top + 52}));
      figure.dataset.told = figure.querySelector(".tip").textContent;
    """
    seen = open_page(write_report(folder), act=act)
    assert seen.console == [] and "img" not in seen.tags() and "<title>run – scalescope</title>" in seen.dom
    assert "document.title" in unescape(re.findall(r'data-told="([^"]*)"', seen.dom)[0])


def test_the_policy_admits_its_script_and_a_page_without_charts_has_it(
    timeline: StepTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalescope.report.page.can_draw", lambda: False)
    folder: RunFolder = write_run(tmp_path / "run", 2)
    write_timeline(folder.timeline, timeline)
    text = write_report(folder).read_text()
    assert len(re.findall(r"<script>", text)) == 1 and text.count("'sha256-") + text.count("&#39;sha256-") == 1
