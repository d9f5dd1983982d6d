"""What faster links bring, where hosts launch as slowly as data move: the one is known no better than the other."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.as_run.calibrate import ON_DEVICES
from scalescope.scaling.findings.candidate import Candidate, Scene, gained_ms
from scalescope.scaling.findings.prices.gain import LARGE, Gain
from scalescope.scaling.replay.change import Change

#: What two changes bring together beyond what each brings alone, as a share of it, for them to hide each other.
_HIDDEN = 0.1


def behind_each_other(
    scene: Scene, candidates: Sequence[Candidate], before: Change, gains: Sequence[Gain]
) -> list[Gain]:
    """Return gains where slow links and slow hosts hide behind each other as what both bring, dealt out as causes are.

    While data crawl, hosts catch up, and while hosts launch, data arrive: of a step that both make as long, either
    change alone brings nothing. Each then brings what it brings alone at least, and what it brings last at most. Where
    either alone brings something, that is what mending it brings.
    """
    slow, late = (
        next((one for one in candidates if one.code == code), None) for code in ("slow_transfer", "host_bound")
    )
    if slow is None or late is None or slow.change is None:
        return list(gains)
    replayer = scene.replayer
    links, hosts = replace(slow.change, without=before.without), replace(before, host_free=True)
    both = replace(links, host_free=True)
    replayer.work_out([links, hosts, both], quick=True, near=True)
    base = gained_ms(replayer, before) if before.without else 0.0
    by_links, by_hosts, by_both = (max(0.0, gained_ms(replayer, one) - base) for one in (links, hosts, both))
    if max(by_links, by_hosts) >= LARGE * scene.step_ms or by_both < LARGE * scene.step_ms:
        return list(gains)
    if by_links + by_hosts >= (1 - _HIDDEN) * by_both:
        return list(gains)
    others = [one for one in gains if one.candidate is not slow and one.candidate is not late]
    return [
        *others,
        *(Gain(one, (alone + last) / 2, alone, last)
          for one, alone, last in ((slow, by_links, by_both - by_hosts), (late, by_hosts, by_both - by_links))),
    ]  # fmt: skip


def behind_transfers(scene: Scene, gain: Gain) -> Gain:
    """Return what faster links bring, as high as where devices compute faster without recording.

    While a step waits for its transfers, what recording costs the kernels beside them costs nothing. Once links are
    fast, the replay is as long as those kernels took, recorded. What a known step is longer than the replayed one is
    transfers', too. Quicker links make no step longer.
    """
    known = scene.replayer.known_ns
    beyond = max(0.0, known.value / 1e6 - scene.step_ms) if known is not None else 0.0
    ms = gain.ms + beyond
    high = ms + math.hypot(gain.high_ms - gain.ms, ON_DEVICES * scene.step_ms)
    return replace(gain, ms=ms, low_ms=max(0.0, gain.low_ms), high_ms=high)
