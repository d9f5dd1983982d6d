"""Ranks read disjoint samples of real files, the held-out part is never trained on, and bad input is named early."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scalescope.records.errors import UserError
from scalescope.train.checks import check
from scalescope.train.config import TrainConfig
from scalescope.train.data.corpus import LLM_C_MAGIC, read_corpus
from scalescope.train.data.samples import HeldOutBatches, Share, TokenBatches, synthetic_batch
from scalescope.train.data.windows import TokenWindows
from scalescope.train.measure.schedule import make_schedule
from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.settings import DataConfig
from tests.train_runs import compose


def data(kind: str, path: Path, **changes: Any) -> DataConfig:
    values: dict[str, Any] = {"validation_path": None, "pattern": "*", "exclude": [], "validation_fraction": 0.1}
    return DataConfig(
        kind=kind,
        path=str(path),
        **{**values, "validation_samples": 8, "workers": 0, "decoder": "auto", "corrupt": "skip", **changes},
    )


def gpt(context: int, vocabulary: int = 65_536) -> GptConfig:
    return GptConfig(
        kind="gpt",
        name="gpt",
        batch_size=2,
        layers=1,
        heads=1,
        width=8,
        context=context,
        vocabulary=vocabulary,
        attention="auto",
        loss_kernel="singles",
        gelu="torch",
    )


def counting_tokens(path: Path, tokens: int = 10_000) -> Path:
    """A token file in which every value stands once, so that a value tells where it was read."""
    np.arange(tokens, dtype="<u2").tofile(path)
    return path


def read_by(ranks: int, path: Path, steps: int, samples: int) -> list[torch.Tensor]:
    corpus = read_corpus(data("tokens", path))
    return [
        torch.cat([TokenBatches(corpus, gpt(10), Share(rank, ranks, samples), seed=7)[step] for step in range(steps)])
        for rank in range(ranks)
    ]


def test_ranks_read_disjoint_tokens(tmp_path: Path) -> None:
    path = counting_tokens(tmp_path / "train.bin")
    inputs = [set(rows[:, :-1].flatten().tolist()) for rows in read_by(4, path, steps=20, samples=10)]
    assert all(len(own) == 20 * 10 * 10 for own in inputs)
    assert not set.intersection(*inputs)
    assert len(set.union(*inputs)) == 4 * 20 * 10 * 10


def test_a_global_batch_is_the_same_however_many_ranks_share_it(tmp_path: Path) -> None:
    path = counting_tokens(tmp_path / "train.bin")
    (alone,) = read_by(1, path, steps=1, samples=8)
    assert torch.equal(alone, torch.cat(read_by(4, path, steps=1, samples=2)))


def test_a_synthetic_global_batch_is_the_same_however_many_ranks_share_it() -> None:
    for model in (compose("model=gpt_tiny").model, compose("model=resnet50_64px").model):
        whole, _ = synthetic_batch(model, Share(0, 1, 4), seed=3, device=torch.device("cpu"))
        parts = [synthetic_batch(model, Share(rank, 2, 2), seed=3, device=torch.device("cpu"))[0] for rank in (0, 1)]
        assert torch.equal(whole, torch.cat(parts))


def test_the_held_out_part_is_never_trained_on(tmp_path: Path) -> None:
    path = counting_tokens(tmp_path / "train.bin")
    corpus = read_corpus(data("tokens", path))
    trained = {int(t) for rows in read_by(2, path, steps=100, samples=8) for t in rows.flatten()}  # over an epoch
    held_out = HeldOutBatches(corpus, gpt(10), Share(0, 1, 4), samples=16)
    read = {int(token) for index in range(len(held_out)) for token in held_out[index].flatten()}
    assert len(read) == 16 * 11
    assert trained.isdisjoint(read)
    assert trained <= set(range(9_000))


def test_held_out_samples_are_the_same_however_many_ranks_share_them(tmp_path: Path) -> None:
    corpus = read_corpus(data("tokens", counting_tokens(tmp_path / "train.bin")))

    def rows(ranks: int) -> torch.Tensor:
        shares = [HeldOutBatches(corpus, gpt(10), Share(rank, ranks, 3), samples=12) for rank in range(ranks)]
        return torch.cat([share[index] for share in shares for index in range(len(share))])

    assert torch.equal(rows(1), rows(2))


def test_every_epoch_reads_every_window_once_in_an_order_of_its_own() -> None:
    windows = TokenWindows(tokens=1000, context=10, seed=1)
    first = [windows.start(number) for number in range(windows.count)]
    second = [windows.start(windows.count + number) for number in range(windows.count)]
    assert len({start // 10 for start in first}) == windows.count == 99
    assert first != second
    assert max(*first, *second) + 10 + 1 <= 1000
    assert windows.start(0) == first[0]  # a resumed job asks again


def test_targets_are_the_next_tokens(tmp_path: Path) -> None:
    (rows,) = read_by(1, counting_tokens(tmp_path / "train.bin"), steps=1, samples=4)
    assert torch.equal(rows[:, :-1] + 1, rows[:, 1:])


def test_text_is_its_bytes_file_after_file(tmp_path: Path) -> None:
    (tmp_path / "skip").mkdir()
    (tmp_path / "b" / "skip").mkdir(parents=True)
    for name, text in (
        ("b/b.txt", "bbbb"),
        ("a.txt", "aaaa"),
        ("c.md", "cccc"),
        ("skip/d.txt", "dd"),
        ("b/skip/e.txt", "e"),
    ):
        (tmp_path / name).write_text(text)
    for pattern in ("*.txt", "**/*.txt"):
        corpus = read_corpus(data("text", tmp_path, pattern=pattern, exclude=["skip"], validation_fraction=0.25))
        assert bytes(corpus.training) + b"|" + bytes(corpus.held_out) == b"aaaabb|bb"


def test_llm_cs_token_files_are_read_without_their_header(tmp_path: Path) -> None:
    header = np.zeros(256, dtype="<i4")
    header[:3] = LLM_C_MAGIC, 1, 500
    path = tmp_path / "train.bin"
    path.write_bytes(header.tobytes() + np.arange(500, dtype="<u2").tobytes())
    corpus = read_corpus(data("tokens", path, validation_fraction=0.0))
    assert corpus.training.tolist() == list(range(500))


def test_a_validation_file_of_its_own_leaves_the_training_file_whole(tmp_path: Path) -> None:
    train, val = counting_tokens(tmp_path / "train.bin", 500), counting_tokens(tmp_path / "val.bin", 50)
    corpus = read_corpus(data("tokens", train, validation_path=str(val)))
    assert (len(corpus.training), len(corpus.held_out)) == (500, 50)


def gpt_on(path: Path, *overrides: str, kind: str = "tokens") -> TrainConfig:
    return compose("model=gpt_tiny", f"data={kind}", f"data.path={path}", "data.validation_samples=4", *overrides)


def llm_c_file(path: Path, *, version: int, claimed: int) -> None:
    header = np.zeros(256, dtype="<i4")
    header[:3] = LLM_C_MAGIC, version, claimed
    path.write_bytes(header.tobytes() + bytes(200))


def test_what_cannot_work_is_said_before_anything_starts(tmp_path: Path) -> None:
    enough = counting_tokens(tmp_path / "train.bin", 60_000)
    short = counting_tokens(tmp_path / "short.bin", 600)
    (tmp_path / "odd.bin").write_bytes(b"abc")
    (tmp_path / "empty.bin").touch()
    llm_c_file(tmp_path / "cut.bin", version=1, claimed=1000)
    llm_c_file(tmp_path / "new.bin", version=7, claimed=100)
    (tmp_path / "folder").mkdir()
    cases: list[tuple[TrainConfig, int, str]] = [
        (gpt_on(tmp_path / "no.txt", kind="text"), 1, "no.txt: there is no such file"),
        (gpt_on(tmp_path / "no.bin"), 1, "no.bin: there is no such file"),
        (gpt_on(tmp_path / "folder", kind="text"), 1, "data.pattern"),
        (gpt_on(tmp_path / "folder"), 1, "is a folder"),
        (gpt_on(tmp_path / "odd.bin"), 1, "odd number"),
        (gpt_on(tmp_path / "empty.bin"), 1, "is empty"),
        (gpt_on(tmp_path / "cut.bin"), 1, "its header says 1000 tokens"),
        (gpt_on(tmp_path / "new.bin"), 1, "version 7"),
        (gpt_on(short), 1, "600|540 tokens to train on"),
        (gpt_on(enough, f"data.validation_path={tmp_path}/no-val.bin"), 1, "no-val.bin"),
        (gpt_on(enough, "data.validation_fraction=0.001"), 1, "data.validation_fraction"),
        (gpt_on(enough), 5, "data.validation_samples=4: 5 ranks"),
        (gpt_on(enough, "model.vocabulary=100", kind="text"), 1, "model.vocabulary=100"),
        (
            compose("model=gpt_tiny", "global_batch_size=10"),
            4,
            "global_batch_size=10 does not split over 4 ranks; use 8",
        ),
        (compose("model=gpt_tiny", "accumulate=3"), 1, "accumulate=3 does not divide"),
        (compose("model=gpt_tiny", "profiler.ranks=[2]"), 2, "profiler.ranks names rank 2"),
        (compose("model=gpt_tiny", "profiler.wait=58"), 1, "do not fit into steps=60"),
    ]
    for config, ranks, message in cases:
        with pytest.raises(UserError, match=message):
            check(config, ranks)
    check(gpt_on(enough), 4)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model=resnet50", "data=python_stdlib"), "use data=image_folder or data=synthetic"),
        (("steps=12",), "leaves no step to measure"),
        (("data=text",), "needs data.path"),
        (("compile=true", "strategy.static_graph=true"), "static_graph=false"),
        (("compile=true", "strategy.bucket_mib=0.5"), "strategy.compile_by_bucket=false"),
        (("optimizer.kind=lion",), "choose one of adamw, sgd"),
        (("model=gpt_tiny", "model.attention=fast"), "choose one of auto, flash, cudnn"),
        (("model.width=100", "model.heads=12"), "not a multiple"),
        (("strategy.gradient_dtype=bf16", "launch.device=cpu"), "needs NCCL"),
        (("model=resnet50", "recompute=true"), "batch norms"),
        (("precision=fp16", "strategy=fsdp2"), "use precision=bf16"),
        (("compile=true", "strategy=zero2"), "cannot be compiled"),
        (("strategy.compile_by_bucket=often",), "choose one of auto, true, false"),
        (("accumulate=0",), "accumulate=0"),
        (("validate_every=0",), "validate_every=0"),
    ],
)
def test_a_wrong_combination_is_refused_where_the_config_is_made(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compose(*overrides)


def test_a_token_that_the_model_has_no_row_for_is_named(tmp_path: Path) -> None:
    corpus = read_corpus(data("tokens", counting_tokens(tmp_path / "train.bin")))
    batches = TokenBatches(corpus, gpt(10, vocabulary=100), Share(0, 1, 8), seed=0)
    with pytest.raises(UserError, match=r"train.bin holds token \d+, but model.vocabulary=100"):
        batches[0]


def test_the_window_is_as_late_as_possible_unless_told_otherwise() -> None:
    late = make_schedule(compose("steps=20", "warmup_steps=4"))
    assert "".join(late.phase(step)[0] for step in range(20)) == "wwwwsssssssspppppppp"
    reported = make_schedule(compose("steps=20", "warmup_steps=4", "profiler.wait=6", "profiler.warmup=1",
                                 "profiler.active=2", "profiler.repeat=2"))  # fmt: skip
    assert "".join(reported.phase(step)[0] for step in range(20)) == "wwwwsspppsssssspppss"
    assert [(window.first, window.active, window.end) for window in reported.windows] == [(6, 7, 9), (15, 16, 18)]


@pytest.mark.parametrize(
    ("device", "overrides", "recorded"),
    [
        ("cuda", ("steps=60", "warmup_steps=10"), 10),
        ("cpu", ("steps=60", "warmup_steps=10"), 10),  # steps 50 to 59
        ("cpu", ("steps=20", "warmup_steps=4"), 6),  # half of the sixteen, less two that the profiler warms up on
        ("cpu", ("steps=66", "warmup_steps=5", "profiler.wait=24", "profiler.warmup=1", "profiler.repeat=2"), 8),
        ("cpu", ("steps=10", "warmup_steps=4"), 3),
        ("cpu", ("steps=60", "profiler.active=5"), 5),
    ],
)
def test_up_to_ten_steps_are_recorded_and_half_stay_unprofiled(
    device: str, overrides: tuple[str, ...], recorded: int
) -> None:
    schedule = make_schedule(compose(f"launch.device={device}", *overrides))
    assert {window.end - window.active for window in schedule.windows} == {recorded}
    assert schedule.windows[-1].end <= schedule.steps and schedule.steady_steps >= 1
