// Draws of the sampling designs as functions of the Python module.
#pragma once

#include "arguments.h"

#include <cstdint>

#include "kernels.h"

namespace {

template <typename real>
PyObject* systematic(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const real* probs = arguments.address<const real>();
    const int64_t* order = arguments.address<const int64_t>();
    const double* u = arguments.address<const double>();
    real* out = arguments.address<real>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = arguments.threads();
    arguments.check_extent(draws * rows, n, sizeof(int64_t));
    arguments.check_address("probs", probs, draws * rows > 0 && n > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("out", out, draws * rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::systematic(probs, order, u, out, draws, rows, n, k, threads); });
}

template <typename real>
PyObject* pivotal(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 10);
    const real* probs = arguments.address<const real>();
    const int64_t* order = arguments.address<const int64_t>();
    const double* u = arguments.address<const double>();
    const int64_t uniforms = arguments.integer("uniforms", 0, INT64_MAX);
    real* out = arguments.address<real>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = arguments.threads();
    arguments.check_extent(draws * rows, n, 2 * sizeof(int64_t));
    arguments.check_address("probs", probs, draws * rows > 0 && n > 0);
    arguments.check_address("u", u, draws * rows > 0 && n > 1);
    arguments.check_address("out", out, draws * rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::pivotal(probs, order, u, uniforms, out, draws, rows, n, k, threads); });
}

PyObject* subsets(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("subsets", values, count, 8);
    const double* weights = arguments.address<const double>();
    const double* u = arguments.address<const double>();
    int64_t* indices = arguments.address<int64_t>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 1, UINT32_MAX);
    const int64_t k = arguments.integer("k", 1, n < INT32_MAX ? n : INT32_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(n + 1, k + 1, sizeof(double));
    arguments.check_extent(draws * rows, k, sizeof(double));
    arguments.check_address("weights", weights, rows > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("indices", indices, draws * rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::subsets(weights, u, indices, draws, rows, n, k, threads); });
}

PyObject* weighted_subsets(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("weighted_subsets", values, count, 9);
    const double* weights = arguments.address<const double>();
    const double* summands = arguments.address<const double>();
    const double* u = arguments.address<const double>();
    int64_t* indices = arguments.address<int64_t>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 1, UINT32_MAX);
    const int64_t k = arguments.integer("k", 1, n < INT32_MAX ? n : INT32_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(n + 1, k + 1, 2 * sizeof(double));
    arguments.check_extent(draws * rows, k, 2 * sizeof(double));
    arguments.check_address("weights", weights, rows > 0);
    arguments.check_address("summands", summands, rows > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("indices", indices, draws * rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::weighted_subsets(weights, summands, u, indices, draws, rows, n, k, threads);
    });
}

template <typename real>
PyObject* shuffled_systematic(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const real* probs = arguments.address<const real>();
    const unsigned char* bytes = arguments.address<const unsigned char>();
    const double* u = arguments.address<const double>();
    real* out = arguments.address<real>();
    const int64_t draws = arguments.integer("draws", 0, INT32_MAX);
    const int64_t rows = arguments.integer("rows", 0, INT32_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = arguments.threads();
    arguments.check_extent(draws * rows, n, sizeof(int64_t));
    arguments.check_address("probs", probs, draws * rows > 0 && n > 0);
    arguments.check_address("bytes", bytes, draws * rows > 0 && n > 0);
    arguments.check_address("u", u, draws * rows > 0);
    arguments.check_address("out", out, draws * rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::shuffled_systematic(probs, bytes, u, out, draws, rows, n, k, threads); });
}

}  // namespace
