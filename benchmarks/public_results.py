"""Whether SuperBench's and MLPerf's public files are read as meant: `python benchmarks/public_results.py FOLDER`.

FOLDER holds checkouts (or git directories without a work tree) of microsoft/superbenchmark,
mlcommons/training_results_v3.0 and mlcommons/training_results_v5.1, each under its last name. Nothing of them is copied
into this project.
"""

import math
import subprocess
import sys
from pathlib import Path

from scalescope.scaling.results.mllog import read_mllog
from scalescope.scaling.results.superbench import read_superbench

_NVIDIA = "NVIDIA/results/dgxh100_ngc23.04_mxnet/resnet/result_0.txt"
_NVIDIAS_SYSTEM = "NVIDIA/systems/dgxh100_ngc23.04_mxnet.json"
_AMD = "AMD/results/MI300X_EPYC_9575F_pytorch_llama2_70b/llama2_70b_lora/result_0.txt"


def main() -> int:
    """Print each check; return 1 where one fails."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(sys.argv[1])
    failed = [said for said, fine in [*_superbench(root), *_mlperf(root)] if not _said(said, fine)]
    return 1 if failed else 0


def _superbench(root: Path) -> list[tuple[str, bool]]:
    found = read_superbench(_text(root / "superbenchmark", "tests/analyzer/test_results.jsonl"), "test_results.jsonl")
    largest = [row for row in found.sweep if row.bytes == 1 << 30]
    figures = [(row.group_size, row.time_us, row.alg_gb_s, row.bus_gb_s) for row in largest]
    return [
        (f"SuperBench: {len(found.rows)} rows, {len(found.sweep)} of a sweep", bool(found.rows and found.sweep)),
        (f"SuperBench: 1 GiB on each node: {figures}", bool(figures) and set(figures) == {(8, 8164.5, 131.51, 230.15)}),
    ]


def _mlperf(root: Path) -> list[tuple[str, bool]]:
    nvidia, amd = root / "training_results_v3.0", root / "training_results_v5.1"
    theirs = read_mllog(_text(nvidia, _NVIDIA), "result_0.txt", _text(nvidia, _NVIDIAS_SYSTEM)).rows
    told = {row.quantity: row.value or math.nan for row in theirs}
    lora = {row.quantity: row.value or math.nan for row in read_mllog(_text(amd, _AMD), "result_0.txt").rows}
    return [
        (f"NVIDIA v3.0 resnet: {told['training_samples']:,.0f} images/s a GPU", 6990 < told["training_samples"] < 7030),
        (f"NVIDIA v3.0 resnet: {told['time_to_target']:.2f} minutes", abs(told["time_to_target"] - 13.60) < 0.01),
        (f"AMD v5.1 llama2_70b_lora: {lora['time_to_target']:.2f} minutes", abs(lora["time_to_target"] - 33.93) < 0.01),
    ]


def _text(repository: Path, path: str) -> str:
    """Return a file of a checkout, or of a git directory's newest commit."""
    if (repository / path).is_file():
        return (repository / path).read_text(encoding="utf-8")
    shown = subprocess.run(["git", "-C", repository, "show", f"HEAD:{path}"], capture_output=True, check=True)
    return shown.stdout.decode()


def _said(said: str, fine: bool) -> bool:
    print(f"{'fine   ' if fine else 'DIFFERS'}  {said}")
    return fine


if __name__ == "__main__":
    sys.exit(main())
