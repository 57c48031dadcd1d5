"""Image data sets for experiments and training: read from files or installed packages, never downloaded.

mnist, fashion-mnist    idx files in a folder of that name, plain or .gz
digits                  the 8×8 digits of scikit-learn
digit-pairs             two digits side by side, 100 classes; mnist-pairs: the same with MNIST
a path                  a folder with idx files, or with one folder of pictures for each class
"""

from khot.vision.data.folders import FolderImages
from khot.vision.data.images import ImageTensors
from khot.vision.data.loading import load
from khot.vision.data.location import data_folder

__all__ = ["FolderImages", "ImageTensors", "data_folder", "load"]
