"""The whole self-test: every item in turn, and the file that is to be sent."""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import torch

from scalescope.hardware.check_result import CheckResult
from scalescope.hardware.detect import describe, device_count, versions
from scalescope.records.environment import capture
from scalescope.records.files import write_atomic
from scalescope.selftest import device as on_device
from scalescope.selftest import jobs
from scalescope.selftest.item import Check, DoctorLine, Item, SelfTest, carry_out


def items(runs: Path) -> dict[str, Check]:
    """Return every item by its name, in the order in which they are tried: the quick ones first."""
    count = device_count()
    device = torch.device("cuda", 0) if count else torch.device("cpu")
    quick: dict[str, Callable[[torch.device], tuple[str, dict[str, float | int | str | None]]]] = {
        "events": on_device.check_events,
        "graphs": on_device.check_graphs,
        "kernels": on_device.check_kernels,
        "fp8": on_device.check_fp8,
        "energy": on_device.check_energy,
    }
    found: dict[str, Check] = {name: _bound(check, device) for name, check in quick.items()}
    found["collectives"] = lambda: jobs.check_collectives(runs, count)
    found["trace"] = lambda: jobs.check_trace(runs, count)
    return found


def carry_out_all(names: Sequence[str] | None = None) -> Iterator[Item]:
    """Yield each item as it is done; `names`: these alone. The jobs' folders are thrown away."""
    with tempfile.TemporaryDirectory(prefix="scalescope-selftest-") as folder:
        for name, check in items(Path(folder)).items():
            if names is None or name in names:
                yield carry_out(name, check)


def self_test(results: Sequence[CheckResult], done: Sequence[Item], started_unix_s: float | None = None) -> SelfTest:
    """Return the file's content: without the host's name, and without paths of the doctor's that hold the user's."""
    count = device_count()
    found = [describe(at, torch.device("cuda", at)) for at in range(count)] or [describe(0, torch.device("cpu"))]
    environment = capture(versions("nccl" if count else "gloo"))
    host, home = re.compile(rf"\b{re.escape(environment.host)}\b"), str(Path.home())

    def anonymous(text: str | None) -> str | None:
        return None if text is None else host.sub("HOST", text).replace(home, "~")

    lines = [DoctorLine(each.level, each.subject, anonymous(each.says) or "", anonymous(each.fix)) for each in results]
    return SelfTest(
        started_unix_s=started_unix_s if started_unix_s is not None else time.time(),
        environment=msgspec.structs.replace(environment, host="HOST"),
        devices=[msgspec.structs.replace(device, host="HOST") for device in found],
        doctor=lines,
        items=[msgspec.structs.replace(item, says=anonymous(item.says) or "") for item in done],
    )


def write(test: SelfTest, path: Path) -> None:
    """Write the file. Raises OSError where it cannot be written."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(test), indent=1).decode() + os.linesep)


def _bound(
    check: Callable[[torch.device], tuple[str, dict[str, float | int | str | None]]], device: torch.device
) -> Check:
    return lambda: check(device)
