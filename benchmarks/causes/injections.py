"""What is injected: a class a way to lose time, chosen by name. Nothing here says whether a diagnosis finds it.

An amount is in ms of the disturbed rank's own time, of the host or of the device, as the class says.
"""

import gc
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

from causes.job import MIB, Hooks, Job
from causes.models import Gpt

HERE = Path(__file__).resolve().parent


class Tools:
    """What injections share on a rank: the device's speed, and things that are slow to make, made once."""

    def __init__(self, job: Job, scratch: Path) -> None:
        self.device, self.on_gpu, self.scratch = job.device, job.on_gpu, scratch
        self.rank, self.world_size = job.rank, job.world_size
        side = job.size.matmul
        self.left, self.right = (torch.rand(side, side, device=job.device) for _ in range(2))
        self.product = torch.empty_like(self.left)
        self.cycles_a_ms = 10_000_000 / job.time_ms(lambda: torch.cuda._sleep(10_000_000)) if self.on_gpu else 0.0
        self.matmul_ms = job.time_ms(lambda: self.multiply(20)) / 20
        self.cotenant: Cotenant | None = None
        self.second_group: dist.ProcessGroup | None = None

    def multiply(self, times: int) -> None:
        """Multiply matrices in fp32, which draws less power than the model's own bf16 does."""
        for _ in range(times):
            torch.mm(self.left, self.right, out=self.product)

    def delay(self, ms: float) -> None:
        """Occupy the device's stream, without its multiprocessors; without a device, the host."""
        if self.on_gpu:
            torch.cuda._sleep(round(self.cycles_a_ms * ms))
        else:
            time.sleep(ms / 1e3)

    def close(self) -> None:
        """End the processes that were started."""
        if self.cotenant is not None:
            self.cotenant.close()


class Injection(Hooks):
    """A disturbance of this rank's steps."""

    def __init__(self, job: Job, tools: Tools, amount_ms: float) -> None:
        self.job, self.tools, self.ms = job, tools, amount_ms
        self.number = 0  # of the step

    def before_step(self) -> None:
        self.number += 1


class DeviceDelay(Injection):
    """A kernel that nobody else runs, after forward."""

    def after_forward(self, loss: Tensor) -> None:
        self.tools.delay(self.ms)


class DelayInTurns(Injection):
    """The same, each step on another rank."""

    def after_forward(self, loss: Tensor) -> None:
        if self.number % self.job.world_size == self.job.rank:
            self.tools.delay(self.ms)


class RandomDelays(Injection):
    """A kernel of another length each step and rank, in the mean of `ms`, mostly short and at times long."""

    def start(self) -> None:
        self.chance = random.Random(self.job.rank)

    def after_forward(self, loss: Tensor) -> None:
        self.tools.delay(min(self.chance.expovariate(1 / self.ms), 5 * self.ms))


class SecondStream(Injection):
    """Work of this rank alone on a second stream, beside the model's own."""

    def start(self) -> None:
        self.stream = torch.cuda.Stream()
        self.times = max(1, round(self.ms / self.tools.matmul_ms))

    def before_forward(self) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.tools.multiply(self.times)

    def after_step(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)


class Cotenant:
    """Another process on this rank's GPU, which computes while a file says so."""

    def __init__(self, device: int, flag: Path) -> None:
        self.flag = flag
        self.flag.write_bytes(b"\0")
        command = [sys.executable, str(HERE / "cotenant.py"), str(device), str(flag)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the co-tenant did not start")

    def set(self, share: float) -> None:
        """Have it compute this share of the time, in bursts."""
        self.flag.write_bytes(bytes([round(share * 100)]))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class SharedDevice(Injection):
    """A co-tenant on this rank's GPU; `ms` is how long it computes a step."""

    share = 0.25  # of the time

    def start(self) -> None:
        if self.tools.cotenant is None:
            self.tools.cotenant = Cotenant(torch.cuda.current_device(), self.tools.scratch / f"go{self.job.rank}")
        self.tools.cotenant.set(self.share)

    def stop(self) -> None:
        if self.tools.cotenant is not None:
            self.tools.cotenant.set(0)


class MoreRows(Injection):
    """A batch with a fifth more samples on this rank: the same kernels with more rows."""

    def start(self) -> None:
        self.samples = self.job.samples
        self.job.prepare(self.samples + max(1, round(self.samples / 5)))

    def stop(self) -> None:
        self.job.prepare(self.samples)


class MorePasses(Injection):
    """One block of the model runs again, forward and backward."""

    def start(self) -> None:
        assert isinstance(self.job.network, Gpt)
        self.order = self.job.network.order
        self.job.network.order = (*self.order, self.order[-1])

    def stop(self) -> None:
        assert isinstance(self.job.network, Gpt)
        self.job.network.order = self.order


class SlowLoading(Injection):
    """Each batch takes `ms` longer to come by."""

    def start(self) -> None:
        assert self.job.loading is not None
        self.job.loading.slow_down(self.ms)

    def stop(self) -> None:
        assert self.job.loading is not None
        self.job.loading.slow_down(0)


class StallBeforeForward(Injection):
    """The host sleeps between the batch and the first operator of the model."""

    def before_forward(self) -> None:
        time.sleep(self.ms / 1e3)


class StallInBackward(Injection):
    """The host sleeps in the middle of the backward pass."""

    def start(self) -> None:
        self.job.network.in_backward = lambda: time.sleep(self.ms / 1e3)

    def stop(self) -> None:
        self.job.network.in_backward = None


class GarbageCollected(Injection):
    """Python's collector walks over a heap of objects, each step, before backward."""

    def start(self) -> None:
        self.heap: list[list[int]] = [[number] for number in range(100_000)]
        began = time.perf_counter()
        gc.collect()
        took_ms = (time.perf_counter() - began) * 1e3
        self.heap += [[number] for number in range(round(100_000 * max(0.0, self.ms / took_ms - 1)))]

    def after_forward(self, loss: Tensor) -> None:
        gc.collect()

    def stop(self) -> None:
        self.heap = []


class SharedCore(Injection):
    """All threads of this rank have one core to themselves and a process that is always busy."""

    before: dict[int, set[int]] = {}
    busy: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        self.before = {thread: os.sched_getaffinity(thread) for thread in threads()}
        cores = sorted(os.sched_getaffinity(0))
        core = cores[os.getpid() % len(cores)]
        busy = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        self.busy = subprocess.Popen([sys.executable, "-S", "-c", busy])
        for thread in self.before:
            bind(thread, {core})

    def stop(self) -> None:
        if self.busy is None:
            return
        self.busy.kill()
        self.busy.wait()
        for thread in threads():
            bind(thread, self.before.get(thread, self.before[os.getpid()]))


def threads() -> list[int]:
    """Return this process's threads."""
    return [int(path.name) for path in Path("/proc/self/task").iterdir()]


def bind(thread: int, cores: set[int]) -> None:
    """Let a thread run on these cores only, if it is still there."""
    with suppress(ProcessLookupError):
        os.sched_setaffinity(thread, cores)


class BusyThread(Injection):
    """A second Python thread holds the interpreter's lock for `ms` of every 4 · `ms`."""

    def start(self) -> None:
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.ended.wait(3 * self.ms / 1e3):
            until = time.perf_counter() + self.ms / 1e3
            while time.perf_counter() < until:
                pass

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()


class NormsRead(Injection):
    """Every gradient's norm goes to the host after backward, as for a log."""

    def after_backward(self) -> None:
        self.norms = [float(p.grad.norm().item()) for p in self.job.model.parameters() if p.grad is not None]


class LossRead(Injection):
    """The loss goes to the host before backward, as for a check of its value."""

    def after_forward(self, loss: Tensor) -> None:
        if not math.isfinite(loss.item()):
            raise FloatingPointError("the loss is not finite")


class DeviceSynchronised(Injection):
    """The host waits for the device after forward and after backward, as around a stopwatch."""

    def after_forward(self, loss: Tensor) -> None:
        self.job.synchronize()

    def after_backward(self) -> None:
        self.job.synchronize()


class TinyKernels(Injection):
    """A loop of kernels of a microsecond, whose launching takes the host `ms`."""

    def start(self) -> None:
        self.scalar = torch.zeros(1, device=self.job.device)
        self.job.synchronize()
        began = time.perf_counter()
        self.add(300)
        self.amount = round(300 * self.ms / ((time.perf_counter() - began) * 1e3))
        self.job.synchronize()

    def settle(self, amount: int) -> None:
        self.times = amount

    def add(self, times: int) -> None:
        for _ in range(times):
            self.scalar.add_(1)

    def before_forward(self) -> None:
        self.add(self.times)


class PageableCopy(Injection):
    """A batch in pageable memory is copied to the device, which holds up host and device for about `ms`."""

    def start(self) -> None:
        probe = torch.ones(16 * MIB, dtype=torch.uint8)
        took_ms = self.job.time_ms(lambda: probe.to(self.job.device))
        self.amount = round(16 * MIB * self.ms / took_ms)

    def settle(self, amount: int) -> None:
        self.data = torch.ones(amount, dtype=torch.uint8)

    def before_forward(self) -> None:
        self.copied = self.data.to(self.job.device)

    def stop(self) -> None:
        self.copied = self.data = torch.empty(0)


class ConcurrentCollectives(Injection):
    """All-reduces of another group run beside forward for about `ms`, and end before it does."""

    def start(self) -> None:
        if self.tools.second_group is None:
            self.tools.second_group = dist.new_group()
        group = self.tools.second_group
        self.payload = torch.zeros(16 * MIB // 4, device=self.job.device)
        took_ms = self.job.time_ms(lambda: [dist.all_reduce(self.payload, group=group) for _ in range(4)]) / 4
        times = torch.tensor([max(1.0, self.ms / took_ms)], device=self.job.device)
        dist.all_reduce(times, dist.ReduceOp.MIN)  # all must call equally often
        self.times = int(times.item())

    def before_forward(self) -> None:
        group = self.tools.second_group
        self.works = [dist.all_reduce(self.payload, group=group, async_op=True) for _ in range(self.times)]

    def after_forward(self, loss: Tensor) -> None:
        for work in self.works:
            assert work is not None
            work.wait()


class CacheEmptied(Injection):
    """The allocator gives all unused memory back each step, and has to get it anew."""

    def after_step(self) -> None:
        torch.cuda.empty_cache()


class NewShapes(Injection):
    """A compiled function sees another shape each step, and is compiled again."""

    def start(self) -> None:
        import torch._dynamo

        torch._dynamo.reset()
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000
        self.scale: Callable[[Tensor], Tensor] = torch.compile(scaled, backend="eager", dynamic=False)
        self.rows = torch.rand(4096, 8, device=self.job.device)

    def before_forward(self) -> None:
        with record_function("augment"):
            self.scale(self.rows[: 4096 - self.number])


def scaled(x: Tensor) -> Tensor:
    """Return rows of mean 0 and length 1."""
    x = x - x.mean(dim=1, keepdim=True)
    length: Tensor = x.norm(dim=1, keepdim=True)
    return x / length.clamp(min=1e-6)


INJECTIONS: dict[str, type[Injection]] = {
    "device_delay": DeviceDelay,
    "delay_in_turns": DelayInTurns,
    "random_delays": RandomDelays,
    "second_stream": SecondStream,
    "cotenant": SharedDevice,
    "more_rows": MoreRows,
    "more_passes": MorePasses,
    "slow_loading": SlowLoading,
    "stall_before_forward": StallBeforeForward,
    "stall_in_backward": StallInBackward,
    "garbage_collected": GarbageCollected,
    "shared_core": SharedCore,
    "busy_thread": BusyThread,
    "norms_read": NormsRead,
    "loss_read": LossRead,
    "device_synchronised": DeviceSynchronised,
    "tiny_kernels": TinyKernels,
    "pageable_copy": PageableCopy,
    "collectives_beside": ConcurrentCollectives,
    "cache_emptied": CacheEmptied,
    "new_shapes": NewShapes,
}
