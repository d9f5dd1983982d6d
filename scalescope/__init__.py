"""scalescope: why does my training job not scale, and what would make it?

The command line is `scalescope VERB …`; in Python, `profile_steps` measures a training loop of your own.
Nothing is loaded before it is used, so that the reading half never loads torch.
"""

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
    from scalescope.train.script.profiler import StepProfiler

    return StepProfiler(what, settings)
