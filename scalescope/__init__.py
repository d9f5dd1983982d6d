"""scalescope: why does my training job not scale, and what would make it?

The command line is `scalescope VERB …`; docs/reference.md has what there is in Python, with examples. Nothing is loaded
before it is used, so that a script starts as fast with it as without, and the reading half never loads torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalescope.api import (
        Run,
        Study,
        analyze,
        analyze_study,
        compare,
        cost_model,
        fit,
        read_run,
        read_sweep,
        read_trace,
        what_if,
        write_report,
    )
    from scalescope.records.errors import RunError, UserError
    from scalescope.records.rows import StepRow, SweepRow
    from scalescope.scaling.answer import RunAnalysis
    from scalescope.scaling.compare.answer import Comparison
    from scalescope.scaling.costs.answer import CostAnswer
    from scalescope.scaling.costs.model import CostModel
    from scalescope.scaling.costs.topology import Topology
    from scalescope.scaling.replay.change import Change
    from scalescope.scaling.replay.whatif.prediction import WhatIf
    from scalescope.scaling.study_answer import StudyAnalysis
    from scalescope.scaling.trace.trace import Trace
    from scalescope.train.script.profiler import StepProfiler

__all__ = [
    "Change",
    "Comparison",
    "CostAnswer",
    "CostModel",
    "Run",
    "RunAnalysis",
    "RunError",
    "StepProfiler",
    "StepRow",
    "Study",
    "StudyAnalysis",
    "SweepRow",
    "Topology",
    "Trace",
    "UserError",
    "WhatIf",
    "analyze",
    "analyze_study",
    "compare",
    "cost_model",
    "fit",
    "profile_steps",
    "read_run",
    "read_sweep",
    "read_trace",
    "what_if",
    "write_report",
]

# where what is not scalescope.api's own comes from
_HOMES = {
    "Change": "scalescope.scaling.replay.change",
    "Comparison": "scalescope.scaling.compare.answer",
    "CostAnswer": "scalescope.scaling.costs.answer",
    "CostModel": "scalescope.scaling.costs.model",
    "RunAnalysis": "scalescope.scaling.answer",
    "RunError": "scalescope.records.errors",
    "StepProfiler": "scalescope.train.script.profiler",
    "StepRow": "scalescope.records.rows",
    "StudyAnalysis": "scalescope.scaling.study_answer",
    "SweepRow": "scalescope.records.rows",
    "Topology": "scalescope.scaling.costs.topology",
    "Trace": "scalescope.scaling.trace.trace",
    "UserError": "scalescope.records.errors",
    "WhatIf": "scalescope.scaling.replay.whatif.prediction",
}


if not TYPE_CHECKING:  # to which every name would be there

    def __getattr__(name: str) -> Any:
        """Load what is asked for (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if lacks := missing():
            raise ImportError(lacks)
        value = globals()[name] = getattr(import_module(_HOMES.get(name, "scalescope.api")), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def profile_steps(what: str, **settings: Any) -> "StepProfiler":
    """Measure a training loop of your own: a run folder with rows, traces of every rank, analysis and report.

        with profile_steps("my-model", samples=32, tokens_per_sample=1024) as profile:
            for batch in loader:
                loss = train(batch)
                profile.step(loss)

    `what` is trained; `settings` are the keys of conf/script.yaml and conf/profiler/window.yaml, where the defaults
    are: `samples` of a rank and step, `tokens_per_sample` and `flops_per_sample` for rates and MFU; `wait`, `warmup`,
    `active`, `repeat`, `ranks`, `shapes`, `stacks`, `memory`, `max_mib` for the traces; `name`, `runs`, `study` for the
    folder; `logger` ("wandb"). Raises TypeError for a key that there is not, UserError for a value that cannot be;
    whatever fails later is said, and does not reach the loop.
    """
    if lacks := missing():
        raise ImportError(lacks)
    from scalescope.train.script.profiler import StepProfiler

    return StepProfiler(what, settings)


def missing() -> str | None:
    """Return what this copy of scalescope lacks, in a line, and where a whole one is had; None of a whole one.

    A checkout has symbolic links to its folders at the top; some programs unpack those as small text files.
    """
    here = os.path.dirname(__file__)  # pathlib is not loaded for this  # noqa: PTH120
    if os.path.isdir(os.path.join(here, "train")):  # noqa: PTH112, PTH118
        return None
    return (f"{here} is not whole: what unpacked it wrote no symbolic links, as Python's zipfile does not; "
            "use git clone, unzip, a wheel or an sdist")  # fmt: skip
