"""The loss as a loop gives it: a tensor that is read later, a number, or nothing that is one."""

import torch

_NO_LOSS = torch.tensor(float("nan"))


def loss_number(loss: torch.Tensor | float | None) -> float | None:
    """Return it, waiting for a device that has not come so far; None where it is no number."""
    try:
        return None if loss is None else float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
    except (TypeError, ValueError, RuntimeError):
        return None


def loss_tensor(loss: torch.Tensor | float | None) -> torch.Tensor:
    """Return it without waiting for it; NaN where it is no number."""
    if isinstance(loss, torch.Tensor):
        return loss.detach().reshape(()) if loss.numel() == 1 else _NO_LOSS
    number = loss_number(loss)
    return _NO_LOSS if number is None else torch.tensor(number)
