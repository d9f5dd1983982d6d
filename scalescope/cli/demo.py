"""`scalescope demo`: measure this machine, whatever it has, with both models."""

from datetime import datetime
from pathlib import Path

from scalescope.cli import study
from scalescope.hardware.detect import smallest_memory_bytes
from scalescope.records.errors import ExitCode

_HELP = """\
usage: scalescope demo [KEY=VALUE …]

Measure this machine with GPT and ResNet-50 at device counts from one to all, sweep all-reduce, and say where the time
goes. It is `scalescope study` with a preset that fits the machine (conf/preset/demo_*.yaml), in runs/demo; an earlier
runs/demo is put aside, and runs=FOLDER chooses another place. KEY=VALUE are the study's: scalescope study --help.
"""

_FULL_SIZE = 40e9  # bytes of device memory that both models' default batches fit in, with room to spare


def run(argv: list[str]) -> int:
    """Run the study that suits this machine; an earlier demo is put aside, not lost."""
    if argv[:1] in (["-h"], ["--help"]):
        print(_HELP, end="")
        return int(ExitCode.OK)
    memory = smallest_memory_bytes()
    preset = "demo_cpu" if memory is None else "demo_gpu" if memory >= _FULL_SIZE else "demo_small_gpu"
    print(f"scalescope demo = scalescope study preset={preset} name=demo {' '.join(argv)}".rstrip())
    given = dict(one.split("=", 1) for one in argv if "=" in one)
    folder = Path(given.get("runs", "runs")) / "demo"
    code = study.run([f"preset={preset}", "name=demo", "runs=runs", *argv], lambda: _put_aside(folder), briefly=True)
    if (folder / "analysis.json").is_file():  # else it has told why
        model = "gpt_tiny" if memory is None else "gpt_small"
        print(f"\nWhere each step grew, and all findings:  scalescope analyze {folder}")
        print(f"A study of your own choice:  scalescope study model={model} gpu_counts=[1,2]")
    return code


def _put_aside(previous: Path) -> None:
    if previous.exists():
        changed = datetime.fromtimestamp(previous.stat().st_mtime)
        previous.rename(previous.with_name(f"demo-{changed:%Y%m%d-%H%M%S}"))
