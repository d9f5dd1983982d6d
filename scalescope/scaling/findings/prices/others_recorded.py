"""One rank's cause, as high as other ranks' hosts let it be, of which no untraced step tells what recording costs."""

from msgspec.structs import replace

from scalescope.scaling.findings.candidate import Scene, gained_ms
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.change import Change

#: By its terms alone it is known within 30 to 50% what recording costs a host. The untraced step tells it of the ranks
#: that the others wait for; those others' cost may be this share of it higher.
_OF_OTHERS = 0.3


def as_others_are_recorded(scene: Scene, gain: Gain) -> Gain:
    """Return what one rank's cause brings, as high as where recording costs the other ranks more than is known.

    The untraced step tells that of the ranks that the others wait for. Without the cause others may bound the step,
    whose own hosts nobody saw without recording: where that costs them more than the late one, the cause brings more.
    Where it costs them less, they bound the step as it is, which the waits in the traces rule out.
    """
    late = gain.candidate.late
    if not late or not gain.candidate.removals or gain.ms <= 0:
        return gain
    change = Change(without=gain.candidate.removals)
    alone = gained_ms(scene.replayer, change)
    dear = scene.replayer.gained_if_others(change, late, 1 + _OF_OTHERS)
    if dear is None or alone <= 0:
        return gain
    return replace(gain, high_ms=max(gain.high_ms, gain.ms * dear / alone))
