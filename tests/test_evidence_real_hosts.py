"""Real ranks whose hosts are held up in known ways: each is found by its name, on the rank that it was done to.

`host_job.py` made the traces, by the command in its head. Other processes of the machine interrupted its hosts
meanwhile; what is found of that is not judged here.
"""

from pathlib import Path

import pytest
from test_evidence_hosts import evidence_of

from scalescope.scaling.evidence.compare import compare_hosts
from scalescope.scaling.evidence.host_cause import HostCause

TRACES = Path(__file__).parent / "data" / "held_up_hosts"
#: What was injected took so long a step, s (`HELD_UP_S` of the job).
HELD_UP_S = 0.04


def causes(folder: Path) -> list[HostCause]:
    """Return what is found, without what the machine's other processes do."""
    return [one for one in compare_hosts(evidence_of(folder)) if one.code != "host_starved"]


@pytest.mark.parametrize("case", ["front", "backward", "collector"])
def test_a_host_that_sleeps_or_collects_garbage_stalls(case: str) -> None:
    (stall,) = (one for one in causes(TRACES / case) if one.rank is not None)
    assert (stall.code, stall.rank) == ("host_stall", 1)
    assert stall.place is not None
    phase = {"front": "before_first", "backward": "backward", "collector": "forward"}[case]
    assert stall.place.phase == phase
    if case != "collector":
        assert min(stall.ns) >= 0.9 * HELD_UP_S * 1e9
    if case == "backward":
        assert stall.place.inside == "PauseBackward"


@pytest.mark.parametrize(("case", "annotation"), [("loader", "enumerate(DataLoader)#"), ("fetch", "read_shard")])
def test_slow_loading_is_found_with_the_annotation_around_it(case: str, annotation: str) -> None:
    (loads,) = (one for one in causes(TRACES / case) if one.rank is not None)
    assert (loads.code, loads.rank, loads.confidence) == ("data_loading", 1, 1.0)
    assert loads.evidence[0].name.startswith(annotation)
    assert sorted(loads.ns)[len(loads.ns) // 2] >= 0.6 * HELD_UP_S * 1e9


def test_a_function_that_is_compiled_anew_each_step_is_found_on_all_ranks() -> None:
    found = causes(TRACES / "compiled")
    assert [(one.code, one.rank) for one in found] == [("recompilation", None)]
    assert found[0].evidence[0].count == 1.0


def test_a_rank_that_shares_its_core_is_starved() -> None:
    found = [one for one in compare_hosts(evidence_of(TRACES / "shared_core")) if one.code == "host_starved"]
    assert 1 in [one.rank for one in found] or None in [one.rank for one in found]
