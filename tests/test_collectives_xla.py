"""transport=xla: collectives as XLA compiles them, on real processes of JAX, checked against numpy."""

import json
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from scalescope.collectives.checks import check
from scalescope.collectives.config import SweepConfig
from scalescope.collectives.measure import groups
from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.operations.operation import NotAvailable
from scalescope.collectives.show.summary import summarise
from scalescope.collectives.transports.messages import Messages
from scalescope.collectives.transports.xla import transport as xla
from scalescope.collectives.transports.xla import world
from scalescope.collectives.transports.xla.hlo import held
from scalescope.collectives.transports.xla.program import Buffers, Collective, Mesh, compile_program
from scalescope.launch.job import Job
from scalescope.records.errors import UserError
from tests.collectives_runs import compose, planned, points_of, rows_of, sweep_in_world
from tests.worlds import run_world

#: As XLA wrote them: on two H200s (jax 0.11.2), where a loop holds one of its own kernels for small ones; and on a CPU.
ON_GPU = """HloModule jit_step, is_scheduled=true

%add.5.clone (x: f32[], y: f32[]) -> f32[] {
  ROOT %add.1 = f32[] add(%x, %y)
}

%fused_all-reduce.6.0.clone (param_0.355: f32[64]) -> f32[64] {
  ROOT %all-reduce.6.2 = f32[64] all-reduce(%param_0.355), channel_id=7, to_apply=%region_0.0.clone
}

ENTRY %main.8_spmd (param: f32[64], param.6: bf16[4096,4096]) -> (f32[64], bf16[4096,4096]) {
  %fusion-start = ((f32[64]), f32[64]) fusion-start(%param), kind=kCustom, calls=%fused_all-reduce.6.0.clone
  %fusion-done = f32[64] fusion-done(%fusion-start)
  %all-reduce-start.5 = ((bf16[4096,4096]{1,0}), bf16[4096,4096]{1,0}) all-reduce-start(%param.6), to_apply=%add.5.clone
  %all-reduce-done.5 = bf16[4096,4096]{1,0} all-reduce-done(%all-reduce-start.5)
  ROOT %tuple = (f32[64], bf16[4096,4096]) tuple(%fusion-done, %all-reduce-done.5)
}
"""
IN_A_LOOP = """HloModule jit_run

%region_0.2_spmd (param: (s64[], f32[1024], f32[1024])) -> (s64[], f32[1024], f32[1024]) {
  %psum.7 = f32[1024]{0} all-reduce(%get-tuple-element.30), channel_id=1, to_apply=%region_1.1
  %copy.11 = f32[1024]{0} copy(%psum.7)
}

ENTRY %main.5_spmd (a.1: f32[1024], b.1: f32[1024]) -> (f32[1024], f32[1024]) {
  %copy.16 = s64[] copy(%constant.0.clone.1)
  %while.11 = (s64[], f32[1024], f32[1024]) while(%tuple.15), condition=%region_2.3_spmd, body=%region_0.2_spmd TRIPS
}
"""


@pytest.mark.job
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_collective_gives_what_numpy_says_also_after_a_program_of_many(ranks: int) -> None:
    done = run_world(ranks, ["tests/xla_worker.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("wrong", "listens")))
    assert json.loads(lines["wrong"]) == {
        name: [0, 0] for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
    }
    listening = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("listens")]
    assert len(listening) == ranks
    assert {address.removeprefix("::ffff:") for one in listening for address in one} == {"127.0.0.1"}


@pytest.mark.job
def test_a_sweep_through_xla_has_the_rows_of_any_other_and_a_column_for_dispatch(tmp_path: Path) -> None:
    axes = (
        f"operations=[{','.join(OPERATIONS)}]", "sizes=[8B,40KiB]", "dtypes=[float32,bfloat16]", "group_sizes=[2,3]",
        "transport=xla",
    )  # fmt: skip
    quick = ("min_iterations=4", "budget_s=0.01", "warmup_iterations=1", "percentile_iterations=3")
    code, said = sweep_in_world(tmp_path, "xla", 3, *axes, *quick)
    assert code == 0, said
    rows = rows_of(tmp_path, "xla")
    assert points_of(rows) == planned(3, *axes)
    assert {row.mode for row in rows if row.operation != "barrier"} == {"out_of_place"}
    measured = [row for row in rows if row.status == "measured"]
    assert {(row.operation, row.group_size) for row in measured} == {
        (name, size)
        for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
        for size in (2, 3)
    }
    for row in measured:
        assert (row.wrong, row.memory, row.backend, row.issued_by, row.dtype) == (0, "xla", "gloo", None, "float32")
        assert row.compiled_with and "all_reduce_combine_threshold_bytes=0" in row.compiled_with
        assert row.time_us and row.interval_us and row.interval_us[0] <= row.time_us <= row.interval_us[1]
        assert row.dispatch_us is not None and row.iterations >= 2
        factor = OPERATIONS[row.operation].facts.bus_factor(row.group_size)
        assert row.bus_gb_s == pytest.approx(row.bytes / row.time_us / 1e3 * (factor or 0))
    reasons = {(row.operation, row.dtype): row.reason or "" for row in rows if row.status != "measured"}
    assert reasons["all_reduce", "bfloat16"] == "XLA moves f32 in the place of bfloat16 here: other bytes"
    assert reasons["broadcast", "float32"].startswith("XLA here has no collective-broadcast")
    assert reasons["gather", "float32"] == "XLA has no gather to one rank"


@pytest.mark.job
def test_what_a_compiled_program_cannot_be_told_is_refused_with_its_reason(tmp_path: Path) -> None:
    axes = (
        "sizes=[8B]",
        "transport=xla",
        "execution=[eager,graph]",
        "reductions=[sum,avg]",
        "modes=[in_place,out_of_place]",
    )
    code, said = sweep_in_world(tmp_path, "told", 2, *axes, "budget_s=0.01", "percentile_iterations=0")
    assert code == 0, said
    reasons = {(row.execution, row.mode, row.reduction): row.reason or row.status for row in rows_of(tmp_path, "told")}
    assert reasons.pop(("eager", "out_of_place", "sum")) == "measured"
    assert reasons.pop(("eager", "out_of_place", "avg")) == "XLA's all-reduce has no avg: sum, min, max are its own"
    assert {reason for (execution, _, _), reason in reasons.items() if execution == "graph"} == {
        "the compiler decides what of a program becomes a graph; its figures are of execution=eager"
    }
    assert reasons["eager", "in_place", "sum"] == (
        "XLA decides by itself where a result lies; its figures are of modes=out_of_place"
    )


@pytest.mark.job
def test_a_program_from_which_xla_has_dropped_the_collective_is_not_timed() -> None:
    """Nobody wants this one's result, and XLA knows."""
    jax = pytest.importorskip("jax")
    from jax import lax

    mesh = Mesh(jax.devices("cpu")[:1], 0)
    sent = mesh.put(torch.ones(64), "float32")
    collective = Collective(lambda one: (lax.psum(one, "ranks"), one + 1)[1], "all-reduce", "float32", on_itself=True)
    with pytest.raises(NotAvailable, match="runs 0 all-reduce where it was told 5"):
        compile_program(mesh, collective, Buffers(sent, mesh.zeros(64, "float32"), mesh.token()), 5)


def test_what_a_program_holds_is_counted_with_its_loops_and_kernels_of_its_own() -> None:
    on_gpu = held(ON_GPU, "all-reduce", 1)
    assert (on_gpu.runs, sorted(on_gpu.dtypes)) == (2, ["bf16", "f32"])
    known = IN_A_LOOP.replace("TRIPS", ', backend_config={"known_trip_count":{"n":"10"},"known_init_step":{}}')
    assert held(known, "all-reduce", 99).runs == held(known, "copy", 99).runs == 10  # the counter's copy is none
    assert held(IN_A_LOOP.replace("TRIPS", ""), "all-reduce", 7).runs == 7
    assert held(known, "all-gather", 10).runs == 0


def test_without_jax_a_sweep_says_the_line_to_install_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'scalescope\[jax\]'"):
        check(compose("transport=[c10d,xla]"), 2)
    check(compose("transport=c10d"), 2)


def test_a_world_that_could_not_be_joined_is_refused_to_every_later_group(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[object] = []

    def join(*arguments: object) -> None:
        attempts.append(arguments)
        if len(attempts) == 1:  # JAX calls itself joined from then on
            raise RuntimeError("DEADLINE_EXCEEDED")

    monkeypatch.setattr(world, "refusal", lambda device: None)
    monkeypatch.setattr(world, "join", join)
    monkeypatch.setattr(groups, "Messages", lambda *_: SimpleNamespace(texts=lambda text: [None, text]))
    monkeypatch.setattr(groups, "_xla_said", [])
    job = cast(Job[SweepConfig], SimpleNamespace(
        host_group=None, world=SimpleNamespace(size=2, rank=1), device=torch.device("cpu"), devices=[],
        config=SimpleNamespace(launch=SimpleNamespace(timeout_s=1.0)),
    ))  # fmt: skip
    for _ in range(3):
        refused = groups._join_xla(job)
        assert refused is not None
        with pytest.raises(NotAvailable, match="JAX joined no world: DEADLINE_EXCEEDED"):
            refused.all_reduce()
    assert len(attempts) == 1


@pytest.mark.parametrize("here", [True, False])
def test_a_mesh_that_one_rank_cannot_make_is_refused_on_all(here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: object) -> object:
        if here:
            raise RuntimeError("out of memory")
        return object()

    monkeypatch.setattr(xla, "XlaTransport", made)
    other = None if here else "JAX makes no mesh of the group: out of memory"
    messages = cast(Messages, SimpleNamespace(texts=lambda text: [other, text]))
    refused = xla.open_transport(messages, (0, 1), 1)
    with pytest.raises(NotAvailable, match="JAX makes no mesh of the group: out of memory"):
        refused.all_gather(torch.zeros(1), torch.zeros(2))


def test_the_coordinator_listens_at_the_masters_address_alone_where_it_is_one_of_this_host() -> None:
    assert world._listens_at("127.0.0.1") == "127.0.0.1"
    assert world._listens_at("a-name") == world._listens_at("2001:db8::7") == "::"
    assert world._with_port("2001:db8::7", 80) == "[2001:db8::7]:80"
    assert world._with_port("10.0.0.7", 80) == "10.0.0.7:80"


def test_dispatch_is_a_line_of_the_summary_where_the_time_is_known_well() -> None:
    (point,) = planned(2, "transport=xla", "sizes=[8B]")
    known = point.row(status="measured", time_us=5.0, interval_us=(4.9, 5.1), dispatch_us=70.0)
    wide = point.row(status="measured", time_us=5.0, interval_us=(1.0, 9.0), dispatch_us=70.0)
    line = "xla: dispatched in a program of its own, it takes 70.00 µs more than 5.00 µs in a long one at 8B"
    assert any(line in said for said in summarise([known], []))
    assert not any("dispatched" in said for said in summarise([wide], []))
