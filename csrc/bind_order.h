// Selection and sorting as functions of the Python module.
#pragma once

#include "arguments.h"

#include <cstdint>

#include "kernels.h"

namespace {

template <typename real>
PyObject* hard_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 7);
    const real* x = arguments.address<const real>();
    const unsigned char* mask = arguments.address<const unsigned char>();
    int64_t number, k_stride;
    const int64_t* k = arguments.per_row(&number, &k_stride);
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("k", k, rows > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::hard_topk(x, mask, k, k_stride, out, rows, n, threads); });
}

template <typename real>
PyObject* count_between(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 8);
    const real* x = arguments.address<const real>();
    const real* low = arguments.address<const real>();
    const real* high = arguments.address<const real>();
    int64_t* above = arguments.address<int64_t>();
    int64_t* between = arguments.address<int64_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("low", low, rows > 0);
    arguments.check_address("high", high, rows > 0);
    arguments.check_address("above", above, rows > 0);
    arguments.check_address("between", between, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::count_between(x, low, high, above, between, rows, n, threads); });
}

template <typename real>
PyObject* collect_between(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 8);
    const real* x = arguments.address<const real>();
    const real* low = arguments.address<const real>();
    const real* high = arguments.address<const real>();
    const int64_t* starts = arguments.address<const int64_t>();
    real* out = arguments.address<real>();  // null if nothing is between
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("low", low, rows > 0);
    arguments.check_address("high", high, rows > 0);
    arguments.check_address("starts", starts, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::collect_between(x, low, high, starts, out, rows, n, threads); });
}

template <typename real>
PyObject* topk_entries(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 12);
    const real* x = arguments.address<const real>();
    const unsigned char* mask = arguments.address<const unsigned char>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    const bool by_position = arguments.integer("by_position", 0, 1) != 0;
    int64_t* indices = arguments.address<int64_t>();
    real* weights = arguments.address<real>();
    real* scores = arguments.address<real>();
    real* threshold = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("indices", indices, rows > 0 && k > 0);
    arguments.check_address("weights", weights, rows > 0 && k > 0);
    arguments.check_address("values", scores, rows > 0 && k > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::topk_entries(x, mask, k, temperature, temperature_stride, by_position, indices, weights, scores,
                                  threshold, rows, n, threads);
    });
}

template <typename real>
PyObject* entries_jacobian(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 11);
    const real* x = arguments.address<const real>();
    const unsigned char* mask = arguments.address<const unsigned char>();
    const real* threshold = arguments.address<const real>();
    const int64_t* indices = arguments.address<const int64_t>();
    const real* grad = arguments.address<const real>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int64_t k = arguments.integer("k", 0, n);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("threshold", threshold, rows > 0);
    arguments.check_address("indices", indices, rows > 0 && k > 0);
    arguments.check_address("grad", grad, rows > 0 && k > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::entries_jacobian(x, mask, threshold, indices, grad, temperature, temperature_stride, out, rows,
                                      n, k, threads);
    });
}

template <typename real>
PyObject* argsort(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 7);
    const real* x = arguments.address<const real>();
    const bool descending = arguments.integer("descending", 0, 1) != 0;
    real* sorted = arguments.address<real>();
    int64_t* indices = arguments.address<int64_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("indices", indices, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::argsort(x, descending, sorted, indices, rows, n, threads); });
}

}  // namespace
