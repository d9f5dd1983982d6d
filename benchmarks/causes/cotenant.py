"""A process that computes on a GPU beside somebody else's job: cotenant.py DEVICE FLAG.

The flag's byte is the share of the time, in percent, that it computes; it does so in bursts of about 1 ms.
"""

import os
import sys
import time
from pathlib import Path

import torch

BURST_MS = 1.0


def main() -> None:
    device, flag = torch.device("cuda", int(sys.argv[1])), Path(sys.argv[2])
    torch.cuda.set_device(device)
    left, right = torch.rand(2, 2048, 2048, device=device)
    product = torch.empty_like(left)

    def multiply(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=product)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) * 1e3

    multiply(10)
    times = max(1, round(100 * BURST_MS / multiply(100)))
    print("ready", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:  # the rank is still there
        share = flag.read_bytes()[:1]
        if not share or share == b"\0":
            time.sleep(0.005)
            continue
        took_ms = multiply(times)
        time.sleep(max(0.0, (BURST_MS * 100 / share[0] - took_ms) / 1e3))


if __name__ == "__main__":
    main()
