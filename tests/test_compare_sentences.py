"""A comparison is told in short sentences, each of which stands alone: the cause, the whole step, what to do."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from scalescope.report.compare.markdown import summary
from scalescope.report.compare.noise import at_once, noise_sentence
from scalescope.report.compare.page import comparison_page
from scalescope.report.compare.sentences import headline, verdict_sentences
from scalescope.report.compare.tables import parts_sentence, parts_table
from scalescope.report.compare.terminal import print_comparison
from scalescope.scaling.answer_steps import RecurringChange
from scalescope.scaling.compare.answer import (
    AmountChange,
    Comparison,
    FoundAlone,
    GapChange,
    LateChange,
    Noise,
    PartChange,
    Verdict,
)
from scalescope.scaling.finding.finding import Finding, Remedy

#: As long as a sentence of a comparison may be, in words.
MOST_WORDS = 35
STALL = Finding(code="host_stall", rank=1, ms=8.4, low_ms=7.4, high_ms=9.4, backed="replay",
                remedy=Remedy(cure="look_at_host"))  # fmt: skip
COLLECTING = Finding(code="host_stall", ms=142.3, low_ms=140.0, high_ms=145.0, backed="replay",
                     remedy=Remedy(cure="collect_less"))  # fmt: skip
ONE_EACH = Noise(unit="steps", baseline=80, other=80, degrees=None, parts_factor=1.5, baseline_run_delay_ms=5.4,
                 other_run_delay_ms=5.4)  # fmt: skip
#: Of which every fourth step is longer.
OFTEN = RecurringChange(baseline_every=None, other_every=4, baseline_each_ms=0.0, other_each_ms=146.5, change_ms=35.9,
                        low_ms=28.1, high_ms=43.6, differs=True)  # fmt: skip
PART = PartChange(name="idle_launch", change_ms=1.2, low_ms=-4.0, high_ms=6.0, baseline_ms=3.0, other_ms=4.2)
#: Within noise that hides a third of the step.
WIDE = Comparison(baseline="calm", other="late", verdict="same", basis="untraced", baseline_ms=44.3, other_ms=49.3,
                  change_ms=5.0, low_ms=-4.3, high_ms=16.3, parts=[PART], noise=ONE_EACH)  # fmt: skip
ALONE = replace(WIDE, alone=[FoundAlone(side="other", finding=STALL)])
STEP = "The whole step: +5 ms of 44.3 ms (95%: −4 to +16 ms), within noise."
AGAIN = "One run a side cannot tell more: run both again and give all with --baseline and --other."


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        (WIDE, "“late” cannot be told from “calm”: what they differ by is within noise."),
        (ALONE, "In “late”, and not in “calm”, rank 1 costs a step 8.4 ms (7.4 ms to 9.4 ms)"),
        (replace(WIDE, recurring=OFTEN), "In “late” every 4th step takes 146.5 ms longer, and in “calm” none does: +3"),
        (replace(WIDE, parts=[replace(PART, low_ms=0.5)]), "In “late” a step has 1.2 ms more idle (host late) than in"),
    ],
)  # fmt: skip
def test_the_cause_the_whole_step_and_what_to_do_are_a_short_sentence_each(answer: Comparison, first: str) -> None:
    """One sentence of 60 to 90 words, which began with *Sure of B, beside A:*, held all of it."""
    told = verdict_sentences(answer)
    assert told[0].startswith(first) and told[-1] == AGAIN
    beside = (
        "The whole step of 44.3 ms changed by +5 ms, of which all else made −3 ms (95%: −13 to +8 ms), within noise."
    )
    assert told[-2] in ((beside,) if answer.alone else (STEP, STEP.replace("whole", "typical (median)")))
    assert all(len(one.split()) <= MOST_WORDS and one.endswith(".") and ";" not in one for one in told), told


def test_terminal_markdown_and_page_say_the_same_sentences() -> None:
    out = io.StringIO()
    print_comparison(ALONE, Console(file=out, width=500))
    (card,) = comparison_page(ALONE).cards
    told = verdict_sentences(ALONE)
    assert [card.verdict.headline, *card.verdict.sentences[: len(told) - 1]] == told
    for text in (out.getvalue(), summary(ALONE).replace("\\", "")):
        assert told[0] in text and " ".join(told[1:]) in text


def test_what_longer_steps_are_known_to_do_is_named() -> None:
    """*Every 4th step takes 146.5 ms longer* did not say that Python collects its garbage in them."""
    known = replace(WIDE, recurring=replace(OFTEN, doing=COLLECTING))
    assert headline(known).startswith(
        "In “late” every 4th step takes 146.5 ms longer, as Python collects its garbage, "
    )
    stands = replace(COLLECTING, rank=0, remedy=Remedy(cure="look_at_host"))
    told = verdict_sentences(replace(WIDE, recurring=replace(OFTEN, doing=stands)))
    assert told[1].startswith("In “late”, on rank 0, its host ") and "garbage" not in told[0]


def test_longer_steps_come_first_though_the_part_that_they_make_longer_grew_by_more() -> None:
    """Idle time of +41 ms in the profiled steps, of which three were long ones, kept +35.9 ms in the mean from it."""
    idle = replace(PART, change_ms=41.0, low_ms=20.0, high_ms=62.0, other_ms=44.0)
    late = LateChange(rank=1, change_ms=-9.1, low_ms=-13.8, high_ms=-4.4, baseline_ms=9.1, other_ms=0.0)
    told = verdict_sentences(replace(WIDE, recurring=OFTEN, parts=[idle], late=late))
    assert told[0].startswith("In “late” every 4th step") and told[1].startswith("By all steps rank 1 keeps the others")
    assert "idle" not in " ".join(told)


def test_the_noise_line_is_short_and_waits_for_cores_are_told_where_sides_differ_or_they_are_much() -> None:
    """It was 80 words of the same each time, with the waits of 5.4 ms there and 5.4 ms here."""
    assert len(noise_sentence(WIDE).split()) <= 30 and "core" not in noise_sentence(WIDE)

    def waits(there: float | None, here: float | None) -> str:
        noise = replace(ONE_EACH, baseline_run_delay_ms=there, other_run_delay_ms=here)
        return noise_sentence(replace(WIDE, noise=noise))

    assert waits(11.8, 5.4).endswith(": in “calm” 11.8 ms and in “late” 5.4 ms") and "core" in waits(20.0, 20.0)
    assert "core" in waits(None, 5.4) and "core" not in waits(0.1, 0.4) and "core" not in waits(None, None)
    assert "for a core" not in waits(5.4, 11.8), "which is told beside the step"
    assert "In “late” ranks wait, in the mean, 6.4 ms more" in " ".join(verdict_sentences(replace(
        WIDE, noise=replace(ONE_EACH, other_run_delay_ms=11.8))))  # fmt: skip
    repeats = replace(WIDE, noise=replace(ONE_EACH, unit="repeats", baseline=3, other=2))
    assert "between 3 and 2 repeats" in noise_sentence(repeats) and AGAIN not in verdict_sentences(repeats)


def test_that_parts_are_tested_at_once_stands_with_the_parts_of_the_page_alone() -> None:
    (section,) = [one for one in comparison_page(WIDE).sections if one.panels[0].key.startswith("comparison-parts")]
    assert at_once(WIDE) in section.panels[0].sentence and "1.5 times" in at_once(WIDE)
    assert "at once" not in noise_sentence(WIDE)


def test_parts_of_no_one_rank_are_said_to_be_the_mean_of_all() -> None:
    table = parts_table(WIDE)
    at = [column.key for column in table.columns].index("rank")
    assert table.columns[at].title == "of rank" and table.rows[0][at] == "mean of all"


def test_a_part_that_the_other_side_has_as_well_costs_more_and_is_not_found_in_one_alone() -> None:
    """*Found first in B, and not in A: exposed transfer* was said beside a table that has 5.9 ms of it in A."""
    sent = Finding(code="exposed_transfer", ms=20.0, low_ms=20.0, high_ms=26.7, at_least=True, backed="bound",
                   remedy=Remedy(cure="exchange_once"))  # fmt: skip
    part = PartChange(name="exposed_transfer", change_ms=20.8, low_ms=-15.2, high_ms=58.3, baseline_ms=5.9,
                      other_ms=26.7)  # fmt: skip
    slower = replace(WIDE, verdict="slower", change_ms=33.6, low_ms=15.1, high_ms=47.3, parts=[part],
                     alone=[FoundAlone(side="other", finding=sent)])  # fmt: skip
    first, second, *_ = verdict_sentences(slower)
    assert first == "“late” is 75.8% slower (95%: 34.1 to 106.8): +34 ms."
    assert second.startswith(
        "Exposed transfer costs more in “late”: at least 20.0 ms a step, for at most 5.9 ms in “calm”"
    )
    as_much = replace(slower, parts=[replace(part, baseline_ms=21.0)])
    assert verdict_sentences(as_much)[1].startswith("Found first in “late”: ")
    none = replace(slower, parts=[replace(part, baseline_ms=0.1)])
    assert verdict_sentences(none)[0].endswith("+34 ms, and in it alone exposed transfer costs at least 20.0 ms.")
    less = replace(none, low_ms=21.0)  # than the step is longer by for sure
    assert verdict_sentences(less)[1].startswith("Found in “late” alone: exposed transfer: at least 20.0 ms")


def test_a_ranks_cause_that_one_side_alone_has_is_named_with_the_change_that_it_is_of() -> None:
    """*35.0% slower: +50 ms* stood alone, and who computes for 53 ms more came behind it, as *found first*: beside 124
    ms that both sides compute, though no rank of the other computes more than another.
    """
    more = Finding(code="more_work", rank=1, ms=53.4, low_ms=52.3, high_ms=54.4, backed="measured",
                   remedy=Remedy(cure="even_out"))  # fmt: skip
    part = PartChange(name="convolution", change_ms=36.9, low_ms=-6.3, high_ms=81.7, baseline_ms=83.5, other_ms=120.5,
                      rank=1)  # fmt: skip
    slower = replace(WIDE, verdict="slower", baseline_ms=142.8, change_ms=50.0, low_ms=10.2, high_ms=93.4, parts=[part],
                     alone=[FoundAlone(side="other", finding=more)])  # fmt: skip
    first, *further = verdict_sentences(slower)
    assert first.endswith("+50 ms, and in it alone rank 1, more work, costs 53.4 ms (52.3 ms to 54.4 ms).")
    assert len(first.split()) <= MOST_WORDS and "Found" not in " ".join(further)
    gap = GapChange(
        rank=1, before="aten::mm", change_ms=53.0, low_ms=52.0, high_ms=54.0, baseline_ms=0.1, other_ms=53.1
    )
    stalls = FoundAlone(side="other", finding=replace(STALL, ms=53.4, low_ms=52.3, high_ms=54.4))
    still = " ".join(verdict_sentences(replace(slower, gaps=[gap], alone=[stalls])))
    assert "in it alone rank 1, a stalled host, costs 53.4 ms" in still and "stands still" not in still, "once"
    faster = replace(slower, verdict="faster", change_ms=-50.0, low_ms=-93.4, high_ms=-10.2,
                     alone=[FoundAlone(side="baseline", finding=more)])  # fmt: skip
    assert "−50 ms, and in “calm” alone rank 1, more work, costs 53.4 ms" in verdict_sentences(faster)[0]
    for other in (
        replace(slower, alone=[FoundAlone(side="other", finding=more, like_ms=30.0)]),  # another rank's there
        replace(slower, high_ms=52.0),  # the cause costs more than the step can be longer by
        replace(slower, alone=[FoundAlone(side="other", finding=replace(more, low_ms=0.0))]),
    ):
        assert verdict_sentences(other)[0].endswith("+50 ms.") and "Found first in “late”: rank 1, more work" in (
            " ".join(verdict_sentences(other))
        )


def test_parts_that_have_no_room_in_the_first_sentence_follow_it() -> None:
    parts = [
        replace(PART, name=name, change_ms=ms, low_ms=0.5 * ms, high_ms=1.5 * ms, rank=1, others_ms=ms)
        for name, ms in (("elementwise and reductions", 20.0), ("embedding and indexing", 9.0), ("exposed_memory", 4.0))
    ]
    slower = replace(WIDE, verdict="slower", change_ms=33.6, low_ms=15.1, high_ms=47.3, parts=[*parts, PART])
    first, second = verdict_sentences(slower)
    assert ", of which elementwise and reductions +20 (on every rank)" in first and len(first.split()) <= MOST_WORDS
    assert second.startswith("Besides: ") and second.endswith(", the rest within noise.")


@pytest.mark.parametrize("verdict", ["same", "slower"])
def test_ranks_that_wait_far_longer_for_cores_are_the_cause_before_what_takes_longer_for_it(verdict: Verdict) -> None:
    """*A step has 32 ms more recurrent layers* was said first, and third that ranks waited 46.8 ms more for a core."""
    part = replace(PART, name="recurrent layers", change_ms=20.0, low_ms=0.1, high_ms=40.0, other_ms=38.0)
    busy = replace(ONE_EACH, other_run_delay_ms=30.0)
    low_ms = {"same": -4.3, "slower": 4.3}[verdict]
    told = verdict_sentences(replace(WIDE, verdict=verdict, change_ms=30.0, low_ms=low_ms, high_ms=60.0, parts=[part],
                                     noise=busy))  # fmt: skip
    waits = (
        "In “late” ranks wait, in the mean, 24.6 ms more of a step for a core, which other processes or the job's own "
        "threads have."
    )
    assert told[{"same": 0, "slower": 1}[verdict]] == waits and told.count(waits) == 1
    assert told[told.index(waits) + 1 if verdict == "slower" else -2] == (
        "Steps are told by their medians, and waits by their mean: one less the other is no change of the rest."
    )
    assert "recurrent layers" not in " ".join(told)
    busier = replace(WIDE, verdict=verdict, change_ms=30.0, low_ms=low_ms, high_ms=60.0, parts=[part], noise=busy)
    held = "as operators run on meanwhile: 5.4 ms in “calm” and 30.0 ms in “late”, of a step in the mean."
    assert parts_sentence(busier).endswith(held), "the table says +20 ms of recurrent layers, with nothing beside it"
    assert held in summary(busier)
    assert "for a core" not in parts_sentence(replace(busier, noise=replace(ONE_EACH, other_run_delay_ms=8.0)))
    alike = replace(ONE_EACH, other_run_delay_ms=8.0)  # as undisturbed runs differ
    first = verdict_sentences(replace(WIDE, change_ms=10.0, high_ms=30.0, parts=[part], noise=alike))[0]
    assert first.startswith("In “late” a step has 20 ms more recurrent layers")


def test_what_is_left_of_a_sure_change_is_not_told_as_noise() -> None:
    """*+75 ms, of which idle (loading data) +42, the rest within noise*: 33 of 75 ms that are sure are there."""
    loads = replace(PART, name="idle_data", change_ms=41.9, low_ms=6.1, high_ms=170.4, rank=1)
    computes = replace(PART, name="convolution", change_ms=5.1, low_ms=-26.4, high_ms=37.6)
    unseen = replace(PART, name="rest", change_ms=28.0, low_ms=-88.9, high_ms=148.2)
    slower = replace(WIDE, verdict="slower", baseline_ms=124.3, change_ms=75.0, low_ms=38.6, high_ms=115.0,
                     parts=[loads, unseen, computes])  # fmt: skip
    first, second = verdict_sentences(slower)
    assert first.endswith("+75 ms, of which idle (loading data) +42 (rank 1).")
    where = ", most of it not seen in the profiled steps."
    assert second == f"The rest, +33 ms, is in parts each of which is within noise{where}"
    spread = replace(slower, parts=[loads, replace(unseen, change_ms=15.0), replace(computes, change_ms=18.1)])
    assert "most of it convolution" in verdict_sentences(spread)[1]
    little = replace(slower, parts=[replace(loads, change_ms=70.0), computes])
    assert verdict_sentences(little)[0].endswith("+70 (rank 1), the rest within noise.")


def test_a_cause_in_the_job_that_costs_more_than_waits_for_cores_stays_first() -> None:
    busy = replace(ALONE, change_ms=30.0, high_ms=60.0, noise=replace(ONE_EACH, other_run_delay_ms=30.0))
    assert verdict_sentences(busy)[0].startswith("In “late” ranks wait, in the mean, 24.6 ms more")
    assert verdict_sentences(busy)[1].startswith("In “late”, and not in “calm”, rank 1 costs a step")
    dear = replace(STALL, ms=40.0, low_ms=35.0, high_ms=45.0)
    told = verdict_sentences(replace(busy, alone=[FoundAlone(side="other", finding=dear)]))
    assert told[0].startswith("In “late”, and not in “calm”, rank 1 costs a step 40.0 ms")
    assert any(one.startswith("In “late” ranks wait") for one in told)


def test_how_many_exchanges_a_step_makes_comes_first_where_that_is_the_work_that_differs() -> None:
    """*Elementwise +8.9, copies +7.0, the rest within noise* was told of gradients exchanged in four passes for one."""
    counted = [AmountChange(amount="collectives", operation="all_reduce", baseline=2, other=8),
               AmountChange(amount="sent_bytes", operation="all_reduce", baseline=15.8e6, other=63.3e6),
               AmountChange(amount="sent_bytes", operation="broadcast", baseline=576, other=2304)]  # fmt: skip
    copies = replace(PART, name="copies and casts", change_ms=7.0, low_ms=1.7, high_ms=11.4)
    transfer = replace(PART, name="exposed_transfer", change_ms=33.1, low_ms=-33.7, high_ms=102.1)
    slower = replace(WIDE, verdict="slower", change_ms=75.0, low_ms=22.8, high_ms=113.2, parts=[copies, transfer],
                     amounts=counted)  # fmt: skip
    told = " ".join(verdict_sentences(slower))
    assert told.startswith("“late” makes 8 all_reduce calls a step for 2 in “calm”, and is ")
    assert "copies and casts +7.0" in told and "the rest within noise" not in told
    bigger = [one for one in counted if one.amount == "sent_bytes"]  # in as many calls
    assert headline(replace(slower, amounts=bigger)).startswith("“late” does other work than “calm”, and is ")
    harder = [*counted, AmountChange(amount="flops_a_sample", operation=None, baseline=1.0, other=3.0)]
    assert headline(replace(slower, amounts=harder)).startswith("“late” does other work than “calm”, and is ")
