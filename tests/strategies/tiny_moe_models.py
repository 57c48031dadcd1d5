"""Small random models of transformers with experts, as their own configurations make them."""

import torch
import transformers

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_QWEN = {"moe_intermediate_size": 16, "decoder_sparse_step": 1, "num_experts": 8}
_DEEPSEEK = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 16,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
FAMILIES = {
    "Mixtral": {"num_local_experts": 8},
    "Qwen2Moe": {**_QWEN, "shared_expert_intermediate_size": 16},
    "Qwen3Moe": {**_QWEN, "head_dim": 8, "norm_topk_prob": True},
    "Olmoe": {"num_experts": 8},
    "DeepseekV3": _DEEPSEEK,
    "DeepseekV2": {**_DEEPSEEK, "topk_method": "group_limited_greedy"},
    "GptOss": {"num_local_experts": 8, "head_dim": 8, "max_position_embeddings": 131072},
}
WITH_BALANCE_LOSS = ("Mixtral", "Qwen2Moe", "Qwen3Moe", "Olmoe", "GptOss")


def tiny_model(family, k=3, **options):
    """In evaluation mode, with gates that make a difference; the same at every call."""
    torch.manual_seed(0)
    settings = {**SIZES, **FAMILIES[family], "num_experts_per_tok": k, **options}
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("gate.weight", "router.weight")):
                tensor.normal_(std=0.3)
            elif name.endswith("e_score_correction_bias"):
                tensor.normal_(std=0.1)
    return model


def text(batch=3, length=12, seed=0):
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(seed))
