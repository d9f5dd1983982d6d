"""Figures of one report that are of other steps, or of another whole, than those beside them say of which they are."""

import re
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from scalescope.records.folder import RunFolder
from scalescope.report.as_run.recording import as_run_sentence, recording_ms
from scalescope.report.as_run.shown import step_of_job
from scalescope.report.drawing.numbers import milliseconds, numbers_named, percent
from scalescope.report.drawing.tables import Cell, Table
from scalescope.report.panels.advice import findings_table
from scalescope.report.panels.compute_lines import compute_lines, compute_title
from scalescope.report.panels.insitu import in_situ_table
from scalescope.report.panels.kinds import kind_panels, kind_sentence
from scalescope.report.panels.ranks import partition_panels
from scalescope.report.panels.steps import profiling_panels
from scalescope.report.replayed import fewer_replayed
from scalescope.report.report_data import read_report_data
from scalescope.report.sentences import loss_sentence
from scalescope.report.steadiness import unlike_sentence
from scalescope.report.terminal.run import print_run
from scalescope.report.text.findings import following, line, todo
from scalescope.report.text.listed import listed
from scalescope.report.text.of_step import basis_sentence
from scalescope.report.top.bars import run_bars, series_bars
from scalescope.report.top.cards import cards_of
from scalescope.report.verdict.run import run_verdict
from scalescope.report.views import collectives_table, grew_within_noise, partition_table, waterfall_table
from scalescope.scaling.analyze import analyze, analyze_run, analyze_study
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_rows import WaterfallPart
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.figures import NOT_IN_STEPS, STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.study_answer import StudyAnalysis, Waterfall
from tests.projection_studies import make_pair
from tests.report_samples import run_with_steps, words, write_study

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module", params=["cpu_ddp_n2", "cpu_tiny_buckets_n2", "cpu_now_and_then_n2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of real traces whose own steps take four fifths of the profiled ones: what is told is without recording.

    Those after the window are longer than those before it, so that none of them tells what it did.
    """
    job = DATA / request.param
    (plain,) = analyze([job], jobs=1)
    assert isinstance(plain, RunAnalysis) and plain.replay is not None
    traced = plain.replay.traced_ms
    path = run_with_steps(tmp_path_factory.mktemp("run") / "run", job, 0.8 * traced, traced, after=1.12)
    analyze([path], jobs=1)
    return path


@pytest.fixture
def run(folder: Path) -> RunAnalysis:
    answer = read_report_data(RunFolder(folder)).answers[0]
    assert answer.as_run is not None and answer.as_run.replayed_ms is not None
    return answer


def shown(run: RunAnalysis) -> str:
    print_run(run, Console(file=(text := StringIO()), width=400))
    return text.getvalue()


def test_as_profiled_less_what_recording_takes_is_the_step_without_it_and_of_named_steps(
    folder: Path, run: RunAnalysis
) -> None:
    """A bar of 472.5 ms stood below *take 429.0 ms without recording*, which was said to take 3.0 ms."""
    told, fewer = run.as_run, fewer_replayed(run)
    assert told is not None and told.replayed_ms is not None and fewer is not None and run.replay is not None
    assert (fewer.steps, fewer.of) == (told.steps, run.ranks[0].steps) and fewer.steps < fewer.of
    without, taken = told.replayed_ms.value, recording_ms(run)
    assert fewer.traced_ms - (taken or 0.0) == pytest.approx(without, abs=0.05)
    # wherever the step without recording is told, or what recording takes, it is said of how many steps
    some = f"{fewer.steps} of the {fewer.of} profiled"
    assert f"What is told of a profiled step is of {some} steps, which take {milliseconds(without)} " in step_of_job(
        run
    )
    which = numbers_named(fewer.numbers)
    assert which, "which they are, is told"
    of_them = f"Of the {fewer.of} profiled steps {fewer.steps} are told of ({which}), "
    account = f"{of_them}{milliseconds(fewer.traced_ms)} in the"
    assert as_run_sentence(run).startswith(account), "which a page has, folded"
    unlike = unlike_sentence(run, "2 CPU ranks")
    assert (
        re.search(rf"{some} steps (is|are) [0-9.]+% (longer|shorter) than the job's own", unlike) is not None
        or f"({milliseconds(without)} in the mean of {fewer.steps} of {fewer.of}, without recording, for" in unlike
    )
    data = read_report_data(RunFolder(folder))
    (profiling,) = profiling_panels(data)
    assert taken is None or f"of a profiled step, in the mean of {some} ones" in profiling.sentence
    # a run's own bar is as long as the step that its card tells, cut by the shares of those steps, and says so
    own = run_bars(run)
    assert own is not None and run.step_times is not None and run.step_times.measured_step_ms is not None
    assert {one.value for one in own.bars} == {milliseconds(run.step_times.measured_step_ms)}
    assert "cut by the shares" in own.title and not [one for one in own.legend if " ms" in one.label]
    by_itself = run_bars(msgspec.structs.replace(run, step_times=None))
    assert f"What is told of a profiled step is of {some} steps" in words(own) and by_itself is not None
    assert f"Parts are those of {some} steps, {which}." in words(by_itself)


def test_bars_tables_and_growths_as_profiled_are_of_all_profiled_steps(folder: Path, run: RunAnalysis) -> None:
    assert run.step_times is not None and run.step_times.measured_step_ms is not None
    alone = msgspec.structs.replace(run, world_size=1, as_run=None, ranks=run.ranks[:1])
    drawn = series_bars([alone, run])
    assert drawn is not None and drawn.bars[1].label == "2 CPU ranks"
    assert drawn.bars[1].value == milliseconds(run.step_times.measured_step_ms), "as the card tells"
    lengths = [float(str(row[2])) for row in partition_table(run).rows]
    assert f"{milliseconds(sum(lengths) / len(lengths))} on 2 CPU ranks with recording; the " in drawn.notes[0]
    untimed = series_bars([msgspec.structs.replace(alone, step_times=None), run])
    assert untimed is not None and untimed.bars[1].label == "2 CPU ranks, as profiled"
    assert untimed.bars[1].value == milliseconds(sum(lengths) / len(lengths))
    assert "Bars are means of all profiled steps." in words(untimed)
    (panel,) = partition_panels(read_report_data(RunFolder(folder)), legends=False)
    assert "without recording" in panel.sentence
    assert panel.sentence.endswith("without recording, and all steps as profiled, recording included.")
    at = {column.key: place for place, column in enumerate(panel.table.columns)}
    told = [row for row in panel.table.rows if row[at["of"]] == "without recording"]
    assert [row[at["window_ms"]] for row in told] == [one.window_ms for one in step_as_run(run)[1]], "as on a terminal"
    assert sorted(float(str(row[at["window_ms"]])) for row in panel.table.rows if row not in told) == sorted(lengths)
    both = series_bars([msgspec.structs.replace(run, world_size=4), run])
    assert both is not None and words(both).count("What is told of a profiled step is of ") == 2, (
        "each of those that are told of"
    )


def test_kinds_of_compute_add_up_to_the_compute_of_the_table_above_them(folder: Path, run: RunAnalysis) -> None:
    """Kinds of 139 ms a step stood below a table of 78 ms of compute: what recording costs an operator was in them."""
    assert run.as_run is not None and run.as_run.kinds
    _, ranks = step_as_run(run)
    compute = sum(one.compute_ms for one in ranks) / len(ranks)
    assert sum(row.ms for row in run.as_run.kinds) == pytest.approx(compute, abs=1e-5)
    assert sum(row.share_of_compute or 0.0 for row in run.as_run.kinds) == pytest.approx(1.0)
    largest = max(run.as_run.kinds, key=lambda row: row.ms)
    assert compute_lines(run)[0].startswith(
        f"{percent(largest.ms / compute, 0)} {largest.kind}, {milliseconds(largest.ms)} a step"
    )
    assert compute_title(run) == "What the compute is"
    # … and a page has those: *81% convolution, 157.6 ms* stood on the terminal, and *79%, 174.4 ms* on the page
    (panel,) = kind_panels(read_report_data(RunFolder(folder)))
    columns = [one.key for one in panel.table.columns]
    shown_ms = {row[columns.index("kind")]: row[columns.index("ms_a_step")] for row in panel.table.rows}
    assert shown_ms == {row.kind: row.ms for row in run.as_run.kinds}
    assert f" compute without recording is {percent(largest.ms / compute, 0)} {largest.kind}" in panel.sentence
    # an answer that was written before holds them as profiled alone, and says so; so does a page's panel
    run.as_run.kinds = []
    assert "What the compute is, as profiled, recording included\n" in shown(run)
    assert " compute as profiled is " in kind_sentence(run, run.kinds)


def test_the_same_operators_are_called_as_often_without_recording(run: RunAnalysis) -> None:
    assert run.as_run is not None
    profiled, own = ({row.kind: row for row in rows} for rows in (run.kinds, run.as_run.kinds))
    assert set(own) <= set(profiled) - {"communication"}, "one that is in a window's last step alone is not replayed"
    for kind, row in own.items():
        assert row.calls == pytest.approx(profiled[kind].calls, rel=0.25), kind
        assert 0 <= (row.beside_communication_ms or 0.0) <= row.ms


def test_the_efficiency_that_is_shown_is_of_the_step_that_it_names(run: RunAnalysis) -> None:
    """38.2% stood on a terminal, and 0.420 in the file: the one is without recording, the other as profiled."""
    assert run.as_run is not None and run.as_run.efficiency is not None and run.efficiency is not None
    assert run.as_run.efficiency.parallel != run.efficiency.parallel
    assert f"Parallel efficiency without recording {percent(run.as_run.efficiency.parallel)} = " in shown(run)
    reference = (Path(__file__).parents[1] / "docs" / "reference.md").read_text()
    assert "| `efficiency` | of the steps as profiled" in reference and "show `as_run.efficiency`" in reference


def test_a_share_is_of_the_step_that_is_named_beside_it_and_all_are_of_one(run: RunAnalysis) -> None:
    """*25.3 ms a step, 18.1%* was of the 140.0 ms of profiled steps below *as run a step takes 106.3 ms*.

    *12.4% of the 383.0 ms mean profiled step* stood above *8.7% of the profiled step*, of 338.2 ms.
    """
    found = following(run.findings)
    assert found, "these traces have findings"
    step = step_as_run(run)[0].value
    basis = next(one.ms / one.fraction for one in run.findings if one.ms and one.fraction)
    others = 0
    for one in found:
        assert one.ms is not None and one.fraction is not None
        if one.ms / one.fraction != pytest.approx(basis, rel=0.01):
            share = f", {percent(one.ms / basis)}"
            assert f"{share}:" in line(one, run).replace(". ", ": ") and share in todo(one, run)
            others += one in listed(run)
            continue
        of_it = one.ms / one.fraction
        profiled = of_it == pytest.approx(step, rel=0.01)  # else it is of steps with and without the cause
        of_all = any(row.name == NOT_IN_STEPS for row in one.evidence)  # the job's own other steps among them
        mean = f"{milliseconds(of_it)} mean {'' if of_all else 'profiled '}step"
        whole = "profiled step" if profiled else mean
        of_job = run.as_run is not None and of_it == pytest.approx(run.as_run.step_ms, rel=0.01)
        share = f", {percent(one.fraction)}" + ("" if of_job else f" of the {whole}")
        assert share in line(one, run) and share in todo(one, run)
        assert share in shown(run) or one not in listed(run)  # little launching is said where nothing else is
    told = basis_sentence(run, listed(run))
    assert bool(told) == bool(others) and (f"All shares are of the {milliseconds(basis)} " in shown(run)) == bool(
        others
    )
    table = findings_table(run)
    keys = [column.key for column in table.columns]
    at, costs, shares = (keys.index(key) for key in ("of_step", "gain_ms", "fraction"))
    for row in table.rows:
        ms, share_of_it = row[costs], row[shares]
        if isinstance(ms, float) and isinstance(share_of_it, float):
            assert ms / share_of_it == pytest.approx(basis, rel=0.011)
    assert len({row[at] for row in table.rows} - {None}) <= 1
    assert {row[at] for row in table.rows} - {None} <= {"without recording", "mean profiled", "mean", "as run"}


def test_a_first_sentence_says_of_which_step_its_length_is(run: RunAnalysis) -> None:
    """*At most 5.3 ms of the 119.6 ms step* stood above *as run a step takes 114.6 ms*; and *costs 8.5 ms of the
    profiled step*, of whatever length.
    """
    assert step_of_job(run), "these profiled steps are others than the job's own"
    told = run_verdict(run)
    assert not re.findall(r" of the [\d.,]+ ms step", told.text), "they are no steps of the job's own"
    assert re.search(r"of the [\d.,]+ ms profiled step", told.headline) or "a step in the mean" in told.headline
    assert told.sentences[-1] == step_of_job(run), "behind the cause, and next to the table of those steps"


def test_what_all_steps_tell_is_a_share_of_their_mean(run: RunAnalysis) -> None:
    """*75.3 ms, 47.7% of the mean step* stood beside one step alone, of 131 ms; the mean was of 157.8."""
    assert run.as_run is not None and run.as_run.step_ms is not None
    own = run.as_run.step_ms
    row = EvidenceRow(kind="figure", name=STEADY_STEPS, ms=1.1 * own)
    late = Finding(code="host_stall", rank=1, ms=0.11 * own, low_ms=0.1 * own, high_ms=0.12 * own, fraction=0.1,
                   backed="measured", evidence=(row,))  # fmt: skip
    run = msgspec.structs.replace(run, findings=[late])
    assert f", 10.0% of the {milliseconds(1.1 * own)} mean step" in line(late, run)
    same = msgspec.structs.replace(late, ms=0.1 * own)
    as_long = line(same, msgspec.structs.replace(run, findings=[same]))
    assert re.search(r", 10\.0%[.:] ", as_long) and "mean step" not in as_long, "it is as long as the one that is told"


def test_shares_of_what_is_priced_by_profiled_steps_say_so_where_nothing_is_replayed(tmp_path: Path) -> None:
    """*6.3 ms, 15.5%* was told of a job of 22.3 ms a step."""
    source = DATA / "runs_v0.1" / "study" / "gpt_tiny-ddp-n2"
    answer = analyze_run(source)
    assert answer.step_times is not None and answer.step_times.measured_step_ms is not None
    step = sum(one.window_ms / one.steps for one in answer.ranks) / len(answer.ranks)
    assert step > 1.2 * answer.step_times.measured_step_ms
    answer.as_run = AsRun(step_ms=answer.step_times.measured_step_ms, source="steps", reason="not_replayed")
    stall = Finding(code="host_stall", rank=1, ms=0.1 * step, low_ms=0.0, high_ms=step, fraction=0.1, backed="replay",
                    evidence=(EvidenceRow(kind="figure", name="gap_before x", ms=1.0),))  # fmt: skip
    assert f", 10.0% of the {milliseconds(step)} step as profiled" in line(stall, answer)


def shares_of(sentence: str) -> list[int]:
    return [int(one) for one in re.findall(r"(?<![\d.])(-?\d+)%", sentence)]


#: The growths of two real studies on two CPU ranks, in which the host came to be late for less.
GPT = {"exposed_transfer": 5.89, "exposed_wait": 9.23, "idle_data": 0.02, "idle_launch": -1.20}
RESNET = {"exposed_transfer": 20.80, "exposed_wait": 17.26, "idle_launch": -3.61}


def growth(parts: dict[str, float], inflation: float, noise: float, measured: float, step: float) -> Waterfall:
    grown = inflation + sum(parts.values())
    rows = [WaterfallPart(part="compute", ms=inflation)]
    rows += [WaterfallPart(part=part, ms=ms) for part, ms in parts.items()]
    return Waterfall(
        series="gpt_small", from_world_size=2, to_world_size=4, from_step_ms=step, to_step_ms=step + grown,
        growth_ms=grown, parts=rows, compute_inflation_ms=inflation, compute_more_work_ms=0.0,
        measured_growth_ms=measured, noise_ms=noise, unsteady=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "inflation"),
    [(GPT, 22.69), (RESNET, 50.72), ({"exposed_wait": 8.0, "idle_launch": -1.0}, 4.0), ({"exposed_wait": 5.0}, 15.0)],
)
def test_told_shares_of_a_growth_add_up_to_all_of_it(parts: dict[str, float], inflation: float) -> None:
    """*62% slower compute, 25% exposed wait and 16% exposed transfer* is 103%, and *-3% the rest* is no share."""
    fall = growth(parts, inflation, 1.0, 27.2, 111.35)
    told = loss_sentence(fall)
    shares = shares_of(told)
    assert shares and min(shares) > 0 and abs(sum(shares) - 100) <= 1, told
    *rows, _ = waterfall_table(fall).rows
    assert sum(share for _, _, share, *_ in rows if isinstance(share, float)) == pytest.approx(1.0)
    assert all((row[2] is None) == (isinstance(row[1], float) and row[1] < 0) for row in rows)


def test_the_rest_of_a_growth_is_named(tmp_path: Path) -> None:
    fall = growth(GPT, 22.69, 23.6, 27.2, 111.35)
    told = loss_sentence(fall)
    assert "60% are slower compute, 24% exposed wait and 16% exposed transfer. Other parts became 1.2 ms" in told
    assert told.endswith("shorter, within noise.")
    assert lost_of(tmp_path, fall) == ["slower compute 60%", "exposed wait 24%", "exposed transfer 16%"]


def test_a_growth_within_noise_has_no_shares_anywhere(tmp_path: Path) -> None:
    """*60% are slower compute* was told beside a table that had a dash for it."""
    fall = growth(RESNET, 50.72, 231.2, 122.9, 387.35)
    assert grew_within_noise(fall)
    told = loss_sentence(fall)
    assert "%" not in told and "do not tell what it went to" in told and "387.4 ms to 472.5 ms" in told
    assert lost_of(tmp_path, fall) == []


def lost_of(path: Path, fall: Waterfall) -> list[str]:
    """Return what a card tells of a growth beside its bars."""
    data = read_report_data(write_study(path / "study"))
    assert isinstance(data.study, StudyAnalysis)
    data.study.waterfall = [fall]
    return [one.label for one in cards_of(data)[0].lost]


def test_a_collective_reaches_one_share_of_its_speed_alone(tmp_path: Path) -> None:
    """84.2% and 83.5% were told of the same four calls: a median of ratios, and a ratio of medians."""
    _, runs = analyze_study(make_pair(tmp_path / "pair"))
    run = next(one for one in runs if one.world_size == 2)
    keys = ("operation", "bytes", "dtype", "group_size")

    def by_kind(table: Table, figure: str) -> dict[tuple[Cell, ...], Cell]:
        columns = [column.key for column in table.columns]
        rows = [dict(zip(columns, row, strict=True)) for row in table.rows]
        return {tuple(row[key] for key in keys): row[figure] for row in rows}

    calls, lost = (
        by_kind(collectives_table(run), "in_situ_efficiency"),
        by_kind(in_situ_table(run.in_situ), "efficiency"),
    )
    assert len(lost) == 3
    for kind, reached in lost.items():
        assert calls[kind] == reached, kind
