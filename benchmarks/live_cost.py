"""What it costs to say live who is late and that steps became longer: µs a step, on one core.

`arrive` runs in each step on every rank (on a GPU it is one event more on the stream), the rest once a row on rank 0,
and the watch for anomalies on every rank where profiler.on_anomaly=true. Run it by `python benchmarks/live_cost.py`.
"""

import itertools
import math
import timeit

from scalescope.records.rows import StepRow
from scalescope.train.measure.anomaly import AnomalyWatch
from scalescope.train.measure.clock import CpuClock
from scalescope.train.measure.lateness import Lateness


def least_us(call: object, count: int) -> float:
    """Return what a call takes, the least of five rounds."""
    return 1e6 * min(timeit.repeat(call, number=count, repeat=5)) / count  # type: ignore[arg-type]


def arrive_us() -> float:
    """Return what marking the exchange takes."""
    clock = CpuClock()

    def arrive() -> None:
        clock._own_ms = math.nan
        clock.arrive()

    return least_us(arrive, 100_000)


def lateness_us(ranks: int) -> float:
    """Return what a row of so many ranks takes on rank 0."""
    lateness = Lateness()
    row = StepRow(step=0, phase="steady", step_ms=[20.0] * ranks, samples_per_s=1.0, own_ms=[5.0] * ranks)

    def look() -> object:
        lateness.take(row)
        return lateness.late

    return least_us(look, 2000)


def anomaly_us() -> float:
    """Return what the watch for longer steps takes a step."""
    watch, steps = AnomalyWatch(500), itertools.count()
    return least_us(lambda: watch.take(next(steps), 10.0), 2000)


if __name__ == "__main__":
    print(f"arrive: {arrive_us():.2f} µs a step")
    for ranks in (2, 8, 64):
        print(f"lateness of {ranks} ranks: {lateness_us(ranks):.1f} µs a row")
    print(f"anomalies: {anomaly_us():.1f} µs a step")
