"""Several hosts, as network namespaces: training across them, and a slow link told as what it is, where it is."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from scalescope.scaling.analyze import analyze_run
from tests.hosts import Hosts, missing
from tests.train_runs import FAST, SMALL_GPT

BIN = Path(sys.executable).parent
SLOW = "100mbit"

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),  # a busy machine is no fault
    pytest.mark.skipif(bool(missing()), reason=f"no hosts can be made here: lacking {', '.join(missing())}"),
]


def torchrun(hosts: Hosts, names: list[str], port: int, *argv: str) -> list[str]:
    """Run a verb with torchrun on each of these hosts, a rank each, and return what they said."""
    jobs = [
        hosts.start(name, str(BIN / "torchrun"), "--nnodes", str(len(names)), "--nproc-per-node", "1", "--rdzv-backend",
                    "static", "--rdzv-id", "job", "--node-rank", str(number), "--master-addr", names[0],
                    "--master-port", str(port), "-m", "scalescope", *argv, OMP_NUM_THREADS="1")
        for number, name in enumerate(names)
    ]  # fmt: skip
    return _ends(jobs)


def _ends(jobs: list["subprocess.Popen[str]"]) -> list[str]:
    said = []
    try:
        for job in jobs:
            out, err = job.communicate(timeout=300)
            assert job.returncode == 0, err[-3000:]
            said.append(out + err)
    finally:
        for job in jobs:
            if job.poll() is None:
                job.kill()
    return said


def test_a_slow_link_is_transfer_and_no_wait(tmp_path: Path) -> None:
    argv = ("train", f"runs={tmp_path}", *FAST, *SMALL_GPT, "steps=16", "warmup_steps=2", "profiler.active=4")
    with Hosts(2) as hosts:
        torchrun(hosts, hosts.names, 29411, *argv, "name=fast")
        hosts.slow("nodea", "nodeb", "10mbit")
        torchrun(hosts, hosts.names, 29412, *argv, "name=slow")
    infos = [RunFolder(tmp_path / name).read_info() for name in ("fast", "slow")]
    assert [(info.status, info.world_size, info.hosts) for info in infos] == [("done", 2, ["nodea", "nodeb"])] * 2
    fast, slow = (analyze_run(RunFolder(tmp_path / name)) for name in ("fast", "slow"))
    for rank in (0, 1):
        before, after = fast.ranks[rank], slow.ranks[rank]
        transfer_ms = after.exposed_transfer_ms / after.steps
        assert before.exposed_transfer_ms / before.steps < transfer_ms / 8
        assert transfer_ms > 240, "0.5 MB of gradients at 1.25 MB/s"
        assert transfer_ms > 3 * (after.exposed_wait_ms + after.exposed_unsplit_ms) / after.steps
    lost_ms = sum(straggler.lost_ms for straggler in slow.stragglers)
    assert lost_ms < 0.2 * slow.ranks[0].exposed_transfer_ms / slow.ranks[0].steps, "no rank is to blame for a link"


def test_the_sweep_names_the_slow_pair(tmp_path: Path) -> None:
    argv = ("sweep", f"runs={tmp_path}", "name=pairs", *FAST[1:], "operations=[all_reduce]", "sizes=[8B,1MiB]",
             "placement=[packed,pairs]", "budget_s=0.3")  # fmt: skip
    with Hosts(3) as hosts:
        hosts.slow("nodea", "nodec", SLOW)
        said = torchrun(hosts, hosts.names, 29421, *argv)
    rows = RunFolder(tmp_path / "pairs").read_sweep()
    speed = {tuple(row.ranks): row.bus_gb_s or 0.0 for row in rows if row.placement == "pairs" and row.bytes > 8}
    host = {device.rank: device.host for device in RunFolder(tmp_path / "pairs").read_info().devices}
    (slow,) = [pair for pair in speed if {host[pair[0]], host[pair[1]]} == {"nodea", "nodec"}]
    assert speed[slow] < 0.013, "100 Mbit/s are 0.0125 GB/s"
    assert all(other > 3 * speed[slow] for pair, other in speed.items() if pair != slow)
    named = [line for line in "".join(said).splitlines() if line.startswith("SLOW: ")]
    assert len(named) == 1 and re.search(rf"rank {slow[0]} \({host[slow[0]]}\) and rank {slow[1]}", named[0]), named


def test_hosts_whose_own_name_is_their_loopback_choose_an_interface(tmp_path: Path) -> None:
    """As Debian sets a host up: gloo would tell the others to come to 127.0.1.1."""
    argv = (*FAST, *SMALL_GPT, "steps=8", "warmup_steps=1", "profiler=none")
    with Hosts(2, loopback_names=True) as hosts:
        jobs = [
            hosts.start(name, str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *argv,
                        RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR=hosts.addresses["nodea"],
                        MASTER_PORT="29431")
            for rank, name in enumerate(hosts.names)
        ]  # fmt: skip
        said = _ends(jobs)
    assert RunFolder(tmp_path / "one").read_info().status == "done"
    assert "rank 0 talks over to-nodeb (10.77.0.1), since nodea resolves to a loopback address" in said[0]
    assert "GLOO_SOCKET_IFNAME" in str(RunFolder(tmp_path / "one").read_info().environment)
    assert socket.gethostname() not in RunFolder(tmp_path / "one").read_info().hosts
