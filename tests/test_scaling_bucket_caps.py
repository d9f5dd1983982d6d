"""Which other caps of DDP's buckets are tried, beside how a job's gradients are cut now."""

from scalescope.scaling.findings.detectors.gradients import other_cuts
from scalescope.scaling.replay.buckets import cut_by

MIB = 1 << 20


def test_no_cap_below_torchs_own_is_offered_as_larger() -> None:
    """Of buckets of 1.5 and 15 MiB by torch's 25, whose first holds 1, it was said: larger ones, bucket_cap_mb=5."""
    sizes = [MIB * 3 // 2, 15 * MIB]
    now = cut_by(sizes, 25 * MIB, MIB)
    assert len(now) == 2
    assert {cap: len(cut) for cap, cut in other_cuts(sizes, now).items()} == {25.0: 1}
    # smaller ones may be tried all the same, and larger ones than a job's own
    many = [4 * MIB] * 25
    default = cut_by(many, 25 * MIB, MIB)
    tried = {cap: len(cut) for cap, cut in other_cuts(many, default).items()}
    assert all(count > len(default) for cap, count in tried.items() if cap < 25) and min(tried) == 5
    assert min(other_cuts(many, cut_by(many, 2 * MIB))) == 5
