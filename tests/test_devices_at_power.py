"""A step that products fill: its device may be at its power limit, and slower than in the profiled steps."""

import numpy as np
import pytest

from scalescope.scaling.as_run.calibrate import calibrate
from scalescope.scaling.as_run.recording import WITH_DEVICE
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Activity, Contention, Graph, HostCall
from scalescope.scaling.replay.host_cost import CallCost, HostCost
from scalescope.scaling.replay.simulate import mean_step_ns, simulate_steps
from tests.test_scaling_as_run import KERNELS, _cost, _given, _job


def filled(name: str) -> Graph:
    """Return steps of 10 ms of kernels in a row, each of them awaited by its host, which takes 2 ms for them."""
    graph = Graph([0], [], [], {}, {0: [[]]}, {0: []}, {0: 0.0}, [], {0: []}, {0: []}, {0: 0.0}, {0: []},
                  list(range(4)), Contention())  # fmt: skip
    for at in range(160):
        begun = at * 300_000
        graph.add(Activity(0, 7, COMPUTE, 0.0, at // 40, name, traced_start=begun, traced_end=begun + 250_000), 250_000)
        graph.order[0][0].append(at)
        graph.calls[0] += [HostCall(50_000.0, 0.0, 0.0, launches=at), HostCall(0.0, 0.0, 0.0, awaits=at)]
        if at % 40 == 0:
            graph.steps[0].append(at)
    return graph


@pytest.mark.parametrize(("name", "fitted"), [("gemm", False), ("elementwise_kernel", True)])
def test_a_step_that_products_fill_tells_no_scale_of_recording(name: str, fitted: bool) -> None:
    """A rank's own products cost 9.8 ms of 33.0 and were told as 3.1 (2.1 to 4.1): the device was slower without the
    rests that recording gave it, and that was taken for hosts whose recording cost half of what it did."""
    graph = filled(name)
    each, none = np.tile([25_000.0, 0.0], 160), np.zeros(320)
    traced = mean_step_ns(simulate_steps(graph))
    untraced = Untraced(Interval(11.4, 11.39, 11.41), "given")
    found = calibrate(graph, traced, HostCost({0: CallCost(each, none, none, none)}), WITH_DEVICE, untraced)
    assert found.recording.fitted == fitted
    assert found.step_ns.value == pytest.approx(11.4e6, rel=0.01)
    scale = found.recording.scale
    assert scale.value == pytest.approx(1.0 if not fitted else 0.6, rel=0.1)
    assert (scale.high > 1.5) == (not fitted)


def test_a_step_that_is_far_longer_than_its_devices_take_is_not_theirs_however_little_is_known_of_it() -> None:
    """A job whose host took 36 ms a step, from 23 to 43, was told as 22.9 ms, 94% of it compute: its device's."""
    graph = _job(think_ns=30_000.0, work_ns=15_000.0)
    traced = mean_step_ns(simulate_steps(graph))
    found = calibrate(graph, traced, _cost(10_000.0), WITH_DEVICE, _given(KERNELS * 0.023, 0.4))
    assert found.recording.fitted and found.step_ns.value == pytest.approx(KERNELS * 23_000.0, rel=0.01)
