"""A recurrent job: its work is as long as its sequences, which differ by step, and by rank where a cause says so."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from varied.disturbing import Causes, Step
from varied.layers import CUDA

_HIDDEN, _FRAME, _BATCH, _STATES = (1536, 512, 256, 4096) if CUDA else (32, 16, 8, 32)
#: Lengths are multiples of this many frames, so that packing takes few copies.
_GRAIN, _SHORTEST, _LONGEST = (8, 8, 15) if CUDA else (2, 4, 8)


class Acoustic(nn.Module):
    """Says of each frame of speech which of so many states it is."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(_FRAME, _HIDDEN, 2, batch_first=True), nn.Linear(_HIDDEN, _STATES)

    def forward(self, packed: PackedSequence) -> Tensor:
        frames = self.lstm(packed)[0].data
        with torch.autocast(frames.device.type, torch.bfloat16):
            out: Tensor = self.head(frames)
        return out


def rnn(causes: Causes) -> Step:
    model = DistributedDataParallel(Acoustic().to(causes.device), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=CUDA)
    most = _GRAIN * _LONGEST * 3 // 2
    frames = torch.randn(_BATCH, most, _FRAME, device=causes.device)
    target = torch.randint(_STATES, (_BATCH * most,), device=causes.device)
    drawn = torch.Generator().manual_seed(0)  # one for all ranks
    at = 0

    def step(cause: str | None) -> None:
        nonlocal at
        at += 1
        lengths = _GRAIN * torch.randint(_SHORTEST, _LONGEST + 1, (_BATCH,), generator=drawn)
        lengths[0] = _GRAIN * _LONGEST  # the longest says how many steps the cells take
        lengths = lengths.sort(descending=True).values  # else packing copies an order to the device, and waits for it
        if cause == "long_one" and causes.last:
            lengths = lengths * 13 // 10
        elif cause == "alternating":
            lengths = lengths * (12 if causes.last == bool(at % 2) else 8) // 10
        optimizer.zero_grad(set_to_none=True)
        packed = pack_padded_sequence(frames[:, : int(lengths.max())], lengths, batch_first=True)
        states = model(packed)
        loss = functional.cross_entropy(states.float(), target[: len(states)])
        loss.backward()
        causes.between(cause)
        optimizer.step()

    return step
