"""The direct path's calls, as the collective library's C interface receives them.

A library of the same name and interface, which only writes down its arguments, stands in for NCCL; the figures and
the results of the real one are checked on GPUs by the sweep itself.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.collectives.transports import issue_library

ROOT = Path(__file__).resolve().parent.parent
STANDIN = r"""
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct {
  size_t size; unsigned magic, version; int blocking, cga, min, max; const char* net; int split; } config_t;
const char* ncclGetErrorString(int result) { return result == 5 ? "invalid usage" : "no error"; }
int ncclGetUniqueId(ncclUniqueId* id) { memset(id, 'x', 128); return 0; }
int ncclCommInitRank(void** comm, int n, ncclUniqueId id, int rank) {
  printf("init n=%d rank=%d id=%c%c\n", n, rank, id.internal[0], id.internal[127]); *comm = (void*)0xc0; return 0; }
int ncclCommInitRankConfig(void** comm, int n, ncclUniqueId id, int rank, config_t* c) {
  if (c->max == 64) return 5;
  printf("config magic=%x size=%zu min=%d max=%d\n", c->magic, c->size, c->min, c->max);
  *comm = (void*)0xc0; return 0; }
int ncclCommDestroy(void* comm) { printf("destroy %p\n", comm); fflush(stdout); return 0; }
static int depth;
int ncclGroupStart(void) { if (depth++) printf("inside a group still: "); printf("("); return 0; }
int ncclGroupEnd(void) { --depth; printf(")\n"); return 0; }
int ncclAllReduce(void* s, void* r, size_t n, int t, int o, void* c, void* st) {
  printf("all_reduce %d n=%zu t=%d o=%d %p %p\n", s == r, n, t, o, c, st); return t == 2 ? 5 : 0; }
int ncclReduce(void* s, void* r, size_t n, int t, int o, int root, void* c, void* st) {
  if (t == 0) usleep(100000);
  printf("reduce n=%zu t=%d o=%d root=%d %p %p\n", n, t, o, root, c, st); return 0; }
int ncclBroadcast(void* s, void* r, size_t n, int t, int root, void* c, void* st) {
  printf("broadcast n=%zu t=%d root=%d %p %p\n", n, t, root, c, st); return 0; }
int ncclAllGather(void* s, void* r, size_t n, int t, void* c, void* st) {
  printf("all_gather n=%zu t=%d %p %p\n", n, t, c, st); return 0; }
int ncclReduceScatter(void* s, void* r, size_t n, int t, int o, void* c, void* st) {
  printf("reduce_scatter n=%zu t=%d o=%d %p %p\n", n, t, o, c, st); return 0; }
int ncclSend(void* s, size_t n, int t, int peer, void* c, void* st) {
  printf("send n=%zu t=%d to=%d %p %p;", n, t, peer, c, st); return t == 2 ? 5 : 0; }
int ncclRecv(void* r, size_t n, int t, int peer, void* c, void* st) {
  printf("recv n=%zu t=%d from=%d %p %p;", n, t, peer, c, st); return 0; }
"""

DRIVER = """
import ctypes, sys, threading, time, types, torch
ctypes.CDLL(sys.argv[1])  # torch of a GPU machine has loaded its own
if torch.version.cuda or torch.version.hip:  # as this one has, which is not to be found here
    from scalescope.collectives.transports import library
    library._NAMES = (sys.argv[1],)
torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=0x57)
torch.cuda.synchronize = lambda device=None: None
from scalescope.collectives.transports.direct import DirectTransport
from scalescope.collectives.transports.issue import Issuer
if sys.argv[2] == "python":  # as after an installation without a compiler
    Issuer.find = classmethod(lambda cls: None)
messages = types.SimpleNamespace(rank=1, size=4, leads=True, share_bytes=lambda content: content,
                                 least=lambda number: number)
path = DirectTransport(messages, torch.device("cpu"))
print("issued by", path.issued_by, file=sys.stderr)
def run(operation):
    path.rotating([operation])(1)
large, small = torch.zeros(16), torch.zeros(4)
run(path.all_reduce(large, large, "avg"))
run(path.all_reduce(large.bfloat16(), large.bfloat16(), "sum"))
run(path.all_gather(small, large))
run(path.reduce_scatter(large, small, "max"))
run(path.broadcast(large, large, 2))
run(path.reduce(large, large, "min", 3))
run(path.all_to_all(large, torch.zeros(16)))
run(path.gather(small, large, 1))
run(path.scatter(large, small, 0))
path.all_gather(large, small)()  # one by itself, as the check runs it
late = path.rotating([path.send_recv(large.to(torch.float8_e5m2), large.to(torch.float8_e5m2), 2, 0)])
path.use(types.SimpleNamespace(cuda_stream=0x99))  # a graph's capture moves calls that are bound already
late(1)
path.use(types.SimpleNamespace(cuda_stream=0x57))
late(1)
round_them = path.rotating([path.broadcast(torch.zeros(n), torch.zeros(n), 0) for n in (1, 2, 3)])
for count in (2, 0, 5, 1):  # 1 2, nothing, 3 1 2 3 1, 2
    round_them(count)
whole = large.int()
for refused in (path.all_reduce(whole, whole, "prod"), path.send_recv(whole, whole, 2, 0)):
    for run_refused in (path.rotating([refused, refused]), lambda count: refused()):
        try:
            run_refused(3)
        except RuntimeError as error:
            print("refused:", error, file=sys.stderr)
ticks, done = 0, threading.Event()
def tick():
    global ticks
    while not done.wait(0.01):
        ticks += 1
threading.Thread(target=tick).start()
path.rotating([path.reduce(large.char(), large.char(), "sum", 0)])(2)
done.set()
print("ticks meanwhile:", ticks > 3, file=sys.stderr)
path.close()
messages.least = lambda number: 0  # another rank cannot
path = DirectTransport(messages, torch.device("cpu"), channels=8)
print("issued by", path.issued_by, file=sys.stderr)
path.close()
from scalescope.collectives.transports import direct
from scalescope.collectives.operations.operation import NotAvailable
messages.texts = lambda text: [None, text]
print("opened:", type(direct.open_transport(messages, torch.device("cuda"), None)).__name__, file=sys.stderr)
for answer in (lambda text: [None, text], lambda text: [text and "elsewhere: " + text, text]):
    messages.texts = answer
    try:
        direct.open_transport(messages, torch.device("cuda"), 64).all_reduce(large, large, "sum")
    except NotAvailable as reason:
        print("closed:", reason, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("standin")
    (folder / "standin.c").write_text(STANDIN)
    made = folder / "libnccl.so.2"
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", str(made), str(folder / "standin.c")]
    subprocess.run(command, timeout=200, check=True)
    return made


@pytest.mark.parametrize("issued_by", ["c", "python"])
def test_the_library_gets_every_argument_in_its_place(library: Path, tmp_path: Path, issued_by: str) -> None:
    if issued_by == "c" and issue_library.load() is None:
        pytest.skip("the C helper is not built here: scalescope was not installed, or without a C compiler")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(library), issued_by], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False,
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
        f"all_gather n=16 t=7 {at}",
        "(send n=16 t=11 to=2 0xc0 0x99;recv n=16 t=11 from=0 0xc0 0x99;)",
        f"(send n=16 t=11 to=2 {at};recv n=16 t=11 from=0 {at};)",
        *(f"broadcast n={n} t=7 root=0 {at}" for n in (1, 2, 3, 1, 2, 3, 1, 2)),
        # the first failure ends the row, and no thread stays inside a group
        *[f"all_reduce 1 n=16 t=2 o=1 {at}"] * 2,
        *[f"(send n=16 t=2 to=2 {at};)"] * 2,
        *[f"reduce n=16 t=0 o=0 root=0 {at}"] * 2,
        "destroy 0xc0",
        "config magic=cafebeef size=48 min=8 max=8",
        "destroy 0xc0",
        "init n=4 rank=1 id=xx",
    ]
    assert done.stderr.splitlines() == [
        f"issued by {issued_by}",
        *["refused: invalid usage"] * 4,
        "ticks meanwhile: True",
        "issued by python",  # all ranks or none
        "opened: DirectTransport",
        "closed: the library makes no communicator of 64 CTAs: invalid usage",
        "closed: elsewhere: the library makes no communicator of 64 CTAs: invalid usage",
    ]


def test_the_doctor_says_whether_operations_are_issued_from_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = issue_library.library_file()
    found = issue_library.check_library()
    assert (found.level, found.fix is None) == (("note", False) if built is None else ("fine", True))
    torn = tmp_path / "_issue.so"
    torn.write_bytes(b"\x7fELF torn")  # as of another machine
    monkeypatch.setattr(issue_library, "library_file", lambda: torn)
    assert issue_library.load() is None
    found = issue_library.check_library()
    assert found.level == "note" and "does not load on this machine" in found.says
