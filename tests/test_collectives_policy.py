"""CTA policies: what the collective library is handed for them, byte by byte, and where there is none.

A library with NCCL 2.28's interface, compiled from C, which only writes down what it gets, stands in for NCCL.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.collectives.checks import check
from scalescope.collectives.plan import by_group
from scalescope.collectives.show.summary import ways
from scalescope.records.errors import UserError
from tests.collectives_runs import compose, planned

ROOT = Path(__file__).resolve().parent.parent
STANDIN = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { char internal[128]; } id_t_;
typedef struct {
  size_t size; unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs; const char* netName; int splitShare, trafficClass;
  const char* commName; int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} config_t;
const char* ncclGetErrorString(int result) { return "invalid usage"; }
int ncclGetVersion(int* version) { *version = VERSION; return 0; }
int ncclGetUniqueId(id_t_* id) { memset(id, 'x', 128); return 0; }
int ncclCommInitRankConfig(void** comm, int n, id_t_ id, int rank, config_t* c) {
  printf("%d %x %u policy=%d min=%d max=%d", c->size == sizeof(config_t), c->magic, c->version, c->CTAPolicy,
         c->minCTAs, c->maxCTAs);
  printf(" %d%d\n", c->netName == NULL, c->commName == NULL);
  int undefined[] = {c->blocking, c->cgaClusterSize, c->splitShare, c->trafficClass, c->collnetEnable, c->shrinkShare,
                     c->nvlsCTAs, c->nChannelsPerNetPeer, c->nvlinkCentricSched};
  for (int at = 0; at < 9; ++at) if (undefined[at] != (int)0x80000000) printf("%d is %d\n", at, undefined[at]);
  *comm = (void*)0xc0; return 0; }
int ncclCommWindowRegister(void* comm, void* at, size_t size, void** window, int flags) {
  printf("register %p %d %zu flags=%d\n", comm, at != NULL, size, flags);
  *window = getenv("NO_WINDOW") ? NULL : (void*)0x77; return 0; }
int ncclCommWindowDeregister(void* comm, void* window) { printf("deregister %p %p\n", comm, window); return 0; }
int ncclCommDestroy(void* comm) { printf("destroy %p\n", comm); fflush(stdout); return 0; }
"""
DRIVER = """
import ctypes, sys, types, torch
ctypes.CDLL(sys.argv[1])
from scalescope.collectives.transports import direct, library
library._NAMES = (sys.argv[1],)
from scalescope.collectives.operations.operation import NotAvailable
torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=0x57)
torch.cuda.synchronize = lambda device=None: None
messages = types.SimpleNamespace(rank=1, size=4, leads=True, share_bytes=lambda content: content,
                                 least=lambda number: number, texts=lambda text: [text])
for policy, channels in (("zero", None), ("efficiency", 8), ("default", None)):
    path = direct.open_transport(messages, torch.device("cuda"), channels, policy)
    try:
        path.register(torch.zeros(4096, dtype=torch.uint8))
    except (NotAvailable, RuntimeError) as reason:
        print(reason, file=sys.stderr)
    path.close()
"""


def driven(folder: Path, version: int, **environment: str) -> tuple[list[str], list[str]]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    (folder / "standin.c").write_text(STANDIN)
    made = folder / "libnccl.so.2"
    command = [compiler, "-shared", "-fPIC", f"-DVERSION={version}", "-Wl,-soname,libnccl.so.2", "-o", str(made),
               str(folder / "standin.c")]  # fmt: skip
    subprocess.run(command, timeout=200, check=True)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(made)], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


@pytest.mark.job
def test_the_library_reads_the_policy_where_nccl_2_28_has_it(tmp_path: Path) -> None:
    undefined = -(2**31)
    window = ["register 0xc0 1 4096 flags=1", "deregister 0xc0 0x77", "destroy 0xc0"]
    said, _ = driven(tmp_path, 22809)
    assert said == [
        f"1 cafebeef 22800 policy=2 min={undefined} max={undefined} 11", *window,
        "1 cafebeef 22800 policy=1 min=8 max=8 11", *window,
        f"1 cafebeef 22800 policy=0 min={undefined} max={undefined} 11", *window,
    ]  # fmt: skip


@pytest.mark.job
def test_an_older_library_is_not_told_a_policy(tmp_path: Path) -> None:
    said, refused = driven(tmp_path, 22705)
    assert said == []
    assert refused == ["cta_policy needs NCCL 2.28 or an RCCL that goes with it, and this is 2.27.5"] * 3


@pytest.mark.job
def test_a_success_without_a_window_is_none(tmp_path: Path) -> None:
    said, refused = driven(tmp_path, 22809, NO_WINDOW="1")
    assert len(refused) == 3 and all("has no symmetric memory" in line for line in refused)
    assert not any(line.startswith("deregister") for line in said)


def test_policies_are_an_axis_of_communicators() -> None:
    points = planned(2, "cta_policy=[zero,default,none]", "sizes=[1KiB,2KiB]", "transport=direct", "group_sizes=[2]")
    assert [point.cta_policy for point in points] == ["zero"] * 2 + ["default"] * 2 + [None] * 2
    assert [group.cta_policy for group in by_group(points)] == ["zero", "default", None]
    row = points[0].row(status="measured")
    assert row.cta_policy == "zero" and "CTA policy zero" in ways(row)
    assert "policy" not in ways(points[-1].row(status="measured"))


def test_a_policy_that_there_is_none_of_is_named_with_the_near_one() -> None:
    with pytest.raises(UserError, match="cta_policy: there is no 'efficient'; did you mean efficiency"):
        check(compose("cta_policy=efficient"), 2)
