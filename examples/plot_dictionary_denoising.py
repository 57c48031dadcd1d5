"""
A dictionary of patches, and a picture without its noise
========================================================

Every 8 × 8 patch of a noisy photograph is described by two atoms of a dictionary that is learned only from
these patches. Two atoms can describe an edge, but not the noise. The average of all described patches is the
denoised picture.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import extract_patches_2d, reconstruct_from_patches_2d

from khot.apps.dictionary import TopKDictionary

picture = load_sample_image("china.jpg").mean(axis=2)[60:260, 280:480].astype(np.float32) / 255
noisy = picture + np.float32(25 / 255) * np.random.default_rng(0).normal(size=picture.shape).astype(
    np.float32
)


def psnr(image):
    """Peak signal-to-noise ratio in dB."""
    return -10 * np.log10(np.square(image - picture).mean())


# %%
# Atoms have length one and mean zero: the mean brightness of a patch is subtracted first and added again
# later. The callback shows how the error falls; after half of the passes a patch has two atoms instead of
# one.

patches = extract_patches_2d(noisy, (8, 8)).reshape(-1, 64)
means = patches.mean(axis=1, keepdims=True)
train = np.random.default_rng(1).permutation(patches - means)[:10_000]

errors = []
begin = time.perf_counter()
dictionary = TopKDictionary(
    128, transform_n_nonzero_coefs=2, random_state=0, callback=lambda d: errors.append(d.error_)
).fit(train)
middle = time.perf_counter()
codes = dictionary.transform(patches - means)
print(
    f"learned in {middle - begin:.1f} s, {len(codes)} patches coded in {time.perf_counter() - middle:.1f} s"
)
print("atoms of a patch:", np.unique((codes != 0).sum(axis=1)))

# %%
# The picture is the average of the overlapping described patches.

described = dictionary.inverse_transform(codes) + means
denoised = reconstruct_from_patches_2d(described.reshape(-1, 8, 8), picture.shape)

figure, axes = plt.subplots(1, 3, figsize=(12, 4.3), layout="constrained")
for axis, title, image in (
    (axes[0], "picture", picture),
    (axes[1], f"with noise, {psnr(noisy):.1f} dB", noisy),
    (axes[2], f"two atoms a patch, {psnr(denoised):.1f} dB", denoised),
):
    axis.imshow(image, cmap="gray", vmin=0, vmax=1)
    axis.set_title(title)
    axis.axis("off")
plt.show()

# %%
# The atoms, with the most used ones first, and the error after each pass.

order = np.argsort(-(codes != 0).sum(axis=0))
figure, axes = plt.subplots(1, 2, figsize=(12, 4.3), layout="constrained", width_ratios=(2, 1))
tiles = np.ones((8 * 9 + 1, 16 * 9 + 1))
for place, atom in enumerate(dictionary.components_[order]):
    row, column = divmod(place, 16)
    tile = 0.5 + 0.5 * atom / np.abs(atom).max()
    tiles[9 * row + 1 : 9 * row + 9, 9 * column + 1 : 9 * column + 9] = tile.reshape(8, 8)
axes[0].imshow(tiles, cmap="gray", vmin=0, vmax=1)
axes[0].set_title("128 atoms")
axes[0].axis("off")
axes[1].plot(range(1, len(errors) + 1), errors, "o-")
axes[1].set(xlabel="pass", ylabel="squared error, share", title="training on noisy patches")
plt.show()
