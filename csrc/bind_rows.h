// Operators on short rows as functions of the Python module.
#pragma once

#include "arguments.h"

#include <cstdint>

#include "kernels.h"

namespace {

template <typename real>
PyObject* small_rows(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 14);
    const khot::SmallKind kind = static_cast<khot::SmallKind>(arguments.integer("kind", 0, 7));
    const real* x = arguments.address<const real>();
    const real* grad = arguments.address<const real>();
    double one_tau, one_window;
    int64_t tau_stride, window_stride;
    const double* tau = arguments.per_row(&one_tau, &tau_stride);
    const double* window = arguments.per_row(&one_window, &window_stride);
    const khot::NetworkLayer* layers = arguments.address<const khot::NetworkLayer>();
    const int64_t depth = arguments.integer("depth", 0, INT32_MAX);
    const bool cauchy = arguments.integer("cauchy", 0, 1) != 0;
    const bool matrix = arguments.integer("matrix", 0, 1) != 0;
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 1, INT32_MAX);
    const int64_t k = arguments.integer("k", 1, n);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n * k, sizeof(double));
    arguments.check_extent(n, k + 10, sizeof(double));
    arguments.check_address("x", x, rows > 0);
    arguments.check_address("out", out, rows > 0);
    arguments.check_address("tau", tau, rows > 0);
    arguments.check_address("window", window, rows > 0);
    arguments.check_address("layers", layers, depth > 0);
    if (!arguments.ok()) return nullptr;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = khot::small_rows(kind, x, grad, tau, tau_stride, window, window_stride, layers, depth, cauchy, matrix, out, rows, n, k, threads);
    Py_END_ALLOW_THREADS
    if (found < 0) return PyErr_NoMemory();
    return PyBool_FromLong(found);
}

}  // namespace
