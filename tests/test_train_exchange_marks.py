"""When a rank's own time in a step ends: marks at what exchanges gradients, which cost and hold next to nothing."""

import copy
import gc
import io
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.nn.parallel import DistributedDataParallel

from scalescope.train.measure.clock import CpuClock
from scalescope.train.script.exchange_marks import Waits, keep_groups_for_reducers, mark_exchanges
from scalescope.train.script.exchanging import find_exchanging
from tests.worlds import run_world


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def test_a_ranks_own_time_lasts_until_its_gradients_are_computed_and_no_part_of_a_batch_ends_it(alone: None) -> None:
    layers = [nn.Linear(8, 8) for _ in range(3)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    computed: list[int] = []
    for at, layer in enumerate(layers):
        layer.weight.register_hook(lambda _, at=at: computed.append(at))
    seen: list[list[int]] = []
    marks = mark_exchanges(lambda: seen.append(list(computed)))
    assert len(marks) == 1
    model({"x": torch.ones(2, 8)}["x"]).sum().backward()
    assert seen == [[2, 1, 0]]
    with model.no_sync():
        model(torch.ones(2, 8)).sum().backward()
    with torch.no_grad():
        model(torch.ones(2, 8))
    assert len(seen) == 1, "nothing was exchanged"
    marks.remove()
    model(torch.ones(2, 8)).sum().backward()
    assert len(seen) == 1


class _Trainer:
    """As loops of people's own keep their model: not by a name of the loop's function."""

    def __init__(self) -> None:
        self.parts = {"model": DistributedDataParallel(nn.Linear(8, 8))}


def _lets_go_of_a_batch() -> bool:
    batch = torch.ones(2, 8)
    kept = weakref.ref(batch)
    find_exchanging()
    del batch
    return kept() is None


def _keeps_what_a_script_took_of_its_own_names() -> bool:
    rate = 0.1
    names = locals()
    find_exchanging()
    return names.get("rate") == rate


@pytest.mark.job
def test_modules_that_were_frozen_out_of_pythons_lists_are_found_from_the_loop_s_frames(alone: None) -> None:
    """gc.freeze() before the loop is what garbage collections are mended by: its ranks keep their own times."""
    trainer = _Trainer()
    gc.freeze()
    try:
        assert not [one for one in gc.get_objects() if type(one) is DistributedDataParallel]
        seen: list[int] = []
        marks = mark_exchanges(lambda: seen.append(0))
        assert len(marks) == 1
        trainer.parts["model"](torch.ones(2, 8)).sum().backward()
        assert seen == [0]
        marks.remove()
        assert _lets_go_of_a_batch() and _keeps_what_a_script_took_of_its_own_names()
    finally:
        gc.unfreeze()  # the model goes, and what the whole process froze is frozen again
        del trainer
        gc.collect()
        gc.freeze()


def test_what_a_rank_waits_for_rank_0s_batch_statistics_is_no_time_of_its_own(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP sends rank 0's buffers before each forward pass: a rank that waits there for a late rank 0 is not late."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    clock = CpuClock()
    monkeypatch.setattr(model, "_sync_buffers", lambda: time.sleep(0.2))
    marks = mark_exchanges(clock.arrive, Waits(clock.begin_wait, clock.end_wait))
    readings = []
    for _ in range(2):
        loss = model(torch.ones(4, 8)).sum()
        time.sleep(0.05)
        loss.backward()
        clock.lap(loss.detach())
        readings.append(clock.read())
    model.module(torch.ones(4, 8))  # around DDP: nothing is awaited
    marks.remove()
    assert not model._forward_pre_hooks
    assert not model.module._forward_pre_hooks
    for reading in readings:
        assert 50 <= reading.own_ms <= reading.step_ms - 199
        assert 0 <= reading.own_run_delay_ms <= reading.run_delay_ms


def test_where_a_module_inside_ddp_is_compiled_its_own_time_ends_before_it_waits_for_buffers(alone: None) -> None:
    model = DistributedDataParallel(nn.BatchNorm1d(8))
    model.module.compile(backend="eager")
    seen: list[str] = []
    marks = mark_exchanges(lambda: seen.append("mark"), Waits(lambda: seen.append("wait"), lambda: seen.append("on")))
    model.register_forward_pre_hook(lambda *_: seen.append("forward"))
    model(torch.ones(4, 8))
    marks.remove()
    assert seen == ["mark", "forward"]


def test_short_steps_are_marked_so_seldom_that_it_costs_them_a_five_hundredth(alone: None) -> None:
    model = DistributedDataParallel(nn.Linear(8, 8))
    taken: list[int] = []
    seen: list[int] = []
    marks = mark_exchanges(lambda: seen.append(len(taken)))

    def take(steps: int) -> None:
        for _ in range(steps):
            taken.append(1)
            marks.begin_step(len(taken))
            model(torch.ones(2, 8)).sum().backward()

    marks.spread(7.0)
    take(12)
    assert seen == [4, 8, 12]
    marks.spread(30.0)
    take(2)
    assert seen[3:] == [13, 14]
    marks.remove()


def test_of_a_step_that_is_marked_every_pass_is_so_that_the_first_counts(alone: None) -> None:
    models = [DistributedDataParallel(nn.Linear(8, 8)) for _ in range(2)]
    seen: list[int] = []
    step = 0
    marks = mark_exchanges(lambda: seen.append(step))
    marks.spread(13.0)
    for step in range(1, 5):
        marks.begin_step(step)
        for model in models:
            model(torch.ones(2, 8)).sum().backward()
    marks.remove()
    assert seen == [2, 2, 4, 4]


def test_a_marked_module_is_copied_written_and_let_go_of_as_if_there_were_no_marks(alone: None) -> None:
    model = DistributedDataParallel(nn.Linear(8, 8))
    seen: list[int] = []
    marks = mark_exchanges(lambda: seen.append(1))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copied = copy.deepcopy(next(iter(model._forward_hooks.values())))
    read = torch.load(file, weights_only=False)
    read(torch.ones(2, 8)).sum().backward()
    copied(model, (), model.module(torch.ones(2, 8)))
    assert not seen, "a copy marks nothing"
    model(torch.ones(2, 8)).sum().backward()
    assert seen == [1]
    kept = weakref.ref(model)
    del model, read, copied
    gc.collect()
    assert kept() is None
    marks.remove()
    assert not len(marks)


@pytest.mark.parametrize("look", [keep_groups_for_reducers, lambda: mark_exchanges(lambda: None).remove()])
def test_a_process_group_outlives_what_would_end_it_under_pythons_lock(alone: None, look: Callable[[], None]) -> None:
    gone: list[str] = []
    group = dist.new_group([0])
    assert isinstance(group, dist.ProcessGroup)
    model = DistributedDataParallel(nn.Linear(8, 8), process_group=group)
    for _ in range(2):  # a loop that is measured twice
        look()
    of_group = weakref.ref(group, lambda _: gone.append("group"))
    of_reducer = weakref.ref(model.reducer, lambda _: gone.append("reducer"))
    dist.destroy_process_group(group)
    del group, model
    assert of_group() is None and of_reducer() is None
    assert gone == ["reducer", "group"]


@pytest.mark.job
def test_a_script_ends_although_a_thread_of_gloos_still_needs_pythons_lock() -> None:
    done = run_world(2, [str(Path(__file__).with_name("reducer_last_job.py"))], limit_s=60)
    assert done.returncode == 0, done.stderr


def test_a_module_that_gathers_is_marked_before_it_waits_for_its_parameters(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(8, 8)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    seen: list[str] = []
    wait = FSDPParamGroup.wait_for_unshard

    def wait_and_say(group: FSDPParamGroup) -> None:
        seen.append("wait")
        wait(group)

    monkeypatch.setattr(FSDPParamGroup, "wait_for_unshard", wait_and_say)
    marks = mark_exchanges(lambda: seen.append("mark"))
    model(torch.ones(2, 8))
    marks.remove()
    assert seen[:2] == ["mark", "wait"]


def test_a_mark_that_fails_ends_nobodys_training(alone: None) -> None:
    model = DistributedDataParallel(nn.Linear(8, 8))
    called = []

    def fail() -> None:
        called.append(1)
        raise RuntimeError("no such device")

    mark_exchanges(fail)
    for _ in range(2):
        model(torch.ones(2, 8)).sum().backward()
    assert called == [1], "once, and never again"
