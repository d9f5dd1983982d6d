"""The doctor is right about ROCm: hosts, builds and variables with faults are laid out; each is found with its fix."""

import os
from pathlib import Path

import pytest

from scalescope.hardware import doctor
from scalescope.hardware.amd.build import channels_last_settings, check_build, check_channels_last, is_radeon
from scalescope.hardware.amd.host import check_device_files, check_rocm
from scalescope.hardware.amd.visible import by_hip, by_rocr, visible_devices
from scalescope.hardware.check_result import CheckResult
from scalescope.hardware.visible import check_visible
from tests.amd_machine import Chip, Machine, use_amdsmi

#: The examples in ROCR-Runtime's amd_filter_device.h, as KFD and clr write them: in small letters.
IDS = ["GPU-babababababababa", "GPU-abbaabbaabbaabba", "GPU-babaabbaabbababa", "GPU-abbababababaabba"]
Environ = dict[str, str]


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("", []),  # A1
        ("-1", []),  # A2
        ("GPU-XX", []),  # A3
        ("3,GPU-BABABABABABABABA,4", [3, 0]),  # B
        ("1,GPU-ABBAABBAABBAABBA,GPU-XX", [1]),  # C says "1 and 2", but names device 1 again, which ends the list
        ("3,GPU-BABAABBA,GPU-XX", [3, 2]),  # D
        ("2, 3", [2, 3]),  # blanks are trimmed
        ("0x1,0", [1, 0]),  # strtol with base 0
        ("010", []),  # which is octal: device 8
        ("0,0,1", [0]),  # named before: ends the list
        ("GPU-BABA", []),  # the beginning of two devices' ids
        ("0,1,2,3,4,5", [0, 1, 2, 3]),
        ("0,x,1", [0]),
    ],
)
def test_rocr_reads_its_variable_so(value: str, devices: list[int]) -> None:
    assert by_rocr(value, IDS).devices == devices


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("", [0, 1, 2, 3]),  # as if it were not set
        ("-1", []),
        ("2,0", [2, 0]),
        ("0,0,1", [0, 1]),  # named twice: once
        ("0, 1", [0]),  # " 1" is not "1"
        ("01", []),
        ("0,4,1", [0]),
        ("GPU-babaabbaabbababa,0", [2, 0]),
        ("GPU-BABAABBAABBABABA", []),  # capital letters are others
        ("0,,1", [0]),
    ],
)
def test_hip_reads_its_variable_so(value: str, devices: list[int]) -> None:
    assert by_hip(value, IDS).devices == devices


@pytest.mark.parametrize(
    ("environ", "devices"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),  # HIP's is unset
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "2"}, [2]),  # or empty
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [0, 1, 2, 3]),  # which hides everything from CUDA
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),  # HIP counts what ROCr leaves
        ({"ROCR_VISIBLE_DEVICES": "3,1", "CUDA_VISIBLE_DEVICES": "0"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, []),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "2"}, []),
    ],
)
def test_both_together_leave(environ: Environ, devices: list[int]) -> None:
    assert visible_devices(environ, IDS) == devices


def levels(findings: list[CheckResult], level: str) -> list[str]:
    return [f"{finding.subject}: {finding.says}" for finding in findings if finding.level == level]


@pytest.mark.parametrize(
    "environ",
    [
        {"CUDA_VISIBLE_DEVICES": ""},
        {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"},  # HIP's is the one that counts: no contradiction
        {"ROCR_VISIBLE_DEVICES": "2, 3", "HIP_VISIBLE_DEVICES": "1"},
        {"ROCR_VISIBLE_DEVICES": "GPU-ABBAABBAABBAABBA"},
        {"HIP_VISIBLE_DEVICES": "GPU-abbaabbaabbaabba"},
    ],
)
def test_what_the_runtimes_take_is_not_called_broken(environ: Environ) -> None:
    assert levels(check_visible(environ, 4, True, IDS), "broken") == []
    assert levels(check_visible(environ, 4, True), "broken") == []  # ids that are not known are not judged


def test_a_variable_without_effect_is_named() -> None:
    environ = {"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}
    assert any("has no effect" in line for line in levels(check_visible(environ, 4, True), "note"))


def lay_out_devices(root: Path, kfd_mode: int = 0o666, render_mode: int = 0o666) -> None:
    (root / "dev/dri").mkdir(parents=True)
    (root / "dev/kfd").touch()
    (root / "dev/kfd").chmod(kfd_mode)
    for number in (128, 129):
        path = root / f"dev/dri/renderD{number}"
        path.touch()
        path.chmod(render_mode)


def test_a_render_node_is_looked_for_and_not_only_its_folder(tmp_path: Path) -> None:
    """A container with --device=/dev/dri/card0 alone has /dev/dri, and no device that computes."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/kfd").touch()
    (tmp_path / "dev/dri/card0").touch()
    assert any("renderD*" in line for line in levels(check_device_files({"render"}, tmp_path), "broken"))


def test_a_closed_device_file_says_whose_it_is_and_both_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out_devices(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "renderD129")
    (finding,) = (each for each in check_device_files({"users"}, tmp_path) if each.level == "broken")
    assert finding.subject.endswith("renderD129") and "belongs to group" in finding.says
    assert "usermod -aG video,render" in str(finding.fix) and "--group-add" in str(finding.fix)


def test_wsl2_goes_without_kfd(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text("Linux version 5.15.153.1-microsoft-standard-WSL2\n")
    assert any("/dev/dxg" in line for line in levels(check_device_files(set(), tmp_path), "broken"))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    assert levels(check_device_files(set(), tmp_path), "broken") == []


def test_a_container_that_filters_system_calls_is_told_its_flags(tmp_path: Path) -> None:
    lay_out_devices(tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tpython\nSeccomp:\t2\n")
    assert not any("seccomp" in line for line in levels(check_rocm({}, set(), tmp_path), "note"))
    (tmp_path / ".dockerenv").touch()
    fixes = [str(finding.fix) for finding in check_rocm({}, set(), tmp_path) if finding.level == "note"]
    assert any("seccomp=unconfined" in fix and "SYS_PTRACE" in fix and "--ipc=host" in fix for fix in fixes)


def test_the_kernels_settings_and_fine_grained_memory_are_looked_at(tmp_path: Path) -> None:
    lay_out_devices(tmp_path)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/numa_balancing").write_text("1\n")
    (tmp_path / "proc/cmdline").write_text("quiet\n")
    (tmp_path / "sys/class/iommu/ivhd0").mkdir(parents=True)
    notes = check_rocm({}, set(), tmp_path, consumer=True)
    assert {"numa_balancing", "iommu", "HSA_FORCE_FINE_GRAIN_PCIE"} == {
        finding.subject for finding in notes if finding.level == "note"
    }
    assert any("ACS" in str(finding.fix) for finding in notes)


def test_an_instinct_card_without_a_name_is_no_consumers() -> None:
    """An MI355X whose driver calls it "AMD Radeon Graphics" was taken for one."""
    assert not is_radeon("gfx950") and is_radeon("gfx1100") and is_radeon("gfx1201")


def test_a_device_that_torch_has_no_kernels_for_is_found() -> None:
    built = ["gfx90a", "gfx942", "gfx1100"]
    assert check_build(["gfx942"], built, {}) == []
    (finding,) = check_build(["gfx942", "gfx1103"], built, {})
    assert finding.level == "broken" and "gfx1103" in finding.says and "HSA_OVERRIDE_GFX_VERSION" in str(finding.fix)
    assert check_build(["gfx1103"], ["gfx11-generic"], {}) == []
    (overridden,) = check_build(["gfx1100"], built, {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"})
    assert overridden.level == "note" and "=11.0.0" in overridden.says


def test_channels_last_is_made_to_reach_miopen_on_instinct_and_kept_from_it_on_radeon() -> None:
    both = {"PYTORCH_MIOPEN_SUGGEST_NHWC": "1", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM": "1"}
    assert channels_last_settings(["gfx942", "gfx90a"], {}) == both
    assert channels_last_settings(["gfx1100"], {}) == {} and channels_last_settings([], {}) == {}
    assert channels_last_settings(["gfx942"], {"PYTORCH_MIOPEN_SUGGEST_NHWC": "0"}) == {
        "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM": "1"
    }  # what the user has set stays
    assert "our jobs set" in check_channels_last(["gfx942"], {})[0].says
    assert check_channels_last(["gfx942"], both)[0].says == "is handed to MIOpen"
    off = check_channels_last(["gfx942"], {"PYTORCH_MIOPEN_SUGGEST_NHWC": "0"})
    assert off[0].level == "note" and "changes nothing" in off[0].says
    assert check_channels_last(["gfx1100"], both)[0].level == "note"


def test_the_doctor_of_a_rocm_machine_says_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An MI355X without a name, in an image without amdsmi, under a torch that is built for others."""
    machine = Machine([Chip(bus=5, architecture="gfx950", compute_units=256, memory_gib=287.99, name="")])
    machine.be_torchs(monkeypatch)
    use_amdsmi(monkeypatch, None)
    monkeypatch.setattr("torch.cuda.get_arch_list", lambda: ["gfx90a", "gfx942"])
    monkeypatch.setattr(os, "environ", {**os.environ, "HSA_OVERRIDE_GFX_VERSION": "9.4.2"})
    findings = doctor._rocm()
    subjects = {finding.subject for finding in findings}
    assert {"torch", "HSA_OVERRIDE_GFX_VERSION", "channels_last", "amdsmi"} <= subjects
    assert "HSA_FORCE_FINE_GRAIN_PCIE" not in subjects  # which is for consumers' cards
    (device,) = doctor._devices()
    assert "unnamed AMD GPU (gfx950, 256 compute units, 288 GiB)" in device.says and "no data-sheet peak" in device.says
