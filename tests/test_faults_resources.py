"""Faults of what a rank takes from its host besides disks: shared memory, file descriptors."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.faults_running import begin, end_of, go, running, steps_of
from tests.train_runs import SMALL_GPT

pytestmark = pytest.mark.long

# a /dev/shm of 64 kB for this command alone
SMALL_SHM = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k shm /dev/shm && exec "$@"', "sh")


@pytest.mark.skipif(os.geteuid() != 0, reason="a /dev/shm of one's own needs root")
def test_a_full_dev_shm_ends_a_job_with_loading_processes_in_one_line(tmp_path: Path) -> None:
    for number in range(40):
        place = tmp_path / "images" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (80, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.jpg")
    data = ("model=resnet50_64px", "model.batch_size=4", "data=image_folder", f"data.path={tmp_path / 'images'}",
            "data.validation_fraction=0.1", "data.validation_samples=4", "data.workers=1", "profiler=none",
            "warmup_steps=1", "steps=50", "launch.step_limit_s=20")  # fmt: skip
    since = time.monotonic()
    job = begin(tmp_path, "", *data, before=SMALL_SHM)
    end_of(FAULTS["shm_full"], job, RunFolder(tmp_path / "one"), since)
    assert RunFolder(tmp_path / "one").read_info().status == "failed"


def test_a_rank_without_file_descriptors_trains_on_and_says_what_could_not_be_written(tmp_path: Path) -> None:
    """Somebody's leak has used them up in the middle of a job."""
    act = (
        "def act():\n    wait()\n    import resource\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\n    time.sleep(600)\n"
    )
    argv = (
        *SMALL_GPT,
        "data=python_stdlib",
        "profiler=none",
        "warmup_steps=2",
        "steps=100",
        "checkpoint_every=50",
        "launch.timeout_s=40",
        "launch.step_limit_s=20",
    )
    job, folder = running(tmp_path, act, *argv)
    end_of(FAULTS["descriptors"], job, folder, go(tmp_path))
    assert (folder.read_info().status, steps_of(folder)) == ("done", list(range(100)))
