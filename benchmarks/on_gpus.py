"""The benchmarks that need GPUs, one after another: one command, for as long as there is time.

    python benchmarks/on_gpus.py OUT [--minutes 9] [--only study,truth] [--nccl-tests BUILD [--mpi-tests BUILD]]
        [--nanogpt FOLDER]

Each piece is a benchmark of docs/benchmarks.md or docs/performance.md. It is begun only where it should end within the
minutes and there are GPUs enough, and runs once: a further call with the same OUT goes on with those that are left.
Whatever happens, nothing runs on beyond the minutes (and some seconds that ending takes): a piece that is still at work
then is ended, with every rank of it, and begins anew in the next call; one that takes more than twice its time hangs,
and is not begun again. Pieces for one GPU run side by side, each on its own. OUT/NAME holds what a piece wrote and
OUT/NAME.log what it said. Exits with 1 where one failed.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ending import end_with_all_below

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
SCALESCOPE = f"{PYTHON} -m scalescope"
TORCHRUN = f"{PYTHON} -m torch.distributed.run --standalone --nproc-per-node"


#: A piece hangs that takes so many times what it should, and some more for a machine that has compiled nothing yet.
PATIENCE, START_S = 2.0, 120.0


@dataclass(frozen=True)
class Piece:
    """A command; the words in braces are filled in by `main`, and `{out}` for each piece."""

    name: str
    command: str
    seconds: float  # what it takes on four H200s
    one_gpu: bool = False  # and few cores: several run at once
    least_gpus: int = 1
    on_two: float | None = None  # what it takes on two, in seconds, where that was timed

    def takes_s(self, gpus: int) -> float:
        return self.on_two if gpus <= 2 and self.on_two is not None else self.seconds


PIECES = (  # the most wanted first
    Piece("study", f"{SCALESCOPE} study model=gpt_small,resnet50 gpu_counts={{counts}} sweep.group_sizes={{several}} "
          "runs={out} name=study", 380, on_two=302),
    Piece("scorecard", f"{SCALESCOPE} scorecard runs={{out}} name=scorecard logger=none", 300, on_two=190),
    # every GPU for itself: what is slower there than on one GPU has nothing to do with communication
    Piece("alone", f"{SCALESCOPE} study model=gpt_small,resnet50 strategy=local gpu_counts={{ends}} with_sweep=false "
          "runs={out} name=study", 220, least_gpus=2, on_two=154),
    Piece("truth", f"{TORCHRUN} {{gpus}} {HERE}/known_truth.py make {{out}}", 60, least_gpus=2, on_two=34),
    Piece("truth_check", f"{PYTHON} {HERE}/known_truth.py check {{root}}/truth --markdown", 20, least_gpus=2,
          on_two=7),
    Piece("causes", f"{PYTHON} {HERE}/known_causes.py make {{out}} --minutes 5.2", 320, least_gpus=2, on_two=290),
    Piece("whatif", f"{PYTHON} {HERE}/whatif_by_doing.py model=gpt_small compile=false --ranks {{gpus}} "
          "--buckets 2,100,1000 --truth {root}/truth --out {out}", 320, least_gpus=2, on_two=175),
    Piece("advice", f"{PYTHON} {HERE}/advice_by_doing.py --ranks {{gpus}} --out {{out}}", 320,
          least_gpus=2, on_two=254),
    Piece("faults", f"{PYTHON} {HERE}/faults_in_collectives.py --ranks {{gpus}} --runs {{out}}", 246,
          least_gpus=2, on_two=210),
    Piece("strategies", f"{PYTHON} {HERE}/strategies.py model=gpt_small model.batch_size=32 compile=false "
          "--ranks {gpus} --out {out}", 260, least_gpus=2, on_two=199),
    # a repeat a piece, so that each fits into a call of ten minutes; the last one's table is that of all of them
    *(Piece(f"side_by_side_{repeats}", f"{PYTHON} {HERE}/nccl_tests_side_by_side.py --nccl-tests {{nccl_tests}} "
            "--nccl-library {nccl_library} --group-sizes {groups} --sizes '16B..4GiB x4' --graphs-to 256KiB "
            "--operations all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,send_recv "
            f"--mpi-tests={{mpi_tests}} --mpirun={{mpirun}} --repeats {repeats} --out {{root}}/side_by_side", 170,
            least_gpus=2, on_two=80)
      for repeats in (1, 2, 3)),
    Piece("contention", f"{SCALESCOPE} sweep contention=[none,matmul] sizes=[1MiB,16MiB,64MiB,256MiB] "
          "group_sizes=[{groups}] runs={out} name=contention", 90, least_gpus=2, on_two=16),
    # buffers that the library knows beforehand, in windows of all ranks, beside those that it does not
    Piece("windows", f"{SCALESCOPE} sweep transport=direct cta_policy=[none,default] group_sizes=[{{gpus}}] "
          "operations=[all_reduce,all_gather,reduce_scatter] sizes=[1MiB,4MiB,16MiB,64MiB,256MiB] clock=host "
          "launch.ranks={gpus} runs={out} name=windows", 40, least_gpus=2, on_two=15),
    Piece("pairs", f"{SCALESCOPE} sweep operations=[send_recv] placement=pairs sizes=[8B,256MiB] launch.ranks={{gpus}} "
          "runs={out} name=pairs", 60, least_gpus=2, on_two=11),
    Piece("protocols", f"{SCALESCOPE} sweep algorithm=[Ring,Tree] protocol=[Simple,LL,LL128] "
          "sizes=[8KiB,1MiB,256MiB] group_sizes=[{gpus}] launch.ranks={gpus} runs={out} name=protocols", 60,
          least_gpus=2, on_two=17),
    Piece("channels", f"{SCALESCOPE} sweep channels=[4,8,16,32] sizes=[1MiB,64MiB,1GiB] group_sizes=[{{gpus}}] "
          "launch.ranks={gpus} runs={out} name=channels", 60, least_gpus=2, on_two=16),
    Piece("bf16_gradients", f"{SCALESCOPE} study model=gpt_small gpu_counts={{ends}} strategy.gradient_dtype=bf16 "
          "with_sweep=false runs={out} name=study", 150, least_gpus=2, on_two=69),
    Piece("fsdp2", f"{SCALESCOPE} study model=gpt_small gpu_counts={{ends}} strategy=fsdp2 runs={{out}} name=study",
          200, least_gpus=2, on_two=80),
    Piece("precisions", f"{PYTHON} {HERE}/precision_losses.py --out {{out}}", 320, one_gpu=True,
          on_two=395),
    Piece("images", f"{PYTHON} {HERE}/image_loading.py --decoders pillow,nvjpeg --out {{out}}", 260, on_two=340),
    Piece("profiling", f"{PYTHON} {HERE}/profiling_cost.py model=gpt_small launch.ranks=1 steps=105 warmup_steps=20 "
          "profiler.active=5 --out {out}", 130, one_gpu=True, on_two=93),
    Piece("recording", f"{PYTHON} {HERE}/recording_ways.py {{out}} --ranks 2 --rounds 6", 120, least_gpus=2, on_two=80),
    Piece("logging", f"{PYTHON} {HERE}/logging_cost.py model=gpt_small launch.ranks=1 --repeats 2 --out {{out}}", 160,
          one_gpu=True, on_two=195),
    Piece("gpt", f"{PYTHON} {HERE}/training_side_by_side.py gpt --nanogpt {{nanogpt}}/model.py --out {{out}}.jsonl",
          280, one_gpu=True, on_two=140),
    Piece("resnet", f"{PYTHON} {HERE}/training_side_by_side.py resnet --out {{out}}.jsonl", 280, one_gpu=True,
          on_two=313),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", help=f"of {', '.join(piece.name for piece in PIECES)}, separated by commas")
    parser.add_argument("--gpus", type=int, help="how many to take (default: all)")
    parser.add_argument("--nccl-tests", help="the folder of a build; without it, side_by_side_1 to _3 are left out")
    parser.add_argument("--mpi-tests", help="the folder of a build with MPI=1, for side_by_side_1 to _3")
    parser.add_argument("--mpirun", default="mpirun", help="what starts that")
    parser.add_argument("--nccl-library", default=torchs_nccl(), help="what it loads (default: torch's own)")
    parser.add_argument("--nanogpt", help="a checkout; without it, gpt is left out")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [piece.name for piece in PIECES]
    if unknown := set(names) - {piece.name for piece in PIECES}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    gpus = options.gpus or count_gpus()
    if gpus == 0:
        parser.error("there is no GPU here")
    blanks = {
        "gpus": gpus, "counts": list_of(range(1, gpus + 1)), "ends": list_of(sorted({1, gpus})),
        "several": list_of(range(2, gpus + 1) if gpus > 1 else (1,)),
        "groups": ",".join(str(count) for count in (2, 4, 8) if count <= gpus) or "1",
        "nccl_tests": options.nccl_tests, "nccl_library": options.nccl_library, "nanogpt": options.nanogpt,
        "root": options.out.resolve(),
        "mpi_tests": options.mpi_tests or "", "mpirun": options.mpirun,
    }  # fmt: skip
    return run([piece for piece in PIECES if piece.name in names], blanks, options.out.resolve(), 60 * options.minutes)


def list_of(numbers: Sequence[int] | range) -> str:
    return f"[{','.join(map(str, numbers))}]"


def count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def torchs_nccl() -> str | None:
    """Return the library that torch's wheel brings, which nccl-tests would not find by itself."""
    try:
        spec = find_spec("nvidia.nccl")
    except ImportError:
        return None
    folders = (Path(place, "lib", "libnccl.so.2") for place in (spec and spec.submodule_search_locations) or ())
    return next((str(library) for library in folders if library.is_file()), None)


def run(pieces: Sequence[Piece], blanks: dict[str, object], out: Path, limit_s: float) -> int:
    """Run what fits into the time and has not run yet; return the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + limit_s
    failed = False
    gpus = int(str(blanks["gpus"]))
    for group in side_by_side([piece for piece in pieces if not ended(out, piece).exists()], gpus):
        started: list[tuple[Piece, subprocess.Popen[bytes], float]] = []
        try:
            for gpu, piece in enumerate(group):
                if obstacle := why_not(piece, blanks, until - time.monotonic()):
                    print(f"{piece.name}: {obstacle}", flush=True)
                else:
                    started.append((piece, start(piece, blanks, out, gpu), time.monotonic()))
            for piece, process, since in started:
                failed |= not finish(piece, process, since, until, out)
        finally:
            for _, process, _ in started:
                if process.poll() is None:
                    end_with_all_below(process)
    return int(failed)


def why_not(piece: Piece, blanks: dict[str, object], left_s: float) -> str | None:
    """Return why a piece is not begun; None where it is."""
    if piece.least_gpus > int(str(blanks["gpus"])):
        return f"left out, it needs {piece.least_gpus} GPUs"
    if absent := [name for name, value in blanks.items() if value is None and f"{{{name}}}" in piece.command]:
        return f"left out, no --{absent[0].replace('_', '-')}"
    if (takes_s := piece.takes_s(int(str(blanks["gpus"])))) > left_s:
        return f"left for another call, it takes about {takes_s:.0f} s"
    return None


def finish(piece: Piece, process: "subprocess.Popen[bytes]", since: float, until: float, out: Path) -> bool:
    """Wait for a piece and note how it ended; end one that takes too long. Returns whether it ended well."""
    hangs_at = since + PATIENCE * piece.seconds + START_S
    try:
        code: int | str = process.wait(timeout=max(0.0, min(hangs_at, until) - time.monotonic()))
    except subprocess.TimeoutExpired:
        end_with_all_below(process)
        code = "ended, since it took too long"
        if until < hangs_at:
            print(
                f"{piece.name}: ended with the minutes; the next call begins it anew, {out / piece.name}.log",
                flush=True,
            )
            return False
    print(f"{piece.name}: exit code {code}, {time.monotonic() - since:.0f} s, {out / piece.name}.log", flush=True)
    ended(out, piece).write_text(f"{code}\n")
    return code == 0


def side_by_side(pieces: Sequence[Piece], gpus: int) -> Iterator[list[Piece]]:
    """Yield what runs at the same time: a piece for all GPUs alone, those for one GPU as many as there are."""
    yield from ([piece] for piece in pieces if not piece.one_gpu)
    single = [piece for piece in pieces if piece.one_gpu]
    yield from (single[first : first + gpus] for first in range(0, len(single), gpus))


def ended(out: Path, piece: Piece) -> Path:
    return out / f"{piece.name}.ended"


def start(piece: Piece, blanks: dict[str, object], out: Path, gpu: int) -> subprocess.Popen[bytes]:
    """Start a piece, with what it says in a log. What an unfinished one has left gives way: names are taken once."""
    shutil.rmtree(out / piece.name, ignore_errors=True)
    command = [word.format(out=out / piece.name, **blanks) for word in shlex.split(piece.command)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(
        filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))}  # fmt: skip
    if piece.one_gpu:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        environment["CUDA_VISIBLE_DEVICES"] = visible[gpu] if gpu < len(visible) and visible[0] else str(gpu)
    with (out / f"{piece.name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=out)


if __name__ == "__main__":
    sys.exit(main())
