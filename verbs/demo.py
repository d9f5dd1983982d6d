"""`scalescope demo`: measure this machine, whatever it has, with both models."""

from datetime import datetime
from pathlib import Path

from hardware.detect import smallest_memory_bytes
from verbs import study

_FULL_SIZE = 40e9  # bytes of device memory that both models' default batches fit in, with room to spare


def run(words: list[str]) -> int:
    """Run the study that suits this machine; an earlier demo is put aside, not lost."""
    memory = smallest_memory_bytes()
    preset = "demo_cpu" if memory is None else "demo_gpu" if memory >= _FULL_SIZE else "demo_small_gpu"
    print(f"scalescope demo = scalescope study preset={preset} name=demo {' '.join(words)}".rstrip())
    return study.run([f"preset={preset}", "name=demo", *words, "runs=runs"], _put_aside)


def _put_aside() -> None:
    previous = Path("runs/demo")
    if previous.exists():
        changed = datetime.fromtimestamp(previous.stat().st_mtime)
        previous.rename(previous.with_name(f"demo-{changed:%Y%m%d-%H%M%S}"))
