"""Where data files are searched."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["VARIABLE", "data_folder"]

VARIABLE = "KHOT_DATA"


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The data folder: the argument, else the environment variable KHOT_DATA, else ~/.cache/khot.

    Args:
        data_dir: takes precedence over the environment.

    Returns:
        The folder; it need not exist.

    Example:
        >>> data_folder("pictures")
        PosixPath('pictures')
    """
    chosen = data_dir or os.environ.get(VARIABLE) or Path("~/.cache/khot")
    return Path(chosen).expanduser()
