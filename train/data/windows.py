"""Which stretch of a token stream a training sample is. Torch-free, and the same on every rank.

Sample number g of a job (step × global batch + place in the batch) is a pure function of the seed: in each epoch the
stream is cut into windows of one context, at an offset of the epoch's own, and a permutation of the epoch's own orders
them. So ranks that take different g never share a token within an epoch, however many ranks there are, and a resumed
job goes on where it stopped without any state.
"""

import numpy as np
import numpy.typing as npt


class TokenWindows:
    """The windows of a stream of `tokens` tokens; a window is `context` inputs and the one target after them."""

    def __init__(self, tokens: int, context: int, seed: int) -> None:
        self.context = context
        self.count = count_windows(tokens, context)
        self._seed = seed
        self._epoch = -1
        self._starts: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def start(self, sample: int) -> int:
        """Return where sample number `sample` begins; it reads `context + 1` tokens from there."""
        epoch, place = divmod(sample, self.count)
        if epoch != self._epoch:
            self._enter(epoch)
        return int(self._starts[place])

    def _enter(self, epoch: int) -> None:
        generator = np.random.default_rng((self._seed, epoch))
        shift = generator.integers(self.context)
        self._starts = generator.permutation(self.count) * self.context + shift
        self._epoch = epoch


def count_windows(tokens: int, context: int) -> int:
    """Return how many windows an epoch has: whole ones whatever the epoch's offset is, each with its last target."""
    return max(0, (tokens - context) // context)
