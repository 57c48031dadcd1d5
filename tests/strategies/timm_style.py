"""A small vision transformer written after timm's, part by part, and independently of khot's own."""

import torch
from torch import nn
from torch.nn import functional as F


class LayerScale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(0.5 + torch.rand(dim))

    def forward(self, x):
        return x * self.gamma


class Attention(nn.Module):
    def __init__(self, dim, num_heads, qk_norm, fused):
        super().__init__()
        self.num_heads, self.head_dim, self.scale = num_heads, dim // num_heads, (dim // num_heads) ** -0.5
        self.fused_attn = fused
        self.qkv = nn.Linear(dim, 3 * dim)
        self.q_norm = nn.LayerNorm(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(self.head_dim) if qk_norm else nn.Identity()
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(0.0)
        self.seen = None  # the whole attention, for the tests to compare with

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            self.seen = ((q * self.scale) @ k.transpose(-2, -1)).softmax(-1)
            x = self.attn_drop(self.seen) @ v
        return self.proj_drop(self.proj(x.transpose(1, 2).reshape(b, n, c)))


class Block(nn.Module):
    def __init__(self, dim, num_heads, qk_norm, fused):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, num_heads, qk_norm, fused)
        self.ls1, self.drop_path1 = LayerScale(dim), nn.Identity()
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.ls2, self.drop_path2 = LayerScale(dim), nn.Identity()

    def forward(self, x):
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))


class PostNormBlock(Block):
    """The same names, another order."""

    def forward(self, x):
        x = x + self.norm1(self.attn(x))
        return x + self.norm2(self.mlp(x))


class TimmStyle(nn.Module):
    """Takes patches (B, N, 6) instead of images; ``registers`` beside CLS, or no prefix at all."""

    def __init__(
        self, depth=4, dim=16, heads=2, cls=True, registers=0, qk_norm=False, fused=True, block=Block
    ):
        super().__init__()
        self.patch_embed = nn.Linear(6, dim)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim)) if cls else None
        self.reg_token = nn.Parameter(torch.randn(1, registers, dim)) if registers else None
        self.num_prefix_tokens = cls + registers
        self.blocks = nn.Sequential(*(block(dim, heads, qk_norm, fused) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 5)

    def forward_features(self, x):
        x = self.patch_embed(x)
        prefix = [t.expand(len(x), -1, -1) for t in (self.cls_token, self.reg_token) if t is not None]
        return self.norm(self.blocks(torch.cat([*prefix, x], 1)))

    def forward(self, x):
        x = self.forward_features(x)
        return self.head(x[:, 0] if self.cls_token is not None else x.mean(1))


def model_and_patches(seed=0, batch=3, patches=20, **settings):
    """A model with strong, varied attention, and patches."""
    torch.manual_seed(seed)
    model = TimmStyle(**settings)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(3)
    return model, torch.randn(batch, patches, 6)
