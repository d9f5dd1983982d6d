"""Many collectives on CPUs, each a round of messages: what a step loses to them, told without their sizes."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.bounds.rounds import with_rounds
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Transfer
from tests.test_scaling_bounds import run_of, split

RANKS, STEPS, COUNT = 2, 4, 12
SLOW_MS, QUICK_MS, COMPUTE_MS = 2.0, 0.5, 60.0
ROUND_MS = 0.04  # of a collective that carries nothing
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
FILL = "torch::distributed::reducer::mul_out"


@dataclass
class Rounds:
    """Steps of as many collectives, one after another: quick in one step of all, and slow in the others."""

    count: int = COUNT
    slow_ms: float = SLOW_MS
    quick_ms: float = QUICK_MS
    by_ddp: bool = True
    filled: int | None = None  # so many behind buckets that DDP has filled, and the others the loop's own
    products_between: bool = False
    operations: tuple[str, ...] = ("all_reduce",)  # by turns
    members: tuple[tuple[int, ...], ...] = ((0, 1),)  # by turns
    hidden: float = 0.0
    never_quick: int = 0  # so many, the first ones, take as long in each step
    size: int | None = None
    on_cpu: bool = True
    may_wait_unseen: bool = False
    at_once: int = 1  # so many run beside each other
    more: int = 0  # so many more in each step than in the one before
    last_ms: float = 0.0  # of a step more that cannot be replayed, what is bare
    behind: bool = False  # all buckets are filled before the first collective begins, behind which the others queue

    def scene(self) -> Any:
        activities, transfers = [], []
        for step in range(STEPS):
            for at in range(self.count + step * self.more):
                begun = 1_000_000 * (1000 * step + at)
                if self.filled is not None and at < self.filled:
                    filled = 1_000_000_000 * step - 1000 + at if self.behind else begun - 20
                    activities += [_activity(FILL, rank, filled) for rank in range(RANKS)]
                if self.products_between:
                    activities += [_activity("aten::mm", rank, begun - 10) for rank in range(RANKS)]
                of = self.members[at % len(self.members)]
                places = {rank: len(activities) + place for place, rank in enumerate(of)}
                activities += [_activity("gloo:all_reduce", rank, begun, kind=-1) for rank in of]
                ms = self.quick_ms if at % STEPS == step and at >= self.never_quick else self.slow_ms
                transfers.append(Transfer(
                    members=places, work_ns=ms * 1e6, operation=self.operations[at % len(self.operations)],
                    bytes=self.size, dtype=None, group_size=len(of), step=10 + step, traced_ns=ms * 1e6,
                    hidden=self.hidden,
                ))  # fmt: skip
        if self.by_ddp:
            activities.append(_activity(COPY, 0, 0))
        for at, one in enumerate(transfers):
            for place in one.members.values():
                activities[place].collective = at
        calls = {
            rank: [SimpleNamespace(launches=at) for at, one in enumerate(activities) if one.rank == rank]
            for rank in range(RANKS)
        }
        graph = SimpleNamespace(ranks=[0, 1], step_numbers=[10 + step for step in range(STEPS)],
                                activities=activities, transfers=transfers, calls=calls)  # fmt: skip
        bare = sum(one.traced_ns * (1 - one.hidden) for one in transfers) / STEPS / 1e6 / self.at_once
        analysis = run_of(
            [
                split(rank, 10 + step, compute=COMPUTE_MS, exposed_transfer=bare if step < STEPS else self.last_ms)
                for step in range(STEPS + (self.last_ms > 0))
                for rank in (0, 1)
            ]
        )
        return SimpleNamespace(
            replayer=SimpleNamespace(on_cpu=self.on_cpu, graph=graph),
            side=SimpleNamespace(steps=list(range(STEPS))),
            analysis=analysis,
            step_ms=COMPUTE_MS + bare,
            may_wait_unseen=self.may_wait_unseen,
            share_ms=lambda part: bare,
            overrides=lambda *keys: keys,
            transfers_of_objects=set(),
        )


def _activity(name: str, rank: int, begun: int, kind: int = COMPUTE) -> Any:
    return SimpleNamespace(name=name, rank=rank, kind=kind, traced_start=begun, collective=-1)


def found(rounds: Rounds) -> Candidate | None:
    told = with_rounds(rounds.scene(), [])
    assert len(told) <= 1
    return next(iter(told), None)


def because_of(one: Candidate) -> str:
    return because(Finding(code=one.code, ms=1.0, low_ms=1.0, high_ms=1.0, evidence=one.evidence, backed="measured",
                           at_most=one.at_most))  # fmt: skip


@pytest.mark.parametrize(("filled", "code", "calls"), [(2, "small_collectives", 10), (9, "small_buckets", 9)])
def test_all_reduces_of_a_loops_own_are_no_buckets_of_ddps(filled: int, code: str, calls: int) -> None:
    """Gradients' norms exchanged one by one behind two buckets: *small buckets, use larger ones* was told."""
    one = found(Rounds(filled=filled))
    assert one is not None and one.code == code and one.evidence[0].calls == calls


def test_rounds_of_ddps_buckets_cost_what_each_takes_beyond_its_quickest_and_perhaps_that() -> None:
    one = found(Rounds())
    assert one is not None and one.code == "small_buckets" and one.gain_ms is not None and not one.at_most
    bare = COUNT * (3 * SLOW_MS + QUICK_MS) / 4
    sure = COUNT * (3 * (SLOW_MS - QUICK_MS) / 4 + ROUND_MS)  # of the quickest, too, so much is no data
    high, low = bare * (1 - 1 / COUNT), sure * (1 - 1 / COUNT)
    assert list(one.gain_ms) == pytest.approx([(low + high) / 2, low, high])
    assert one.remedy is not None and one.remedy.overrides == ("strategy.bucket_mib=25",)
    # *3 all-reduces, each takes 2.1 ms* stood beside a cost of 2.2 ms in all: who adds up is told what nothing hides
    bare_row = one.evidence[-1]
    assert (bare_row.ms, bare_row.others_ms) == pytest.approx((bare, bare - high))
    assert because_of(one) == (
        "12 all-reduces a step: each takes 1.6 ms, and 0.50 ms where nothing holds its messages up; "
        f"nothing hides {bare:.1f} ms of them a step, of which {bare - high:.1f} ms would stay if they travelled "
        "together"
    )


def test_of_rounds_it_is_said_how_many_a_step_has_in_all() -> None:
    """*2 all-reduces a step* was told, of which traces and a comparison with another run had 6."""
    one = found(Rounds(never_quick=4))
    assert one is not None and because_of(one).startswith("8 of the 12 all-reduces a step: each takes")


def test_buckets_that_are_filled_before_the_first_of_them_travels_are_ddps_all_the_same() -> None:
    """Of 62 buckets of one gradient each 58 began behind others: *small collectives*, of a loop's own, was told."""
    one = found(Rounds(filled=COUNT, behind=True))
    assert one is not None and one.code == "small_buckets" and one.evidence[0].calls == COUNT


def test_what_is_over_as_quickly_as_messages_are_carries_next_to_nothing() -> None:
    """75 norms exchanged one by one, 60 µs each at their quickest: *at most* was told, and *launching* before it."""
    one = found(Rounds(by_ddp=False, count=75, quick_ms=0.06, slow_ms=0.12))
    assert one is not None and one.code == "small_collectives" and not one.at_most


def test_of_rounds_that_are_mostly_their_quickest_time_many_are_a_bound_and_a_few_nothing() -> None:
    many = found(Rounds(quick_ms=0.9, slow_ms=1.1))
    assert many is not None and many.at_most and many.gain_ms is not None
    assert many.gain_ms[0] == many.gain_ms[2] and "record_shapes=True would tell" in because_of(many)
    assert found(Rounds(quick_ms=0.9, slow_ms=1.1, count=7)) is None


def test_what_is_never_over_at_once_moves_data_all_the_while() -> None:
    assert found(Rounds(quick_ms=1.1)) is None


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        (Rounds(by_ddp=False), True),
        (Rounds(by_ddp=False, products_between=True), False),
        (Rounds(products_between=True), True),
        (Rounds(by_ddp=False, operations=("all_reduce", "broadcast")), False),
        (Rounds(by_ddp=False, operations=("barrier",)), False),
        (Rounds(by_ddp=False, operations=("all_to_all",)), False),
        (Rounds(by_ddp=False, members=((0, 1), (0,))), False),
    ],
    ids=["one after another", "of activations", "DDP's own", "of other kinds", "barriers", "all-to-alls",
         "of other ranks"],
)  # fmt: skip
def test_only_what_could_be_one_collective_is_rounds(rounds: Rounds, told: bool) -> None:
    one = found(rounds)
    assert (one is not None) is told
    assert one is None or one.code == ("small_buckets" if rounds.by_ddp else "small_collectives")


def test_what_an_optimiser_broadcasts_beside_ddp_is_no_bucket_of_its() -> None:
    """ZeroRedundancyOptimizer's 24 broadcasts were 24 all-reduces, and larger buckets the advice."""
    one = found(Rounds(operations=("broadcast",)))
    assert one is not None and one.code == "small_collectives"
    assert "12 collectives a step, most of them broadcast" in because_of(one)
    assert one.remedy is not None and not one.remedy.overrides


def test_rounds_under_compute_or_beside_each_other_cost_what_is_bare_of_them() -> None:
    whole, hidden, beside = (found(one) for one in (Rounds(), Rounds(hidden=0.5), Rounds(at_once=2)))
    assert whole is not None and hidden is not None and beside is not None
    assert whole.gain_ms is not None and hidden.gain_ms is not None and beside.gain_ms is not None
    assert hidden.gain_ms[2] == pytest.approx(whole.gain_ms[2] / 2)
    assert beside.gain_ms[2] == pytest.approx(whole.gain_ms[2] / 2)


def test_what_rounds_cost_takes_the_place_of_what_is_less_of_the_same() -> None:
    def told(ms: float) -> Candidate:
        return Candidate(code="small_buckets", gain_ms=(ms, ms, ms))

    other = Candidate(code="copies")
    less, more = told(1.0), told(30.0)
    assert [one.code for one in with_rounds(Rounds().scene(), [less, other])] == ["copies", "small_buckets"]
    assert less not in with_rounds(Rounds().scene(), [less, other])
    assert with_rounds(Rounds().scene(), [more, other]) == [more, other]


@pytest.mark.parametrize(
    "rounds",
    [
        Rounds(on_cpu=False),
        Rounds(may_wait_unseen=True),
        Rounds(quick_ms=0.001, slow_ms=0.01),
        Rounds(count=1),
        Rounds(quick_ms=0.9, slow_ms=0.9, more=1),
    ],
    ids=["devices", "of which much may be waiting", "next to nothing", "a single one", "steps that are not alike"],
)
def test_no_rounds_are_told_of(rounds: Rounds) -> None:
    assert found(rounds) is None


def test_sizes_are_told_where_they_are_known() -> None:
    buckets, figures = found(Rounds(size=1 << 19)), found(Rounds(size=1 << 19, by_ddp=False))
    assert buckets is not None and "12 all-reduces a step of 512.0 KiB in the median" in because_of(buckets)
    assert figures is not None and "most of them all_reduce, of 512.0 KiB" in because_of(figures)


def test_a_step_that_cannot_be_replayed_tells_nothing_of_those_that_can() -> None:
    """A trace's last step took twice as long: of rounds that cost 22 ms 12 were told."""
    usual, beside = found(Rounds()), found(Rounds(last_ms=100.0))
    assert usual is not None and beside is not None and beside.gain_ms == usual.gain_ms
