"""Run folders are UTF-8 wherever they are read: a cluster's login node may well have no locale at all."""

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.test_front_door import SCALESCOPE, TINY

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("scalescope", "train", "collectives", "launch")
NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NOTE = "größer, 大きい"


def call(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCALESCOPE, *map(str, argv)], cwd=cwd, env={**os.environ, **NO_LOCALE}, check=False, timeout=180,
        capture_output=True, encoding="utf-8", errors="surrogateescape",
    )  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A study that was measured where file names may be any text, with such names in its configs."""
    root = tmp_path_factory.mktemp("größe")
    (root / "daten ä.txt").write_text(NOTE * 2000, encoding="utf-8")
    argv = [word for word in TINY if word not in ("data=synthetic", "logger=none")]
    argv += [
        f"data.path='{root}/daten ä.txt'",
        "data=text",
        "model.vocabulary=256",
        f"logger.wandb.tags=['{NOTE}']",
    ]
    done = subprocess.run(
        [SCALESCOPE, "study", *argv, "name='größe'", "gpu_counts=[1,2]", "with_sweep=false", "checkpoint_every=4"],
        cwd=root, env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, encoding="utf-8", timeout=180,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return RunFolder(root / "runs" / "größe")


@pytest.mark.long
def test_every_reading_verb_reads_it_without_a_locale(study: RunFolder, tmp_path: Path) -> None:
    copied = shutil.copytree(study.path, tmp_path / "study")
    (copied / "report.html").unlink()
    run = next(iter(RunFolder(copied).read_children())).path
    for argv in (("analyze", copied), ("report", copied), ("report", copied, copied), ("perfetto", run),
                  ("whatif", run), ("finish", copied)):  # fmt: skip
        done = call(*argv, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), (argv, done.stderr)
    assert NOTE in (copied / "report.html").read_text(encoding="utf-8")


def test_what_it_prints_in_the_c_locale_is_ascii(tmp_path: Path) -> None:
    traces = Path(__file__).parent / "data" / "gpt_ddp_n1"
    done = call("analyze", traces, cwd=tmp_path)
    assert done.returncode == 0 and "gpt_ddp_n1 ? 1 GPU:" in done.stdout, done.stderr


@pytest.mark.long
def test_a_job_of_ascii_names_is_measured_without_a_locale(tmp_path: Path) -> None:
    argv = [word for word in TINY if word != "logger=none"]
    for resume in ("false", "true"):
        done = call("train", *argv, "name=plain", "launch.ranks=2", "checkpoint_every=4", f"resume={resume}",
                    cwd=tmp_path)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "runs" / "plain").read_info().status == "done"
    assert call("study", "--help", cwd=tmp_path).returncode == 0


def test_a_name_that_the_locale_has_not_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = call("train", *TINY, "name='größe'", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "is no text in this locale, whose encoding is ascii; set LC_ALL=C.UTF-8" in done.stderr
    (tmp_path / "ä").mkdir()
    assert call("sweep", cwd=tmp_path / "ä").returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["ä"] and list((tmp_path / "ä").iterdir()) == []


def texts_of_no_encoding(source: str) -> Iterator[int]:
    """Yield the lines of calls that read or write text in whatever encoding the locale has."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = {keyword.arg for keyword in node.keywords}
        asked = {keyword.arg for keyword in node.keywords if getattr(keyword.value, "value", None) is True}
        modes = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        opens = name in ("open", "fdopen") and (bool(modes) or not node.args)
        text = name in ("read_text", "write_text") or (opens and not any("b" in str(mode) for mode in modes))
        if (text or asked & {"text", "universal_newlines"}) and not given & {"encoding", "errors"}:
            yield node.lineno


def test_no_text_is_read_or_written_in_the_locale_s_encoding() -> None:
    sample = "a.read_text()\nopen(p, 'w')\np.open()\np.open('rb')\np.open('w', encoding='utf-8')\nrun(x, text=True)\n"
    assert list(texts_of_no_encoding(sample)) == [1, 2, 3, 6]
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 200
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files
             for line in texts_of_no_encoding(path.read_text(encoding="utf-8"))]  # fmt: skip
    assert not found
