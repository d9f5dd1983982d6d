"""The worked examples work as they stand: applied to a copy of the tree, each trains on two ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.worked_examples import apply, copied_tree, example

pytestmark = pytest.mark.job

JOB = ("steps=4 warmup_steps=1 profiler=none logger=none precision=fp32 launch.ranks=2 launch.device=cpu "
       "launch.threads_per_rank=1").split()  # fmt: skip


def call(tree: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-P", "-m", "scalescope", *argv]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=200, check=False)


def files_of(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for top in ("train", "launch", "collectives", "conf", "slurm", "scalescope")
        for path in (tree / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def trained(tree: Path, *overrides: str) -> RunFolder:
    done = call(tree, "train", *JOB, f"runs={tree / 'runs'}", "name=one", *overrides)
    folder = RunFolder(tree / "runs" / "one")
    assert done.returncode == 0 and folder.read_info().status == "done", done.stderr
    return folder


@pytest.mark.parametrize(
    ("title", "choice", "overrides"),
    [
        ("Add a strategy", "strategy=averaged", ["model=gpt_tiny", "model.layers=1", "strategy.every=2"]),
        ("Add a model", "model=perceptron", ["optimizer.learning_rate=1e-3"]),
    ],
)
def test_an_example_trains_and_touches_only_the_files_that_it_names(
    title: str, choice: str, overrides: list[str], tmp_path: Path
) -> None:
    tree = copied_tree(tmp_path)
    before = files_of(tree)
    pieces = example(title)
    apply(pieces, tree)
    after = files_of(tree)
    assert {path for path in after if after[path] != before.get(path)} == {piece.path for piece in pieces}

    folder = trained(tree, choice, *overrides)
    rows, facts = folder.read_steps(), folder.read_facts()
    assert [row.step for row in rows] == [0, 1, 2, 3] and facts is not None
    assert choice.partition("=")[2] in (facts.strategy, facts.model)
    assert all(len(row.step_ms) == 2 for row in rows)
    first, last = rows[0].loss, rows[-1].loss
    assert first is not None and last is not None and last < first


def test_an_example_is_refused_and_listed_as_any_other_choice(tmp_path: Path) -> None:
    tree = copied_tree(tmp_path)
    for title in ("Add a strategy", "Add a model"):
        apply(example(title), tree)
    listed = call(tree, "train", "--help").stdout
    assert "averaged" in listed and "perceptron" in listed
    refused = call(tree, "train", "strategy=averaged", "precision=fp16")
    assert refused.returncode == 2 and "only ddp and local scale gradients" in refused.stderr
    mixed = call(tree, "train", "model=perceptron", "data=python_stdlib")
    assert mixed.returncode == 2 and "text, which perceptron cannot read; use data=image_folder" in mixed.stderr
    planned = call(tree, "submit", "study", "strategy=averaged", "model=perceptron", "gpu_counts=[1,2]", "--dry-run")
    assert planned.returncode == 0 and "operations=[all_reduce]" in planned.stdout, planned.stderr


def test_a_kernel_family_is_one_row(tmp_path: Path) -> None:
    """Of communication, and of compute."""
    tree = copied_tree(tmp_path)
    table = tree / "scalescope/scaling/trace/families.py"
    row = '    CommunicationFamily("ours", r"^toycoll_", {"toycoll_sum": "all_reduce"}),\n'
    table.write_text(table.read_text().replace("FAMILIES = (\n", f"FAMILIES = (\n{row}", 1))
    kinds = tree / "scalescope/scaling/trace/kernel_kinds.py"
    row = '    Family(MATMUL, "ours", "^toymul"),\n'
    kinds.write_text(kinds.read_text().replace("FAMILIES = (\n", f"FAMILIES = (\n{row}", 1))
    code = (
        "from scalescope.scaling.trace.families import is_communication_kernel, operation_of_kernel\n"
        "from scalescope.scaling.trace.kernel_kinds import kind_of\n"
        "name = 'toycoll_sum<4>'\n"
        "print(is_communication_kernel(name), operation_of_kernel(name), kind_of('toymul'))"
    )
    environment = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    assert done.stdout.split() == ["True", "all_reduce", "matmul"], done.stderr


def test_a_collective_is_a_row_a_file_and_its_name(tmp_path: Path) -> None:
    tree = copied_tree(tmp_path)
    before = files_of(tree)
    pieces = example("Add a collective")
    apply(pieces, tree)
    after = files_of(tree)
    assert {path for path in after if after[path] != before.get(path)} == {piece.path for piece in pieces}
    argv = ("operations=[send_back]", "sizes=[8B,4KiB]", "launch.ranks=2", "launch.device=cpu", "logger=none",
             "launch.threads_per_rank=1", "budget_s=0.05", f"runs={tree / 'runs'}", "name=one")  # fmt: skip
    done = call(tree, "sweep", *argv)
    assert done.returncode == 0, done.stderr
    rows = RunFolder(tree / "runs" / "one").read_sweep()
    assert [(row.operation, row.status, row.wrong) for row in rows] == [("send_back", "measured", 0)] * 2
    assert all(row.bus_gb_s == row.alg_gb_s for row in rows)
