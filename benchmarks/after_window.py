"""Does a job run as fast after a window as before it? A loop of its own on one GPU, whose host is its bound.

    python benchmarks/after_window.py --repeats 3

Each repeat is two processes in turn: with the tracing library let go after the window, as `profile_steps` does,
and attached, as Kineto leaves it (TEARDOWN_CUPTI=0). Prints the median step before the window, in it and after it, ms.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, WINDOW, SETTLED = 90, (22, 24), 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print("| after the window | before it, ms | in it | after it | after / before |\n|---|---|---|---|---|")
    for _ in range(options.repeats):
        for name, variables in (("let go", {}), ("attached", {"TEARDOWN_CUPTI": "0"})):
            with tempfile.TemporaryDirectory() as folder:
                argv = [sys.executable, "-c", "from benchmarks.after_window import train; train()"]
                root = Path(__file__).parents[1]
                path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
                subprocess.run(
                    argv, cwd=folder, env={**os.environ, "PYTHONPATH": path, **variables}, check=True,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                before, within, after = medians_ms(next(Path(folder).glob("runs/*")))
            print(f"| {name} | {before:.1f} | {within:.1f} | {after:.1f} | {after / before:.2f} |", flush=True)


def medians_ms(run: Path) -> tuple[float, float, float]:
    """Return the median step before, in and after a run's window."""
    from scalescope.records.folder import RunFolder

    times = {row.step: row.length_ms for row in RunFolder(run).read_steps()}
    stretches = (range(SETTLED, WINDOW[0] - 2), range(WINDOW[0], WINDOW[1] + 1), range(WINDOW[1] + 2, STEPS))
    before, within, after = (statistics.median(times[at] for at in steps if at in times) for steps in stretches)
    return before, within, after


def train() -> None:
    """Train eight layers of a transformer, eagerly, in the current directory."""
    import torch

    from scalescope import profile_steps

    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0) for _ in range(8)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(32, 256, 512, device="cuda")
    with profile_steps("after-window", samples=32, analyze=False) as profile:
        for _ in range(STEPS):
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(batch).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profile.step(loss)


if __name__ == "__main__":
    main()
