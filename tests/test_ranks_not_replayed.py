"""More ranks than are replayed: what holds up the others' hosts is known, and what it costs is not."""

import gzip
import json
from pathlib import Path

from scalescope import analyze
from scalescope.scaling.answer_rows import ExpertRow
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure, of_ranks
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.prices.balanced_experts import bound_experts
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests.recorded import DATA, explained_of, records_of


def _clone(source: Path, folder: Path, copies: list[int]) -> Path:
    """Write a job of as many ranks as `copies` names: each one's trace is that of the source's rank there."""
    everyone, size = list(range(len(copies))), len(copies)
    for rank, copied in enumerate(copies):
        trace = json.loads(gzip.decompress((source / f"rank{copied}.json.gz").read_bytes()))
        trace["distributedInfo"].update(rank=rank, world_size=size)
        for group in trace["distributedInfo"].get("pg_config", ()):
            group.update(pg_size=size, ranks=everyone)
        for event in trace["traceEvents"]:
            if "Group size" in (args := event.get("args", {})):
                args.update({"Group size": size, "Process Group Ranks": str(everyone)})
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return folder


def test_a_rank_that_is_interrupted_and_not_replayed_leaves_the_analysis_whole(tmp_path: Path) -> None:
    """It ended in a KeyError: what its host's own records told was to be taken out of a replay without that rank."""
    answer = analyze(_clone(DATA / "held_up_hosts" / "shared_core", tmp_path, [0] * 6 + [1] * 6), jobs=1)
    starved = next(one for one in answer.findings if one.code == "host_starved")
    assert answer.unpriced is None and starved.ms is not None
    assert starved.rank == 6, "of those that share a core, two are replayed: 6, and 11, which comes last"


def test_of_what_all_hosts_have_the_replayed_ones_own_is_left() -> None:
    one = HostCause(
        code="host_starved", rank=None, steps=(1, 2), ns=(5, 5), own_ns=((0, 6), (9, 7)),
        evidence=(HostFigure(kind="interruptions", ns=5),),
    )  # fmt: skip
    (left,) = of_ranks([one], range(8))
    assert left.own_ns == ((0, 6),)
    assert of_ranks([one], range(1, 8)) == []


def test_experts_of_a_rank_that_is_not_replayed_are_told_as_measured() -> None:
    analysis, replayer = explained_of("gather_sm_n2").analysis, Replayer(records_of("gather_sm_n2"))
    row = ExpertRow(
        group="ep", rank=9, imbalance=2.0, share=0.2, bytes_by_rank=dict.fromkeys(range(10), 1e6), calls=2.0,
        wait_ms=4.0, gain_ms=3.0, gain_low_ms=2.0, gain_high_ms=4.0,
    )  # fmt: skip
    analysis.experts = [row]
    bound_experts(Scene(analysis, replayer))
    assert analysis.experts == [row]
