"""Image sets for the experiments and for training: read from files or bundled packages, never downloaded.

mnist, fashion-mnist    idx files in a folder of that name, plain or .gz
digits                  scikit-learn's bundled 8×8 digits
digit-pairs             two of these side by side, 100 classes; mnist-pairs: the same of MNIST
a path                  a folder with idx files, or with one folder of pictures for each class
"""

from khot.vision.data.folders import FolderImages
from khot.vision.data.images import ImageTensors
from khot.vision.data.loading import load
from khot.vision.data.location import data_folder

__all__ = ["FolderImages", "ImageTensors", "data_folder", "load"]
