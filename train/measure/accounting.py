"""From measured step times to a row: throughput, FLOP utilisation, energy. Knows no tensors and no devices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.records.rows import StepPhase, StepRow, step_length_ms


@dataclass(frozen=True)
class Accounting:
    """What one step of all ranks works through, and what the devices could."""

    ranks: int
    samples_per_step: int  # over all ranks
    tokens_per_sample: int | None
    flops_per_sample: float | None
    hardware_flops_per_sample: float | None  # with what is computed again
    peak_tflops: float | None  # one device, by its data sheet
    matmul_tflops: float | None  # one device, as measured
    synchronised: bool = True  # a step waits for all ranks

    def row(
        self,
        step: int,
        phase: StepPhase,
        step_ms: list[float],
        losses: list[float],
        memory_peak_bytes: int | None,
        power_w: float,
        validation_loss: float | None,
        attempt: int,
        unix_s: float,
        own_ms: Sequence[float] = (),
        run_delay_ms: Sequence[float] = (),
        loading_ms: Sequence[float] = (),
        own_run_delay_ms: Sequence[float] = (),
        saving_ms: Sequence[float] = (),
        validating_ms: Sequence[float] = (),
        job_step_ms: float | None = None,
        on_cpu_ms: Sequence[float] = (),
        workers_started: Sequence[int] = (),
    ) -> StepRow:
        """Return a step's row; its loss is the mean over all samples.

        `job_step_ms`: how long the step is, as `JobSteps` tells; None: as its slowest rank's.

        `power_w` is what all devices drew together; NaN where one does not tell.
        """
        length_ms = step_length_ms(step_ms, self.synchronised) if job_step_ms is None else job_step_ms
        seconds = length_ms / 1e3
        samples_per_s = self.samples_per_step / seconds
        return StepRow(
            step=step,
            phase=phase,
            step_ms=step_ms,
            samples_per_s=samples_per_s,
            tokens_per_s=samples_per_s * self.tokens_per_sample if self.tokens_per_sample else None,
            loss=sum(losses) / len(losses) if losses else None,
            validation_loss=validation_loss,
            mfu=self._utilisation(samples_per_s, self.flops_per_sample, self.peak_tflops),
            mfu_of_measured=self._utilisation(samples_per_s, self.flops_per_sample, self.matmul_tflops),
            memory_peak_bytes=memory_peak_bytes,
            attempt=attempt,
            unix_s=unix_s,
            hfu=self._utilisation(samples_per_s, self.hardware_flops_per_sample, self.peak_tflops),
            hfu_of_measured=self._utilisation(samples_per_s, self.hardware_flops_per_sample, self.matmul_tflops),
            joules_per_sample=power_w / samples_per_s if math.isfinite(power_w) else None,
            synchronised=self.synchronised,
            own_ms=list(own_ms) if all(map(math.isfinite, own_ms)) else [],
            run_delay_ms=list(run_delay_ms) if all(map(math.isfinite, run_delay_ms)) else [],
            loading_ms=list(loading_ms) if all(map(math.isfinite, loading_ms)) else [],
            own_run_delay_ms=list(own_run_delay_ms) if all(map(math.isfinite, own_run_delay_ms)) else [],
            saving_ms=list(saving_ms) if any(saving_ms) else [],
            validating_ms=list(validating_ms) if any(validating_ms) else [],
            job_step_ms=job_step_ms,
            on_cpu_ms=list(on_cpu_ms) if all(map(math.isfinite, on_cpu_ms)) else [],
            workers_started=list(workers_started),
        )

    def _utilisation(self, samples_per_s: float, flops_per_sample: float | None, tflops: float | None) -> float | None:
        if tflops is None or flops_per_sample is None:
            return None
        return samples_per_s * flops_per_sample / (tflops * 1e12 * self.ranks)
