"""What a page begins with: three figures, one sentence, where a step goes, what to do. The rest is folded."""

import re
from html import unescape
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from scalescope.records.folder import RunFolder
from scalescope.report.drawing.numbers import capitalized
from scalescope.report.html import page_of, write_report
from scalescope.report.page import Bars, Card, render
from scalescope.report.panels.advice import causes_of
from scalescope.report.report_data import ReportData, read_report_data
from scalescope.report.terminal.verdicts import print_findings
from scalescope.report.text.late.rank import late_rank
from scalescope.report.text.listed import listed
from scalescope.report.top.bars import run_bars, series_bars
from scalescope.report.top.colours import meaning
from scalescope.report.verdict.level import left_of_step, loss_of
from scalescope.report.verdict.run import run_verdict
from scalescope.report.views import run_label
from scalescope.scaling.answer import AsRun, Quality, Replay, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Split
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Reason, Remedy
from scalescope.scaling.study_answer import write_answer
from tests.report_browser import needs_chromium, open_page
from tests.report_samples import LAUNCHING, run_answer, spread_study, words, write_run, write_study
from tests.test_bound_rank import ALONE, info, told

BUCKETS = Finding(code="small_buckets", ms=3.0, low_ms=2.0, high_ms=4.0, fraction=0.04, backed="replay",
                  remedy=Remedy(cure="larger_buckets", overrides=("strategy.bucket_mib=100",)))  # fmt: skip


def replayed(as_run_ms: float | None = None, *findings: Finding) -> RunAnalysis:
    """Four ranks, replayed; `as_run_ms`: their step without recording, of compute and idle time."""
    answer = run_answer("run", 4)
    traced = sum(rank.window_ms / rank.steps for rank in answer.ranks) / len(answer.ranks)
    answer.replay = Replay(traced_ms=traced, replayed_ms=traced, error=0.0, unexplained_ms=0.0, faithful=True)
    answer.findings = list(findings)
    if as_run_ms is not None:
        parts = {f"{part}_ms": 0.0 for part in PARTS} | {"compute_ms": 40.0, "idle_queued_ms": as_run_ms - 40.0}
        answer.as_run = AsRun(
            step_ms=as_run_ms, low_ms=as_run_ms, high_ms=as_run_ms, source="steps", steps=1,
            recording_ms=Interval(traced - as_run_ms, traced - as_run_ms, traced - as_run_ms),
            ranks=[Split(rank=rank.rank, window_ms=as_run_ms, **parts) for rank in answer.ranks],
        )  # fmt: skip
    return answer


def page_text(folder: RunFolder, answer: RunAnalysis) -> str:
    write_answer(folder.analysis, answer)
    text = write_report(folder).read_text().replace("\N{NO-BREAK SPACE}", " ")
    return unescape(re.sub(r"<script.*?</script>", "", text, flags=re.S))


def unfolded(text: str) -> str:
    """Return what of a page can be read before anything is opened."""
    text = text[text.index("<main>") :]
    while (folded := re.sub(r"<details(?:(?!<details).)*?</details>", "", text, flags=re.S)) != text:
        text = folded
    return re.sub(r"<[^>]+>", " ", text)


def test_a_page_begins_with_three_figures_one_sentence_one_drawing_and_what_to_do(tmp_path: Path) -> None:
    text = page_text(write_run(tmp_path / "run", 4), replayed(50.0, BUCKETS))
    verdict = text[text.index('id="verdict"') :]
    order = ['<dl class="tiles">', "<h2>", '<figure class="bars"', "What may help most", '<details class="more">']
    places = [verdict.index(mark) for mark in order]
    assert places == sorted(places)
    assert verdict[: places[1]].count("<dt>") == 3
    assert verdict.index("</article>") < verdict.index('<section id="advice"><details class="fold" open>')
    seen = unfolded(text)
    assert "Small buckets cost 3.0 ms" in seen and "use larger gradient buckets" in seen
    assert "rank 2" not in seen and "43.1%" not in seen, "tables and further figures are folded"
    assert len(seen.split()) < 190, "with the one cause and what to do about it"


def test_one_sentence_of_the_headline_is_in_large_type_without_the_jobs_name() -> None:
    """Six lines were of one size: the job's name, 41.9 ms of waits for cores, why, 38.8 ms of a rank beside it, and
    what the others' workers did not show."""
    run = told(ALONE, info("0-1", "1"), [])
    card = Card(run_verdict(run))
    assert card.verdict.whose == run_label(run) and run_label(run) not in card.lead
    assert card.lead.startswith("Rank 1 costs ") and card.lead.endswith(" mean step.")
    assert card.behind.startswith("Its host could run") and card.verdict.headline.endswith(card.behind)
    assert f"{card.lead} {card.behind}"[1:] in card.verdict.headline, "nothing of it is lost"


def test_the_first_cause_is_open_with_what_to_do_about_it_and_the_others_are_folded(tmp_path: Path) -> None:
    """What to do in a loop of one's own stood behind two folds, in the last column of a table."""
    answer = replayed(50.0, BUCKETS, LAUNCHING)
    text = page_text(write_run(tmp_path / "run", 4), answer)
    first, second = causes_of(answer)
    seen = " ".join(re.sub(r"<details[^>]*open>", "", text[text.index("<main>") :]).split())
    assert f"<summary>{capitalized(first.told)}</summary>" in seen and first.todo.split(". ")[1] in seen
    assert f"<details><summary>{capitalized(second.told)}</summary>" in seen
    lines = StringIO()
    print_findings(Console(file=lines, width=400), answer, unsteady=False)
    assert all(one.told in lines.getvalue() and one.because in lines.getvalue() for one in (first, second))


def test_where_one_rank_is_named_the_bar_of_the_mean_rank_is_not_alone() -> None:
    """62.6% of a mean rank was compute, 33.9 ms wait: of the rank that was named 84%, and 0.6 ms; nor was it said that
    the bar was a mean."""
    run = told(ALONE, info("0-1", "1"), [])
    assert late_rank(run) is None, "waits for cores are in all of its parts"
    drawn = run_bars(run)
    assert drawn is not None
    assert [one.label.split(",")[0] for one in drawn.bars] == ["mean rank", "rank 1", "rank 0"]
    run.findings = []
    drawn = run_bars(run)
    assert drawn is not None and [one.label.split(",")[0] for one in drawn.bars] == ["mean rank"]


def test_the_bars_of_ranks_are_drawn_to_the_scale_of_the_others() -> None:
    """A rank's step of 50.0 ms as run was as wide as the 67.7 ms above it, as profiled."""
    stalled = Finding(code="host_stall", rank=1, ms=5.0, low_ms=4.0, high_ms=6.0, fraction=0.1, backed="replay")
    run = replayed(50.0, stalled)
    assert run.as_run is not None and run.replay is not None
    run.as_run.ranks = [msgspec.structs.replace(one, idle_launch_ms=8.0, compute_ms=32.0) for one in run.as_run.ranks]
    shown = dict(widths(run_bars(run)))
    assert list(shown) == ["mean rank, as profiled", "mean rank, as run", "rank 1, late", "the other 3, mean"]
    assert shown["rank 1, late"] == pytest.approx(100 * 50.0 / run.replay.traced_ms, abs=0.5)


def widths(bars: Bars | None) -> list[tuple[str, float]]:
    assert bars is not None
    return [(bar.label, sum(float(part.weight) for part in bar.stretches)) for bar in bars.bars]


def test_the_step_as_run_is_drawn_beside_the_one_as_profiled_on_one_scale() -> None:
    run = replayed(50.0)
    (profiled, full), (as_run, shorter) = widths(run_bars(run))
    assert (profiled, as_run) == ("mean rank, as profiled", "mean rank, as run")
    assert full == pytest.approx(100, abs=0.5)
    assert run.replay is not None
    assert shorter == pytest.approx(100 * 50.0 / run.replay.traced_ms, abs=0.5)
    assert [label for label, _ in widths(run_bars(replayed()))] == ["mean rank, as profiled"]
    assert run_bars(msgspec.structs.replace(run, quality=Quality(verdict="unusable"))) is None


def test_a_step_as_run_that_only_noise_sets_apart_is_not_drawn() -> None:
    run = replayed(50.0)
    assert run.as_run is not None and run.as_run.recording_ms is not None
    run.as_run.recording_ms = Interval(run.as_run.recording_ms.value, 0.0, run.as_run.recording_ms.high)
    labels = [label for label, _ in widths(run_bars(run))]
    assert labels == ["mean rank, as profiled"], "nor is it what the step is as run"


@pytest.mark.parametrize(
    ("measured_ms", "placebo_ms", "told"),
    [
        (67.7, 5.0, ""),  # as drawn
        (
            60.0,
            10.0,
            "Without a profiler the median step took 60.0 ms (± 10.0 ms) on 4 GPUs; ± is how far a few such steps",
        ),
        (60.0, 2.0, "On 4 GPUs the profiled ones are longer by more than that: recording lengthens them"),
        (75.0, 2.0, "On 4 GPUs the profiled ones are shorter by more than that: something else ran"),
        (60.0, None, "Without a profiler the median step took 60.0 ms on 4 GPUs."),
    ],
)
def test_a_measured_step_beside_a_bar_of_another_length_says_by_how_much_they_may_differ(
    measured_ms: float, placebo_ms: float | None, told: str
) -> None:
    runs = [run_answer(f"n{count}", count) for count in (1, 4)]
    for run in runs:
        assert run.step_times is not None
        run.step_times.measured_step_ms = run.ranks[0].window_ms / run.ranks[0].steps
    assert runs[-1].step_times is not None
    runs[-1].step_times.measured_step_ms, runs[-1].step_times.placebo_ms = measured_ms, placebo_ms
    drawn = series_bars(runs)
    assert drawn is not None and told in words(drawn)
    assert ("Without a profiler" in words(drawn)) == bool(told) and "1 GPU;" not in words(drawn)


def test_a_bar_of_other_steps_than_the_sentence_says_so() -> None:
    """A sentence of a step of 29.8 ms stood above a bar of 52.3: one of three steps was longer, and is not replayed."""
    run = replayed(50.0)
    drawn = run_bars(run)
    assert drawn is not None and run.replay is not None and "not replay" not in words(drawn)
    run.replay = msgspec.structs.replace(run.replay, traced_ms=run.replay.traced_ms / 2)
    drawn = run_bars(run)
    assert drawn is not None and "What is said as run is of the steps whose end a next one tells, 33.9 ms" in words(
        drawn
    )


def test_a_series_has_a_bar_a_rank_count_and_few_of_many() -> None:
    runs = [run_answer(f"n{count}", count) for count in (4, 1, 2)]
    assert [label for label, _ in widths(series_bars(runs))] == [
        "1 GPU, as profiled", "2 GPUs, as profiled", "4 GPUs, as profiled",
    ]  # fmt: skip
    many = [msgspec.structs.replace(runs[0], world_size=count) for count in (1, 2, 4, 8, 16, 32)]
    assert widths(series_bars(many))[0][0] == "1 GPU, as profiled"
    assert len(widths(series_bars(many))) == 4


def test_bars_of_one_drawing_are_of_like_steps() -> None:
    """One rank as profiled, 133.1 ms, stood beside two without recording, 164.6: the eye reads no growth off those."""
    alone, two = run_answer("n1", 1), msgspec.structs.replace(replayed(50.0), activity="cpu")
    alone.activity = "cpu"
    assert two.as_run is not None and two.step_times is not None
    two.as_run.replayed_ms, two.as_run.step_ms = Interval(50.0, 45.0, 55.0), 54.0
    two.step_times.measured_step_ms, two.step_times.placebo_ms = 54.0, 3.0
    by_itself = run_bars(two)
    assert by_itself is not None and [(one.label, one.value) for one in by_itself.bars] == [("mean rank", "54.0 ms")]
    drawn = series_bars([alone, two])
    assert drawn is not None and [label for label, _ in widths(drawn)] == ["1 CPU rank", "4 CPU ranks"]
    assert "step without recording is of 1 of them" in words(drawn), "advice is of that step"
    both = series_bars([msgspec.structs.replace(two, world_size=2), two])
    assert both is not None and {one.value for one in both.bars} == {"54.0 ms"}
    assert words(both).count("takes 50.0 ms without recording") == 2
    untimed = series_bars([msgspec.structs.replace(alone, step_times=None), two])
    assert [label for label, _ in widths(untimed)] == ["1 CPU rank, as profiled", "4 CPU ranks, as profiled"]
    assert untimed is not None and "on 4 CPU ranks" in words(untimed)


def test_a_card_has_one_length_of_a_step_before_anything_is_unfolded(tmp_path: Path) -> None:
    """130.6 ms, 148.0, 139.2, 103.4 ± 12.7 and 3.0 of recording stood there for one step, in lines of small print."""
    answer = replayed(50.0, BUCKETS)
    assert answer.as_run is not None and answer.step_times is not None
    answer.as_run.replayed_ms, answer.as_run.step_ms = Interval(50.0, 45.0, 55.0), 54.0
    answer.step_times.measured_step_ms, answer.step_times.placebo_ms = 54.0, 3.0
    text = page_text(write_run(tmp_path / "run", 4), answer)
    (caption,) = re.findall(r"<figcaption>(.*?)<ul", text)
    assert "cut by the shares" in caption and len(caption.split()) < 40 and " ms" not in caption
    figure = text[text.index('<figure class="bars"') : text.index("</figure>")]
    assert set(re.findall(r"[\d.]+ ms", figure)) == {"54.0 ms"}
    assert "which takes 50.0 ms without recording" in text, "folded, once"
    assert text.index("which takes 50.0 ms") > text.index('<details class="more">')


def test_a_step_that_only_the_traces_tell_is_not_called_measured(tmp_path: Path) -> None:
    data = read_report_data(write_study(tmp_path / "s"))
    assert data.study is not None
    assert "step as run, measured" in {one.label for one in page_of(data).cards[0].figures}
    for point in data.study.efficiency:
        point.samples_per_s = point.tokens_per_s = None
    assert "step as profiled" in {one.label for one in page_of(data).cards[0].leading}


def test_what_a_figure_must_not_be_read_without_is_not_folded(tmp_path: Path) -> None:
    answer = replayed(None, BUCKETS)
    answer.quality = Quality(verdict="degraded", missing_ranks=[3], reasons=["rank 3 has no trace"])
    text = page_text(write_run(tmp_path / "run", 4), answer)
    assert "The traces of 4 GPUs are degraded: rank 3 has no trace." in unfolded(text)
    assert text.count("are degraded") == 1, "once is enough"


def advice_sentence(data: ReportData) -> str:
    (panel,) = next(section for section in page_of(data).sections if section.key == "advice").panels
    return panel.sentence


def data_of(folder: RunFolder, answer: RunAnalysis) -> ReportData:
    write_answer(folder.analysis, answer)
    return read_report_data(folder)


def test_the_table_of_advice_is_no_firmer_than_the_first_sentence(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 4)
    sure = advice_sentence(data_of(folder, replayed(50.0, BUCKETS)))
    assert sure.startswith("Most would come of: use larger") and "How far to trust that: the profiled steps" in sure

    cannot = Finding(
        code="profiler_cost", ms=None, low_ms=None, high_ms=None, backed="none", remedy=Remedy(cure="give_step_ms"),
        evidence=tuple(EvidenceRow(kind="figure", name=name, ms=9.0)
                       for name in ("recording_low", "recording_high", "idle_launch")),
    )  # fmt: skip
    told = advice_sentence(data_of(folder, replayed(50.0, cannot, BUCKETS)))
    assert told.startswith("GPU-bound or host-bound: cannot be told from this trace")
    assert "Of the profiled steps alone, most would come of" in told

    unpriced = replayed(50.0, BUCKETS)
    unpriced.unpriced = Reason("unfaithful", "nothing is predicted: too far off")
    told = advice_sentence(data_of(folder, unpriced))
    assert told.startswith("Nothing is predicted: too far off.") and "would come of" not in told

    unlike = replayed(50.0, BUCKETS)
    unlike.step_times = StepTimes(
        measured_step_ms=40.0, measured_step_p95_ms=45.0, measured_steps=30, window_step_ms=60.0, placebo_ms=25.0,
        profiling_overhead_ms=20.0, profiling_overhead_fraction=0.5,
    )  # fmt: skip
    told = advice_sentence(data_of(folder, unlike))
    assert told.startswith("On 4 GPUs the machine was unsteady") and "Of the profiled steps alone" in told


def test_the_table_of_advice_says_that_a_study_was_unsteady(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s")
    folder = RunFolder(study.path / "gpt_small-n4")
    answer = msgspec.structs.replace(replayed(50.0, BUCKETS), name=folder.path.name)
    write_answer(folder.analysis, answer)
    data = read_report_data(study)
    assert data.study is not None
    assert advice_sentence(data).startswith("Most would come of")
    for fall in data.study.waterfall:
        fall.unsteady = True
    assert advice_sentence(data).startswith("The machine was unsteady")


def test_the_first_card_and_the_section_on_advice_say_what_to_do_in_one_order(tmp_path: Path) -> None:
    """Below *use larger buckets; launch less (speeds the step, not the scaling)* stood: *most would come of: launch
    less*."""
    study = write_study(tmp_path / "s")
    folder = RunFolder(study.path / "gpt_small-n4")
    launching = msgspec.structs.replace(LAUNCHING, ms=8.1, high_ms=8.4, fraction=0.049)
    answer = msgspec.structs.replace(replayed(50.0, launching, BUCKETS), name=folder.path.name)
    write_answer(folder.analysis, answer)
    data = read_report_data(study)
    assert data.study is not None
    assert "Most would come of: launch less" in advice_sentence(data)
    data.study.waterfall = spread_study(1.0).waterfall
    card, told = page_of(data).cards[0].verdict.advice, advice_sentence(data)
    assert card.index("use larger") < card.index("launch less") and card.endswith("(speeds the step, not the scaling).")
    assert told.startswith(capitalized(card))


def test_a_folded_section_names_the_series_that_it_speaks_of_where_there_are_several(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s")
    assert '<span class="gist">gpt_small: ' not in render(page_of(read_report_data(study)))
    data = read_report_data(study)
    assert data.study is not None
    for point in data.study.efficiency[1:]:
        point.series = "other"
    text = render(page_of(data))
    gists = re.findall(r'<span class="gist">(.*?)</span>', text)
    assert len([one for one in gists if one.startswith(("gpt_small: ", "other: "))]) >= 5, gists
    assert any(one.startswith("all_reduce reaches") for one in gists), "which is of no series"


def test_a_page_says_what_the_colours_of_its_cards_mean(tmp_path: Path) -> None:
    """One card was amber and one red, and nothing said by what."""
    data = read_report_data(write_study(tmp_path / "s"))
    page = page_of(data)
    assert [(one.colour, one.label) for one in page.colours] == [
        ("var(--good)", "90% or more scaling efficiency; 70% or more of what the links allow")
    ]
    assert data.study is not None
    data.study.efficiency[-1].efficiency = 0.6
    colours = {one.colour: one.label for one in page_of(data).colours}
    assert colours["var(--poor)"] == "below 70% scaling efficiency" and len(colours) == 2
    alone = page_of(data_of(write_run(tmp_path / "run", 4), replayed(50.0, BUCKETS)))
    own = alone.cards[0].verdict.level
    assert [one.colour for one in alone.colours] == ["var(--good)", "var(--fair)", "var(--poor)"], "the whole scale"
    (said,) = (one for one in alone.colours if "of the step is lost" in one.label)
    assert said.colour == f"var(--{own})"
    assert "Colour of a card's left edge:" in render(alone)


@pytest.mark.job
@needs_chromium
def test_charts_that_are_folded_are_drawn_as_wide_as_those_that_are_not(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run", 4))
    opened = tmp_path / "opened.html"
    opened.write_text(page.read_text().replace('<details class="fold">', '<details class="fold" open>'))
    sizes = [re.findall(r'<svg[^>]*class="marks"[^>]*width="([\d.]+)"', open_page(one).dom) for one in (page, opened)]
    assert sizes[0] == sizes[1] and len(sizes[0]) >= 5 and all(float(width) > 300 for width in sizes[0])


def test_an_edge_is_green_only_where_little_of_the_step_is_lost_beside_what_was_found() -> None:
    """A green edge stood on a card whose parallel efficiency was 83.8%, since what was found cost a tenth at most."""
    little = msgspec.structs.replace(BUCKETS, ms=1.0, low_ms=0.0, high_ms=1.0, fraction=0.01)
    for lost, level in ((0.05, "good"), (0.16, "fair")):
        run = run_answer("r", 2)
        for one in run.ranks:
            one.compute_ms = (1 - lost) * one.window_ms
            for part in ("exposed_transfer", "exposed_wait", "exposed_unsplit", "exposed_memory", "idle_data",
                         "idle_queued"):  # fmt: skip
                setattr(one, f"{part}_ms", 0.0)
            one.idle_launch_ms = lost * one.window_ms
        run.findings = [little]
        verdict = run_verdict(run)
        assert verdict.level == level, (lost, verdict)
        assert meaning("good", "step").startswith("up to 10%") and meaning("fair", "step").startswith("more than 10%")


def test_an_edge_goes_by_the_causes_that_are_listed() -> None:
    """A red edge, *more than 30% of the step is lost to the causes that were found*, stood beside causes of 26%: what
    hosts do between operators counted, as little as any eager step has, which is not listed.
    """
    run = run_answer("r", 2)
    run.activity = "cpu"
    loss = loss_of(run)
    sure = msgspec.structs.replace(BUCKETS, ms=0.26 * loss.step_ms, low_ms=0.2 * loss.step_ms, fraction=0.26)
    launching = msgspec.structs.replace(LAUNCHING, ms=0.06 * loss.step_ms, low_ms=0.05 * loss.step_ms, fraction=0.06)
    run.findings = [sure, launching]
    assert [one.code for one in listed(run)] == [sure.code]
    assert left_of_step(run, loss, 0.0) == pytest.approx(0.74)
