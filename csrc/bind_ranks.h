// Isotonic regression and soft ranks as functions of the Python module.
#pragma once

#include "arguments.h"

#include <cstdint>

#include "kernels.h"

namespace {

template <typename real>
PyObject* isotonic(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 10);
    const auto kind = static_cast<khot::Projection>(arguments.integer("kind", 0, 2));
    const real* s = arguments.address<const real>();
    const int64_t s_stride = arguments.integer("s_stride", 0, INT64_MAX);
    const real* w = arguments.address<const real>();
    const int64_t w_stride = arguments.integer("w_stride", 0, INT64_MAX);
    real* p = arguments.address<real>();
    int64_t* start = arguments.address<int64_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, 3 * sizeof(int64_t));
    arguments.check_address("s", s, rows > 0 && n > 0);
    arguments.check_address("w", w, rows > 0 && n > 0);
    arguments.check_address("p", p, rows > 0 && n > 0);
    arguments.check_address("start", start, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::isotonic(kind, s, s_stride, w, w_stride, p, start, rows, n, threads); });
}

template <typename real>
PyObject* block_sums(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 6);
    const real* x = arguments.address<const real>();
    const int64_t* start = arguments.address<const int64_t>();
    real* sums = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("values", x, rows > 0 && n > 0);
    arguments.check_address("start", start, rows > 0 && n > 0);
    arguments.check_address("sums", sums, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::block_sums(x, start, sums, rows, n, threads); });
}

template <typename real>
PyObject* soft_rank(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 8);
    const real* x = arguments.address<const real>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    const bool descending = arguments.integer("descending", 0, 1) != 0;
    real* ranks = arguments.address<real>();
    int64_t* order = arguments.address<int64_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, 4 * sizeof(int64_t));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("ranks", ranks, rows > 0 && n > 0);
    arguments.check_address("order", order, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::soft_rank(x, temperature, temperature_stride, descending, ranks, order, rows, n, threads);
    });
}

template <typename real>
PyObject* soft_rank_jacobian(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 8);
    const real* grad = arguments.address<const real>();
    const int64_t* order = arguments.address<const int64_t>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    const bool descending = arguments.integer("descending", 0, 1) != 0;
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, UINT32_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("grad", grad, rows > 0 && n > 0);
    arguments.check_address("order", order, rows > 0 && n > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::soft_rank_jacobian(grad, order, temperature, temperature_stride, descending, out, rows, n,
                                        threads);
    });
}

}  // namespace
