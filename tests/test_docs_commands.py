"""Every command of README and docs is one that its verb takes, and those that read are carried out, on real data."""

import argparse
import re
import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from scalescope.cli import front_door
from scalescope.cli.outputs import VerbParser
from scalescope.launch.slurm.submit import parse as parse_submission
from scalescope.scaling.compare.gate import parse as parse_limit
from tests.config_tables import SECTIONS, settings_of
from tests.test_docs import PAGES, ROOT, commands

#: Composed by Hydra, all settings of the docs together, in test_docs.py.
COMPOSED = ("demo", "train", "sweep", "study")
DATA = ROOT / "tests" / "data"
#: What stands for the names that the docs use, below the folder in which they are carried out.
NAMES = {
    "cpu_ddp_n2": ("TRACES", "TRACE_FOLDER"),
    "gather_ce_n2/rank0.json.gz": ("rank0.json.gz",),
    "nccl_tests/plain.txt": ("LOG", "all_reduce.txt"),
    "runs_v0.1/study": ("runs/STUDY", "runs/demo"),
    "runs_v0.1/sweep": ("SWEEP", "runs/SWEEP", "runs/baseline", "runs/today"),
    "runs_v0.1/train": ("RUN", "runs/RUN", "OTHER", "BEFORE", "AFTER", "BEFORE2", "AFTER2", "GOOD", "PATH"),
}
#: Former names that the docs say are taken with a note.
FORMER = {"strategy.bucket_mb"}
#: Verbs that need no more than what is above, and how they may end: a limit that fails, too.
READING = {"analyze": (0,), "compare": (0, 1), "fit": (0,), "import": (0,), "perfetto": (0,), "report": (0,),
           "whatif": (0,)}  # fmt: skip


class Taken(Exception):
    """A command line was taken; what it asks for is not carried out."""


def all_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the docs once; a verb by itself is a mention of it, and one in brackets its usage."""
    seen = set()
    for page in PAGES:
        for verb, argv in commands(page):
            if argv and not any(word.startswith("[") for word in argv) and (verb, *argv) not in seen:
                seen.add((verb, *argv))
                yield verb, argv


def test_every_verb_takes_the_commands_that_the_docs_show(monkeypatch: pytest.MonkeyPatch) -> None:
    take = VerbParser.read

    def only_taken(self: VerbParser, words: Sequence[str]) -> argparse.Namespace:
        take(self, words)
        raise Taken

    monkeypatch.setattr(VerbParser, "read", only_taken)
    shown = {verb for verb, _ in all_commands()}
    assert set(front_door.VERBS) - shown <= {"doctor", "demo", "finish"}, "each verb has an example"
    for verb, argv in all_commands():
        if verb == "submit":
            parse_submission(argv)
        elif verb not in COMPOSED:
            with pytest.raises(Taken):  # else UserError, which says what the verb does not take
                import_module(front_door.VERBS[verb]).run(argv)
        for flag, value in pairwise(argv):
            if flag == "--fail-if" and value != "LIMIT":
                parse_limit(value)


def test_every_key_that_the_docs_name_is_one_that_there_is() -> None:
    known = {f"{prefix}{each.key}" for _, prefix, files in SECTIONS for pattern in files.split()
             for path in (ROOT / "conf").glob(pattern) for each in settings_of(path)}  # fmt: skip
    groups = "|".join(sorted({key.partition(".")[0] for key in known if "." in key}))
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue  # it tells of keys that have gone
        named = set(re.findall(rf"`((?:{groups})\.[a-z_.]+[a-z])\b", page.read_text(encoding="utf-8")))
        named = {name for name in named if not name.endswith((".py", ".yaml", ".jsonl"))}
        unknown = named - known - FORMER - {key.rpartition(".")[0] for key in known}
        assert not unknown, f"{page.name}: {unknown}"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the names of the docs lead to real data."""
    folder = tmp_path_factory.mktemp("docs")
    for source, names in NAMES.items():
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (DATA / source).is_dir():
                shutil.copytree(DATA / source, folder / name)
            else:
                shutil.copy(DATA / source, folder / name)
    return folder


def carried_out() -> list[tuple[str, list[str]]]:
    """Return commands that read what there is, so many that each verb's flags are all there: those with most first."""
    known = {name for names in NAMES.values() for name in names}
    chosen: list[tuple[str, list[str]]] = []
    tried: set[tuple[str, str]] = set()
    for verb, argv in sorted(all_commands(), key=lambda one: -sum(word.startswith("-") for word in one[1])):
        inputs = [word for word in argv[:2] if not word.startswith("-")] if verb == "compare" else argv[:1]
        inputs += [value for flag, value in pairwise(argv) if flag in ("--sweep", "--against", "--baseline", "--other")]
        new = {(verb, word) for word in argv if word.startswith("-")} | {(verb, "")}
        if verb in READING and set(inputs) <= known and "--mpi" not in argv and not new <= tried:
            tried |= new
            chosen.append((verb, argv))
    return chosen


CARRIED_OUT = carried_out()


@pytest.mark.parametrize(
    ("verb", "argv"), CARRIED_OUT, ids=[" ".join([verb, *argv]).replace("/", ":") for verb, argv in CARRIED_OUT]
)
def test_what_the_docs_do_with_measurements_is_done(
    verb: str, argv: list[str], there: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(there)
    (there / "FILE").unlink(missing_ok=True)  # of another kind, by another command, which is not written over
    code = front_door.main([verb, *argv])
    said = capsys.readouterr()
    assert code in READING[verb], said.err
    for flag, value in pairwise(argv):
        if flag in ("--html", "--json", "--markdown", "--out", "--perfetto") and not value.startswith("-"):
            assert (there / value).exists(), f"{flag} {value}"
    assert said.out
