"""How long ranks were ready to run in a step and did not, since others had their cores: of CPUs, where Linux tells it.

Who had them is not told: other processes, or other threads of the job itself, such as those that move its data.
"""

from scalescope.records.rows import StepRow

#: What the rank that waits most does so, of the step, from which on it is worth a word: of 60 runs of two ranks with
#: two cores to themselves, whose own threads beside the loops take turns with these, it was 14% at most; of 40 beside
#: another process that computes, 20% to 58%.
WAITS_FOR_CORES = 0.15


def waited_ms(row: StepRow) -> float | None:
    """Return how long the rank that waited most for a core did so, ms: no longer than its step, whatever a file says.

    None where nothing tells.
    """
    return min(max(0.0, *row.run_delay_ms), row.length_ms) if row.run_delay_ms else None


def without_waits_ms(row: StepRow) -> list[float]:
    """Return each rank's own time, ms, without what it waited for a core in it, where that is told."""
    if len(row.own_run_delay_ms) != len(row.own_ms):
        return row.own_ms
    return [max(0.0, own - max(0.0, delay)) for own, delay in zip(row.own_ms, row.own_run_delay_ms, strict=True)]
