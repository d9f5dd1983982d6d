"""The benchmarks that need GPUs, one after another: one command, for as long as there is time.

    python benchmarks/on_gpus.py OUT [--minutes 9] [--only study,truth] [--nccl-tests BUILD] [--nanogpt FOLDER]

Each piece is a benchmark of docs/benchmarks.md or docs/performance.md. It is begun only where it should end within the
minutes, and runs once: a further call with the same OUT goes on with those that are left. Pieces for one GPU run side
by side, each on its own. OUT/NAME holds what a piece wrote and OUT/NAME.log what it said. Exits with 1 where one
failed.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
SCALESCOPE = f"{PYTHON} -m scalescope"
TORCHRUN = f"{PYTHON} -m torch.distributed.run --standalone --nproc-per-node"


@dataclass(frozen=True)
class Piece:
    """A command; the words in braces are filled in by `main`, and `{out}` for each piece."""

    name: str
    command: str
    seconds: float  # what it takes on H200
    one_gpu: bool = False  # and few cores: several run at once


PIECES = (  # the most wanted first
    Piece("study", f"{SCALESCOPE} study model=gpt_small,resnet50 gpu_counts={{counts}} sweep.group_sizes={{several}} "
          "runs={out} name=study", 380),
    # every GPU for itself: what is slower there than on one GPU has nothing to do with communication
    Piece("alone", f"{SCALESCOPE} study model=gpt_small,resnet50 strategy=local gpu_counts={{ends}} with_sweep=false "
          "runs={out} name=study", 220),
    Piece("truth", f"{TORCHRUN} {{gpus}} {HERE}/known_truth.py make {{out}}", 60),
    Piece("truth_check", f"{PYTHON} {HERE}/known_truth.py check {{out}}/../truth --markdown", 20),
    Piece("whatif", f"{PYTHON} {HERE}/whatif_by_doing.py model=gpt_small compile=false --ranks {{gpus}} "
          "--buckets 2,100,1000 --truth {out}/../truth --out {out}", 320),
    Piece("advice", f"{PYTHON} {HERE}/advice_by_doing.py --ranks {{gpus}} --out {{out}}", 320),
    Piece("faults", f"{PYTHON} {HERE}/faults_in_collectives.py --ranks {{gpus}} --runs {{out}}", 100),
    Piece("strategies", f"{PYTHON} {HERE}/strategies.py model=gpt_small model.batch_size=32 compile=false "
          "--ranks {gpus} --out {out}", 260),
    Piece("side_by_side", f"{PYTHON} {HERE}/nccl_tests_side_by_side.py --nccl-tests {{nccl_tests}} --group-sizes "
          "{groups} --sizes '16B..4GiB x4' --graphs-to 256KiB --repeats 5 --out {out}", 800),
    Piece("contention", f"{SCALESCOPE} sweep contention=[none,matmul] sizes=[1MiB,16MiB,64MiB,256MiB] "
          "group_sizes=[{groups}] runs={out} name=contention", 90),
    Piece("pairs", f"{SCALESCOPE} sweep operations=[send_recv] placement=pairs sizes=[8B,256MiB] launch.ranks={{gpus}} "
          "runs={out} name=pairs", 60),
    Piece("protocols", f"{SCALESCOPE} sweep algorithm=[Ring,Tree] protocol=[Simple,LL,LL128] "
          "sizes=[8KiB,1MiB,256MiB] group_sizes=[{gpus}] launch.ranks={gpus} runs={out} name=protocols", 60),
    Piece("channels", f"{SCALESCOPE} sweep channels=[4,8,16,32] sizes=[1MiB,64MiB,1GiB] group_sizes=[{{gpus}}] "
          "launch.ranks={gpus} runs={out} name=channels", 60),
    Piece("bf16_gradients", f"{SCALESCOPE} study model=gpt_small gpu_counts={{ends}} strategy.gradient_dtype=bf16 "
          "with_sweep=false runs={out} name=study", 150),
    Piece("fsdp2", f"{SCALESCOPE} study model=gpt_small gpu_counts={{ends}} strategy=fsdp2 runs={{out}} name=study",
          200),
    Piece("precisions", f"{PYTHON} {HERE}/precision_losses.py --out {{out}}", 320, one_gpu=True),
    Piece("images", f"{PYTHON} {HERE}/image_loading.py --decoders pillow,nvjpeg --out {{out}}", 260),
    Piece("profiling", f"{PYTHON} {HERE}/profiling_cost.py model=gpt_small launch.ranks=1 steps=105 warmup_steps=20 "
          "profiler.active=5 --out {out}", 130, one_gpu=True),
    Piece("logging", f"{PYTHON} {HERE}/logging_cost.py model=gpt_small launch.ranks=1 --repeats 2 --out {{out}}", 160,
          one_gpu=True),
    Piece("gpt", f"{PYTHON} {HERE}/training_side_by_side.py gpt --nanogpt {{nanogpt}}/model.py --out {{out}}.jsonl",
          280, one_gpu=True),
    Piece("resnet", f"{PYTHON} {HERE}/training_side_by_side.py resnet --out {{out}}.jsonl", 280, one_gpu=True),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", help=f"of {', '.join(piece.name for piece in PIECES)}, separated by commas")
    parser.add_argument("--gpus", type=int, help="how many to take (default: all)")
    parser.add_argument("--nccl-tests", help="the folder of a build; without it, side_by_side is left out")
    parser.add_argument("--nanogpt", help="a checkout; without it, gpt is left out")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [piece.name for piece in PIECES]
    if unknown := set(names) - {piece.name for piece in PIECES}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    gpus = options.gpus or count_gpus()
    if gpus == 0:
        parser.error("there is no GPU here")
    words = {
        "gpus": gpus, "counts": list_of(range(1, gpus + 1)), "ends": list_of(sorted({1, gpus})),
        "several": list_of(range(2, gpus + 1) if gpus > 1 else (1,)),
        "groups": ",".join(str(count) for count in (2, 4, 8) if count <= gpus) or "1",
        "nccl_tests": options.nccl_tests, "nanogpt": options.nanogpt,
    }  # fmt: skip
    return run([piece for piece in PIECES if piece.name in names], words, options.out.resolve(), 60 * options.minutes)


def list_of(numbers: Sequence[int] | range) -> str:
    return f"[{','.join(map(str, numbers))}]"


def count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def run(pieces: Sequence[Piece], words: dict[str, object], out: Path, limit_s: float) -> int:
    """Run what fits into the time and has not run yet; return the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + limit_s
    failed = False
    for group in side_by_side([piece for piece in pieces if not ended(out, piece).exists()], int(str(words["gpus"]))):
        started: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        for gpu, piece in enumerate(group):
            if absent := [name for name, value in words.items() if value is None and f"{{{name}}}" in piece.command]:
                print(f"{piece.name}: left out, no --{absent[0].replace('_', '-')}", flush=True)
            elif time.monotonic() + piece.seconds > until:
                print(f"{piece.name}: left for another call, it takes about {piece.seconds:.0f} s", flush=True)
            else:
                started[piece.name] = start(piece, words, out, gpu), time.monotonic()
        for name, (process, since) in started.items():
            code = process.wait()
            print(f"{name}: exit code {code}, {time.monotonic() - since:.0f} s, {out / name}.log", flush=True)
            (out / f"{name}.ended").write_text(f"{code}\n")
            failed |= code != 0
    return int(failed)


def side_by_side(pieces: Sequence[Piece], gpus: int) -> Iterator[list[Piece]]:
    """Yield what runs at the same time: a piece for all GPUs alone, those for one GPU as many as there are."""
    yield from ([piece] for piece in pieces if not piece.one_gpu)
    single = [piece for piece in pieces if piece.one_gpu]
    yield from (single[first : first + gpus] for first in range(0, len(single), gpus))


def ended(out: Path, piece: Piece) -> Path:
    return out / f"{piece.name}.ended"


def start(piece: Piece, words: dict[str, object], out: Path, gpu: int) -> subprocess.Popen[bytes]:
    """Start a piece, with what it says in a log."""
    command = [word.format(out=out / piece.name, **words) for word in shlex.split(piece.command)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(
        filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))}  # fmt: skip
    if piece.one_gpu:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        environment["CUDA_VISIBLE_DEVICES"] = visible[gpu] if gpu < len(visible) and visible[0] else str(gpu)
    with (out / f"{piece.name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=out)


if __name__ == "__main__":
    sys.exit(main())
