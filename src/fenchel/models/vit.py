"""A small vision transformer: LayerNorm throughout, with timm's names inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fenchel.models.preprocessing import PerChannel, for_channels
from fenchel.names import register


class Attention(nn.Module):
    """Multi-head self-attention over tokens (batch, tokens, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of the same shape, each a mixture of all."""
        batch, count, width = tokens.shape
        split = self.qkv(tokens).view(batch, count, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        output: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, count, width))
        return output


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a LayerNorm and beside a shortcut."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("fc1", nn.Linear(width, hidden))
        self.mlp.add_module("act", nn.GELU())
        self.mlp.add_module("fc2", nn.Linear(hidden, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (batch, tokens, width) -> the same shape."""
        tokens = tokens + self.attn(self.norm1(tokens))
        output: Tensor = tokens + self.mlp(self.norm2(tokens))
        return output


@register("vit_small")
class VisionTransformer(nn.Module):
    """Patches, a class token, learned positions, transformer blocks, a linear head.

    Args:
        image_size: height and width of the images; a multiple of `patch_size`.
        patch_size: height and width of a patch.
        width: numbers per token, a multiple of `heads`.
        depth: the number of blocks.
        heads: attention heads per block.
        classes, channels, mean, std: as for the other image models; inputs lie in [0, 1].
    """

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 3,
        image_size: int = 32,
        patch_size: int = 4,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        mean: PerChannel = None,
        std: PerChannel = None,
    ) -> None:
        super().__init__()
        if image_size % patch_size or width % heads:
            raise ValueError(
                "a vision transformer needs whole patches and equal heads; got "
                f"image_size={image_size}, patch_size={patch_size}, width={width}, heads={heads}. "
                "Choose a patch_size that divides image_size and heads that divide width."
            )
        self.preprocessing = for_channels(channels, mean, std)
        self.patch_embed = nn.Sequential()
        self.patch_embed.add_module("proj", nn.Conv2d(channels, width, patch_size, patch_size))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        tokens = (image_size // patch_size) ** 2 + 1
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
        self.blocks = nn.Sequential(*(Block(width, heads, 4 * width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self._initialize()

    def _initialize(self) -> None:
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, channels, image_size, image_size) in [0, 1] -> logits."""
        patches = self.patch_embed(self.preprocessing(images)).flatten(2).transpose(1, 2)
        token = self.cls_token.expand(len(patches), -1, -1)
        tokens = torch.cat([token, patches], dim=1)
        if tokens.shape[1] != self.pos_embed.shape[1]:
            raise ValueError(
                "a vision transformer takes images of the size it was built for; got shape "
                f"{tuple(images.shape)}. Resize them, or build it with another image_size."
            )
        tokens = self.norm(self.blocks(tokens + self.pos_embed))
        logits: Tensor = self.head(tokens[:, 0])
        return logits
