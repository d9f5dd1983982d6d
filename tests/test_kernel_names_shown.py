"""Long names of kernels lose their middles where they are shown, and nowhere else."""

from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from scalescope.report.compare.page import write_comparison
from scalescope.report.compare.sentences import kernels_sentence
from scalescope.report.compare.tables import kernels_table
from scalescope.report.compare.terminal import print_comparison
from scalescope.report.drawing.tables import without_middle
from scalescope.scaling.compare.answer import Comparison, KernelChange, PartChange

LONG = "void cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8<epilogue_with_bias_and_gelu>(Params)"


def compared() -> Comparison:
    row = KernelChange(
        operator=f"autograd::engine::evaluate_function: {LONG}", kind="elementwise and reductions",
        matched_by="operator", baseline_name=LONG, other_name=LONG.replace("tn", "nt"), baseline_calls=1204,
        other_calls=1204, baseline_us=12_345.6, other_us=22_345.6, ratio=1.81, share=0.97, bound="communication",
        expected_ratio=1.0,
    )  # fmt: skip
    return Comparison(baseline="before", other="after", verdict="slower", change_ms=10.0, low_ms=9.0, high_ms=11.0,
                      baseline_ms=100.0, other_ms=110.0, kernels=[row])  # fmt: skip


def test_a_middle_is_taken_out_and_both_ends_stay() -> None:
    assert without_middle("reduce_kernel", 44) == "reduce_kernel"
    short = without_middle(LONG, 30)
    assert len(short) == 30 and short.startswith("void cutlass_80") and short.endswith("_gelu>(Params)")
    assert all(len(without_middle(LONG, longest)) == longest for longest in range(2, 60))


@pytest.mark.parametrize(("width", "terminal"), [(80, True), (120, True), (10_000, False)])
def test_no_line_of_kernels_is_wider_than_the_terminal_nor_a_log_s_than_200(width: int, terminal: bool) -> None:
    console = Console(file=(out := StringIO()), width=width, force_terminal=terminal, color_system=None)
    print_comparison(compared(), console)
    table = out.getvalue().partition("\nKernels")[2].splitlines()
    assert any("…" in line and "12,345.6" in line for line in table) or terminal
    assert max(map(len, table)) <= min(width, 200)
    assert "void cutl" in out.getvalue()


@pytest.mark.parametrize("within_noise", [False, True])
def test_of_kernels_that_differ_by_noise_the_longest_come_first_and_none_has_a_share(within_noise: bool) -> None:
    """A relu of 0.2 ms stood first of a step of 109, with 244% of a change that was noise."""
    answer = compared()
    relu = msgspec.structs.replace(answer.kernels[0], baseline_us=219.0, other_us=3702.0, share=2.441)
    low_ms = -1.3 if within_noise else 1.3
    kind = PartChange(name=relu.kind, change_ms=2.2, low_ms=low_ms, high_ms=5.9, baseline_ms=4.2, other_ms=6.4)
    noisy = msgspec.structs.replace(answer, kernels=[relu, *answer.kernels], parts=[kind], matched_share=1.0)
    table, sentence = kernels_table(noisy), kernels_sentence(noisy)
    times = [row[[column.key for column in table.columns].index("other_us")] for row in table.rows]
    assert (times == sorted(times, key=lambda one: float(one or 0), reverse=True)) == within_noise
    assert ("share" in [column.key for column in table.columns]) != within_noise
    assert ("longest first; what they differ by is within noise" in sentence) == within_noise


def test_the_table_and_the_page_hold_the_whole_name(tmp_path: Path) -> None:
    assert LONG in kernels_table(compared()).rows[0]
    page = write_comparison(compared(), tmp_path / "page.html").read_text()
    assert f'title="{LONG.replace("<", "&lt;").replace(">", "&gt;")}"' in page.replace("&#34;", '"')
