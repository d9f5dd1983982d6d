"""What the loop's own thread makes of a batch before the forward pass, on CPUs: what is told of it, and of what not."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scalescope import RunAnalysis
from scalescope.records.folder import RunFolder
from scalescope.records.rows import Device
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because, todo
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.verdicts.step_rows.doubt import is_of_the_job
from tests.gloo_traces import GlooJob, analysed

LOADER, DDP = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DistributedDataParallel.forward"
SPECTROGRAM = ("aten::stft", "aten::abs", "aten::log")


def _of(answer: RunAnalysis, code: str) -> list[Finding]:
    return [one for one in answer.findings if one.code == code]


def _job(folder: Path, operators: Sequence[str] = SPECTROGRAM, **otherwise: Any) -> RunAnalysis:
    return analysed(_traces(folder, operators, **otherwise))


def _traces(
    folder: Path,
    operators: Sequence[str] = SPECTROGRAM,
    *,
    ms: Sequence[float] = (20.0, 20.0),
    forward: str = DDP,
    before: str = "",
    in_steps: Sequence[int] = range(8),
    optimizer: tuple[str, float] | None = None,
    stands_ms: float = 0.0,
    micro_batches: int = 1,
) -> Path:
    """Write the traces of ranks that load a batch, make something of it for so long each, and train on it for 40 ms.

    `before`: what else there is between the batch and the forward pass; `in_steps`: in which steps something is made.
    """
    job = GlooJob(view_ns=None)
    for step in range(8):
        job.step(3 + step)
        for _ in range(micro_batches):
            for rank in (0, 1):
                begun = job.now[rank]
                job.sleep(rank, 0.5)
                job.annotate(rank, LOADER, begun, job.now[rank])
                job.sleep(rank, 0.01)
            if before == "reduces":
                job.all_reduce(1.0)
            elif before == "optimizer":
                begun_of = dict(job.now)
                job.compute(1.0, "aten::lerp_")
                for rank, begun in begun_of.items():
                    job.annotate(rank, "Optimizer.step#SGD.step", begun - 1_000, job.now[rank] - 1_000)
            elif before:
                job.compute(1.0, before)
            for rank in (0, 1):
                for name in operators if step in in_steps else ():
                    job.compute(ms[rank] / len(operators), name, rank=rank)
            begun_of = dict(job.now)
            job.compute(15.0, calls=8)
            for rank, begun in begun_of.items():
                job.annotate(rank, forward, begun - 500, job.now[rank])
            job.sleep(1, stands_ms)
            job.compute(25.0, "AddmmBackward0", calls=12)
        job.all_reduce(2.0)
        if optimizer is not None:
            begun_of = dict(job.now)
            job.compute(optimizer[1], "aten::lerp_", calls=40)
            for rank, begun in begun_of.items():
                job.annotate(rank, optimizer[0], begun - 1_000, job.now[rank] + 1_000)
    return job.write(folder)


def test_what_all_ranks_make_of_a_batch_on_their_loops_threads_is_told(tmp_path: Path) -> None:
    """Spectrograms of raw audio took 20 ms of 63, and the answer was that the step is compute."""
    answer = _job(tmp_path)
    first = answer.findings[0]
    assert (first.code, first.rank, first.at_least, first.backed) == ("batch_preparation", None, True, "replay")
    assert first.ms == pytest.approx(20.0, rel=0.02)
    assert "it computes for 20.0 ms a profiled step (6.7 ms in aten::" in because(first)
    assert first.remedy is not None and "in the loader's workers, if that is what" in cure_text(first.remedy)
    assert "DataLoader(num_workers=…)" in cure_elsewhere(first.remedy)
    assert "batch preparation costs at least 20.1 ms" in run_verdict(answer).headline


@pytest.mark.parametrize(
    "otherwise",
    [
        {"forward": "Net.forward"},  # where the forward pass begins nothing tells
        {"ms": (1.0, 1.0)},
        {"ms": (20.0, 2.0)},  # one rank's own
        {"in_steps": (2, 5)},  # a validation pass
        {"operators": ("aten::conv2d", "aten::relu") * 6},  # a generator's, whose weights change
        {"before": "AddmmBackward0"},  # another network's step, or another micro-batch
        {"before": "reduces"},  # a part of the network that is spread over the ranks
        {"before": "optimizer"},  # what follows it may be the step's before: an average of the weights
    ],
    ids=str,
)
def test_what_is_no_preparation_or_little_is_not_told_as_one(tmp_path: Path, otherwise: dict[str, Any]) -> None:
    assert not _of(_job(tmp_path, **otherwise), "batch_preparation")


def test_a_product_among_what_prepares_batches_makes_it_no_network(tmp_path: Path) -> None:
    """A spectrogram's change to mel bands is one matrix product."""
    (one,) = _of(_job(tmp_path, (*SPECTROGRAM, "aten::matmul")), "batch_preparation")
    assert one.ms == pytest.approx(20.0, rel=0.02)


def test_what_is_made_of_each_micro_batch_counts(tmp_path: Path) -> None:
    """A step that adds gradients up prepares as many batches as it has forward passes."""
    (one,) = _of(_job(tmp_path, micro_batches=3), "batch_preparation")
    assert one.ms == pytest.approx(60.0, rel=0.02)


def test_a_rank_that_stands_still_comes_first_where_it_costs_nearly_as_much_as_what_all_prepare(tmp_path: Path) -> None:
    """What is surely lost to preparation, and is larger by far, leads: 20.1 ms at least stood behind 4.5 of a rank."""
    first, second = _job(tmp_path / "more", stands_ms=22.0).findings[:2]
    assert (first.code, first.rank, second.code) == ("host_stall", 1, "batch_preparation")
    first, second = _job(tmp_path / "less", stands_ms=6.0).findings[:2]
    assert (first.code, second.code, second.rank) == ("batch_preparation", "host_stall", 1)


def test_of_an_optimizer_and_preparation_the_weightier_comes_first(tmp_path: Path) -> None:
    """An optimizer that gives 6.5 ms back led 20 ms of preparation, for being surely had: neither is a fault."""
    adam = "Optimizer.step#Adam.step"
    codes = [one.code for one in _job(tmp_path / "less", optimizer=(adam, 11.0)).findings[:2]]
    assert codes == ["batch_preparation", "unfused_optimizer"]
    codes = [one.code for one in _job(tmp_path / "more", optimizer=(adam, 40.0)).findings[:2]]
    assert codes == ["unfused_optimizer", "batch_preparation"]


@pytest.mark.parametrize("cores", ["0-1", "0-7"])
def test_beside_threads_on_all_cores_it_is_told_that_workers_need_some(tmp_path: Path, cores: str) -> None:
    run = RunFolder.create(tmp_path / "run", "train", "what: job\n")
    info = run.read_info()
    info.status, info.world_size = "done", 2
    info.devices = [Device(rank, "a", "cpu", "EPYC", threads=1, cores=cores) for rank in range(2)]
    run.write_info(info)
    shutil.copytree(_traces(tmp_path / "traces"), run.traces)
    (answer,) = analyze([run.path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    told = todo(answer.findings[0], answer)
    assert (": at most 21.1 ms a step" if cores == "0-1" else ": at least 20.1 ms a step") in told
    needs = "they compute on all cores, which workers would take from them"
    assert (needs in told) == (needs in run_verdict(answer).text) == (cores == "0-1")
    assert answer.advice[0].cure == "prepare_ahead"


def test_an_unsteady_machine_makes_no_preparation(tmp_path: Path) -> None:
    """Operators that run in each step are the job's, whatever of a bound on them can be had."""
    (one,) = _of(_job(tmp_path), "batch_preparation")
    assert is_of_the_job(one)
