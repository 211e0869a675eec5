"""One stream in several processes: each has a share of every batch, and all of them know the whole.

The network runs on one's own share. What leaves it is gathered, so that everything after it (objectives,
weights, guards, the monitor) is computed on the whole batch, by every rank alike. Where the statistics of a
batch enter, they are those of all shares, and gradients are summed as they leave the network. So every rank
has the same state, bit for bit, and it is that of one process that meets the whole batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from fenchel.adapters.state import Tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Group:
    """The processes that share a stream. All of them make every call, each with its share of the batch."""

    processes: ProcessGroup
    rank: int
    size: int
    backend: str

    @staticmethod
    def of(processes: object) -> Group | None:
        """The group of a process group of torch; None for one process, which has nothing to share."""
        if processes is None or isinstance(processes, Group):
            return processes
        if not dist.is_available() or not isinstance(processes, dist.ProcessGroup):
            raise TypeError(
                "group is a process group of torch.distributed that this process belongs to; got "
                f"{type(processes).__name__}. Call torch.distributed.init_process_group(), then pass "
                "group=torch.distributed.group.WORLD."
            )
        size = dist.get_world_size(processes)
        if size == 1:
            return None
        return Group(processes, dist.get_rank(processes), size, dist.get_backend(processes))

    def gathered(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, which have one shape, in the order of the ranks."""
        # As bytes: not every backend knows every type of number.
        sent = self._reachable(tensor).contiguous().view(-1).view(torch.uint8)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        with self._all_alive():
            dist.all_gather(found, sent, group=self.processes)
        return [each.view(tensor.dtype).view(tensor.shape).to(tensor.device) for each in found]

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum of the tensors of all ranks: the same bits on each."""
        sent = self._reachable(tensor).clone(memory_format=torch.contiguous_format)
        with self._all_alive():
            dist.all_reduce(sent, group=self.processes)
        return sent.to(tensor.device)

    def numbers(self, *own: int) -> list[list[int]]:
        """Some whole numbers of every rank, known to all."""
        place = "cuda" if self.backend == "nccl" else "cpu"
        sent = torch.tensor(own, dtype=torch.int64, device=place)
        return [each.tolist() for each in self.gathered(sent)]

    def objects(self, own: Any) -> list[Any]:
        """A picklable object of every rank, known to all."""
        found: list[Any] = [None] * self.size
        with self._all_alive():
            dist.all_gather_object(found, own, group=self.processes)
        return found

    def any(self, own: bool) -> bool:
        """Whether something holds on any rank."""
        return any(flag for (flag,) in self.numbers(int(own)))

    def rows(self, total: int) -> slice:
        """The rows of a whole batch that are this rank's share, if the shares are equal."""
        return slice(total * self.rank // self.size, total * (self.rank + 1) // self.size)

    def whole(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, one rank's after the other's."""
        return Shares.agreed(self, len(rows)).whole(rows)

    def _reachable(self, tensor: Tensor) -> Tensor:
        """The tensor where the backend finds it."""
        return tensor.detach().cpu() if self.backend == "gloo" else tensor.detach()

    @contextmanager
    def _all_alive(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise ConnectionError(
                f"all {self.size} processes of a group must live as long as the stream; rank {self.rank} "
                f"waited in vain for another one ({reason}). What that one says tells why it ended."
            ) from error

    def __reduce__(self) -> Any:
        raise TypeError(
            "an adapter with group= cannot be pickled: its processes belong to this run. Save its "
            "state_dict(), which is the same on every rank."
        )


@dataclass(frozen=True)
class Shares:
    """How one batch is divided among the ranks of a group."""

    group: Group
    sizes: tuple[int, ...]
    left_out: int = 0
    """Samples of all ranks that were not finite, and are in no share."""

    @staticmethod
    def agreed(group: Group, size: int, left_out: int = 0, call: object = None) -> Shares:
        """The shares of a batch of which this rank has `size` samples.

        `call` describes what must be the same on all ranks: they would wait for each other for ever if
        they did not do the same.
        """
        described = zlib.crc32(repr(call).encode())
        table = group.numbers(size, left_out, described)
        others = [rank for rank, row in enumerate(table) if row[2] != table[0][2]]
        if others:
            raise ValueError(
                "the ranks of a group make the same calls, on shares of the same batch; rank "
                f"{others[0]} differs from rank 0 in the samples' shape or type, or in what it did before. "
                f"Here it is {call}."
            )
        return Shares(group, tuple(row[0] for row in table), sum(row[1] for row in table))

    @property
    def total(self) -> int:
        """The samples of all ranks."""
        return sum(self.sizes)

    @property
    def own(self) -> int:
        """The samples of this rank; with none, it runs a row of zeros that counts nothing."""
        return self.sizes[self.group.rank]

    def whole(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, in order. All compute the same of them: gradients reach one's own."""
        apply = cast("Callable[..., Tensor]", _Gathered.apply)
        return apply(rows, self)

    def part(self, rows: Tensor) -> Tensor:
        """This rank's rows of a whole batch."""
        first = list(accumulate(self.sizes, initial=0))[self.group.rank]
        return rows[first : first + self.own]

    def entering(self, moving: Tensors) -> Tensors:
        """Tensors on their way into the network: their gradients become those of the whole batch."""
        needed = {name: value for name, value in moving.items() if value.requires_grad}
        if not needed or not torch.is_grad_enabled():
            return moving
        apply = cast("Callable[..., tuple[Tensor, ...]]", _Entered.apply)
        return {**moving, **dict(zip(needed, apply(self, *needed.values()), strict=True))}

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (over n) of all shares, from those of one's own."""
        sent = torch.cat([mean, variance]) if self.own else mean.new_zeros(2 * len(mean))
        means, variances = torch.stack(self.group.gathered(sent)).chunk(2, dim=1)
        weights = (means.new_tensor(self.sizes) / self.total).unsqueeze(1)
        whole = (weights * means).sum(0)
        return whole, (weights * (variances + (means - whole).square())).sum(0)

    def sums(self, *tensors: Tensor) -> Sequence[Tensor]:
        """The sums of tensors over all ranks, in one message."""
        wide = reduce(torch.promote_types, [tensor.dtype for tensor in tensors], torch.float32)
        flat = torch.cat([tensor.reshape(-1).to(wide) for tensor in tensors])
        total = self.group.summed(flat if self.own else torch.zeros_like(flat))
        parts = torch.split(total, [tensor.numel() for tensor in tensors])
        return [part.view_as(like).to(like) for part, like in zip(parts, tensors, strict=True)]


_PRESENT: ContextVar[Shares | None] = ContextVar("fenchel_shares", default=None)


@contextmanager
def a_pass_over(shares: Shares | None) -> Iterator[None]:
    """In the block, layers that look at a batch look at all of these shares; None: what is here is all."""
    before = _PRESENT.set(shares)
    try:
        yield
    finally:
        _PRESENT.reset(before)


def present_shares() -> Shares | None:
    """The shares of the batch in the pass that is under way; None where no one else has a part of it."""
    return _PRESENT.get()


def rows_of_all(x: Tensor) -> int:
    """The rows that a tensor would have in a pass over the whole batch; a sample may have several."""
    shares = _PRESENT.get()
    return len(x) if shares is None else shares.total * (len(x) // max(1, shares.own))


class _Gathered(torch.autograd.Function):
    """Own rows in, those of all ranks out; back comes the gradient of one's own."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, shares: Shares) -> Tensor:
        ctx.shares, ctx.run = shares, len(rows)
        most = max(shares.sizes)
        sent = rows.new_zeros((most, *rows.shape[1:]))
        sent[: shares.own] = rows[: shares.own]
        found = zip(shares.group.gathered(sent), shares.sizes, strict=True)
        return torch.cat([part[:size] for part, size in found])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient.new_zeros((ctx.run, *gradient.shape[1:]))
        own[: ctx.shares.own] = ctx.shares.part(gradient)
        return own, None


class _Entered(torch.autograd.Function):
    """The identity; back comes the sum of the gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, shares: Shares, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.shares = shares
        return tuple(tensor.detach() for tensor in tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.shares.sums(*gradients)
