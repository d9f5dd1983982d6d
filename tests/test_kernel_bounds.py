"""What kernels are bound by: ncu's answer is read, joined to a trace's calls and to recorded ratios, and judged."""

import gzip
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.trace_json import packed

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from bounds.counters import READ, TENSOR, TIME, WRITTEN, command, passes, read_launches  # noqa: E402
from bounds.joined import (  # noqa: E402
    MEMORY_BOUND,
    MEMORY_RATIO,
    NEAR,
    PRODUCT_BOUND,
    PRODUCT_RATIO,
    Kernel,
    counters_of,
    joined,
    rows_of,
    summary_of,
)

from scalescope.scaling.compare.kernels.operators import Call, CallTable  # noqa: E402
from scalescope.scaling.compare.kernels.operators import Kernel as Traced  # noqa: E402

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
ADD_IN_NCU = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int)"
NORM = "void (anonymous namespace)::layer_norm_kernel<float>(int)"
NORM_IN_NCU = "void <unnamed>::layer_norm_kernel<float>(int)"
PRODUCT = "nvjet_sm90_tst_192x192"
MANGLED, PLAIN = "_ZN7cutlass6KernelE", "cutlass::Kernel<int>(int)"
#: Bytes a nanosecond of the copy.
COPY = 4000.0


def csv_of(path: Path, kernels: Sequence[tuple[str, int, float, float, float]]) -> None:
    """Write what ncu answers; each kernel: its name, blocks, ns, bytes and percent of the matrix units."""
    lines = ["==PROF== Connected to process 7", '==PROF== Profiling "x" - 0: 0%....100% - 1 pass',
             f'"ID","Kernel Name","Block Size","Grid Size","{TIME}","{READ}","{WRITTEN}","{TENSOR}"',
             '"","","","","ns","byte","byte","%"']  # fmt: skip
    for at, (name, blocks, ns, moved, tensor) in enumerate(kernels):
        lines.append(f'"{at}","{name}","(128, 1, 1)","({blocks}, 1, 1)","{ns:,.0f}","{moved / 2:,.0f}",'
                     f'"{moved / 2:,.0f}","{tensor}"')  # fmt: skip
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def call(operator: str, name: str, us: float, blocks: int = 132) -> Call:
    return Call(operator, (Traced(name, us, blocks),))


def recorded(operator: str, kind: str, name: str, before: float, after: float) -> Mapping[str, object]:
    return {"operator": operator, "kind": kind, "other_name": name, "baseline_calls": 1, "other_calls": 1,
            "baseline_us": before, "other_us": after}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    csv_of(tmp_path / "ceilings.all.csv.gz", [(ADD_IN_NCU, 9, 1000.0, 1000 * COPY, 0.0), (PRODUCT, 9, 1000, 9, 80.0)])
    calls = [call("aten::add", ADD, 1000), call("aten::mm", PRODUCT, 1000), call("aten::layer_norm", NORM, 1000),
             call("aten::mm", MANGLED, 700)]  # fmt: skip
    table = CallTable(calls, 1, "NVIDIA H200")
    (tmp_path / "gpt_small.calls.json.gz").write_bytes(gzip.compress(msgspec.json.encode(table)))
    ns = 1e6
    csv_of(tmp_path / "gpt_small.all.csv.gz",
           [(ADD_IN_NCU, 132, ns, 0.95 * ns * COPY, 0.0), (PRODUCT, 132, ns, 0.2 * ns * COPY, 76.0),
            (NORM_IN_NCU, 132, ns, 0.5 * ns * COPY, 0.0), (PLAIN, 132, ns, 0.1 * ns * COPY, 70.0)])  # fmt: skip
    rows = [recorded("aten::add", "elementwise and reductions", "vectorized_elementwise_kernel<CUDAFunctor_add>", 1400,
                     1000), recorded("aten::mm", "matmul", PRODUCT, 1050, 1000),
            recorded("aten::layer_norm", "normalisation", "layer_norm_kernel", 1190, 1000)]  # fmt: skip
    (tmp_path / "h100_beside_h200_gpt.json.gz").write_bytes(packed({"kernels": rows}))
    return tmp_path


def test_what_binds_a_kernel_is_counted_and_says_its_ratio(folder: Path) -> None:
    found = {one.name: one for one in joined(folder, folder)}
    assert {name: one.bound for name, one in found.items()} == {
        "vectorized_elementwise_kernel<CUDAFunctor_add>": "memory", PRODUCT: "products", "layer_norm_kernel": "neither",
    }  # fmt: skip
    assert all(one.near for one in found.values())
    norm = found["layer_norm_kernel"]
    assert norm.expected[0] == pytest.approx(1 / (0.5 + 0.5 / MEMORY_RATIO)), "half of it moves bytes"
    assert norm.expected[1] == 1.0
    add = msgspec.structs.replace(found["vectorized_elementwise_kernel<CUDAFunctor_add>"], after_ms=1.3)
    assert not add.near and add.expected == (MEMORY_RATIO, MEMORY_RATIO)
    assert rows_of(list(found.values()), 0.5).rows[0][-1] == "yes" and not rows_of(list(found.values()), 2).rows
    assert [row[0] for row in summary_of(list(found.values())).rows] == ["memory", "neither", "products"]


def test_a_kernel_is_expected_between_one_after_the_other_and_overlapped(folder: Path) -> None:
    def with_share(memory: float) -> Kernel:
        return msgspec.structs.replace(joined(folder, folder)[0], memory=memory, tensor=None)

    low, high = with_share(0.8).expected
    assert MEMORY_RATIO < low < high == pytest.approx(MEMORY_RATIO / 0.8)
    assert with_share(0.0).expected == (1.0, 1.0)


def test_launches_of_unlike_names_are_paired_by_their_grids_and_none_by_chance(folder: Path) -> None:
    launches = read_launches(folder / "gpt_small.all.csv.gz")
    calls = [call("aten::add", ADD, 1), call("aten::mm", PRODUCT, 1), call("aten::mm", "another", 1),
             call("aten::mm", MANGLED, 1), call("aten::cat", "Memcpy DtoD", 1)]  # fmt: skip
    found = counters_of(calls, [launches])
    assert [one is not None for one in found] == [True, True, False, True, False]
    assert counters_of(calls, []) == [None] * 5


def test_a_kernel_of_another_size_under_ncu_tells_nothing(folder: Path) -> None:
    """A batch norm of many sizes launches one grid: one of 350 µs was taken for one of 1,170."""
    launches = read_launches(folder / "gpt_small.all.csv.gz")
    calls = [call("aten::add", ADD, 1000), call("aten::mm", PRODUCT, 3000), call("aten::layer_norm", NORM, 900)]
    assert [one is not None for one in counters_of(calls, [launches])] == [True, False, True]


def test_shares_that_say_bound_leave_a_ratio_near_the_one_expected() -> None:
    assert pytest.approx(1 / (1 - NEAR) - 1, rel=0.02) == (1 - PRODUCT_BOUND) * (1 / MEMORY_RATIO - 1)
    assert pytest.approx((1 + NEAR) * MEMORY_RATIO) == MEMORY_RATIO / MEMORY_BOUND
    assert PRODUCT_RATIO > 0.99


def test_what_counters_say_is_bound_by_memory_has_the_ratio_of_the_copies() -> None:
    """The claim of benchmarks.md, on what was measured on an H100 and H200s."""
    found = [one for one in joined(ROOT / "benchmarks" / "results" / "2026-11-23_H200_J")
             if one.before_ms >= 0.1 * one.calls]  # fmt: skip
    memory = [one for one in found if one.bound == "memory"]
    assert len(memory) == 12 and all(one.near for one in memory)
    ratio = sum(one.after_ms for one in memory) / sum(one.before_ms for one in memory)
    assert ratio == pytest.approx(MEMORY_RATIO, rel=0.01)
    assert all(abs(one.counted_us / one.traced_us - 1) < 0.15 for one in found)


def test_ncu_is_told_to_leave_clocks_and_caches(tmp_path: Path) -> None:
    words = command("ncu", [TIME], tmp_path / "log", ["python", "x.py"])
    assert words[-2:] == ["python", "x.py"] and words[words.index("--clock-control") + 1] == "none"
    table = '"ID","Kernel Name","Grid Size","profiler__replayer_passes"\n"","","",""\n"0","add","(1, 1, 1)","1"\n'
    assert passes("==PROF== Connected\n" + table) == 1
    assert passes(table + '"1","mul","(1, 1, 1)","2"\n') == 2
    assert passes("") == 0
