"""report.html: one file that leads with the verdict, holds every figure, loads nothing and trusts no name."""

import base64
import csv
import hashlib
import html
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import altair as alt
import msgspec
import pytest
from jsonschema import ValidationError

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import SweepRow
from scalescope.report.drawing.tables import Column, Table
from scalescope.report.drawing.vega_library import vega_library
from scalescope.report.html import page_of, write_report
from scalescope.report.page import inline_json, table_csv, unbroken
from scalescope.report.report_data import read_report_data
from scalescope.report.sentences import loss_sentence
from scalescope.scaling.answer import Quality, Straggler, read_run_answer
from scalescope.scaling.answer_rows import Collective, KernelRow
from scalescope.scaling.study_answer import read_study_answer, write_answer
from tests import report_samples
from tests.made_once import made_once
from tests.report_browser import needs_chromium, open_page
from tests.report_samples import run_answer, write_real_study, write_run, write_study, write_sweep

ROOT = Path(__file__).parent.parent
HOSTILE = """</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">{{7*7}}'"""


@pytest.fixture(scope="module")
def study_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = made_once(tmp_path_factory, "study_page", lambda folder: write_report(write_study(folder / "h200")))
    return RunFolder(made / "h200").report


@pytest.fixture(scope="module")
def real_study(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    made = made_once(tmp_path_factory, "real_study", lambda folder: write_report(write_real_study(folder / "h200")))
    return RunFolder(made / "h200")


def outside_scripts(text: str) -> str:
    """Return the page's own words: no scripts, and plain blanks where a line must not break."""
    return re.sub(r"<script>.*?</script>", "", text, flags=re.S).replace("\N{NO-BREAK SPACE}", " ")


def test_a_study_of_four_runs_is_one_file_below_2_mb(study_page: Path) -> None:
    assert study_page.name == "report.html"
    assert study_page.stat().st_size < 2_000_000


def test_a_run_of_64_ranks_stays_below_2_mb_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(report_samples.GPT_PARTS, 64, report_samples.GPT_PARTS[4])
    monkeypatch.setitem(report_samples.GPT_STEP, 64, report_samples.GPT_STEP[4])
    monkeypatch.setitem(report_samples.BUS, 64, report_samples.BUS[4])
    folder = write_run(tmp_path / "big", 64)
    write_answer(folder.analysis, run_answer("big", 64, steps=50))
    text = write_report(folder).read_text()
    assert len(text.encode()) < 2_000_000
    assert "The first 250 of 3,200 rows." in text and "The CSV holds 2,000; the run folder has all." in text


def test_the_page_names_nothing_to_load(study_page: Path) -> None:
    text = study_page.read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", outside_scripts(text))
    assert "@import" not in text and "url(" not in outside_scripts(text)
    addresses = set(re.findall(r"https?://[a-z0-9.-]+", text))
    assert addresses <= {"http://www.w3.org", "https://vega.github.io", "https://github.com"}, "namespaces and comments"
    assert "default-src 'none'" in text


def test_only_the_pages_own_two_scripts_may_run(study_page: Path) -> None:
    text = study_page.read_text()
    allowed = re.search(r"script-src ([^\"]*)\"", text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert allowed is not None and len(scripts) == 2, "the drawing library once, and the page's own"
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert html.unescape(allowed[1]).split() == [f"'sha256-{digest}'" for digest in digests]


def test_the_verdict_stands_before_everything_else(study_page: Path) -> None:
    text = outside_scripts(study_page.read_text())
    headline = text.index("4 GPUs do 3.77× the work of one: 94.3% weak scaling efficiency.")
    assert headline < text.index('id="scaling"') < text.index('id="growth"') < text.index('id="partition"')


def test_the_bar_under_a_verdict_is_filled_also_where_less_than_a_ms_was_lost(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "s")
    study = read_study_answer(folder.analysis)
    for fall in study.waterfall:
        fall.growth_ms /= 100
        fall.compute_inflation_ms = (fall.compute_inflation_ms or 0.0) / 100
        fall.compute_more_work_ms = (fall.compute_more_work_ms or 0.0) / 100
        for part in fall.parts:
            part.ms /= 100
    write_answer(folder.analysis, study)
    weights = re.findall(r"flex:([0-9.]+)", outside_scripts(write_report(folder).read_text()))
    assert len(weights) > 2 and sum(map(float, weights)) >= 1, "a browser fills that share of a bar, if it is below 1"


def test_a_real_studys_page_tells_what_its_traces_say(real_study: RunFolder) -> None:
    text = outside_scripts(real_study.report.read_text())
    study = read_study_answer(real_study.analysis)
    fall = next(fall for fall in study.waterfall if fall.to_world_size == 2)
    assert loss_sentence(fall) in text
    assert f"{fall.from_step_ms:.1f} ms to {fall.to_step_ms:.1f} ms" in text
    inflation = fall.compute_inflation_ms
    assert inflation is not None and f"slower compute {100 * inflation / fall.growth_ms:.0f}%" in text
    pair = read_run_answer(real_study.path / "gpt_ddp_n2" / "analysis.json").collectives
    steps = sum(call.step is not None for call in pair)
    assert steps < len(pair)  # kernels launched before the window have no step, and no size
    assert f"{steps} collectives of 3 kinds ran in the profiled steps on 2 GPUs and {len(pair) - steps} were" in text
    lone = read_run_answer(real_study.path / "resnet50_ddp_n4" / "analysis.json")
    assert lone.quality.verdict == "degraded", "three of four ranks have no trace"
    assert "The traces of 4 GPUs are degraded" in text and "exposed wait or transfer" in text


def test_every_section_has_its_sentence_and_its_figures(study_page: Path) -> None:
    text = outside_scripts(study_page.read_text())
    for section in ("scaling", "growth", "partition", "waits", "collectives", "sweep", "kernels", "profiling", "steps"):
        body = text[text.index(f'<section id="{section}"') :].split("</section>")[0]
        for panel in body.split('<article class="panel">')[1:]:
            assert re.search(r'<p class="sentence">[^<]{20,}</p>', panel)
            assert '<details class="figures"' in panel and 'download="' in panel
    assert "longer in the window" in text and "perfect weak scaling (dashed) would be 2,049,120" in text


def test_a_closed_section_says_how_many_panels_besides_the_one_it_quotes(study_page: Path) -> None:
    """*What a change would bring cannot be told from that. (3 more)*: of what, nobody knew."""
    page = outside_scripts(study_page.read_text())
    gists = re.findall(r'class="gist">(.*?)</', page, flags=re.S)
    assert any(re.search(r"\(inside: \d+ more panels?\)\s*$", one) for one in gists), gists
    assert not any(re.search(r"\(\d+ more\)", one) for one in gists)


def test_a_closed_section_ends_in_a_whole_sentence(study_page: Path) -> None:
    """*First measure again on a quiet machine, or in more windows, with profiler.repeat=4. Of th…* stood there."""
    page = html.unescape(outside_scripts(study_page.read_text())).replace("\N{NO-BREAK SPACE}", " ")
    gists = [one.split(" (inside:")[0].strip() for one in re.findall(r'class="gist">(.*?)</', page, flags=re.S)]
    assert len(gists) > 8 and all(one.endswith(".") for one in gists), gists
    assert "line-clamp" not in page, "nor are they cut by how wide the window is"
    panels = [" ".join(one.split()) for one in re.findall(r'<p class="sentence">(.*?)</p>', page, flags=re.S)]
    shorter = [one for one in gists if any(told.startswith(f"{one} ") for told in panels)]
    assert shorter and max(map(len, shorter)) <= 170, "of many sentences the first ones"


def test_the_csv_holds_the_tables_own_figures(study_page: Path) -> None:
    text = study_page.read_text()
    links = dict(re.findall(r'download="([^"]+)" href="data:text/csv;charset=utf-8;base64,([^"]+)"', text))
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(links["growth-gpt_small-4.csv"]).decode())))
    assert [row["part"] for row in rows][:3] == ["slower compute", "more compute", "exposed transfer"]
    assert sum(float(row["ms"]) for row in rows[:-1]) == pytest.approx(float(rows[-1]["ms"]))
    partition = list(csv.DictReader(io.StringIO(base64.b64decode(links["partition-gpt_small.csv"]).decode())))
    parts = [key for key in partition[0] if key.startswith(("compute_", "exposed_", "idle_"))]
    assert len(partition) == 7 and len(parts) == 8
    for row in partition:
        assert sum(float(row[part]) for part in parts) == pytest.approx(float(row["window_ms"]))


def test_the_longest_kernels_stand_with_their_share_and_what_grew(study_page: Path) -> None:
    text = study_page.read_text()
    body = text[text.index('<section id="kernels"') :].split("</section>")[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT takes the most compute, 7.8 ms a step" in body
    assert "It grew the most, from 7.5 ms to 7.8 ms." in body and "communication, waiting included" in body
    links = dict(re.findall(r'download="([^"]+)" href="data:text/csv;charset=utf-8;base64,([^"]+)"', text))
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(links["kernels-gpt_small.csv"]).decode())))
    assert [row["run"] for row in rows] == ["4 GPUs"] * 5 + ["2 GPUs"] * 5 + ["1 GPU"] * 4
    assert float(rows[0]["share_of_compute"]) == pytest.approx(0.12) and float(rows[0]["calls_a_step"]) == 49
    assert (rows[1]["kernel"], rows[1]["kind"], rows[1]["share_of_compute"]) == (
        "all_reduce float32", "communication", "",
    )  # fmt: skip
    assert "communication is no part of the compute" in body


def test_a_spreadsheet_takes_no_name_for_a_formula() -> None:
    table = Table([Column("name", "name"), Column("ms", "ms", digits=1)], [["=HYPERLINK(1)", -1.5], ["@x", None]])
    assert table_csv(table) == "name,ms\n'=HYPERLINK(1),-1.5\n'@x,\n"


def test_a_missing_value_has_a_reason_and_is_never_zero(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 4)
    answer = run_answer("run", 4)
    blind = [msgspec.structs.replace(call, transfer_us=None, bus_gb_s=None, wait_us={}, in_situ_efficiency=None)
             for call in answer.collectives]  # fmt: skip
    assert answer.throughput is not None
    done = msgspec.structs.replace(answer.throughput, mfu=None, mfu_of_measured=None)
    write_answer(folder.analysis, msgspec.structs.replace(answer, collectives=blind, throughput=done))
    text = write_report(folder).read_text()
    section = text[text.index('<section id="collectives"') :].split("</section>")[0]
    assert "No chart: no collective&#39;s bandwidth is known" in section
    assert re.search("– under transfer[a-z ,]*: the collective could not be matched across the ranks", section)
    assert "<td>–</td>" not in section, "a missing value carries its reason"
    assert '<dt>MFU</dt><dd>–</dd><dd class="why">' in text
    assert "0.0% MFU" not in text
    done = msgspec.structs.replace(answer.throughput, mfu=None, mfu_of_measured=0.361)
    write_answer(folder.analysis, msgspec.structs.replace(answer, throughput=done))
    text = write_report(folder).read_text()
    assert '<dt>MFU, measured ceiling</dt><dd>36.1%</dd><dd class="why">no data sheet' in text


def test_a_train_run_alone_and_a_sweep_alone_have_their_pages(tmp_path: Path) -> None:
    run = outside_scripts(write_report(write_run(tmp_path / "train", 2)).read_text())
    assert re.search(r"gpt_small · ddp · 2 GPUs</p>\s*<h2>96.\d% of the 65.\d ms step is compute", run)
    assert 'id="partition"' in run and 'id="steps"' in run and 'id="scaling"' not in run
    sweep = outside_scripts(write_report(write_sweep(tmp_path / "sweep"), tmp_path / "elsewhere.html").read_text())
    assert "all_reduce reaches 356.5 GB/s busbw" in sweep and 'id="partition"' not in sweep
    assert not (tmp_path / "sweep" / "report.html").exists()


def test_a_run_without_analysis_still_has_a_page_that_says_what_to_do(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "train", 2)
    folder.analysis.unlink()
    text = write_report(folder).read_text()
    assert "where its time goes is not known yet" in text and "scalescope analyze" in text and 'id="steps"' in text


def test_one_broken_run_hides_no_other(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s")
    (study.path / "gpt_small-n2" / "run.json").write_text("{")
    (study.path / "sweep" / "sweep.jsonl").write_text('{"operation": 3}\n{"operation": 3}\n')
    text = outside_scripts(write_report(study).read_text())
    assert "gpt_small-n2 is left out" in text and "sweep is left out" in text
    assert "4 GPUs do 3.77× the work of one" in text


def test_a_folder_that_is_none_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.json"):
        write_report(RunFolder(tmp_path))


def test_without_the_drawing_library_the_page_has_its_tables_and_says_so(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "s")
    script = (
        "import sys; sys.modules['altair'] = sys.modules['vl_convert'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('altair', 'vl_convert') else find(name, *a)\n"
        "from pathlib import Path; from scalescope.records.folder import RunFolder\n"
        "from scalescope.report.html import page_of, write_report\n"
        f"write_report(RunFolder(Path({str(folder.path)!r})))\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=200, check=True)
    text = folder.report.read_text()
    assert "needs altair and vl-convert-python" in text and "script-src 'none'" in html.unescape(text)
    assert "<script" not in text and text.count('<details class="figures" open>') >= 8


def test_writing_a_report_imports_no_torch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "train", 2)
    script = (
        "import sys; from pathlib import Path\n"
        "from scalescope.records.folder import RunFolder\n"
        "from scalescope.report.html import page_of, write_report\n"
        f"write_report(RunFolder(Path({str(folder.path)!r})))\n"
        "assert 'torch' not in sys.modules and 'hydra' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=200, check=True)


@pytest.mark.job
def test_every_chart_is_what_vega_lite_s_schema_takes(study_page: Path, real_study: RunFolder, tmp_path: Path) -> None:
    """Writing a report does not hold its charts to the schema: that takes longer than all the rest of the page."""
    others = [write_run(tmp_path / "run", 4), write_sweep(tmp_path / "sweep")]
    for folder in (RunFolder(study_page.parent), real_study, *others):
        page = page_of(read_report_data(folder))
        specs = [spec for section in page.sections for panel in section.panels for spec in panel.charts]
        assert specs
        for spec in specs:
            alt.LayerChart.from_dict(spec, validate=True)
        with pytest.raises(ValidationError):
            alt.LayerChart.from_dict({**specs[0], "heihgt": 3}, validate=True)


def test_the_script_that_draws_is_bundled_once_and_a_damaged_copy_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = vega_library()
    (kept,) = (tmp_path / "scalescope").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:1000])
    assert vega_library() == script and kept.read_bytes() == whole
    kept.unlink()
    other = kept.with_name(f"{kept.name.rpartition('-')[0]}-{hashlib.sha256(b'draw()').hexdigest()[:32]}.js")
    other.write_bytes(b"draw()")
    assert vega_library() == "draw()"  # what is there was not bundled anew
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert vega_library() == script


def test_json_inside_the_page_cannot_end_its_script() -> None:
    text = inline_json({"name": HOSTILE + "<!-- \u2028"})
    assert "<" not in text and ">" not in text and "\u2028" not in text
    assert json.loads(text)["name"].startswith(HOSTILE)


def hostile_run(path: Path) -> RunFolder:
    """A run whose every free text is an attack: config, names, operations, devices, variables, verdicts."""
    folder = write_run(path, 4, config=f"note: |\n  {HOSTILE}\n")
    info = folder.read_info()
    assert info.environment is not None
    info.environment = msgspec.structs.replace(info.environment, variables={"NCCL_NET": HOSTILE})
    info.devices = [msgspec.structs.replace(device, name=HOSTILE) for device in info.devices]
    info.message = HOSTILE
    info.status = "failed"
    folder.write_info(info)
    answer = run_answer(path.name, 4)
    calls = [msgspec.structs.replace(call, operation=HOSTILE, dtype=HOSTILE) for call in answer.collectives]
    assert isinstance(calls[0], Collective)
    write_answer(
        folder.analysis,
        msgspec.structs.replace(
            answer, model=HOSTILE, strategy=HOSTILE, collectives=calls,
            kernels=[KernelRow(name=HOSTILE, communication=False, calls=1, ms=2.0, share_of_compute=0.5)],
            stragglers=[Straggler(rank=1, lost_ms=2.0, verdict=HOSTILE)],
            quality=Quality(verdict="degraded", reasons=[HOSTILE]),
        ),
    )  # fmt: skip
    with folder.sweep_writer() as rows:
        for size in (2**20, 2**21):
            rows.append(SweepRow(HOSTILE, size, HOSTILE, 4, "measured", reduction=HOSTILE, algorithm=HOSTILE,
                                 time_us=10.0, alg_gb_s=100.0, bus_gb_s=150.0, ceiling_gb_s=450.0,
                                 ceiling_assumes=HOSTILE))  # fmt: skip
    return folder


def test_names_from_traces_and_configs_are_text_in_the_page(tmp_path: Path) -> None:
    text = write_report(hostile_run(tmp_path / "hostile")).read_text()
    assert "<img src=x" not in text and "<script>document.title" not in text
    assert "&lt;/script&gt;&lt;script&gt;" in text
    assert "{{7*7}}" in text, "names are no templates either"


@needs_chromium
def test_every_chart_is_drawn_offline_with_an_empty_console(study_page: Path) -> None:
    seen = open_page(study_page)
    assert seen.console == []
    marks = seen.marks()
    assert len(marks) == 16 and seen.dom.count('data-drawn="yes"') == 16
    assert all(count > 0 for count in marks.values()), marks
    assert marks["chart-13"] == 5 + 4, "a bar a kernel, and a tick for those that one GPU has too"
    # throughput: the ideal line, the measured one and its three points; the partition: seven ranks
    assert marks["chart-0"] == 5
    assert marks["chart-4"] >= 7 * 3


@pytest.mark.job
@needs_chromium
def test_a_real_studys_charts_are_drawn(real_study: RunFolder) -> None:
    seen = open_page(real_study.report)
    marks = seen.marks()
    assert seen.console == [] and len(marks) >= 14 and all(count > 0 for count in marks.values())


@pytest.mark.job
@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (700, True)])
def test_nothing_runs_over_the_pages_edge_and_dark_is_dark(study_page: Path, width: int, dark: bool) -> None:
    seen = open_page(study_page, width=width, dark=dark, probe=True)
    assert seen.console == [] and all(count > 0 for count in seen.marks().values())
    assert 'data-overflow="0"' in seen.dom
    assert f'data-dark="rgb({"20, 23, 28" if dark else "246, 247, 249"})"' in seen.dom


@pytest.mark.job
@needs_chromium
def test_hostile_names_do_no_harm_in_a_browser(tmp_path: Path) -> None:
    page = write_report(hostile_run(tmp_path / "hostile"))
    for probe in (False, True):  # the second time without the page's policy, so that escaping alone must hold
        seen = open_page(page, probe=probe)
        assert "<title>hostile – scalescope</title>" in seen.dom
        assert seen.console == []
        assert "img" not in seen.tags()
        assert all(count > 0 for count in seen.marks().values())


@pytest.mark.parametrize("width", [330, 430, 1100])
def test_the_labels_beside_the_growth_s_bars_have_their_room_on_every_page(width: int) -> None:
    import vl_convert

    from scalescope.report.drawing import charts

    spec = charts.waterfall([("slower compute", "#36c", 166.8), ("exposed wait", "#c33", 55.1)], 221.9)
    svg = vl_convert.vegalite_to_svg({**spec, "width": width})
    texts = re.findall(r'<text[^>]*transform="translate\(([\d.]+),[^"]*"[^>]*>([^<]*)</text>', svg)
    plot = 2 * next(float(x) for x, text in texts if text == "ms added to the step")  # the title stands in its middle
    (last,) = [float(x) for x, text in texts if text == "+221.9 ms · 100%"]
    assert 112 <= plot - last < 125, "a figure is cut, or the bars have less room than they could"


def test_no_line_breaks_between_a_figure_and_its_unit_or_its_plus_minus() -> None:
    told = unbroken("took 151.2 ms (± 49.5 ms) on 2 CPU ranks")
    assert told.replace("\N{NO-BREAK SPACE}", "_") == "took 151.2_ms (±_49.5_ms) on 2_CPU ranks"


def test_the_page_says_whether_what_is_compiled_is_one_graph(tmp_path: Path) -> None:
    run = write_run(tmp_path / "gpt", 2)
    facts = run.read_facts()
    assert facts is not None
    for by_bucket, says in ((None, "yes"), (False, "yes, in one graph"), (True, "yes, a graph a gradient bucket")):
        run.write_facts(msgspec.structs.replace(facts, compiled=True, compiled_by_bucket=by_bucket))
        (machine,) = page_of(read_report_data(run)).machines
        assert dict(machine.pairs)["torch.compile"] == says
