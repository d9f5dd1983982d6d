"""Made-up traces of ranks that compute on CPUs and talk by gloo, with times that a test chooses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.findings.add import add_findings
from scalescope.scaling.run import explain_run
from tests.synthetic import BASE_NS, write

Json = dict[str, Any]

_LOOP, _RUN_LOOP = 101, 202
#: From the end of a collective to the thread that waited for it going on, ns.
_WOKEN = 40_000


@dataclass
class GlooJob:
    """Ranks side by side: each has its own instant, ns, and they meet in all-reduces."""

    world_size: int = 2
    view_ns: int | None = 1_000  # of the view in each operator; None: there is none, as in a compiled step
    host: str = ""  # on which all ranks run, where their traces name it
    now: dict[int, int] = field(default_factory=dict)
    events: dict[int, list[Json]] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)  # when each rank's step did

    def __post_init__(self) -> None:
        for rank in range(self.world_size):
            self.now[rank], self.events[rank] = 1_000_000, []

    def step(self, number: int) -> None:
        """End the step before, if there is one, and begin this one, on all ranks."""
        self.end_step()
        self.begun = dict(self.now)
        self._number = number

    def end_step(self) -> None:
        for rank, begun in self.begun.items():
            self._event(rank, "user_annotation", f"ProfilerStep#{self._number}", begun, self.now[rank] - 1_000)

    def sleep(self, rank: int, ms: float) -> None:
        self.now[rank] += round(ms * 1e6)

    def compute(
        self,
        ms: float,
        name: str = "aten::mm",
        rank: int | None = None,
        calls: int = 1,
        elements: int = 0,
        dtype: str = "float",
    ) -> None:
        """Let ranks run an operator so often, of `ms` in all; `elements`: of its inputs, where shapes are recorded."""
        shapes = {"Input Dims": [[elements], [elements]], "Input type": [dtype, dtype]} if elements else None
        for one in range(self.world_size) if rank is None else [rank]:
            for _ in range(calls):
                begin = self.now[one]
                self.now[one] = begin + round(ms * 1e6 / calls)
                if self.view_ns is not None:
                    self._event(one, "cpu_op", "aten::view", begin + 1, begin + 1 + self.view_ns)
                self._event(one, "cpu_op", name, begin, self.now[one], args=shapes)
                self.now[one] += 2_000

    def fill_bucket(self, elements: int) -> None:
        """Let DDP put a gradient into its bucket on all ranks."""
        shapes = {"Input Dims": [[elements], [elements]], "Input type": ["float", "float"]}
        for rank, begin in self.now.items():
            self.now[rank] = begin + 20_000
            name = "torch::distributed::reducer::mul_out"
            self._event(rank, "cpu_op", name, begin, begin + 18_000, args=shapes)

    def operator(self, name: str, rank: int, begun: int) -> None:
        """Let what a rank has run since then be inside an operator of this name."""
        self._event(rank, "cpu_op", name, begun - 1_000, self.now[rank] - 1_000)

    def annotate(self, rank: int, name: str, begun: int, ended: int) -> None:
        """Let a rank say what it did meanwhile, as an optimizer's step does."""
        self._event(rank, "user_annotation", name, begun, ended)

    def compile(self, ms: float, runs_ms: float) -> None:
        """Let all ranks run a function that is compiled first."""
        for rank in range(self.world_size):
            begin = self.now[rank]
            self.sleep(rank, ms)
            self._event(rank, "cpu_op", "compile_fx.<locals>.bw_compiler (dynamo_timed)", begin + 1_000, self.now[rank])
            self.sleep(rank, runs_ms)
            self._event(rank, "cpu_op", "CompiledFunctionBackward", begin, self.now[rank])
            self.now[rank] += 2_000

    def all_reduce(
        self, transfer_ms: float, inside: str | None = None, waits: str | None = None, numbers: int | None = None
    ) -> None:
        """Let all ranks meet; each waits in an operator of these names: a function of the user's own, or none.

        `numbers`: how many it carries, where shapes are recorded.
        """
        shapes = {} if numbers is None else {"Input Dims": [[numbers]], "Input type": ["float"]}
        began = {rank: now + 30_000 for rank, now in self.now.items()}
        end = max(began.values()) + round(transfer_ms * 1e6)
        for rank, begin in self.now.items():
            if inside is not None:
                self._event(rank, "cpu_op", inside, begin, end + 2 * _WOKEN)
            self._event(rank, "cpu_op", "c10d::allreduce_", begin + 10_000, begin + 25_000)
            if waits is not None:
                self._event(rank, "cpu_op", waits, begin + 50_000, end + _WOKEN)
            self._event(rank, "user_annotation", "gloo:all_reduce", began[rank], end, _RUN_LOOP, shapes)
            self.now[rank] = end + 2 * _WOKEN + 1_000

    def meet(self, operation: str, transfer_ms: float, numbers: int | None = None) -> None:
        """Let all ranks meet in a barrier, or to gather or broadcast something: their loops wait for that.

        `numbers`: how many it carries, where shapes are recorded.
        """
        shapes = {} if numbers is None else {"Input Dims": [[numbers]], "Input type": ["float"]}
        began = {rank: now + 30_000 for rank, now in self.now.items()}
        end = max(began.values()) + round(transfer_ms * 1e6)
        operator = {"all_gather": "c10d::allgather_", "broadcast": "c10d::broadcast_"}.get(operation, "c10d::barrier")
        for rank, begin in self.now.items():
            self._event(rank, "cpu_op", operator, begin + 10_000, begin + 25_000)
            self._event(rank, "user_annotation", f"gloo:{operation}", began[rank], end, _RUN_LOOP, shapes)
            self.now[rank] = end + 2 * _WOKEN + 1_000

    def gather_objects(self, pickles_ms: float, transfer_ms: float) -> None:
        """Let all ranks gather a Python object of each: its bytes' count, and the bytes."""
        for rank in range(self.world_size):
            self.sleep(rank, pickles_ms)
        for name in ("empty", "set_", "to", "empty", "to", "lift_fresh", "to", "zeros", "select", "unsqueeze"):
            self.compute(0.002, f"aten::{name}")
        for reads in (("gt", "is_nonzero", "item", "resize_", "empty", "slice"), ("to", "detach", "resolve_conj")):
            self.meet("all_gather", transfer_ms)
            for name in reads:
                self.compute(0.002, f"aten::{name}")

    def all_reduce_beside(self, transfer_ms: float) -> None:
        """Let all ranks hand a bucket over and go on: it travels once the last has, and is awaited with the next."""
        began = {rank: now + 30_000 for rank, now in self.now.items()}
        end = max(began.values()) + round(transfer_ms * 1e6)
        for rank, begin in self.now.items():
            self._event(rank, "cpu_op", "c10d::allreduce_", begin + 10_000, begin + 25_000)
            self._event(rank, "user_annotation", "gloo:all_reduce", began[rank], end, _RUN_LOOP + 1)
            self.now[rank] = begin + 40_000

    def transfer(self, sender: int, transfer_ms: float) -> None:
        """Let one of two ranks send to the other, as pipelines do without recorded shapes."""
        end = max(self.now.values()) + round(transfer_ms * 1e6)
        for rank, begin in self.now.items():
            operator, annotated = ("c10d::send", "gloo:send") if rank == sender else ("c10d::recv_", "gloo:recv")
            self._event(rank, "cpu_op", operator, begin + 10_000, begin + 25_000)
            self._event(rank, "user_annotation", annotated, begin + 30_000, end, _RUN_LOOP)
            self.now[rank] = end + 2 * _WOKEN + 1_000

    def message(self, sender: int, receiver: int, transfer_ms: float, recorded_late_ms: float = 0.0) -> None:
        """Let one rank send to another, without recorded shapes; a send's record may begin after the data have gone."""
        sent, asked = self.now[sender], self.now[receiver]
        end = max(sent, asked) + round(transfer_ms * 1e6)
        begins = sent + 30_000 + round(recorded_late_ms * 1e6)
        self._event(sender, "cpu_op", "c10d::send", sent + 10_000, begins + 5_000)
        self._event(sender, "user_annotation", "gloo:send", begins, max(end, begins) + 5_000, _RUN_LOOP)
        self._event(receiver, "cpu_op", "c10d::recv_", asked + 10_000, asked + 25_000)
        self._event(receiver, "user_annotation", "gloo:recv", asked + 30_000, max(end, asked + 31_000), _RUN_LOOP)
        self.now[sender] = max(end, begins) + 2 * _WOKEN + 1_000
        self.now[receiver] = max(end, asked + 31_000) + 2 * _WOKEN + 1_000

    def broadcasts_in_a_row(self, count: int, each_ms: float) -> None:
        """Hand over so many, 1 ms apart, and then wait for all: the first takes as long as the others together."""
        for rank, begin in self.now.items():
            for at in range(count):
                handed = begin + at * 1_000_000
                took = each_ms * (count if at == 0 else 1)
                self._event(rank, "cpu_op", "c10d::broadcast_", handed + 10_000, handed + 25_000)
                self._event(rank, "user_annotation", "gloo:broadcast", handed + 30_000,
                            handed + 30_000 + round(took * 1e6), _RUN_LOOP + min(at, 1))  # fmt: skip
            self.now[rank] = begin + 30_000 + round(count * max(each_ms, 1.0) * 1e6) + 2 * _WOKEN

    def monitored_barrier(self) -> None:
        """Let two ranks meet in a barrier on their own threads, whose messages name no partner."""
        begun, last = dict(self.now), max(self.now.values())
        for rank, begin in begun.items():
            ends = last + 300_000 + 100_000 * rank
            self._event(rank, "cpu_op", "aten::empty", begin, begin + 2_000)
            self._event(rank, "cpu_op", "c10d::monitored_barrier_", begin + 4_000, ends)
            asked, answered = ("gloo:recv", "gloo:send") if rank == 0 else ("gloo:send", "gloo:recv")
            self._event(rank, "user_annotation", asked, begin + 50_000, last + 200_000)
            self._event(rank, "user_annotation", answered, last + 210_000, ends - 10_000)
            self.now[rank] = ends + 2_000

    def write(self, folder: Path) -> Path:
        self.end_step()
        return write({rank: self._trace(rank) for rank in range(self.world_size)}, folder)

    def frames(self, rank: int, count: int, ms: float) -> None:
        """Let a rank's Python call short functions, so many in so long, without any operator."""
        each = ms * 1e6 / count
        for at in range(count):
            begin = self.now[rank] + round(at * each)
            self._event(rank, "python_function", "<built-in function ord>", begin, begin + round(each / 2))
        self.now[rank] += round(ms * 1e6)

    def stack(self, rank: int, name: str, begun: int, ended: int) -> None:
        """Record a function of a rank's Python that ran around what it has done meanwhile."""
        self._event(rank, "python_function", name, begun, ended)

    def _event(
        self, rank: int, category: str, name: str, start: int, end: int, thread: int = _LOOP, args: Json | None = None
    ) -> None:
        self.events[rank].append({"ph": "X", "cat": category, "name": name, "pid": 1000, "tid": thread,
                                  "ts": start / 1e3, "dur": (end - start) / 1e3, "args": args or {}})  # fmt: skip

    def _trace(self, rank: int) -> Json:
        return {
            "schemaVersion": 1,
            "deviceProperties": [],
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": self.world_size},
            **({"host_name": self.host} if self.host else {}),
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": self.events[rank],
        }


def analysed(folder: Path, step_ms: float | None = None) -> RunAnalysis:
    """Return what is told of such traces, and of what a step takes without a profiler where that is given."""
    explained = explain_run(folder, jobs=1, for_replay=True)
    untraced = given_steps([step_ms] if step_ms is not None else [], [folder]).get(folder)
    add_findings(folder, [explained.analysis], [], explained.records, 1, untraced, explained.host)
    return explained.analysis


def in_steps(folder: Path, numbers: range, of_step: Callable[[GlooJob], None]) -> Path:
    """Return the traces of two ranks that do the same in each step."""
    job = GlooJob()
    for number in numbers:
        job.step(number)
        of_step(job)
    return job.write(folder)
