"""Mutated inputs of each kind, as `make fuzz` runs tens of thousands: no traceback, nothing slow."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.cases import run_cases
from tests.fuzz.mutator import mutated
from tests.fuzz.subjects import subjects
from tests.report_samples import write_study

#: Fewer where each case makes a report.
CASES = {"traces": 100, "logs": 100, "folders": 12, "configs": 40, "flight records": 20}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield write_study(tmp_path_factory.mktemp("fuzz") / "study").path


@pytest.mark.parametrize("kind", CASES)
def test_mutated_inputs_end_with_an_exit_code(
    kind: str, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # failing cases are kept as files in the current folder
    figures = run_cases(kind, subjects(study)[kind], 0, CASES[kind])
    assert figures.cases == CASES[kind] and not figures.failed, "\n".join(figures.failed)


def test_a_mutation_is_the_same_for_the_same_number() -> None:
    text = b'{"a": [1, 2, {"b": "c"}]}'
    assert [mutated(text, number) for number in range(50)] == [mutated(text, number) for number in range(50)]
    assert len({mutated(text, number) for number in range(50)}) > 25


def kept_cases() -> list[Path]:
    """Inputs that campaigns have found, each a defect when it was: `KIND/NUMBER-SEED.gz`."""
    return sorted((Path(__file__).parent / "data" / "fuzz").glob("*/*.gz"))


@pytest.mark.parametrize("kept", kept_cases(), ids=lambda kept: f"{kept.parent.name}-{kept.stem}")
def test_what_fuzzing_has_found_stays_mended(kept: Path, study: Path, tmp_path: Path) -> None:
    subject = subjects(study)[kept.parent.name]
    _, _, seed = kept.stem.partition("-")
    (name,) = [one for one in subject.seeds if one.replace("/", "_") == seed]
    assert subject.use(gzip.decompress(kept.read_bytes()), name, tmp_path) in (0, 1, 2)
