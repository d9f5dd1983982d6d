"""Submitting to Slurm: sbatch with the scripts of slurm/, from a machine that need not have a device.

What a script leaves open (account, partition, nodes, tasks) is given to sbatch as options, so the scripts that run are
the ones a user can read and edit.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import DictConfig

from scalescope.launch.bounds import COUNT, check_number
from scalescope.launch.compose import compose_job, quoted, refuse_strangers, typed
from scalescope.launch.former_keys import with_present_names
from scalescope.launch.studies.outline import Outline, StudyJob, grid
from scalescope.launch.verb import Verb
from scalescope.records.errors import RunError, UserError
from scalescope.records.folder import RunFolder
from scalescope.records.package import SBATCH_SCRIPTS

_POLL_S = 2.0
_GONE = "GONE"  # Slurm has forgotten the job
_ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
          "PREEMPTED", "REVOKED", _GONE}  # fmt: skip
_GOOD = "COMPLETED"


@dataclass(frozen=True)
class Request:
    """What the user asks of the cluster. `None` leaves a line to the script or the cluster's default."""

    account: str | None = None
    partition: str | None = None
    gpus_per_node: int | None = None  # None = ranks on CPUs, a core each
    ranks_per_node: int | None = None  # at most so many ranks on a node; None = gpus_per_node
    nodes: int | None = None
    time: str | None = None
    style: str = "torchrun"  # torchrun (one task a node) | srun (a task a rank)
    extra: list[str] = field(default_factory=list)  # handed to sbatch as they are

    def __post_init__(self) -> None:
        for key in ("gpus_per_node", "ranks_per_node", "nodes"):
            check_number(f"--{key.replace('_', '-')}", getattr(self, key), COUNT)
        if self.style not in ("torchrun", "srun"):
            raise UserError(f"--style={self.style}: choose torchrun or srun")

    @property
    def most_ranks_per_node(self) -> int | None:
        return self.ranks_per_node or self.gpus_per_node


@dataclass(frozen=True)
class Submission:
    """A command line of `scalescope submit`, read."""

    verb: str
    overrides: list[str]
    request: Request
    wait: bool
    dry_run: bool
    scripts: bool  # a dry run shows the scripts, too
    at_once: int | None = None  # of an array's tasks; None = as many as the cluster gives


def parse(argv: Sequence[str]) -> Submission:
    """Read a command line. What is not known here is sbatch's. Raises UserError for what is neither."""
    parser = argparse.ArgumentParser(
        prog="scalescope submit",
        description="Submit a job to Slurm by the scripts in slurm/. A study becomes one job a GPU count, and one that "
        "analyses when they have ended; comma lists (seed=1,2) of train and sweep become an array, a task a "
        "combination. KEY=VALUE are the verb's own overrides; what is not known here goes to sbatch.",
    )
    parser.add_argument("verb", choices=["train", "sweep", "study"])
    parser.add_argument("--account")
    parser.add_argument("--partition")
    parser.add_argument("--gpus-per-node", type=int, metavar="N", help="left out: ranks run on CPU cores")
    parser.add_argument("--ranks-per-node", type=int, metavar="N", help="at most so many ranks a node")
    parser.add_argument("--nodes", type=int, metavar="N", help="of train and sweep (1)")
    parser.add_argument("--time", metavar="HH:MM:SS", help="a job's limit")
    parser.add_argument("--style", default="torchrun", help="torchrun: one task a node; srun: a task a rank")
    parser.add_argument("--at-once", type=int, metavar="N", help="of a grid (seed=1,2,3), at most N jobs at a time")
    parser.add_argument("--wait", action="store_true", help="follow the jobs to their end")
    parser.add_argument("--dry-run", action="store_true", help="show the calls, submit nothing")
    parser.add_argument("--scripts", action="store_true", help="with --dry-run: each script that they run, too, once")
    options, rest = parser.parse_known_args(argv)
    overrides = [word for word in rest if not word.startswith("-")]
    if stray := [word for word in overrides if "=" not in word and not word.startswith("~")]:
        raise UserError(f"{stray[0]} is neither KEY=VALUE nor an option; write sbatch's options as --qos={stray[0]}")
    request = Request(
        account=options.account, partition=options.partition, gpus_per_node=options.gpus_per_node,
        ranks_per_node=options.ranks_per_node, nodes=options.nodes, time=options.time, style=options.style,
        extra=[word for word in rest if word.startswith("-")],
    )  # fmt: skip
    check_number("--at-once", options.at_once, COUNT)
    dry_run = options.dry_run or options.scripts
    return Submission(options.verb, overrides, request, options.wait, dry_run, options.scripts, options.at_once)


@dataclass(frozen=True)
class Batch:
    """One call of sbatch."""

    script: Path
    options: list[str]
    arguments: list[str]  # the script's own arguments
    label: str

    def command(self, after: Sequence[int] = ()) -> list[str]:
        dependency = [f"--dependency=afterany:{':'.join(map(str, after))}"] if after else []
        return ["sbatch", "--parsable", *self.options, *dependency, str(self.script), *self.arguments]


def job_batch(verb: str, overrides: Sequence[str], request: Request, ranks: int | None, label: str) -> Batch:
    """Return the call for one job over `ranks` ranks (None: every rank that the request's nodes hold).

    Raises UserError where the ranks do not spread evenly over nodes.
    """
    nodes, per_node = _spread(request, ranks)
    options = _common(request, f"scalescope-{verb}")
    options.append(f"--nodes={nodes}")
    srun = request.style == "srun" or verb == "sweep"
    if per_node is not None:
        options.append(f"--ntasks-per-node={per_node if srun else 1}")
        if request.gpus_per_node is not None:
            options.append(f"--gpus-per-node={per_node}")
        elif not srun:
            options.append(f"--cpus-per-task={per_node}")
        if not srun:
            options.append(f"--export=ALL,RANKS_PER_NODE={per_node}")
    script = SBATCH_SCRIPTS / ("sweep.sbatch" if verb == "sweep" else "train_srun.sbatch" if srun else "train.sbatch")
    return Batch(script=script, options=options, arguments=list(overrides), label=label)


def grid_batch(submission: Submission, verb: Verb) -> Batch:
    """Return the call for a training job or a sweep; comma lists make it an array, a task a combination.

    Raises UserError for overrides that a job would refuse on its node.
    """
    tasks = grid(with_present_names(submission.overrides, verb))
    for task in tasks:
        _refuse_wrong(compose_job(submission.verb, task), verb)
    if len(tasks) == 1:
        return job_batch(submission.verb, tasks[0], submission.request, None, submission.verb)
    if named := [word for word in submission.overrides if word.startswith("name=") and "," not in word]:
        raise UserError(f"{named[0]}: {len(tasks)} jobs cannot share a run folder; leave name out")
    batch = job_batch(submission.verb, [shlex.join(task) for task in tasks], submission.request, None,
                      f"{submission.verb}, an array of {len(tasks)}")  # fmt: skip
    limit = f"%{submission.at_once}" if submission.at_once is not None else ""
    return replace(batch, options=[*batch.options, f"--array=0-{len(tasks) - 1}{limit}"])


def study_batches(outline: Outline, request: Request) -> tuple[list[Batch], Batch]:
    """Return one call a job of the study, and the one that analyses when they have ended."""
    batches = []
    for member in outline.members:
        _refuse_wrong(member.compose(outline.path), member.verb)
        batches.append(
            job_batch(member.verb.name, _arguments(member, outline.path), request, member.ranks, member.name)
        )
    finish = Batch(
        script=SBATCH_SCRIPTS / "analyze.sbatch",
        options=_common(request, "scalescope-analyze"),
        arguments=[str(outline.path), *(member.name for member in outline.members)],
        label="analysis and report",
    )
    return batches, finish


def _refuse_wrong(config: DictConfig, verb: Verb) -> None:
    """Raise UserError for what no node could run: it is found here, not in an hour there."""
    refuse_strangers(config, verb)
    typed(config, verb.schema)


def submit(batches: Sequence[Batch], finish: Batch | None, say: Callable[[str], None]) -> list[int]:
    """Submit every job and return their ids. Raises UserError with sbatch's own reason; earlier ones are cancelled."""
    if shutil.which("sbatch") is None:
        raise UserError("there is no sbatch here; call scalescope submit on a login node of the cluster")
    ids: list[int] = []
    for batch in batches:
        ids.append(_sbatch(batch, (), ids))
        say(f"job {ids[-1]}: {batch.label}")
    if finish is not None:
        ids.append(_sbatch(finish, ids, ids))
        say(f"job {ids[-1]}: {finish.label}, after the others")
    return ids


def call_text(batch: Batch, after: str) -> str:
    """Return what --dry-run shows of a job: what it is, and the call."""
    dependency = f" --dependency=afterany:{after}" if after else ""
    call = " ".join(shlex.quote(word) for word in batch.command())
    return f"# {batch.label}\n{call.replace(' --parsable', ' --parsable' + dependency)}"


def script_texts(batches: Sequence[Batch]) -> str:
    """Return the scripts that calls run, each once."""
    scripts = dict.fromkeys(batch.script for batch in batches)
    return "\n".join(f"# {script.name}\n{script.read_text(encoding='utf-8')}" for script in scripts)


def copy_scripts(folder: Path) -> list[Path]:
    """Copy slurm/*.sbatch into a folder, for a site's own lines. Raises UserError where one is there already."""
    copies = {script: folder / script.name for script in sorted(SBATCH_SCRIPTS.glob("*.sbatch"))}
    if there := [str(copy) for copy in copies.values() if copy.exists()]:
        raise UserError(f"{there[0]} exists already, perhaps with lines of yours; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for script, copy in copies.items():
            shutil.copyfile(script, copy)
    except OSError as error:
        raise UserError(f"cannot write the scripts into {folder}: {error.strerror}") from error
    return list(copies.values())


def wait(ids: Sequence[int], say: Callable[[str], None]) -> None:
    """Follow jobs to their end, with a line a change. Raises RunError naming those that did not complete.

    squeue and scontrol are polled: `sbatch --wait` backs off to 42 s, and accounting may not be set up.
    """
    states: dict[str, str] = {}
    while True:
        now: dict[str, tuple[str, str]] = {}
        for job in ids:
            now |= _states(job)
        for label in [label for label in states if label not in now]:
            if states[label] == "PENDING" and any(other.startswith(f"{label.split('_')[0]}_") for other in now):
                # an array's tasks, which have labels of their own once they have begun
                del states[label]
            else:
                now[label] = (_GONE, "")
        for label, (state, reason) in now.items():
            if state != states.get(label):
                states[label] = state
                waits = reason if state == "PENDING" and reason not in ("None", "Dependency", "Priority") else ""
                say(f"job {label}: {state.lower()}{f' ({waits})' if waits else ''}")
        if states and all(state in _ENDED for state in states.values()):
            break
        time.sleep(_POLL_S)
    bad = [f"{label} {state.lower()}" for label, state in states.items() if state != _GOOD]
    if bad:
        raise RunError(f"not every job completed: {', '.join(bad)}; their output is in slurm-<id>.out, "
                       "and what was measured is in the run folders")  # fmt: skip


@contextmanager
def study_folder(outline: Outline) -> Iterator[RunFolder]:
    """Make the study's folder, so that the jobs' folders have their place; where submitting fails, it goes again."""
    folder = outline.make_folder()
    try:
        yield folder
    except UserError:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _arguments(member: StudyJob, study: Path) -> list[str]:
    return [*member.overrides, f"name={quoted(member.name)}", f"runs={quoted(str(study))}",
            f"study={quoted(study.name)}", f"launch.ranks={member.ranks}"]  # fmt: skip


def _spread(request: Request, ranks: int | None) -> tuple[int, int | None]:
    """Return nodes and ranks a node."""
    most = request.most_ranks_per_node
    if ranks is None:
        return request.nodes or 1, most
    if most is None or ranks <= most:
        return 1, ranks
    nodes = -(-ranks // most)
    if ranks % nodes:
        raise UserError(f"{ranks} ranks do not spread evenly over {nodes} nodes of {most}; choose another count")
    return nodes, ranks // nodes


def _common(request: Request, name: str) -> list[str]:
    options = [f"--job-name={name}"]
    for key in ("account", "partition", "time"):
        if (value := getattr(request, key)) is not None:
            options.append(f"--{key}={value}")
    return [*options, *request.extra]


def _sbatch(batch: Batch, after: Sequence[int], earlier: Sequence[int]) -> int:
    done = subprocess.run(batch.command(after), capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode == 0:
        return int(done.stdout.strip().split(";")[0])
    if earlier:
        subprocess.run(["scancel", *map(str, earlier)], capture_output=True, check=False)
    reason = re.sub(r"^sbatch: (error: )?", "", next(iter(done.stderr.strip().splitlines()), "no reason given"))
    raise UserError(f"Slurm refuses {batch.label}: {reason}{_hint(done.stderr)}"
                    + (f"; the {len(earlier)} jobs before it were cancelled" if earlier else ""))  # fmt: skip


def _hint(stderr: str) -> str:
    if "ccount" in stderr:
        return "; give --account=ACCOUNT (sacctmgr show associations user=$USER lists yours)"
    if "artition" in stderr:
        return "; give --partition=PARTITION (sinfo lists them)"
    if any(part in stderr for part in ("node configuration", "ode count", "processors requested")):
        return (
            "; no node has that much: lower --gpus-per-node, --ranks-per-node or --nodes (sinfo -N -l lists the nodes)"
        )
    if any(part in stderr for part in ("resolve_ctls", "contact slurm controller", "Unable to contact")):
        return "; no Slurm controller answers from here: call it on a login node, or set SLURM_CONF"
    return ""


def _states(job: int) -> dict[str, tuple[str, str]]:
    """Return state and reason of a job, or of each task of an array, by what Slurm calls it; nothing once forgotten."""
    done = subprocess.run(
        ["scontrol", "show", "job", str(job), "--oneliner"],
        capture_output=True, encoding="utf-8", errors="replace", check=False,
    )  # fmt: skip
    states = {}
    for line in done.stdout.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "JobState" in fields:
            task = fields.get("ArrayTaskId")
            label = str(job) if task is None else f"{job}_{task}"
            states[label] = (fields["JobState"], fields.get("Reason", ""))
    return states
