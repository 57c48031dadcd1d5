"""Write the pictures of the README from the gallery: `python docs/pictures.py`."""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
PICTURES = {"plot_tempering.py": "tempering.svg"}

if __name__ == "__main__":
    # Fixed ids and no date: the same figure gives the same file.
    matplotlib.rcParams["svg.hashsalt"] = "khot"
    for example, picture in PICTURES.items():
        plt.close("all")
        runpy.run_path(str(ROOT / "examples" / example))
        plt.gcf().savefig(ROOT / "docs" / "_static" / picture, metadata={"Date": None})
