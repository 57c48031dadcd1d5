"""Variances from π alone, against R's `varest` and R's least squares where R is installed.

The committed values are compared in ``tests/unit/designs/test_approximate_variance.py``.
"""

from strategies.r_results import check_variances, made_now


def test_values_made_now():
    check_variances(made_now("golden_variances.R"))
