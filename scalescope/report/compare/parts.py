"""The parts of a step's change, in words: what each is called, by how much it changed, whose it is."""

from collections.abc import Sequence

from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import quoted, signed
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.compare.answer import Comparison, CountedWork, KernelChange, PartChange
from scalescope.scaling.trace.kernel_kinds import KINDS

#: More parts are not named in the first sentence.
MOST_NAMED = 3
#: Work besides that takes less of the step is in the table alone.
WORTH_NAMING = 0.001
#: A kernel that makes up so much of a part's change is named.
_MOST_OF_IT = 0.7
_ON_ONE_SIDE = ("only_baseline", "only_other")
#: Steps without a profiler are compared by their own lengths, and the parts by those of the profiled ones.
_REST = "not seen in the profiled steps"


def names_of(answer: Comparison) -> tuple[str, str]:
    """Return both sides' names: apart, and short."""
    here, there = answer.baseline, answer.other
    return (here, there) if here != there else (f"A ({here})", f"B ({there})")


def names_in_words(answer: Comparison) -> tuple[str, str]:
    """Return both sides' names as sentences have them, in quotes."""
    here, there = names_of(answer)
    return quoted(here), quoted(there)


def part_name(part: PartChange) -> str:
    """Return a part's name as people meet it: a kernel kind's own, or that of the partition."""
    return parts.named(part.name).name if part.name in PARTS else _REST if part.name == "rest" else part.name


def moved(answer: Comparison) -> list[PartChange]:
    """Return the parts of whose change something is sure, most first: it is beyond noise, or more or less is done."""
    least = WORTH_NAMING * answer.step_ms
    sure = [one for one in answer.parts if answer.is_sure(one) or (one.more_done and abs(one.told_ms or 0.0) > least)]
    return sorted(sure, key=lambda one: -abs(one.told_ms or 0.0))


def told_change(part: PartChange, unit: str = "") -> str:
    """Return what is sure of a part's change: all of it, or what more kernels take."""
    if (more := part.counted) is not None and more.change_ms is not None:
        return signed(more.change_ms, more.low_ms or 0.0, more.high_ms or 0.0, unit)
    return signed(part.change_ms, part.low_ms, part.high_ms, unit)


def calls(work: CountedWork) -> str:
    """Return by how many calls a step does more or less."""
    whose = f" on rank {work.rank}" if work.rank is not None else ""
    return f"{work.other_calls:,} calls a step for {work.baseline_calls:,}{whose}"


def because(part: PartChange, answer: Comparison) -> str:
    """Return in brackets whose part it is, and what stands beside its change."""
    told = [f"rank {part.rank}" if part.of_one_rank else "on every rank"] if part.rank is not None else []
    if part.counted is not None and part.counted.rank is not None:
        told = [f"rank {part.counted.rank}"]
    own = [one for one in answer.kernels if one.kind == part.name]
    grown = {one: (one.other_us - one.baseline_us) / 1e3 for one in own}
    whole = part.told_ms or part.change_ms
    alone = next((one for one, ms in grown.items() if whole and ms / whole >= _MOST_OF_IT), None)
    if alone is not None and alone.matched_by in _ON_ONE_SIDE and not _on_both_sides(alone, own):
        whose = names_in_words(answer)[_ON_ONE_SIDE.index(alone.matched_by)]
        told.append(f"{alone.other_name or alone.baseline_name}, only in {whose}")
    elif part.work is not None and part.work.other_calls != part.work.baseline_calls and not part.work.resized:
        told.append(calls(part.work))
    elif part.name in KINDS and any(one.key == "state.sm_clock_mhz" for one in answer.environment):
        told.append("clocks differ")
    return f" ({', '.join(told)})" if told else ""


def _on_both_sides(row: KernelChange, rows: Sequence[KernelChange]) -> bool:
    """Tell whether the other side has the kernel, too, though not as often."""
    name = row.other_name or row.baseline_name
    return any(name in (one.baseline_name, one.other_name) for one in rows if one.matched_by not in _ON_ONE_SIDE)
