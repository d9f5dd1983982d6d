"""What compiling an eager step would fuse: no replay prices it, yet it may bring more than all that one does."""

from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.text import findings as finding_text
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.derived import is_compiled
from scalescope.scaling.trace.kernel_kinds import COPIES, ELEMENTWISE, LOSS, NORMALISATION

#: What torch.compile fuses into fewer kernels; matrix products and attention it leaves to the libraries.
_FUSIBLE = (NORMALISATION, LOSS, ELEMENTWISE, COPIES)
#: Of a step, so much of it is worth a word.
_WORTH_A_WORD = 0.1
#: Of what these kernels take, so much may be expected back: of GPT-2 124M on four H200s they took half of the step, and
#: compiling it gave back 0.15.
_EXPECTED = 0.3


def fusible_share(run: RunAnalysis) -> float:
    """Return which share of the step as run kernels take that compiling would fuse; 0 where there is nothing to say.

    That is so on CPUs, of other frameworks than torch, and of jobs that are compiled already.
    """
    if run.activity == "cpu" or run.framework != "torch" or not run.trains:
        return 0.0
    if is_compiled(run):
        return 0.0
    _, ranks = step_as_run(run)
    step_ms = sum(rank.window_ms for rank in ranks) / len(ranks) if ranks else 0.0
    share = _fusible_ms(run) / step_ms if step_ms else 0.0
    return share if share >= _WORTH_A_WORD else 0.0


def best_to_do(run: RunAnalysis, first: Finding, *, more: bool = False) -> str:
    """Return what to begin with: a run's `first` finding to do something about, or compiling where that rather pays.

    `more`: before what noise may have made, and what it may hide, say that more steps are to be profiled.
    """
    share = fusible_share(run)
    priced = f"{finding_text.more_steps(run.findings) if more else ''}{finding_text.todo(first, run)}"
    if first.rank is not None or first.at_most or _EXPECTED * share <= (first.fraction or 0.0):
        return priced
    return (
        f"compile the model (torch.compile(model)), which fuses what takes {milliseconds(_fusible_ms(run))} a step, "
        f"{percent(share)}, and gives back a part of it; then {priced}"
    )


def expected_of_compiling(run: RunAnalysis) -> float:
    """Return what compiling a run's eager step may be expected to bring, ms; 0 where there is nothing to say."""
    return _EXPECTED * _fusible_ms(run) if fusible_share(run) else 0.0


def _fusible_ms(run: RunAnalysis) -> float:
    return sum(row.ms for row in run.kinds if row.kind in _FUSIBLE)
