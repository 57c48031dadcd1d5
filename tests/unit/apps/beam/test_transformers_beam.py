"""Against beam search of transformers: all k sequences and their scores, for models of its own."""

import pytest
import torch

transformers = pytest.importorskip("transformers", minversion="5.0")

from khot.apps.beam import soft_beam_search  # noqa: E402
from strategies.quick_run import costly  # noqa: E402

EOS, START, PAD, VOCABULARY = 0, 1, 2, 12


def language_model(seed):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=START,
        eos_token_id=EOS,
        pad_token_id=PAD,
        initializer_range=0.6,
    )
    return transformers.LlamaForCausalLM(config).double().eval()


@pytest.mark.parametrize(
    ("k", "penalty"),
    [costly(1, 0.0), (3, 0.0), costly(4, 1.0)],
)
def test_the_sequences_are_those_of_generate(k, penalty):
    ended = 0
    for seed in range(4):
        model = language_model(seed)

        def step(tokens, prefix, model=model):
            grown = torch.cat([prefix, tokens.unsqueeze(-1)], -1)
            batch, width, length = grown.shape
            logits = model(grown.view(batch * width, length), use_cache=False).logits[:, -1]
            return logits.log_softmax(-1).view(batch, width, -1), grown

        first = torch.tensor([3, 5, 7])
        with torch.no_grad():
            found = soft_beam_search(
                step,
                torch.full((3, 1), START),
                k,
                start=first,
                eos=EOS,
                pad=PAD,
                max_length=8,
                hard=True,
                length_penalty=penalty,
            )
        theirs = model.generate(
            torch.stack([torch.full((3,), START), first], 1),
            num_beams=k,
            do_sample=False,
            max_new_tokens=8,
            early_stopping="never",
            length_penalty=penalty if k > 1 else None,
            num_return_sequences=k,
            return_dict_in_generate=True,
            output_scores=True,
        )
        ours = found.sequences.flatten(0, 1)
        steps = max(ours.shape[1], theirs.sequences.shape[1] - 2)
        padded = [
            torch.nn.functional.pad(sequence, (0, steps - sequence.shape[1]), value=PAD)
            for sequence in (ours, theirs.sequences[:, 2:])
        ]
        assert torch.equal(*padded)
        if k > 1:
            scores = found.scores / found.lengths**penalty
            torch.testing.assert_close(
                scores.flatten().float(), theirs.sequences_scores, atol=1e-4, rtol=1e-4
            )
        ended += int(found.finished.sum())
    assert ended > 0
