"""A device made late by a known time among JAX's processes: is it named?

    python benchmarks/jax_late_device.py OUT                 # two GPUs, less than a minute
    python benchmarks/jax_late_device.py OUT --device cpu    # the job alone: profiles of CPUs are not read

Two processes of one device each, joined by jax.distributed, train a perceptron data-parallel: every step ends with the
sum of all gradients. One of them runs a program of matrix products before each of its steps, whose length is timed by
itself first. Each process times the steps without and with it, then records some with jax.profiler.

OUT/truth.json says who is late and by how much, and is written before anything is analysed; OUT/traces holds a profile
a process, OUT/analysis.json what `scalescope analyze` makes of them. Prints both, and ends with exit code 1 where the
late device is not named, another one is, or what it is said to cost is off by more than 15%.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
RANKS, LATE = 2, 1
LAYERS = 6
TIMED, RECORDED = 30, 10
WITHIN = 0.15
LIMIT_S = 150


def main() -> int:
    options = _options()
    if options.rank is not None:
        work(options)
        return 0
    (options.out / "traces").mkdir(parents=True, exist_ok=True)
    port = _free_port()
    command = [sys.executable, __file__, str(options.out), "--device", options.device, "--port", str(port)]
    command += ["--delay-ms", str(options.delay_ms)]
    ranks = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(RANKS)]
    until = time.monotonic() + LIMIT_S
    try:
        codes = [rank.wait(max(1.0, until - time.monotonic())) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        raise SystemExit(f"the processes ended with {codes}")
    truth = json.loads((options.out / "truth.json").read_text())
    print(json.dumps(truth))
    if options.device == "cpu":
        print("profiles of CPUs are not analysed")
        return 0
    return check(options.out, truth)


def check(out: Path, truth: dict[str, Any]) -> int:
    """Analyse the profiles and compare with the truth. Returns the exit code."""
    answer = out / "analysis.json"
    search = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "scalescope", "analyze", str(out / "traces"), "--json", str(answer)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": search})
    stragglers = json.loads(answer.read_text())["stragglers"]
    named = [(one["rank"], one["lost_ms"]) for one in stragglers]
    print(f"truth: rank {truth['late_rank']}, {truth['longer_ms']:.3f} ms a step; named: {named}")
    if [rank for rank, _ in named] != [truth["late_rank"]]:
        return 1
    return int(abs(named[0][1] - truth["longer_ms"]) > WITHIN * truth["longer_ms"])


def work(options: argparse.Namespace) -> None:
    """Be one process: train, time, record."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    address = f"127.0.0.1:{options.port}"
    jax.config.update("jax_platforms", "cpu" if options.device == "cpu" else "cuda")
    own = [0] if options.device == "cpu" else [options.rank]
    jax.distributed.initialize(address, RANKS, options.rank, own,
                               coordinator_bind_address=address if options.rank == 0 else None)  # fmt: skip
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    width, batch = (4096, 2048) if options.device == "gpu" else (256, 128)
    mesh = Mesh(sorted(jax.devices(), key=lambda device: device.process_index), ("data",))
    split, same = PartitionSpec("data"), PartitionSpec()
    kind = jnp.bfloat16 if options.device == "gpu" else jnp.float32
    here = jax.local_devices()[0]

    def placed(shape: tuple[int, ...], spec: Any, seed: int) -> Any:
        part = jax.device_put(jax.random.normal(jax.random.key(seed), shape, kind) * 0.02, here)
        whole = (RANKS * shape[0], *shape[1:]) if spec is split else shape
        return jax.make_array_from_single_device_arrays(whole, NamedSharding(mesh, spec), [part])

    weights = [placed((width, width), same, layer) for layer in range(LAYERS)]
    inputs = placed((batch, width), split, 100 + options.rank)

    def loss(weights: Any, inputs: Any) -> Any:
        for weight in weights:
            inputs = jnp.tanh(inputs @ weight)
        return jnp.mean(inputs.astype(jnp.float32) ** 2)

    def train(weights: Any, inputs: Any) -> Any:
        gradients = jax.grad(loss)(weights, inputs)
        summed = [lax.psum(gradient, "data") for gradient in gradients]
        return [weight - (0.01 * gradient).astype(kind) for weight, gradient in zip(weights, summed, strict=True)]

    step = jax.jit(jax.shard_map(train, mesh=mesh, in_specs=(same, split), out_specs=same, check_vma=False))
    square = jax.device_put(jnp.full((width, width), 1 / width, kind), here)
    products = jax.jit(lambda one, count: lax.fori_loop(0, count, lambda _, a: a @ one, one), static_argnums=1)

    def timed(count: int, repeats: int = 20) -> float:
        jax.block_until_ready(products(square, count))
        began = time.perf_counter()
        for _ in range(repeats):
            done = products(square, count)
        jax.block_until_ready(done)
        return (time.perf_counter() - began) / repeats * 1e3

    count = max(1, round(10 * options.delay_ms / timed(10)))
    delay_ms = timed(count)

    def run(steps: int, late: bool) -> float:
        nonlocal weights
        began = time.perf_counter()
        for number in range(steps):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                if late and options.rank == LATE:
                    products(square, count)
                weights = step(weights, inputs)
        jax.block_until_ready(weights)
        return (time.perf_counter() - began) / steps * 1e3

    for late in (False, True):
        run(5, late)
    plain_ms, late_ms = run(TIMED, False), run(TIMED, True)
    if options.rank == LATE:
        truth = {"late_rank": LATE, "delay_ms": delay_ms, "products": count, "step_ms": plain_ms,
                 "late_step_ms": late_ms, "longer_ms": late_ms - plain_ms, "jax": jax.__version__,
                 "device": here.device_kind}  # fmt: skip
        (options.out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    folder = options.out / f"profiler{options.rank}"
    jax.profiler.start_trace(str(folder))
    run(RECORDED, True)
    jax.profiler.stop_trace()
    # all processes of a host call their file by its name: beside each other, each needs one of its own
    (profile,) = folder.glob("plugins/profile/*/*.xplane.pb")
    profile.rename(options.out / "traces" / f"process{options.rank}.xplane.pb")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=lambda text: Path(text).resolve())
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--delay-ms", type=float, default=2.0)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
