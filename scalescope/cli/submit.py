"""`scalescope submit`: train, sweep or study by Slurm's sbatch."""

from pathlib import Path

from scalescope.cli import sweep, train
from scalescope.cli.show import Asked, show
from scalescope.launch.config import register
from scalescope.launch.slurm import submit as slurm
from scalescope.launch.studies.outline import outline_study
from scalescope.records.errors import UserError


def run(argv: list[str]) -> int:
    """Write and hand in the scripts (or print them), and wait for the jobs where asked to."""
    order = slurm.parse(argv)
    finish = None
    if order.verb == "study":
        register()
        most = order.request.most_ranks_per_node or 2
        outline = outline_study(order.overrides, train.verb(), sweep.verb(), sorted({1, most}))
        if outline.settings.try_advice:
            raise UserError("try_advice=true needs a study's traces before its last job: call scalescope study, as in "
                            "slurm/study.sbatch")  # fmt: skip
        batches, finish = slurm.study_batches(outline, order.request)
    else:
        batches = [slurm.grid_batch(order, (train if order.verb == "train" else sweep).verb())]
    if order.dry_run:
        every = [*batches, *([finish] if finish else [])]
        for batch in every:
            print(slurm.call_text(batch, "<the others>" if batch is finish else ""))
        if order.scripts:
            print(f"\n{slurm.script_texts(every)}", end="")
        return 0
    if finish is not None:
        with slurm.study_folder(outline):
            ids = slurm.submit(batches, finish, print)
    else:
        ids = slurm.submit(batches, finish, print)
    print(f"results: {outline.path if finish is not None else Path('runs').resolve()}")
    if order.wait:
        slurm.wait(ids, lambda line: print(line, flush=True))
        if finish is not None:
            show(Asked([outline.path]))
    return 0
