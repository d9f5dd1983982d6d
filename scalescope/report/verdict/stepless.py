"""What traces say in which nothing tells steps: shares of what was recorded, and no step's time. Pure functions."""

from scalescope.report.drawing.numbers import listing, milliseconds, percent
from scalescope.report.drawing.parts import ALL, Part
from scalescope.report.sentences import WORTH_SAYING, Verdict, level_of
from scalescope.report.verdict.notes import cautions_of
from scalescope.report.views import run_label
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.findings.derived import is_compiled

#: What is lost to one thing alone is said first where it is so much of what was recorded.
_MOST_OF_IT = 0.5
_MARK_STEPS = "for figures a step, call the profiler's step() after each iteration, or each call of generate()"


def stepless_verdict(run: RunAnalysis) -> Verdict:
    """Return what such traces say, without whose they are."""
    label = run_label(run)
    window = sum(rank.window_ms for rank in run.ranks)
    shares = [(part, sum(rank.part_ms(part.key) for rank in run.ranks) / window if window else 0.0) for part in ALL]
    compute = shares[0][1]
    lost = sorted(((part, share) for part, share in shares[1:]), key=lambda item: -item[1])
    told = [f"{percent(share)} {part.name}" for part, share in lost if share >= WORTH_SAYING * (1 - compute) > 0]
    recorded = milliseconds(window / len(run.ranks))
    where = f"{percent(compute)} is compute"
    if lost and lost[0][1] >= _MOST_OF_IT:  # what most of it is comes first, and what that comes with
        launched = round(sum(row.calls for row in run.kinds if row.share_of_compute is not None))
        count = f", while {launched:,} kernels are launched" if lost[0][0].key == "idle_launch" and launched else ""
        where = f"{percent(lost[0][1])} is {lost[0][0].name}{count}, recording and all, and {where}"
        told = told[1:]
    headline = f"no steps in the trace. Of the {recorded} recorded, {where}."
    explained = (f"The rest is {listing(told)}.",) if told else ()
    remedy = remedy_for(lost[0][0], run) if lost and 1 - compute > 0.02 else ""
    steps = _MARK_STEPS if run.framework == "torch" else ""
    advice = f"{'; '.join(one for one in (remedy, steps) if one)}." if remedy or steps else ""
    doubts = cautions_of([run])
    return Verdict(label, level_of(compute), headline, explained, advice, doubts, doubts)


def remedy_for(part: Part, run: RunAnalysis) -> str:
    """Return what may help a run against a part."""
    return part.remedy_for(
        run.activity, trains=run.trains, framework=run.framework, compiled=is_compiled(run), hosts=run.hosts
    )
