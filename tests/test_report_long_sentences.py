"""Sentences are short enough to be read at once, and say when fewer steps were recorded than expected."""

import msgspec
import pytest

from scalescope.records.rows import StepRow
from scalescope.records.steps.recording import WhyFewer
from scalescope.report.replayed import fewer_steps_sentence, why_fewer
from scalescope.report.text.findings import headline, line
from scalescope.report.text.long import MOST_WORDS, and_then, with_cause
from scalescope.scaling.answer_steps import FewerRecorded
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.planned.fewer_recorded import fewer_recorded
from tests.report_samples import run_answer

STALL = Finding(
    code="host_stall", rank=1, ms=19.7, low_ms=18.7, high_ms=20.7, fraction=0.236, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="gap_before aten::ones_like", ms=20.4, others_ms=0.0),),
)  # fmt: skip


def test_what_costs_and_why_are_two_sentences_where_one_would_be_too_long() -> None:
    short = headline(msgspec.structs.replace(STALL, low_ms=None), 83.3, 2)
    for text in (headline(STALL, 83.3, 2, which="without recording"), line(STALL)):
        for sentence in text.split(". "):
            assert len(sentence.split()) <= MOST_WORDS, text
        assert "19.7 ms (18.7 ms to 20.7 ms)" in text and "20.4 ms" in text, "no figure is lost"
    assert ": its host" in short or ". Its host" in short
    many = " ".join(["word"] * 30)
    assert with_cause("rank 1 costs 3 ms", "its host sleeps") == "rank 1 costs 3 ms: its host sleeps"
    assert with_cause(many, f"its {many}") == f"{many}. Its {many}"
    assert with_cause(many, f"aten::mm, {many}") == f"{many}: aten::mm, {many}", "a kernel's name keeps its letters"
    assert and_then(f"{many}.", f"beside it {many}") == f"{many}. Beside it {many}."


@pytest.mark.parametrize(
    ("active", "recorded", "last", "why"),
    [(None, 3, 60, "many_operators"), (None, 6, 2, "loop_ended"), (8, 4, 60, "no_room"), (3, 3, 60, None),
     (None, 10, 60, None)],
)  # fmt: skip
def test_a_window_of_fewer_steps_than_expected_says_why(
    active: int | None, recorded: int, last: int, why: str | None
) -> None:
    run = msgspec.structs.replace(run_answer("r", 2), activity="cpu", fewer_recorded=None)
    for one in run.ranks:
        one.steps = recorded
    settings = {"what": "mine", "profiler": {"active": active, "repeat": 1, "max_mib": 256.0, "on_anomaly": False}}
    rows = [StepRow(step=step, phase="steady", step_ms=[1.0], samples_per_s=1.0) for step in range(last + 1)]
    run.fewer_recorded = fewer_recorded(run, settings, rows)
    if why is None:
        assert run.fewer_recorded is None and not why_fewer(run) and not fewer_steps_sentence(run)
        return
    assert run.fewer_recorded == FewerRecorded(wanted=active or 10, why=msgspec.convert(why, WhyFewer))
    assert fewer_steps_sentence(run).startswith(f"{recorded} steps were profiled (not {active or 10}, as ")
    ours = {key: value for key, value in settings.items() if key != "what"}
    assert active is not None or fewer_recorded(run, ours, rows) is None, "how many a job of ours has room for"
