"""scalescope: why does my training job not scale, and what would make it?

The command line is `scalescope VERB …`; in Python, `profile_steps` measures a training loop of your own.
Nothing is loaded before it is used, so that the reading half never loads torch.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalescope.train.script.profiler import StepProfiler


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
