"""README and docs name what exists: links, files, verbs, flags and settings; and every setting is explained."""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from scalescope.cli import front_door
from scalescope.collectives.config import register as register_sweep
from scalescope.launch.compose import compose_job
from scalescope.launch.config import StudyConfig
from scalescope.launch.config import register as register_study
from scalescope.launch.slurm.submit import parse
from scalescope.launch.studies.outline import grid
from scalescope.scaling.finding.codes import CODES
from scalescope.train.config import register as register_train
from tests.config_tables import PAGE, SECTIONS, settings_of, written
from tests.worked_examples import example

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = sorted((ROOT / "benchmarks" / "results").rglob("README.md"))
CONF = ROOT / "conf"
#: What the worked examples make; that they name nothing else is tested with them.
TO_BE_MADE = {
    piece.path
    for page in PAGES
    for title in re.findall(r"^## (Add an? .*)$", page.read_text(), re.MULTILINE)
    for piece in example(title)
    if piece.language != "diff"
}
_COMMAND = re.compile(r"(?:^|(?<!from)\s)scalescope ([a-z]+(?:-[a-z]+)*)\b(.*)")
_KEY = re.compile(r"^ *([a-z][a-z0-9_]*):( |$)")
_HYDRAS = ("defaults", "hydra")


def anchors(page: Path) -> set[str]:
    """Return what a link to a heading of this page may end with, as GitHub makes it."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of scalescope on a page: an indented line, or one between backticks."""
    for indented, quoted in re.findall(r"^    (.*)$|`([^`\n]+(?:\n[^`\n]+)?)`", page.read_text(), re.MULTILINE):
        found = _COMMAND.search((indented or quoted).replace("\\|", "|").replace("\n", " "))
        if found and found[1] in front_door.VERBS:
            argv = shlex.split(re.split(r"\s#\s|\s{2,}\(", found[2])[0])
            yield found[1], [word for word in argv if word != "…"]


def flags_of(verb: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    with pytest.raises(SystemExit) as ended:
        import_module(front_door.VERBS[verb]).run(["--help"])
    assert ended.value.code == 0
    return set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = re.findall(
        r"(?<![\w/])(?:benchmarks|collectives|conf|launch|scalescope|slurm|tests|train)/[\w/.*-]*\w", page.read_text()
    )
    assert not [path for path in named if not list(ROOT.glob(path)) and path not in TO_BE_MADE]


def test_every_command_is_one_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, list[list[str]]] = {"train": [], "sweep": [], "study": []}
    for verb, argv in (command for page in [*PAGES, *RESULTS] for command in commands(page)):
        given = [word for word in argv if "=" in word and not word.startswith(("-", "hydra"))]
        flags = {word.split("=")[0] for word in argv if word.startswith("-")}
        if verb in ("demo", "train", "sweep", "study"):
            assert flags <= {"-m", "--help", "--try-advice"}, argv
            for owner in settings:
                own = [word.removeprefix("sweep.") for word in given if _owner(verb, word) == owner]
                settings[owner] += [own] if own else []
        elif verb == "submit" and argv:
            assert parse(argv).overrides == given
        elif flags:
            assert flags <= flags_of(verb, capsys), argv
    for register in (register_study, register_train, register_sweep):
        register()
    for verb, settings_of_verb in settings.items():
        for together in packed([job for argv in settings_of_verb for job in grid(argv)]):
            assert compose_job(verb, together)


def _owner(verb: str, word: str) -> str:
    """Return the verb whose config a setting is of: a study hands on what is not its own."""
    if verb == "study" and word.startswith("sweep."):
        return "sweep"
    of_study = {field.name for field in fields(StudyConfig)} - {"launch", "logger"} | {"preset"}
    return "train" if verb in ("study", "demo") and word.split("=")[0] not in of_study else verb


def packed(jobs: Iterable[list[str]]) -> list[list[str]]:
    """Put jobs' settings together as far as none says what another one says: composing takes its time."""
    lists: list[list[str]] = []
    for job in jobs:
        free = next((one for one in lists if not any(_clash(new, old) for new in job for old in one)), None)
        if free is None:
            lists.append(free := [])
        free += [setting for setting in job if setting not in free]
    return lists


def _clash(new: str, old: str) -> bool:
    """Whether both set the same key, or one chooses the group of the other's."""
    one, other = (f"{setting.split('=')[0]}." for setting in (new, old))
    return new != old and (one.startswith(other) or other.startswith(one))


@pytest.mark.parametrize("group", ["", *sorted(path.name for path in CONF.iterdir() if path.is_dir())])
def test_every_setting_is_explained_where_its_default_is(group: str) -> None:
    """On its line or the one above it, in one of the files of its group."""
    explained, keys = set(), {}
    for path in sorted((CONF / group).glob("*.yaml")):
        lines = path.read_text().splitlines()
        block = ""
        for above, line in zip(["", *lines], lines, strict=False):
            if line and not line.startswith((" ", "-", "#")):
                block = line.split(":")[0]
            if (key := _KEY.match(line)) and block not in _HYDRAS:
                keys[key[1]] = path.name
                if "#" in line or (above.startswith("#") and above != lines[0]):
                    explained.add(key[1])
    if group == "precision":  # `kind` is all there is to it, and each file's first line says which one it is
        assert all(path.read_text().startswith("# ") for path in (CONF / group).glob("*.yaml"))
    else:
        assert not {key: file for key, file in keys.items() if key not in explained}


def test_the_references_tables_are_those_of_conf() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "conf/ has changed: make docs"
    listed = {path for _, _, files in SECTIONS for pattern in files.split() for path in CONF.glob(pattern)}
    explaining = {path for path in CONF.rglob("*.yaml") if any(each.says for each in settings_of(path))}
    assert explaining - listed == set()


@pytest.mark.parametrize("top", ["train", "launch", "collectives"])
def test_a_key_is_explained_beside_its_default_and_nowhere_else(top: str) -> None:
    fields_of_configs = re.compile(r"^    \w+: .* = key\(.*\)(.*)$", re.MULTILINE)
    remarks = [remark for path in (ROOT / top).rglob("*.py") for remark in fields_of_configs.findall(path.read_text())]
    assert remarks and not any(remarks)


@pytest.mark.parametrize("verb", sorted(set(front_door.VERBS) - {"train", "sweep"}))
def test_every_verb_tells_what_it_does(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = front_door.main([verb, "--help"])
    except SystemExit as ended:  # argparse
        code = int(ended.code or 0)
    assert code == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_the_help_of_training_lists_what_can_be_chosen_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):  # Hydra ends so
        front_door.main(["train", "--help"])
    said = capsys.readouterr().out
    section = said.partition("== Choices ==")[2].partition("==")[0]
    listed = {group: set(files.split(", ")) for group, files in re.findall(r"(\w+)=…\s+(.+)", section)}
    assert {"model", "data", "strategy", "precision", "optimizer", "profiler", "logger"} == listed.keys()
    for group, files in listed.items():
        assert files == {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}, group
    assert "_schema" not in said and "preset" not in said


def test_every_verb_is_in_the_reference_and_in_the_help() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    for verb in front_door.VERBS:
        assert re.search(rf"^\| `{verb}\b", reference, re.MULTILINE), verb
        assert re.search(rf"^  scalescope {verb}\b", front_door.USAGE, re.MULTILINE), verb


def test_every_code_of_a_finding_is_explained_in_a_row_and_in_a_section() -> None:
    rows = re.findall(
        r"^\| \[`(\w+)`\]\(method/findings\.md#(\w+)\) \|", (ROOT / "docs" / "concepts.md").read_text(), re.MULTILINE
    )
    method = ROOT / "docs" / "method"
    listed = re.findall(r"\[(\w+)\]\(findings\.md#(\w+)\)", (method / "README.md").read_text())
    for named in (rows, listed):
        assert sorted(named) == sorted((code, code) for code in CODES)
    assert set(CODES) <= anchors(method / "findings.md")
