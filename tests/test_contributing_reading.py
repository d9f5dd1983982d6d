"""CONTRIBUTING's worked examples of the reading half work as they stand, and touch only the files that they name."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.scaling.trace.kernel_kinds import OTHER, kind_of
from tests.worked_examples import ROOT, apply, copied_tree, example

pytestmark = pytest.mark.job

_SAID_TO_BE_TOUCHED = {
    "Add a kernel family": {"scalescope/scaling/trace/kernel_kinds.py", "tests/test_scaling_kinds.py"},
    "Add a verb": {"scalescope/cli/slowest.py", "scalescope/cli/front_door.py", "docs/reference.md"},
    "Add a report panel": {"scalescope/report/panels/losses.py", "scalescope/report/panels/sections.py"},
}
_TOPS = ("scalescope", "train", "collectives", "launch", "conf", "slurm", "tests", "docs")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what is installed, with tests and docs beside it."""
    tree = copied_tree(tmp_path / "tree")
    (tree / "tests").mkdir()
    for path in (ROOT / "tests").glob("*.py"):
        shutil.copy(path, tree / "tests")
    (tree / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    shutil.copytree(ROOT / "docs", tree / "docs")
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tree)
    return tree


def call(tree: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.run([sys.executable, *argv], cwd=tree, env=environment, capture_output=True, text=True,
                          timeout=200, check=False)  # fmt: skip


def passed(tree: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    return call(tree, "-P", "-m", "pytest", "-p", "no:cacheprovider", *tests)


def files_of(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for top in _TOPS
        for path in (tree / top).rglob("*")
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("title", _SAID_TO_BE_TOUCHED)
def test_an_example_touches_only_the_files_that_it_names(title: str, tree: Path) -> None:
    before = files_of(tree)
    pieces = example(title)
    apply(pieces, tree)
    after = files_of(tree)
    changed = {path for path in after if after[path] != before.get(path)}
    assert changed == {piece.path for piece in pieces} == _SAID_TO_BE_TOUCHED[title]


def test_a_kernel_family_is_a_row_and_a_name_that_its_test_holds(tree: Path) -> None:
    code, names = example("Add a kernel family")
    (name,) = re.findall(r'^\+ +"(.*)",$', names.text, re.MULTILINE)
    assert kind_of(name) == OTHER, "the example is of a library that the table does not know yet"
    apply([names], tree)
    failed = passed(tree, "tests/test_scaling_kinds.py", "-k", "fwd_attend_ker")
    assert failed.returncode == 1 and "1 failed" in failed.stdout, failed.stdout
    apply([code], tree)
    assert "1 passed" in passed(tree, "tests/test_scaling_kinds.py", "-k", "fwd_attend_ker").stdout


def test_a_verb_is_found_documented_and_runs(tree: Path) -> None:
    apply(example("Add a verb"), tree)
    run = str(ROOT / "tests" / "data" / "runs_v0.1" / "train")
    done = call(tree, "-P", "-m", "scalescope", "slowest", run, "--count", "2")
    assert done.returncode == 0 and len(re.findall(r"^step \d+: [\d.]+ ms, rank [01]$", done.stdout, re.M)) == 2
    wrong = call(tree, "-P", "-m", "scalescope", "slowest", str(tree))
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1
    assert passed(tree, "tests/test_docs.py", "-k", "every_verb").returncode == 0


def test_a_report_panel_is_among_the_sections_of_a_report(tree: Path, tmp_path: Path) -> None:
    apply(example("Add a report panel"), tree)
    run = shutil.copytree(ROOT / "tests" / "data" / "runs_v0.1" / "train", tmp_path / "train")
    code = (
        "import sys; from pathlib import Path; from scalescope.records.folder import RunFolder\n"
        "from scalescope.report.panels.sections import sections\n"
        "from scalescope.report.report_data import read_report_data\n"
        "for section in sections(read_report_data(RunFolder(Path(sys.argv[1])))):\n"
        "    print(*(panel.sentence for panel in section.panels), sep='\\n')"
    )
    done = call(tree, "-P", "-c", code, str(run))
    assert "Losses of 1 training run, first step and last." in done.stdout, done.stderr
