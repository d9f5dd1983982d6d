"""What is set around a rank's device before anything runs there: MIOpen's layout, and the NUMA node."""

import os
from pathlib import Path

import pytest
import torch

from scalescope.hardware.detect import describe
from scalescope.hardware.numa import runs_on
from scalescope.launch.config import LaunchConfig
from scalescope.launch.devices import take_device
from scalescope.launch.world import World
from scalescope.records.environment import allowed_variables
from scalescope.records.errors import UserError
from tests.amd_machine import Chip, Machine, use_amdsmi

NHWC = {"PYTORCH_MIOPEN_SUGGEST_NHWC", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM"}
TWO = Machine([Chip(bus=0x05, numa=0), Chip(bus=0xC5, numa=1)])


def launch(numa: str | None = None) -> LaunchConfig:
    return LaunchConfig(ranks=2, device="cuda", backend="nccl", threads_per_rank=None, timeout_s=60.0,
                        init_limit_s=60.0, step_limit_s=60.0, max_restarts=0, numa=numa)  # fmt: skip


def world(rank: int = 0) -> World:
    return World(rank, 2, rank, 2, "torchrun")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two MI300X, one a NUMA node, whose cores are this machine's first and second."""
    use_amdsmi(monkeypatch, None)
    TWO.be_torchs(monkeypatch)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    TWO.lay_out(tmp_path)
    for node, core in enumerate(sorted(os.sched_getaffinity(0))[:2]):
        (tmp_path / f"sys/devices/system/node/node{node}/cpulist").write_text(f"{core}\n")
    return tmp_path


def test_channels_last_reaches_miopen_and_the_run_folder_says_so(machine: Path) -> None:
    take_device(launch(), world(), machine)
    assert {os.environ.get(name) for name in NHWC} == {"1"}
    assert set(allowed_variables(os.environ)) >= NHWC  # as run.json keeps them


def test_a_radeon_card_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cards = Machine([Chip(bus=at, architecture="gfx1100", compute_units=96, memory_gib=24) for at in (1, 2)])
    cards.be_torchs(monkeypatch)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    take_device(launch(), world(), tmp_path)
    assert not NHWC & os.environ.keys()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core alone has no two nodes")
def test_a_rank_is_bound_to_its_devices_node_and_that_is_recorded(machine: Path) -> None:
    before = os.sched_getaffinity(0)
    try:
        device = take_device(launch("node"), world(1), machine)
        described = describe(1, device, machine)
        assert (described.numa_node, described.runs_on_nodes) == (1, [1])
    finally:
        os.sched_setaffinity(0, before)
    assert runs_on(machine) == [0, 1]  # unbound, on both


def test_a_rank_that_cannot_be_bound_is_an_error_that_says_why(machine: Path) -> None:
    (machine / "sys/bus/pci/devices/0000:05:00.0/numa_node").write_text("-1\n")
    with pytest.raises(UserError, match="does not tell which NUMA node"):
        take_device(launch("node"), world(), machine)
    (machine / "sys/devices/system/node/node1/cpulist").write_text("4000-4003\n")
    with pytest.raises(UserError, match="no core of NUMA node 1"):
        take_device(launch("node"), world(1), machine)
    with pytest.raises(UserError, match="choose node, or null"):
        launch("socket")
