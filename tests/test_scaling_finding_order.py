"""Which of several findings comes first."""

import pytest
from msgspec.structs import replace

from scalescope.report.text.findings import headline_of_all
from scalescope.report.text.listed import order_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import COUNTED_LOADS, MAY_BE_OTHERS, PASSES
from scalescope.scaling.finding.finding import AlsoLate, EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import (
    are_little_at_most,
    behind_sure_gains,
    behind_what_is_known,
    ranked,
    without_little_launching,
    worth_leading,
)
from scalescope.scaling.findings.derived import keep, led
from tests.report_samples import run_answer


def test_what_a_clean_loop_sends_comes_before_less_python_that_may_run_between_its_operators() -> None:
    """*Launching costs at most 3.3 ms: compile the step* was said first of loops in which nothing is wrong."""
    python = Finding(code="host_bound", ms=3.3, low_ms=2.9, high_ms=3.4, fraction=0.046, backed="replay", at_most=True,
                     remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    sent = Finding(code="exposed_transfer", ms=4.6, low_ms=0.0, high_ms=4.6, fraction=0.064, backed="bound",
                   at_most=True, remedy=Remedy(cure="send_less"))  # fmt: skip
    assert [one.code for one in behind_what_is_known([python, sent], 71.7)] == ["exposed_transfer", "host_bound"]
    for first, second in (
        (python, replace(sent, ms=3.0)),  # less than the hosts
        (replace(python, ms=9.0, low_ms=8.0), replace(sent, ms=12.0)),  # more than any eager step has
        (python, replace(sent, remedy=Remedy(cure="larger_buckets"))),  # a fault of its own has its own place
    ):
        assert behind_what_is_known([first, second], 71.7) == [first, second]


def test_a_cause_that_is_known_comes_before_more_python_that_any_eager_step_has() -> None:
    """*Launching costs at most 6.4 ms* was said first where small buckets cost 2.6 ms (2.1 to 3.1) for sure."""
    python = Finding(code="host_bound", ms=6.4, low_ms=6.0, high_ms=6.7, fraction=0.056, backed="replay", at_most=True,
                     remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    buckets = Finding(code="small_buckets", ms=2.6, low_ms=2.1, high_ms=3.1, fraction=0.023, backed="replay")
    noise = replace(buckets, low_ms=0.0)
    assert behind_what_is_known([python, buckets, noise], 114.0) == [buckets, python, noise]
    trifle = replace(buckets, code="data_loading", ms=1.6, low_ms=1.4, high_ms=1.8)
    assert behind_what_is_known([python, trifle], 114.0) == [python, trifle]
    much = replace(python, ms=12.0, low_ms=11.0)
    assert behind_what_is_known([much, buckets], 114.0) == [much, buckets]


def test_a_fault_comes_before_what_hosts_do_between_operators_where_they_wait_for_a_core_there() -> None:
    """*Launching costs at most 35.2 ms* would lead where rank 0 saves for 14.0, and waits 65.9 of a step for a core."""
    launches = EvidenceRow(kind="figure", name="launches", calls=1321.0)
    python = Finding(code="host_bound", ms=35.2, low_ms=17.0, high_ms=47.0, fraction=0.174, backed="replay",
                     at_most=True, evidence=(launches,), remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    saves = Finding(code="host_stall", rank=0, ms=14.0, low_ms=4.0, high_ms=34.6, fraction=0.068, backed="replay",
                    remedy=Remedy(cure="do_less_often"))  # fmt: skip
    assert behind_what_is_known([python, saves], 202.4, 65.9) == [saves, python]
    assert behind_what_is_known([python, saves], 202.4, 5.0) == [python, saves], "30 ms are no waits"
    little = replace(saves, ms=9.0)
    assert behind_what_is_known([python, little], 202.4, 65.9) == [python, little]


@pytest.mark.parametrize(
    ("launches", "ms", "step_ms", "cure", "little"),
    [
        (741.0, 8.2, 95.5, "compile", True),  # a healthy job, 11 µs an operator
        (1174.0, 3.6, 12.9, "compile", False),  # tiny operators, 3 µs each beside 8 µs of compute
        (40.0, 8.2, 95.5, "compile", False),  # 205 µs each: their loop does other things
        (741.0, 8.2, 95.5, "whole_tensors", False),  # and here it is known which
    ],
)
def test_what_launching_takes_in_any_eager_step_is_nothing_wrong_and_all_beyond_it_is(
    launches: float, ms: float, step_ms: float, cure: Cure, little: bool
) -> None:
    """*Launching costs at most 8.2 ms*, 8.6% of the step, was said first of a job with nothing the matter."""
    rows = (EvidenceRow(kind="figure", name="launches", calls=launches),)
    found = Finding(code="host_bound", ms=ms, low_ms=ms, high_ms=ms, fraction=ms / step_ms, backed="replay",
                    at_most=True, evidence=rows, remedy=Remedy(cure=cure, on_cpu=True))  # fmt: skip
    assert are_little_at_most([found], step_ms, on_cpus=True) == little
    assert not are_little_at_most([found], step_ms), "a device waits for its host no longer than it has to"


@pytest.mark.parametrize(
    ("ms", "rank", "nothing_wrong"),
    [(0.81, None, True), (1.3, None, False), (0.81, 1, False)],  # of 55.8 ms: 1.5%, 2.3%, and one rank's alone
)
def test_a_hundredth_of_a_cpu_s_step_is_no_headline_where_all_ranks_have_it(
    ms: float, rank: int | None, nothing_wrong: bool
) -> None:
    """*Loading data costs 0.81 ms (0.70 to 0.91)* was said first of a job with nothing the matter."""
    found = Finding(code="data_loading", rank=rank, ms=ms, low_ms=0.9 * ms, high_ms=1.1 * ms, fraction=ms / 55.8,
                    backed="replay", remedy=Remedy(cure="load_ahead", on_cpu=True))  # fmt: skip
    assert are_little_at_most([found], 55.8, on_cpus=True) == nothing_wrong
    assert not are_little_at_most([found], 55.8), "a device's step tells a hundredth"


def test_small_buckets_that_cost_a_hundredth_at_most_make_no_headline_of_launching() -> None:
    """*Launching costs at most 10.2 ms* was said first of a step of 138.9 ms, and of another's 10.3 ms of 137.6 that
    nothing was wrong: beside the first, small buckets cost 1.8 ms at most.
    """
    python = Finding(code="host_bound", ms=10.2, low_ms=10.0, high_ms=10.2, fraction=0.074, backed="replay",
                     at_most=True, evidence=(EvidenceRow(kind="figure", name="launches", calls=1791.0),),
                     remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    buckets = Finding(code="small_buckets", ms=1.8, low_ms=0.7, high_ms=1.8, fraction=0.013, backed="measured",
                      at_most=True, remedy=Remedy(cure="larger_buckets"))  # fmt: skip
    assert are_little_at_most([python, buckets], 138.9, on_cpus=True)
    for told in (replace(buckets, ms=3.0, high_ms=3.0), replace(buckets, rank=1)):
        assert not are_little_at_most([python, told], 138.9, on_cpus=True)
    assert not are_little_at_most([python, buckets], 138.9)


def _launching(ms: float, launches: float, step_ms: float) -> Finding:
    return Finding(code="host_bound", ms=ms, low_ms=0.9 * ms, high_ms=ms, fraction=ms / step_ms, backed="replay",
                   at_most=True, evidence=(EvidenceRow(kind="figure", name="launches", calls=launches),),
                   remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip


def test_launching_of_many_short_operators_is_no_answer_of_a_healthy_step_up_to_a_quarter_of_it() -> None:
    """*Launching costs at most 16.7 ms of the 76.2 ms step*, 5 µs an operator, was said first of healthy jobs: of a
    recurrent network, of which compiling brought nothing back.
    """
    healthy = _launching(16.7, 3681.0, 76.2)
    assert are_little_at_most([healthy], 76.2, on_cpus=True)
    assert not are_little_at_most([healthy], 76.2), "of devices that wait for launches nearly all can be had"
    short = _launching(21.4, 3681.0, 76.2)  # 28%
    assert not are_little_at_most([short], 76.2, on_cpus=True)
    loading = Finding(code="data_loading", ms=4.1, low_ms=1.1, high_ms=7.1, fraction=0.054, backed="replay",
                      remedy=Remedy(cure="cheaper_workers", on_cpu=True))  # fmt: skip
    assert behind_what_is_known([healthy, loading], 88.8) == [loading, healthy]
    assert without_little_launching([loading, healthy], 76.2) == [loading, healthy], "so much of a step is listed"


def test_what_launching_takes_on_busy_cores_leads_nothing_and_is_listed() -> None:
    """*Launching costs at most 13.4 ms of the 138.4 ms step*, 19 µs an operator, was said first of a healthy job, in
    which loading costs 3.2 ms (2.9 to 3.8) for sure.
    """
    launching = _launching(13.4, 721.0, 138.4)
    loading = Finding(code="data_loading", ms=3.2, low_ms=2.9, high_ms=3.8, fraction=0.023, backed="replay",
                      remedy=Remedy(cure="load_ahead", on_cpu=True))  # fmt: skip
    assert behind_what_is_known([launching, loading], 138.4) == [loading, launching]
    assert without_little_launching([loading, launching], 138.4) == [loading, launching], "9.7% are worth a line"
    assert are_little_at_most([launching], 138.4, on_cpus=True), "nothing else is found: nothing is wrong"
    for more in (_launching(13.4, 500.0, 138.4), _launching(24.0, 1200.0, 138.4)):  # 27 µs an operator; 17% of the step
        assert behind_what_is_known([more, loading], 138.4) == [more, loading]
        assert not are_little_at_most([more], 138.4, on_cpus=True)
    assert not are_little_at_most([launching], 138.4), "a device waits for its host no longer than it has to"
    quiet = _launching(8.2, 741.0, 95.5)
    assert without_little_launching([loading, quiet], 95.5) == [loading], "11 µs an operator are no news beside it"


def test_launching_that_any_eager_step_of_cpus_has_is_no_answer_to_what_noise_leaves_open() -> None:
    """*Launching costs at most 8.2 ms* was said first where a rank may cost 13.9 ms (0.0 to 43.8), or nothing."""
    launching = _launching(8.2, 337.0, 145.3)
    noise = Finding(code="slower_compute", rank=0, ms=13.9, low_ms=0.0, high_ms=43.8, fraction=0.095, backed="replay")
    assert worth_leading([noise, launching]) is None and led([noise, launching]) == [noise, launching]
    told = headline_of_all([noise, launching], 145.3, 2, "79.3% of the step is compute.")
    assert told.text == "no rank stands out from the noise: 79.3% of the step is compute." and told.is_otherwise
    on_gpus = replace(launching, remedy=Remedy(cure="compile"))
    assert worth_leading([noise, on_gpus]) is on_gpus and led([noise, on_gpus]) == [on_gpus, noise]
    much = _launching(30.0, 337.0, 145.3)
    assert worth_leading([noise, much]) is much


def test_launching_leads_where_no_noise_is_above_it_but_a_trifle_beside_it() -> None:
    """Cheaper batches, of 2.4 ms, may be advised before launching of 8.1 ms that is listed first only for noise."""
    launching = _launching(8.1, 1718.0, 124.3)
    trifle = Finding(code="data_loading", ms=2.4, low_ms=1.4, high_ms=2.9, fraction=0.019, backed="replay")
    assert worth_leading([launching, trifle]) is launching


def test_a_fault_comes_before_launching_that_many_short_operators_make_a_large_share_of_the_step() -> None:
    """Of a step of 83 ms with 3,701 operators, *launching costs at most 17.0 ms* stood before a rank that flushed its
    log for 6.5 ms (4.4 to 7.7); of 198 ms with 14,185, before needless exchanges of up to 17.5 ms.
    """
    rows = (EvidenceRow(kind="figure", name="launches", ms=0.0, calls=3701.0),)
    python = Finding(code="host_bound", ms=17.0, low_ms=14.7, high_ms=17.8, fraction=0.2, backed="replay", at_most=True,
                     evidence=rows, remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    flush = Finding(code="host_stall", rank=0, ms=6.5, low_ms=4.4, high_ms=7.7, fraction=0.08, backed="replay",
                    evidence=(), remedy=Remedy(cure="less_python", on_cpu=True))  # fmt: skip
    passes = EvidenceRow(kind="figure", name=PASSES, calls=4.0)
    needless = Finding(code="exposed_transfer", ms=1.9, low_ms=1.9, high_ms=7.5, fraction=0.02, backed="bound",
                       at_least=True, evidence=(passes,), remedy=Remedy(cure="exchange_once"))  # fmt: skip
    for fault in (flush, needless):
        assert behind_what_is_known([python, fault], 83.1) == [fault, python]
    little = replace(flush, ms=2.0, low_ms=1.0, high_ms=3.0)
    slow = replace(python, evidence=(replace(rows[0], calls=800.0),))  # 21 µs each
    short = replace(python, ms=24.0, low_ms=23.0, high_ms=24.0, fraction=0.29)  # of 83.1 ms
    assert behind_what_is_known([short, little], 83.1) == [short, little]
    assert behind_what_is_known([short, flush], 83.1) == [flush, short]
    assert behind_what_is_known([slow, flush], 83.1) == [slow, flush]


def test_a_list_that_is_not_in_the_order_of_its_figures_says_why() -> None:
    """*1. an unfused optimizer: 6.2 ms* stood before *2. loading data: 13.0 ms*, of which half may be others'."""
    optimizer = Finding(code="unfused_optimizer", ms=6.2, low_ms=3.7, high_ms=8.1, fraction=0.05, backed="replay",
                        remedy=Remedy(cure="fuse_optimizer", on_cpu=True))  # fmt: skip
    row = EvidenceRow(kind="figure", name=MAY_BE_OTHERS, ms=8.0)
    loading = Finding(code="data_loading", ms=13.0, low_ms=3.5, high_ms=14.2, fraction=0.1, backed="replay",
                      evidence=(row,), remedy=Remedy(cure="load_faster", on_cpu=True))  # fmt: skip
    bound = Finding(code="synchronising", ms=20.0, low_ms=1.0, high_ms=20.0, fraction=0.16, backed="replay",
                    at_most=True, remedy=Remedy(cure="drop_synchronisation"))  # fmt: skip
    run = run_answer("r", 2)
    run.findings = [optimizer, loading]
    less = "Not in the order of size: less weight is given to"
    assert order_sentence(run) == f"{less} what may in part have other causes."
    run.findings = [optimizer, bound, loading]
    assert order_sentence(run) == f"{less} bounds (at most) and what may in part have other causes."
    run.findings = [loading, optimizer]
    assert order_sentence(run) == ""


def test_what_a_step_is_longer_by_at_least_leads_smaller_causes() -> None:
    """*Late buckets cost 6.1 ms* was said first where preparing batches cost at least 15.0 (25 by turns), which stood
    behind that, 4.3 within noise, and 3.5 of a rank: half of a lower bound counted.
    """
    prepares = Finding(code="batch_preparation", ms=15.0, low_ms=15.0, high_ms=21.9, fraction=0.107, backed="replay",
                       at_least=True, remedy=Remedy(cure="prepare_ahead"))  # fmt: skip
    late = Finding(code="late_bucket", ms=6.1, low_ms=2.6, high_ms=10.3, fraction=0.044, backed="replay",
                   remedy=Remedy(cure="smaller_buckets"))  # fmt: skip
    loads = Finding(code="data_loading", rank=1, ms=4.3, low_ms=0.0, high_ms=5.3, fraction=0.031, backed="replay",
                    remedy=Remedy(cure="load_faster"))  # fmt: skip
    more = Finding(code="more_work", rank=1, ms=4.5, low_ms=2.3, high_ms=6.1, fraction=0.032, backed="replay",
                   remedy=Remedy(cure="even_out"))  # fmt: skip
    assert ranked([late, loads, more, prepares]) == [prepares, late, more, loads]
    assert ranked([replace(more, ms=12.0), prepares])[0].code == "more_work", "nearly as much, and to be mended"


HOOK = Finding(code="host_stall", rank=0, ms=27.0, low_ms=24.0, high_ms=30.0, fraction=0.25, backed="replay",
               remedy=Remedy(cure="less_python"))  # fmt: skip
LOADS = Finding(code="data_loading", ms=30.0, low_ms=28.0, high_ms=33.0, fraction=0.28, backed="replay",
                remedy=Remedy(cure="load_ahead"))  # fmt: skip


def _told_of(findings: list[Finding], *, cores_full: bool = True) -> RunAnalysis:
    run = run_answer("r", 2)
    run.activity, run.cores_full, run.experts, run.pipelines, run.step_times = "cpu", cores_full, [], [], None
    keep(run, findings)
    return run


def test_what_may_come_back_only_with_more_cores_leads_no_sure_cause_that_is_nearly_as_large() -> None:
    """*Load batches ahead: at most 30 ms* stood before a hook of rank 0 that cost 27 for sure, of ranks on all cores:
    workers brought nothing there.
    """
    run = _told_of([LOADS, HOOK])
    assert [one.code for one in run.findings] == [one.code for one in run.advice] == ["host_stall", "data_loading"]
    verdict = run_verdict(run)
    assert "rank 0 costs 27.0 ms" in verdict.headline and verdict.advice.startswith("do less in Python")
    assert order_sentence(run) == (
        "Not in the order of size: less weight is given to what may come back only with more cores."
    )
    again = list(run.findings)
    keep(run, again)
    assert run.findings == again
    assert _told_of([LOADS, HOOK], cores_full=False).findings[0].code == "data_loading"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(HOOK, ms=20.0, low_ms=18.0), "far less"),
        (
            replace(HOOK, low_ms=0.0, evidence=(EvidenceRow(kind="figure", name=COUNTED_LOADS, ms=9.0),)),
            "it may cost nothing, though it is there",
        ),
        (replace(HOOK, at_most=True), "a bound, too"),
        (replace(HOOK, code="host_starved", remedy=Remedy(cure="free_cores")), "of its machine"),
        (
            replace(HOOK, also_late=AlsoLate(ranks=(1,), order="after", alone_ms=0.0, together_ms=27.0)),
            "it shows once the others are mended",
        ),
        (replace(HOOK, rank=None, code="metrics", remedy=Remedy(cure="measure_rarely")), "all compute it alike"),
    ],
)
def test_what_is_less_sure_or_far_less_stays_behind_it(other: Finding, why: str) -> None:
    run = _told_of([LOADS, other])
    assert run.findings[0].ms == LOADS.ms and run.findings[0].remedy is not None, why
    assert run.findings[0].remedy.lacks_cores


def test_what_all_compute_alike_goes_before_it_where_it_costs_as_much() -> None:
    metrics = replace(HOOK, rank=None, code="metrics", ms=31.0, at_least=True, remedy=Remedy(cure="measure_rarely"))
    fitted = replace(LOADS, remedy=Remedy(cure="load_ahead", lacks_cores=True))
    assert behind_sure_gains([fitted, metrics]) == [metrics, fitted]
    assert behind_sure_gains([fitted, replace(metrics, ms=29.0)])[0] is fitted
    lacks_cores_as_well = replace(metrics, code="batch_preparation", ms=50.0, remedy=fitted.remedy)
    assert behind_sure_gains([fitted, lacks_cores_as_well])[0] is fitted
