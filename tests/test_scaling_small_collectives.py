"""Many small collectives cost their rounds, and are told apart: figures, gradients, units of shards, activations."""

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.bounds.many_buckets import HostPlaces, rows_of
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.prices.pricing import price
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import Activity, Contention, Graph, HostCall, Transfer
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.whatif.replayer import Replayer
from tests import data_parallel
from tests.data_parallel import Disturbance
from tests.gloo_traces import GlooJob, in_steps
from tests.gloo_traces import analysed as analysed_gloo
from tests.recorded import explained_of, records_of
from tests.test_scaling_findings import DATA, analysed, found
from tests.trace_json import packed, unpacked


def test_figures_that_are_exchanged_one_by_one_cost_all_rounds_but_one(tmp_path: Path) -> None:
    """Four losses and norms of 4 bytes, 0.2 ms each, where one all-reduce would do."""
    analysis = analysed(data_parallel.run(tmp_path / "many", Disturbance(figures=4), ahead=True))
    (one,) = analysis.findings
    assert (one.code, one.rank) == ("small_collectives", None) and one.ms == pytest.approx(0.6, rel=0.02)
    assert one.backed == "replay" and not one.at_most, "with what hosts take to hand them over"
    assert one.remedy is not None and one.remedy.cure == "merge_collectives"
    assert "4 collectives a step, most of them all_reduce, of 4 B" in run_verdict(analysis).headline
    (single,) = found(data_parallel.run(tmp_path / "one", Disturbance(figures=1), ahead=True))
    assert single.code == "nothing"


def test_vectors_that_are_reduced_one_by_one_may_be_gradients_which_every_step_needs(tmp_path: Path) -> None:
    """Biases of 64 numbers, reduced by hand: to do that in some steps only would be another training."""
    (one,) = found(data_parallel.run(tmp_path, Disturbance(figures=4, numbers=64), ahead=True))
    assert (one.code, one.rank) == ("small_collectives", None) and one.ms == pytest.approx(0.6, rel=0.02)
    assert one.remedy is not None and one.remedy.cure == "merge_tensors"
    assert "gradients in one flat tensor" in cure_elsewhere(one.remedy) and "not in every" not in cure_text(one.remedy)


def test_gradients_that_are_reduced_one_by_one_are_told_without_their_shapes(tmp_path: Path) -> None:
    """20 of 16 KiB, 0.2 ms each, after one of 256 MiB: they travel as one. Launching was told."""
    job = Disturbance(one_piece=64 << 20, figures=20, numbers=1 << 12)
    one = next(one for one in found(data_parallel.run(tmp_path, job, ahead=True)) if one.code == "small_buckets")
    assert one.ms == pytest.approx(19 * 0.2, rel=0.05) and one.rank is None and not one.at_most
    assert one.remedy is not None and one.remedy.cure == "merge_tensors", "no DDP is there"
    assert "all-reduces a step of 16.0 KiB in the median" in because(one)


def test_activations_that_the_next_layer_needs_are_no_buckets() -> None:
    """Of a row of all-reduces only those go together of which nothing multiplies the first before the last is there."""
    graph = Graph([0], [], [], {}, {}, {0: []}, {0: 0.0}, [], {}, {}, {}, {}, [0], Contention())
    for index in range(3):
        product = graph.add(Activity(0, 7, COMPUTE, 0.0, 0, "nvjet_128x256_TNT"), 1.0)
        if index == 1:  # the second all-reduce begins after a product of what the first one brought
            graph.after[product] = [graph.transfers[0].members[0]]
        member = graph.add(Activity(0, 9, COMMUNICATION, 0.0, 0, "all_reduce", collective=index), 1.0)
        graph.calls[0] += [HostCall(1.0, 0.0, 1.0, launches=at) for at in (product, member)]
        graph.transfers.append(Transfer({0: member}, 1.0, "all_reduce", 1 << 20, "float32", 2, 0, 1.0, 0.0))
    assert list(rows_of(graph, [0, 1, 2], {0: HostPlaces.of(graph, 0)})) == [[0], [1, 2]]


def norms_one_by_one(folder: Path, late_ms: float = 0.0) -> Finding:
    """Return what 40 all-reduces of one number cost, each awaited: 0.2 ms, and 0.11 ms until it begins and is noticed.

    Before the first of them rank 1 is late by so much.
    """
    job = GlooJob()
    for number in range(1, 5):
        job.step(number)
        job.compute(50.0)
        job.sleep(1, late_ms)
        for _ in range(40):
            job.compute(0.01, "aten::linalg_vector_norm")
            job.all_reduce(0.2, numbers=1)
    return next(one for one in analysed_gloo(job.write(folder)).findings if one.code == "small_collectives")


def test_figures_that_a_cpu_rank_waits_for_one_by_one_cost_for_how_long_they_hold_it_up(tmp_path: Path) -> None:
    """Handing over and being woken go as well: of 64 norms 10.3 ms were told, where one all-reduce took 22 less."""
    one = norms_one_by_one(tmp_path / "even")
    assert one.ms == pytest.approx(39 * 0.31, rel=0.05) and not one.at_most


def test_a_loop_beside_ddp_waits_for_what_it_reduces_itself_where_it_does_so(tmp_path: Path) -> None:
    """DDP's bucket is awaited once all are handed over; norms that the loop reduces behind it are not its buckets."""
    job = GlooJob()
    for number in range(1, 4):
        job.step(number)
        job.compute(20.0)
        job.fill_bucket(4096)
        for _ in range(6):
            job.all_reduce(0.2, numbers=1)
            job.compute(0.01, "aten::linalg_vector_norm")
    graph = Replayer(read_records(job.write(tmp_path))).graph
    calls = graph.calls[0]
    behind = [after.awaits for before, after in pairwise(calls) if 0 <= before.launches == before.hands_over]
    handed = [one.launches for one in calls if 0 <= one.launches == one.hands_over]
    at_once = [awaited == own for awaited, own in zip(behind, handed, strict=True)]
    assert len(handed) == 18 and all(at_once), "each is waited for where it is handed over"


def test_who_is_late_before_the_first_of_many_rounds_would_be_before_the_only_one(tmp_path: Path) -> None:
    one = norms_one_by_one(tmp_path / "late", late_ms=8.0)
    assert one.ms == pytest.approx(39 * 0.31, rel=0.05)
    assert one.high_ms is not None and one.high_ms > 39 * 0.31


def test_ddps_own_tiny_buckets_are_no_figures() -> None:
    """34 gradients of 128 B in buckets of their own were told as figures that need not be exchanged in every step."""
    first = found(DATA / "cpu_tiny_buckets_n2")[0]
    assert first.code == "small_buckets" and first.remedy is not None and first.remedy.cure == "larger_buckets"
    assert first.low_ms is not None and first.low_ms > 20 and "52 all-reduces" in because(first)
    assert "small_collectives" not in {one.code for one in found(DATA / "cpu_tiny_buckets_n2")}


def test_a_change_brings_no_more_than_what_it_takes_out_can_cost() -> None:
    """Of two sizes a replay on a loaded machine takes any difference for a round: two all-reduces were to cost 19.7 ms
    of which the smaller took 1.
    """
    replayer = Replayer(records_of("cpu_tiny_buckets_n2"))
    explained = explained_of("cpu_tiny_buckets_n2")
    scene = Scene(explained.analysis, replayer, step_ms=replayer.base_ns / 1e6)
    larger = Change(bucket_mib=25.0)
    whole = Candidate(code="small_buckets", change=larger)
    free, (capped,) = replayer.predict(larger), price(scene, [msgspec.structs.replace(whole, most_ms=13.5)])
    assert free.change_ms is not None and free.change_ms < -13.5
    assert free.high_ms is not None and free.high_ms > 0 and price(scene, [whole]) == []  # it may be a loss
    assert (capped.ms, capped.at_most) == (13.5, True)


@pytest.mark.parametrize(("annotated", "cure"), [("FSDP::pre_forward", "larger_units"), (None, "gather_together")])
def test_units_of_shards_too_small_cost_at_most_all_rounds_but_one(
    annotated: str | None, cure: str, tmp_path: Path
) -> None:
    """Four layers of 16 KiB, each gathered by itself in 0.2 ms. *Shard larger units: fully_shard(…)* was advised of
    what a loss gathers under DDP, too, twice a step 16.0 KiB.
    """
    folder = data_parallel.run(tmp_path, Disturbance(units=4), ahead=True)
    for path in folder.glob("*.json.gz") if annotated else ():
        trace = unpacked(path)
        first = next(one for one in trace["traceEvents"] if one.get("cat") == "user_annotation")
        trace["traceEvents"].append({**first, "name": annotated, "dur": 100})
        path.write_bytes(packed(trace))
    analysis = analysed(folder)
    (one,) = analysis.findings
    assert (one.code, one.at_most) == ("small_collectives", True) and one.ms == pytest.approx(0.6, rel=0.02)
    assert one.remedy is not None and one.remedy.cure == cure
    assert "4 collectives a step, most of them all_gather, of 16.0 KiB" in run_verdict(analysis).headline


@pytest.mark.parametrize("between", ["aten::cat", "aten::mm"])
def test_what_a_loss_gathers_one_by_one_is_to_be_gathered_together_unless_products_come_between(
    between: str, tmp_path: Path
) -> None:
    """*Shard larger units … around blocks and not each layer* was told of a contrastive loss's gathers under DDP. What
    layers gather of activations needs what came before it.
    """

    def of_step(job: GlooJob) -> None:
        begun = dict(job.now)
        job.compute(20.0, "aten::mm", calls=5)
        for rank in (0, 1):
            job.annotate(rank, "DistributedDataParallel.forward", begun[rank], job.now[rank])
        for _ in range(4):
            job.meet("all_gather", 1.0, numbers=4096)
            job.compute(0.5, between)
        job.compute(20.0, "AddmmBackward0", calls=5)
        job.all_reduce(1.0)
        begun = dict(job.now)
        job.compute(2.0, "aten::lerp_", calls=2)
        for rank in (0, 1):
            job.annotate(rank, "Optimizer.step#AdamW.step", begun[rank], job.now[rank])

    answer = analysed_gloo(in_steps(tmp_path, range(5), of_step))
    cures = [one.remedy.cure for one in answer.findings if one.remedy is not None and one.code == "small_collectives"]
    assert cures == (["gather_together"] if between == "aten::cat" else []), cures
