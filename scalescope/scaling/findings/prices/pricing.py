"""What each cause costs: how much shorter the step as run would be without it, by the replay.

Causes of one step hide behind each other: of two ranks that are late alike, evening out either one brings nothing, and
both bring all of it. So causes that can be taken out are priced together. What all of them bring is dealt out by what
each brings alone and what it brings last (the mean of the two, which for two causes is Shapley's value). Other changes
(buckets, launching) are priced in the step without those.
"""

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from scalescope.scaling.as_run.calibrate import ON_DEVICES
from scalescope.scaling.as_run.step import is_known_as_run
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import ON_THE_DEVICE
from scalescope.scaling.finding.figures import SHOWN_BY_WAITS
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.kinds import is_counted
from scalescope.scaling.finding.sizes import bounded
from scalescope.scaling.findings.candidate import Candidate, Scene, Seen, gained_ms
from scalescope.scaling.findings.containment import first_and_last, in_order, least_to_say_ms, lets_show, removals_of
from scalescope.scaling.findings.hosts.beside_each_other import least_beside_others_ms
from scalescope.scaling.findings.hosts.by_chance import as_usual, half_of_one_window, may_be_chance
from scalescope.scaling.findings.hosts.down_to_devices import surely_gained
from scalescope.scaling.findings.hosts.element_reads import without_recording
from scalescope.scaling.findings.prices.gain import LARGE, Gain
from scalescope.scaling.findings.prices.in_each_step import as_hosts_take_alike, bounded_by_each
from scalescope.scaling.findings.prices.known_loading import as_the_known_step_has_it
from scalescope.scaling.findings.prices.late_together import latest_first
from scalescope.scaling.findings.prices.links import behind_each_other, behind_transfers
from scalescope.scaling.findings.prices.loading_once import each_loaded_once
from scalescope.scaling.findings.prices.longer_sequences import of_longer_sequences
from scalescope.scaling.findings.prices.may_go import with_what_may_go
from scalescope.scaling.findings.prices.others_recorded import as_others_are_recorded
from scalescope.scaling.findings.prices.profiled_pace import up_to_profiled_pace
from scalescope.scaling.findings.prices.recorded_devices import beside_full_devices, with_devices_unrecorded
from scalescope.scaling.findings.prices.short_gaps import as_long_as_they_are
from scalescope.scaling.findings.prices.sound import sound
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.replay.whatif.replayer import LEAST_SHARE
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING

#: What waits of all hosts bring vanishes with a cause of one of them where no more than this share of it is left.
_VANISHES = 0.5
#: What devices that compute, and multiply, for so much of their step give back once a cause on a device is gone: at
#: their power limit, time in which nothing is computed comes back as lower clocks. On H200, of what the replay takes
#: out, jobs with random weights gave back 0.80 to 0.92, and with weights of 0, which draw less power, 1.00 to 1.06; no
#: trace tells which.
_COMPUTES, _MULTIPLIES = 0.8, 0.25
_GIVEN_BACK, _GIVEN_BACK_LOW, _GIVEN_BACK_HIGH = 0.92, 0.8, 1.05


def price(scene: Scene, candidates: Sequence[Candidate]) -> list[Finding]:
    """Return the candidates that are worth saying, as findings with their size and its interval."""
    together = [one for one in candidates if one.removals]
    shares = _shares(scene, together)
    kept = [one for one, ms in zip(together, shares, strict=True) if ms >= least_to_say_ms(scene, one)]
    if len(kept) < len(together):  # what is no finding explains nothing of the others
        shares = _shares(scene, kept)
    kept = _that_show(scene, together, kept)
    gains = [_as_if_all_wait(scene, _down_to_devices(scene, one)) for one in _with_intervals(scene, kept, shares)]
    gains = [as_long_as_they_are(one) for one in latest_first(scene, gains)]
    gains = [as_others_are_recorded(scene, one) for one in each_loaded_once(scene, gains)]
    gains = as_hosts_take_alike(scene, as_the_known_step_has_it(scene, gains))
    gains = [_recorded_less(scene, _beside_others(scene, one)) for one in gains]
    gains = [with_what_may_go(scene, one, removals_of(kept)) for one in gains]
    gains = [_with_waits(one) for one in gains]
    context = removals_of(kept)
    changing = [one for one in candidates if one.change is not None]
    gains += _by_changes(scene, changing, context)
    gains += [
        Gain(one, *one.gain_ms, beside_ms=one.gain_ms[0] if one.seen is not None else 0.0)
        for one in candidates
        if one.gain_ms is not None
    ]
    found = [_finding(scene, one) for one in gains if is_worth_it(scene, one)]
    return found + _counted_at_most(scene, together, found)


def _with_waits(gain: Gain) -> Gain:
    """Return a gain that waits may be a part of: few steps tell only roughly what of them comes back elsewhere."""
    return replace(gain, high_ms=max(gain.high_ms, gain.ms + gain.candidate.waits_ms))


def _interval(gain: Gain) -> Interval:
    return Interval(gain.ms, gain.low_ms, gain.high_ms)


def _beside_others(scene: Scene, gain: Gain) -> Gain:
    return replace(gain, low_ms=least_beside_others_ms(scene, gain.candidate, _interval(gain)))


def _recorded_less(scene: Scene, gain: Gain) -> Gain:
    told = without_recording(scene, gain.candidate, _interval(gain))
    return replace(gain, ms=told.value, low_ms=told.low, high_ms=told.high)


def _counted_at_most(scene: Scene, candidates: Sequence[Candidate], found: Sequence[Finding]) -> list[Finding]:
    """Return, of candidates that are there for sure and no findings, what those cost at most that may cost much.

    What a rank alone launches is counted; what that costs may be hidden by hosts of which is not known how slow they
    are without recording.
    """
    known = {(one.code, one.rank) for one in found}
    findings = []
    for one in candidates:
        if (one.code, one.rank) in known or one.code not in ON_THE_DEVICE or not is_counted(one.evidence):
            continue
        told = scene.replayer.predict(Change(without=one.removals), near=True)
        if -(told.low_ms or 0.0) >= LARGE * scene.step_ms:
            most = -(told.low_ms or 0.0)
            gain = Gain(msgspec.structs.replace(one, at_most=True), most, 0.0, most)
            findings.append(_finding(scene, gain))
    return findings


def _shares(scene: Scene, candidates: Sequence[Candidate]) -> list[float]:
    """Return each candidate's share of what all of them bring together, ms.

    What all ranks have in common is taken out after what one of them has beyond that, since it holds that, too.
    """
    if not candidates:
        return []
    replayer = scene.replayer
    whole = Change(without=removals_of(candidates))
    pairs = [first_and_last(candidates, one) for one in candidates]
    needed = dict.fromkeys(change for pair in pairs for step in pair for change in step if change.without)
    replayer.work_out([whole, *needed], quick=True, near=True)
    all_of_it = gained_ms(replayer, whole)
    if len(candidates) == 1:
        return [all_of_it]
    shares = [
        sum(gained_ms(replayer, after) - (gained_ms(replayer, before) if before.without else 0.0)
            for before, after in pair) / 2
        for pair in pairs
    ]  # fmt: skip
    total = sum(shares)
    return [share * all_of_it / total if total > 0 else share for share in shares]


def _that_show(scene: Scene, candidates: Sequence[Candidate], kept: Sequence[Candidate]) -> list[Candidate]:
    """Return the kept candidates, those that show by waits which cost little without them with a word of that."""
    found = list(kept)
    for waits in (one for one in candidates if one.code == "synchronising" and one.rank is None):
        shown = [one for one in kept if lets_show(waits, one)]
        if not shown:
            continue
        before = Change(without=removals_of(in_order(candidates, shown)))
        after = Change(without=removals_of(in_order(candidates, [*shown, waits])))
        alone = Change(without=waits.removals)
        scene.replayer.work_out([before, after, alone], quick=True, near=True)
        whole = gained_ms(scene.replayer, alone)
        left = gained_ms(scene.replayer, after) - gained_ms(scene.replayer, before)
        if whole >= least_to_say_ms(scene, waits) and left < _VANISHES * whole:
            calls = next((row.calls for row in waits.evidence if row.calls is not None), None)
            row = EvidenceRow(kind="figure", name=SHOWN_BY_WAITS, calls=calls)
            found = [replace(one, evidence=(*one.evidence, row)) if any(one is other for other in shown) else one
                     for one in found]  # fmt: skip
    return found


def _with_intervals(scene: Scene, candidates: Sequence[Candidate], shares: Sequence[float]) -> list[Gain]:
    """Return the candidates with the relative interval of what all of them bring together."""
    if not candidates:
        return []
    whole = Change(without=removals_of(candidates))
    scene.replayer.work_out([whole], near=True)
    found = scene.replayer.predict(whole, near=True)
    if found.change_ms is None or found.low_ms is None or found.high_ms is None or found.change_ms >= 0:
        return []
    low, high = found.high_ms / found.change_ms, found.low_ms / found.change_ms
    sure = _sure_shares(scene, candidates)
    told = as_usual(
        scene,
        candidates,
        [
            Interval(ms, max(0.0 if may_be_chance(scene, one) else ms * low * part, min(one.least_ms, ms)), ms * high)
            for one, ms, part in zip(candidates, shares, sure, strict=True)
        ],
    )
    gains = [
        _in_the_median(bounded_by_each(scene, Gain(one, own.value, own.low, own.high)))
        if one.seen is None
        else _now_and_then(scene, one, ms, one.seen, alone=sum(other.seen is not None for other in candidates) == 1)
        for one, ms, own in zip(candidates, shares, told, strict=True)
    ]
    gains = [of_longer_sequences(scene, _of_one_window(scene, one)) for one in gains]
    gains = up_to_profiled_pace(scene, beside_the_known_step(scene, gains, whole))
    gains = [_as_it_varies(one) for one in gains]
    gains = with_devices_unrecorded(scene, gains, whole, scene.step_ms + found.change_ms)
    gains = beside_full_devices(scene, gains)
    if not _is_at_its_power(scene, scene.step_ms + found.change_ms):
        return gains
    return [_at_its_power(one) if one.candidate.code in ON_THE_DEVICE else one for one in gains]


def _in_the_median(gain: Gain) -> Gain:
    """Return what a cause brings in a typical step, where a few are longer by what chance may have made."""
    if (usual := gain.candidate.usual) is None:
        return gain
    return replace(
        gain,
        ms=min(gain.ms, usual.value),
        low_ms=min(gain.low_ms, usual.low),
        high_ms=max(gain.high_ms, usual.high),
    )


def _of_one_window(scene: Scene, gain: Gain) -> Gain:
    """Return slower compute with an interval no narrower than its steps differ, where nothing but them tells of it."""
    if (half := half_of_one_window(scene, gain.candidate)) is None:
        return gain
    low_ms, high_ms = max(0.0, 1 - half) * gain.ms, (1 + half) * gain.ms
    return replace(gain, low_ms=min(gain.low_ms, low_ms), high_ms=max(gain.high_ms, high_ms))


def beside_the_known_step(scene: Scene, gains: list[Gain], whole: Change) -> list[Gain]:
    """Return what causes cost in a step that is known, where the replayed ones are not as long as that.

    A step without the causes that is even is known better than what they cost in the few replayed ones: it, and the
    known step, tell. A known step that is longer has more of causes that come unevenly. Of one that is shorter, where
    recording could not be taken out, what recording cost was in what is taken out, as far as devices bound the rest.
    """
    replayer, as_run = scene.replayer, scene.analysis.as_run
    left, known = replayer.left_ns(whole), replayer.known_ns
    if as_run is None or left is None or known is None:
        return gains
    gained = 1e6 * gained_ms(replayer, whole)
    replayed = left + gained
    longer = as_run.reason == "untraced_longer" and known.low > replayed * (1 + ON_DEVICES)
    shorter = as_run.reason == "not_replayed" and known.high < replayed
    if not (longer or shorter) or not left < min(replayed, known.value):
        return gains
    times = highest = (known.value - left) / gained
    if shorter:
        freed = replace(whole, host_free=True)
        replayer.work_out([freed], quick=True, near=True)
        highest = min(1.0, times + max(0.0, 1e6 * gained_ms(replayer, freed) / gained - 1))
    # neither step is known better than this
    off = math.hypot((known.high - known.low) / 2, replayer.replay.error * replayed) / gained
    return [_times(one, times, highest, off) if one.candidate.seen is None else one for one in gains]


def _times(gain: Gain, times: float, highest: float, off: float) -> Gain:
    """Return a gain that is so many times as large, up to `highest` times, give or take `off` of what it was."""
    ms, low, high = times * gain.ms, min(times, 1.0) * gain.low_ms, highest * gain.high_ms
    low, high = ms - math.hypot(ms - low, off * gain.ms), ms + math.hypot(high - ms, off * gain.ms)
    return replace(gain, ms=ms, low_ms=max(0.0, low), high_ms=high)


def _down_to_devices(scene: Scene, gain: Gain) -> Gain:
    if not gain.candidate.at_least:
        return gain
    sure = surely_gained(scene, gain.candidate, _interval(gain))
    candidate = replace(gain.candidate, at_least=sure.more)
    return replace(gain, candidate=candidate, ms=sure.ms.value, low_ms=sure.ms.low, high_ms=sure.ms.high)


def _as_if_all_wait(scene: Scene, gain: Gain) -> Gain:
    """Return what one rank's cause brings at most where the replay knows of nothing by which ranks wait for each other.

    Collectives that a trace does not describe hold no replayed rank up, so that the mean step gains the rank's share
    alone. If all ranks wait for it, each gains what it does.
    """
    ranks = len(scene.replayer.graph.ranks)
    if gain.candidate.rank is None or ranks < 2 or scene.replayer.waits_for_others:
        return gain
    ms = min(ranks * gain.ms, scene.step_ms)
    at_most = replace(gain.candidate, at_most=True)
    return replace(gain, candidate=at_most, ms=ms, low_ms=min(gain.low_ms, ms), high_ms=max(ms, gain.high_ms))


def _sure_shares(scene: Scene, candidates: Sequence[Candidate]) -> list[float]:
    """Return of each candidate how much of what it brings by itself what is sure to go brings, 0 to 1."""
    replayer = scene.replayer
    changes = [(Change(without=one.surely), Change(without=one.removals)) for one in candidates if one.surely]
    replayer.work_out([change for pair in changes for change in pair], quick=True, near=True)
    found = []
    for one in candidates:
        whole = gained_ms(replayer, Change(without=one.removals)) if one.surely else 0.0
        part = gained_ms(replayer, Change(without=one.surely)) / whole if whole > 0 else 1.0
        found.append(min(max(part, 0.0), 1.0))
    return found


def _now_and_then(scene: Scene, candidate: Candidate, ms: float, seen: Seen, *, alone: bool) -> Gain:
    """Return what a cause of some steps brings, by how often it is there in all of them, not in the replayed ones.

    `alone`: no other cause is there in some steps. Then so much longer as a mean step that is known is than the typical
    one, so much it costs in all steps, however often; a median is no longer.
    """
    mean = ms * seen.share / seen.replayed
    low, high = seen.bounds(mean)
    known, usual = scene.replayer.known_ns, scene.replayer.usual_ns
    if alone and not seen.period and known is not None and usual is not None:
        beyond = known.value - usual
        half = math.hypot((known.high - known.low) / 2, ON_DEVICES * usual, LEAST_SHARE * beyond)
        if beyond > 2 * half and low <= beyond / 1e6 <= high:
            mean = beyond / 1e6
            low, high = max(low, mean - half / 1e6), min(high, mean + half / 1e6)
    return Gain(candidate, mean, low, high, beside_ms=mean - ms)


def _as_it_varies(gain: Gain) -> Gain:
    """Return a gain with what it differs by from one job to the next, which has nothing to do with its error."""
    within = gain.candidate.known_within
    if within is None or gain.ms <= 0:
        return gain
    below = math.hypot(1 - gain.low_ms / gain.ms, 1 - within[0])
    above = math.hypot(gain.high_ms / gain.ms - 1, within[1] - 1)
    return replace(gain, low_ms=max(0.0, 1 - below) * gain.ms, high_ms=(1 + above) * gain.ms)


def _is_at_its_power(scene: Scene, step_ms: float) -> bool:
    """Tell whether devices may well be at their power limit in a step so long: what multiplies draws the power.

    Cores that compute are not: of ranks on CPUs, all steps came to what the replay took out of a few.
    """
    if scene.replayer.on_cpu:
        return False
    shares = [row.share_of_compute or 0.0 for row in scene.analysis.kinds if row.kind in MULTIPLYING]
    return scene.share_ms("compute") >= _COMPUTES * step_ms and sum(shares) >= _MULTIPLIES


def _at_its_power(gain: Gain) -> Gain:
    """Return a gain with what devices at their power limit do not give back, which has nothing to do with its error."""
    if gain.ms <= 0:
        return gain
    below = math.hypot(1 - gain.low_ms / gain.ms, 1 - _GIVEN_BACK_LOW / _GIVEN_BACK)
    above = math.hypot(gain.high_ms / gain.ms - 1, _GIVEN_BACK_HIGH / _GIVEN_BACK - 1)
    ms = _GIVEN_BACK * gain.ms
    return replace(gain, ms=ms, low_ms=(1 - below) * ms, high_ms=(1 + above) * ms)


def _by_changes(scene: Scene, candidates: Sequence[Candidate], context: tuple[Removal, ...]) -> list[Gain]:
    """Return what changes bring, each by itself, in the step without what was taken out; bad ideas are left out."""
    replayer = scene.replayer
    before = Change(without=context)
    changes = [
        replace(one.change, without=(*context, *one.change.without)) for one in candidates if one.change is not None
    ]
    replayer.work_out([before, *changes] if context else changes, quick=True, near=True)
    base = gained_ms(replayer, before) if context else 0.0
    pairs = [
        (one, change)
        for one, change in zip(candidates, changes, strict=True)
        if gained_ms(replayer, change) - base >= least_to_say_ms(scene, one)
    ]
    replayer.work_out([*([before] if context and pairs else []), *(change for _, change in pairs)], near=True)
    gains = []
    for one, change in pairs:
        found = replayer.predict(change, beyond=before if context else None, near=True)
        if found.change_ms is not None and found.low_ms is not None and found.high_ms is not None:
            # what is only taken out makes no step longer
            least_ms = max(0.0, -found.high_ms) if change.without != context else -found.high_ms
            gain = Gain(one, -found.change_ms, least_ms, -found.low_ms)
            if one.most_ms is not None and gain.ms > one.most_ms:
                gain = replace(_no_more_than(one.most_ms, gain), candidate=replace(one, at_most=True))
            if one.code == "slow_transfer" and not replayer.on_cpu:
                gain = behind_transfers(scene, gain)
            gains.append(no_more_than_idle(scene, gain) if one.code == "host_bound" else gain)
    return behind_each_other(scene, candidates, before, gains)


def no_more_than_idle(scene: Scene, gain: Gain) -> Gain:
    """Return what launching costs at most: a replay without hosts lets ranks wait less as well, for nothing of it.

    On devices what is queued shrinks, too: launching did cost up to a fifth more than they wait for it. What they
    compute does not, but for collectives that wait beside it: *at most 21.4 ms of the 19.2 ms step* was told where
    single steps did not come to the known mean.
    """
    if scene.replayer.on_cpu:
        return _no_more_than(max(0.0, scene.longest_between_ms), gain)
    step = scene.analysis.as_run
    longest_ms = max(scene.step_ms, step.high_ms or 0.0) if step is not None else scene.step_ms
    least_ms = scene.share_ms("compute") / (1 + scene.replayer.contention.inflation_high)
    most_ms, bound_ms = (max(0.0, ms - least_ms) for ms in (scene.step_ms, longest_ms))
    return replace(_no_more_than(most_ms, gain), high_ms=min(gain.high_ms, bound_ms))


def _no_more_than(most_ms: float, gain: Gain) -> Gain:
    return Gain(gain.candidate, *(min(ms, most_ms) for ms in (gain.ms, gain.low_ms, gain.high_ms)))


def is_worth_it(scene: Scene, gain: Gain) -> bool:
    """Tell whether what a cause or a change brings is a finding."""
    if gain.ms < gain.candidate.least_share * scene.step_ms:
        return False
    if gain.candidate.code == "host_bound" and gain.ms < LARGE * scene.step_ms:
        return gain.low_ms > 0  # a step that its devices bound is a little longer now and then for other reasons
    if gain.candidate.change is not None:
        if gain.candidate.change.sends_otherwise and not gain.candidate.at_most:
            return gain.low_ms > 0  # what may make the step longer is not advised
        return gain.low_ms > -gain.ms
    if gain.candidate.at_least:
        return True
    # what is there and large is said, though a few steps that differ do not tell how large; so is a kernel that one
    # rank alone runs in every step, however little
    alone = gain.candidate.code == "own_work" and is_counted(gain.candidate.evidence) and not scene.replayer.on_cpu
    return alone or gain.low_ms > 0 or gain.ms >= LARGE * scene.step_ms


def _finding(scene: Scene, gain: Gain) -> Finding:
    one = gain.candidate
    # no cause costs more than the step, but for what was seen in some of them and may be there in more
    known = scene.replayer.known_ns
    longest_ms = known.high / 1e6 if known is not None and known.low > 1e6 * scene.step_ms else scene.step_ms
    most_ms = longest_ms if one.seen is None else math.inf
    beside_ms = gain.beside_ms
    if beside_ms < 0 and not is_known_as_run(scene.analysis):
        beside_ms = 0.0  # the step is the mean of all that were profiled, which have the cause as often as it is there
    found = Finding(
        code=one.code,
        rank=one.rank,
        ranks=one.ranks,
        one_ms=one.one_ms,
        also_late=one.also_late,
        ms=gain.ms,
        low_ms=gain.ms if one.at_least else max(0.0, gain.low_ms) if one.change is None or one.at_most else gain.low_ms,
        high_ms=max(gain.ms, min(gain.high_ms, most_ms)),
        fraction=gain.ms / (scene.step_ms + beside_ms),
        evidence=bounded(one.evidence, gain.ms) if one.at_most else one.evidence,
        remedy=one.remedy,
        backed="replay" if one.gain_ms is None else "measured",
        at_most=one.at_most,
        at_least=one.at_least,
    )
    profiled_ms = mean_step_ms(scene.analysis, "window")
    return sound(found, max(profiled_ms, longest_ms), may_lengthen=one.change is not None and not one.at_most)
