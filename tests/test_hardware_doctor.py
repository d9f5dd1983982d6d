"""The doctor is right: machines with faults are laid out below a folder, and each is found with its fix."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.hardware.amd.host import check_rocm
from scalescope.hardware.check_result import CheckResult
from scalescope.hardware.doctor import check_run_folder, examine, preflight
from scalescope.hardware.host import (
    check_busy_cores,
    check_clock,
    check_locked_memory,
    check_network,
    check_shared_memory,
)
from scalescope.hardware.visible import check_visible


def broken(findings: list[CheckResult]) -> list[str]:
    return [f"{finding.subject}: {finding.says}" for finding in findings if finding.level == "broken"]


def test_every_broken_or_noted_line_of_this_machine_is_a_sentence_with_a_subject(tmp_path: Path) -> None:
    findings = examine(tmp_path)
    subjects = [finding.subject for finding in findings]
    assert {
        "torch",
        "devices",
        "shared memory",
        "open files",
        "host name",
        "Slurm",
        "MPI",
        "W&B",
        "run folder",
        "clock",
    } <= {
        *subjects,
        *("devices" for subject in subjects if subject.startswith("device ")),
    }
    assert all(finding.fix for finding in findings if finding.level == "broken")


@pytest.mark.parametrize(
    ("environ", "rocm", "says"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,7"}, False, "names device 7"),
        ({"CUDA_VISIBLE_DEVICES": "0,0"}, False, "names 0 twice"),
        ({"CUDA_VISIBLE_DEVICES": ""}, False, "hides every device"),
        ({"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "2"}, True, "names device 2"),
        ({"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0,1"}, True, "lists more devices"),
        ({"ROCR_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0"}, True, "torch counts by ROCR_VISIBLE_DEVICES"),
        ({"HIP_VISIBLE_DEVICES": "0, 1"}, True, "HIP takes no blanks"),
        ({"HIP_VISIBLE_DEVICES": ""}, True, "hides every device from torch"),
        ({"CUDA_VISIBLE_DEVICES": "0,0"}, True, "names 0 twice"),
    ],
)
def test_visible_devices_that_contradict_are_broken(environ: dict[str, str], rocm: bool, says: str) -> None:
    assert any(says in line for line in broken(check_visible(environ, 4, rocm)))


def test_hips_numbers_count_within_what_rocr_leaves() -> None:
    environ = {"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}
    assert broken(check_visible(environ, 4, rocm=True)) == []


def test_uuids_are_taken_as_they_are() -> None:
    assert broken(check_visible({"CUDA_VISIBLE_DEVICES": "GPU-8f2a,GPU-91bc"}, 4, rocm=False)) == []


def test_missing_device_files_and_kernel_settings_of_rocm_are_found(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/numa_balancing").write_text("1\n")
    (tmp_path / "proc/cmdline").write_text("root=/dev/sda1 quiet\n")
    (tmp_path / "sys/class/iommu/ivhd0").mkdir(parents=True)
    findings = check_rocm({"RCCL_MSCCL_ENABLE": "1"}, {"users"}, root=tmp_path)
    assert len(broken(findings)) == 2 and all("--device" in str(f.fix) for f in findings if f.level == "broken")
    assert {"numa_balancing", "iommu", "RCCL_MSCCL_ENABLE"} <= {f.subject for f in findings if f.level == "note"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_missing_permissions_on_kfd_are_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name in ("kfd", "dri/renderD128"):
        (tmp_path / "dev" / name).touch(mode=0o660)
    for parent in tmp_path.parents:
        if parent.stat().st_mode & 0o011 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); os.setgid(65534); os.setuid(65534)\n"
        "from pathlib import Path\nfrom scalescope.hardware.amd.host import check_rocm\n"
        "print([f.fix for f in check_rocm({}, {'nogroup'}, root=Path(sys.argv[1])) if f.level == 'broken'])"
    )
    # imported before the change of user, since a home folder may be closed to others
    code = "from scalescope.hardware.amd import host\n" + code
    home = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), home], cwd=home, capture_output=True, text=True, timeout=200
    )
    assert "usermod -aG video,render" in done.stdout, done.stderr


def test_an_interface_that_is_not_there_is_found(tmp_path: Path) -> None:
    for name in ("lo", "eth0"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    assert broken(check_network({"NCCL_SOCKET_IFNAME": "ib0"}, root=tmp_path))
    for value in ("eth", "=eth0", "^docker", "ib0,eth0"):
        assert broken(check_network({"NCCL_SOCKET_IFNAME": value}, root=tmp_path)) == []


def test_a_host_whose_name_is_its_loopback_is_told_what_that_means_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolving_to(*addresses: str) -> CheckResult:
        answers = [(0, 0, 0, "", (address, 0)) for address in addresses]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: answers)
        return next(finding for finding in check_network({}) if finding.subject == "host name")

    assert resolving_to("127.0.1.1", "::1").level == "note"
    assert "leads other hosts to themselves" in resolving_to("127.0.1.1").says
    assert resolving_to("127.0.0.1", "10.1.2.3").level == "fine"
    assert resolving_to("fe80::1%eth0").level == "fine"


def test_little_shared_memory_is_found(small_disk: Path) -> None:
    finding = check_shared_memory(small_disk)
    assert finding.level == "broken" and "--ipc=host" in str(finding.fix)


def test_locked_memory_matters_only_where_there_is_rdma(tmp_path: Path) -> None:
    assert check_locked_memory(tmp_path) == []


def test_a_time_service_is_named(tmp_path: Path) -> None:
    before = check_clock()
    assert (before.level == "note") == ("no time service runs" in before.says)
    service = shutil.copy(shutil.which("sleep") or "/bin/sleep", tmp_path / "chronyd")
    with subprocess.Popen([service, "60"]) as process:
        try:
            found = check_clock()
        finally:
            process.kill()
    assert (found.level, found.says) == ("fine", "kept by chronyd")


def test_a_run_folder_that_cannot_be_written_is_broken() -> None:
    assert check_run_folder(Path("/proc/runs")).level == "broken"


def test_preflight_is_quiet_on_a_sound_machine() -> None:
    assert preflight() == []


@pytest.mark.parametrize(
    ("share", "hosts_compute", "level"),
    [
        ([2.0, 3.0, 100.0, 100.0], True, "fine"),  # the others' cores are none of ours
        ([95.0, 98.0, 0.0, 0.0], True, "note"),
        ([40.0, 20.0, 0.0, 0.0], True, "note"),
        ([40.0, 20.0, 0.0, 0.0], False, "fine"),  # hosts that launch leave room
        ([95.0, 98.0, 0.0, 0.0], False, "note"),
    ],
)
def test_cores_that_others_use_are_told(
    share: list[float], hosts_compute: bool, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a machine whose two cores eight processes shared *nothing is broken* was all."""
    monkeypatch.setattr("scalescope.hardware.host.psutil.cpu_percent", lambda **_: share)
    found = check_busy_cores([0, 1], hosts_compute=hosts_compute)
    assert found.level == level and f"others use {sum(share[:2]) / 100:.1f}" in found.says


def test_the_doctor_looks_at_the_cores() -> None:
    assert "cores" in {one.subject for one in examine(Path())}
