// Draws by splitting, and conditional Poisson sampling, as functions of the Python module.
#pragma once

#include "arguments.h"

#include <cstdint>

#include "kernels.h"

namespace {

PyObject* brewer(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("brewer", values, count, 8);
    const double* probs = arguments.address<const double>();
    const double* u = arguments.address<const double>();
    int64_t* indices = arguments.address<int64_t>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 1, UINT32_MAX);
    const int64_t k = arguments.integer("k", 1, n);
    const int threads = arguments.threads();
    arguments.check_extent(draws * rows, n, sizeof(double));
    arguments.check_address("probs", probs, rows > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("indices", indices, draws * rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::brewer(probs, u, indices, draws, rows, n, k, threads); });
}

PyObject* eliminate(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("eliminate", values, count, 10);
    const double* sorted = arguments.address<const double>();
    const int64_t* order = arguments.address<const int64_t>();
    const double* u = arguments.address<const double>();
    const bool kept = arguments.integer("kept", 0, 1) != 0;
    int64_t* indices = arguments.address<int64_t>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 1, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = arguments.threads();
    arguments.check_extent(draws * rows, n, sizeof(double));
    arguments.check_address("sorted", sorted, rows > 0);
    arguments.check_address("order", order, rows > 0);
    arguments.check_address("u", u, draws * rows > 0 && n > k);
    arguments.check_address("indices", indices, draws * rows > 0 && (kept ? k : n - k) > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::eliminate(sorted, order, u, kept, indices, draws, rows, n, k, threads); });
}

PyObject* cube(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("cube", values, count, 10);
    const double* probs = arguments.address<const double>();
    const double* columns = arguments.address<const double>();
    const int64_t* order = arguments.address<const int64_t>();
    const double* u = arguments.address<const double>();
    bool* out = arguments.address<bool>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 1, UINT32_MAX);
    const int64_t constraints = arguments.integer("constraints", 1, INT32_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(draws * rows, n, sizeof(double));
    arguments.check_extent(rows * n, constraints, sizeof(double));
    arguments.check_extent(constraints + 8, constraints + 8, sizeof(double));
    arguments.check_address("probs", probs, rows > 0);
    arguments.check_address("columns", columns, rows > 0);
    arguments.check_address("order", order, draws * rows > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("out", out, draws * rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::cube(probs, columns, order, u, out, draws, rows, n, constraints, threads); });
}

template <typename real>
PyObject* poisson_inclusion(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const real* theta = arguments.address<const real>();
    const double* reference = arguments.address<const double>();
    const double* start = arguments.address<const double>();
    real* pi = arguments.address<real>();
    double* exactly = arguments.address<double>();
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 2, UINT32_MAX);
    const int64_t k = arguments.integer("k", 1, n - 1);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(double));
    arguments.check_extent(n + 2, 32 * (k + 8), 2 * sizeof(double));
    arguments.check_address("theta", theta, rows > 0);
    arguments.check_address("reference", reference, rows > 0);
    arguments.check_address("start", start, rows > 0);
    arguments.check_address("pi", pi, rows > 0);
    arguments.check_address("exactly", exactly, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::poisson_inclusion(theta, reference, start, pi, exactly, rows, n, k, threads);
    });
}

template <typename real>
PyObject* poisson_covariance(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const real* theta = arguments.address<const real>();
    const double* reference = arguments.address<const double>();
    const double* start = arguments.address<const double>();
    const real* grad = arguments.address<const real>();
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 2, UINT32_MAX);
    const int64_t k = arguments.integer("k", 1, n - 1);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(double));
    arguments.check_extent(n + 2, 32 * (k + 8), 2 * sizeof(double));
    arguments.check_address("theta", theta, rows > 0);
    arguments.check_address("reference", reference, rows > 0);
    arguments.check_address("start", start, rows > 0);
    arguments.check_address("grad", grad, rows > 0);
    arguments.check_address("out", out, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::poisson_covariance(theta, reference, start, grad, out, rows, n, k, threads);
    });
}

PyObject* poisson_weights(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("poisson_weights", values, count, 9);
    const double* probs = arguments.address<const double>();
    const double tolerance = arguments.number();
    const int64_t most = arguments.integer("most", 1, INT32_MAX);
    double* odds = arguments.address<double>();
    double* error = arguments.address<double>();
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 2, UINT32_MAX);
    const int64_t k = arguments.integer("k", 1, n - 1);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(double));
    arguments.check_extent(n + 2, 32 * (k + 8), 2 * sizeof(double));
    arguments.check_address("probs", probs, rows > 0);
    arguments.check_address("odds", odds, rows > 0);
    arguments.check_address("error", error, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::poisson_weights(probs, tolerance, most, odds, error, rows, n, k, threads); });
}

}  // namespace
