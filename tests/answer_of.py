"""The answer of one folder of traces, as `scalescope analyze` has it."""

from pathlib import Path

from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis


def analyzed(folder: Path) -> RunAnalysis:
    """Return it, worked out by this process alone."""
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer
