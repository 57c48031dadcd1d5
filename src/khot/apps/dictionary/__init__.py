"""Dictionaries of atoms, of which each sample uses exactly k: in training as in coding.

:class:`TopKDictionary` has the interface of scikit-learn's ``MiniBatchDictionaryLearning``, whose training is
by an ℓ1 penalty while its coding is by k; it needs scikit-learn: ``pip install 'khot[apps]'``.
"""

from khot.apps.dictionary.estimator import TopKDictionary

__all__ = ["TopKDictionary"]
