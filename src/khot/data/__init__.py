"""Image sets for the experiments and for training: read from files or bundled packages, never downloaded.

mnist, fashion-mnist    idx files in a folder of that name, plain or .gz
digits                  scikit-learn's bundled 8×8 digits
digit-pairs             two of these side by side, 100 classes; mnist-pairs: the same of MNIST
a path                  a folder with idx files, or with one folder of pictures for each class
"""

from khot.data.folders import FolderImages
from khot.data.images import ImageTensors
from khot.data.loading import load
from khot.data.location import data_folder

__all__ = ["FolderImages", "ImageTensors", "data_folder", "load"]
