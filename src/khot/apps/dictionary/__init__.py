"""Dictionary learning in which each sample uses exactly k atoms, in training and in coding.

:class:`TopKDictionary` has the interface of scikit-learn's ``MiniBatchDictionaryLearning``, which trains with
an ℓ1 penalty even if it codes with k atoms. It needs scikit-learn: ``pip install 'khot[apps]'``.
"""

from khot.apps.dictionary.estimator import TopKDictionary

__all__ = ["TopKDictionary"]
