"""Going on with a run folder runs nothing that lies in it, whoever has put it there."""

import io
import os
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.train_runs import SMALL_GPT, train, train_in_world

pytestmark = pytest.mark.job

JOB = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=8", "checkpoint_every=4")


class Command:
    """Runs a shell command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    folder, done = train_in_world(tmp_path_factory.mktemp("runs"), "one", 1, *JOB, "strategy=ddp")
    assert done.returncode == 0, done.stderr
    yield folder


@pytest.fixture
def stranger(kept: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of a run folder that stands before step 4, with room for something of a stranger's."""
    copy = RunFolder(Path(shutil.copytree(kept.path, tmp_path / kept.path.name)))
    copy.config.write_text(copy.config.read_text().replace(str(kept.path.parent), str(tmp_path)))
    shutil.rmtree(copy.checkpoints / "step-8")
    return copy


def go_on(folder: RunFolder, *argv: str) -> "subprocess.CompletedProcess[str]":
    _, done = train_in_world(folder.path.parent, folder.path.name, 1, *JOB, "resume=true", *argv)
    return done


def test_a_checkpoint_whose_metadata_names_a_command_is_refused(stranger: RunFolder, tmp_path: Path) -> None:
    came = tmp_path / "came"
    (stranger.checkpoints / "step-4" / ".metadata").write_bytes(pickle.dumps(Command(f"touch {came}")))
    done = go_on(stranger, "strategy=ddp")
    message = stranger.read_info().message or ""
    assert not came.exists()
    assert done.returncode == FAULTS["checkpoint_hostile"].exit_code
    assert "step-4 cannot be read (its metadata wants to load posix.system" in message
    assert "remove it to go on from the start" in message


def test_a_checkpoint_whose_settings_name_a_command_is_refused(stranger: RunFolder, tmp_path: Path) -> None:
    """DCP keeps what is no tensor (an optimiser's learning rate) as pickles of their own, between the tensors."""
    came, part = tmp_path / "came", stranger.checkpoints / "step-4" / "__0_0.distcp"
    metadata = pickle.loads((part.parent / ".metadata").read_bytes())  # our own, made above
    entry = next(info for index, info in metadata.storage_data.items() if index.fqn.endswith("weight_decay"))
    poison = io.BytesIO()
    torch.save(Command(f"touch {came}"), poison)
    whole = part.read_bytes()
    entry.offset, entry.length = len(whole), len(poison.getvalue())
    part.write_bytes(whole + poison.getvalue())
    (part.parent / ".metadata").write_bytes(pickle.dumps(metadata))
    done = go_on(stranger, "strategy=ddp")
    assert not came.exists()
    assert done.returncode != 0 and "something other than weights, which was not loaded" in done.stderr


def test_a_deepspeed_checkpoint_that_names_a_command_is_refused(tmp_path: Path) -> None:
    came = tmp_path / "came"
    folder, done = train_in_world(tmp_path, "one", 1, *JOB, "strategy=zero1")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder.checkpoints / "step-8")
    whole = shutil.copytree(folder.checkpoints, tmp_path / "whole")
    for part in (folder.checkpoints / "step-4" / "state").glob("*optim_states.pt"):
        torch.save(Command(f"touch {came}"), part)
    refused = go_on(folder, "strategy=zero1")
    assert not came.exists()
    assert refused.returncode != 0 and "something other than weights, which was not loaded" in refused.stderr
    shutil.rmtree(folder.checkpoints)
    shutil.copytree(whole, folder.checkpoints)
    done = go_on(folder, "strategy=zero1")
    assert done.returncode == 0 and [row.step for row in folder.read_steps()] == list(range(8)), done.stderr


def test_a_config_that_names_another_sink_runs_nothing_and_the_job_goes_on(stranger: RunFolder, tmp_path: Path) -> None:
    came = tmp_path / "came"
    text = stranger.config.read_text()
    assert "logger: {}\n" in text
    node = f"logger:\n  wandb:\n    _target_: os.system\n    command: touch {came}\n"
    stranger.config.write_text(text.replace("logger: {}\n", node))
    _, done = train(tmp_path, "one", 1, *JOB, "strategy=ddp", "resume=true")  # whose ranks read that very file
    assert not came.exists() and done.returncode == 0, done.stderr
    assert "logger wandb is left out: there is no sink os.system" in done.stderr
    assert [row.step for row in stranger.read_steps()] == list(range(8))
