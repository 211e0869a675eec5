"""`--device`: where a command computes."""

from __future__ import annotations

from fenchel.names import unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(device: str) -> str:
    """The device to compute on; `auto` is a GPU where there is one. `cuda:1` names one of several."""
    import torch

    kind = device.partition(":")[0]
    if kind not in DEVICES:
        raise unknown("device", device, DEVICES)
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if kind == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if present[name])
    if not present[kind]:
        raise ValueError(
            f"the device must be present; there is no {device} here. Use --device cpu, or auto."
        )
    return device
