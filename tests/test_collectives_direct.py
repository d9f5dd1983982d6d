"""The direct path's calls, as the collective library's C interface receives them.

A library of the same name and interface, which only writes down its arguments, stands in for NCCL; the figures and
the results of the real one are checked on GPUs by the sweep itself.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STANDIN = r"""
#include <stddef.h>
#include <stdio.h>
#include <string.h>
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct {
  size_t size; unsigned magic, version; int blocking, cga, min, max; const char* net; int split; } config_t;
const char* ncclGetErrorString(int result) { return result == 5 ? "invalid usage" : "no error"; }
int ncclGetUniqueId(ncclUniqueId* id) { memset(id, 'x', 128); return 0; }
int ncclCommInitRank(void** comm, int n, ncclUniqueId id, int rank) {
  printf("init n=%d rank=%d id=%c%c\n", n, rank, id.internal[0], id.internal[127]); *comm = (void*)0xc0; return 0; }
int ncclCommInitRankConfig(void** comm, int n, ncclUniqueId id, int rank, config_t* c) {
  printf("config magic=%x size=%zu min=%d max=%d\n", c->magic, c->size, c->min, c->max);
  *comm = (void*)0xc0; return 0; }
int ncclCommDestroy(void* comm) { printf("destroy %p\n", comm); fflush(stdout); return 0; }
int ncclGroupStart(void) { printf("("); return 0; }
int ncclGroupEnd(void) { printf(")\n"); return 0; }
int ncclAllReduce(void* s, void* r, size_t n, int t, int o, void* c, void* st) {
  printf("all_reduce %d n=%zu t=%d o=%d %p %p\n", s == r, n, t, o, c, st); return t == 2 ? 5 : 0; }
int ncclReduce(void* s, void* r, size_t n, int t, int o, int root, void* c, void* st) {
  printf("reduce n=%zu t=%d o=%d root=%d %p %p\n", n, t, o, root, c, st); return 0; }
int ncclBroadcast(void* s, void* r, size_t n, int t, int root, void* c, void* st) {
  printf("broadcast n=%zu t=%d root=%d %p %p\n", n, t, root, c, st); return 0; }
int ncclAllGather(void* s, void* r, size_t n, int t, void* c, void* st) {
  printf("all_gather n=%zu t=%d %p %p\n", n, t, c, st); return 0; }
int ncclReduceScatter(void* s, void* r, size_t n, int t, int o, void* c, void* st) {
  printf("reduce_scatter n=%zu t=%d o=%d %p %p\n", n, t, o, c, st); return 0; }
int ncclSend(void* s, size_t n, int t, int peer, void* c, void* st) {
  printf("send n=%zu t=%d to=%d %p %p;", n, t, peer, c, st); return 0; }
int ncclRecv(void* r, size_t n, int t, int peer, void* c, void* st) {
  printf("recv n=%zu t=%d from=%d %p %p;", n, t, peer, c, st); return 0; }
"""

DRIVER = """
import ctypes, sys, types, torch
ctypes.CDLL(sys.argv[1])  # torch of a GPU machine has loaded its own
torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=0x57)
torch.cuda.synchronize = lambda device=None: None
from collectives.paths.direct import DirectPath
messages = types.SimpleNamespace(rank=1, size=4, leads=True, share_bytes=lambda content: content)
path = DirectPath(messages, torch.device("cpu"))
large, small = torch.zeros(16), torch.zeros(4)
path.all_reduce(large, large, "avg")()
path.all_reduce(large.bfloat16(), large.bfloat16(), "sum")()
path.all_gather(small, large)()
path.reduce_scatter(large, small, "max")()
path.broadcast(large, large, 2)()
path.reduce(large, large, "min", 3)()
path.all_to_all(large, torch.zeros(16))()
path.gather(small, large, 1)()
path.scatter(large, small, 0)()
late = path.send_recv(large.to(torch.float8_e5m2), large.to(torch.float8_e5m2), 2, 0)
path.use(types.SimpleNamespace(cuda_stream=0x99))  # a graph's capture moves calls that are bound already
late()
try:
    path.all_reduce(large.int(), large.int(), "prod")()
except RuntimeError as error:
    print("refused:", error, file=sys.stderr)
path.close()
DirectPath(messages, torch.device("cpu"), channels=8).close()
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    (tmp_path / "standin.c").write_text(STANDIN)
    made = tmp_path / "libnccl.so.2"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", str(made), str(tmp_path / "standin.c")]
    subprocess.run(command, check=True)
    return made


def test_the_library_gets_every_argument_in_its_place(library: Path, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(library)], cwd=tmp_path, env={"PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    at = "0xc0 0x57"
    others = [0, 1, 2, 3]
    assert done.stdout.splitlines() == [
        "init n=4 rank=1 id=xx",
        f"all_reduce 1 n=16 t=7 o=4 {at}",
        f"all_reduce 0 n=16 t=9 o=0 {at}",
        f"all_gather n=4 t=7 {at}",
        f"reduce_scatter n=4 t=7 o=2 {at}",
        f"broadcast n=16 t=7 root=2 {at}",
        f"reduce n=16 t=7 o=3 root=3 {at}",
        "(" + "".join(f"send n=4 t=7 to={peer} {at};recv n=4 t=7 from={peer} {at};" for peer in others) + ")",
        f"(send n=4 t=7 to=1 {at};" + "".join(f"recv n=4 t=7 from={peer} {at};" for peer in others) + ")",
        f"(recv n=4 t=7 from=0 {at};)",
        "(send n=16 t=11 to=2 0xc0 0x99;recv n=16 t=11 from=0 0xc0 0x99;)",
        "all_reduce 0 n=16 t=2 o=1 0xc0 0x99",
        "destroy 0xc0",
        "config magic=cafebeef size=48 min=8 max=8",
        "destroy 0xc0",
    ]
    assert "refused: invalid usage" in done.stderr
