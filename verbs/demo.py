"""`scalescope demo`: measure this machine, whatever it has, with both models."""

from datetime import datetime
from pathlib import Path

from hardware.detect import device_kind
from verbs import study


def run(words: list[str]) -> int:
    """Run the study that suits this machine; an earlier demo is put aside, not lost."""
    preset = "demo_cpu" if device_kind() == "cpu" else "demo_gpu"
    print(f"scalescope demo = scalescope study preset={preset} name=demo {' '.join(words)}".rstrip())
    return study.run([f"preset={preset}", "name=demo", *words, "runs=runs"], _put_aside)


def _put_aside() -> None:
    previous = Path("runs/demo")
    if previous.exists():
        changed = datetime.fromtimestamp(previous.stat().st_mtime)
        previous.rename(previous.with_name(f"demo-{changed:%Y%m%d-%H%M%S}"))
