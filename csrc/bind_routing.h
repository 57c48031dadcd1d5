// Routers of experts as functions of the Python module.
#pragma once

#include "arguments.h"

#include <cstdint>

#include "kernels.h"

namespace {

template <typename real>
PyObject* router_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 9);
    const real* x = arguments.address<const real>();
    const bool renormalise = arguments.integer("renormalise", 0, 1) != 0;
    int64_t* indices = arguments.address<int64_t>();
    real* weights = arguments.address<real>();
    real* sums = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 1, INT32_MAX);
    const int64_t k = arguments.integer("k", 1, n < khot::ROUTER_MOST ? n : khot::ROUTER_MOST);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("x", x, rows > 0);
    arguments.check_address("indices", indices, rows > 0);
    arguments.check_address("weights", weights, rows > 0);
    arguments.check_address("sums", sums, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] { return khot::router_topk(x, k, renormalise, indices, weights, sums, rows, n, threads); });
}

template <typename real>
PyObject* router_gradient(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 11);
    const real* x = arguments.address<const real>();
    const int64_t* indices = arguments.address<const int64_t>();
    const real* weights = arguments.address<const real>();
    const real* sums = arguments.address<const real>();
    const real* grad = arguments.address<const real>();
    const bool renormalise = arguments.integer("renormalise", 0, 1) != 0;
    real* out = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 1, INT32_MAX);
    const int64_t k = arguments.integer("k", 1, n);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(int64_t));
    arguments.check_address("x", x, rows > 0);
    arguments.check_address("indices", indices, rows > 0);
    arguments.check_address("weights", weights, rows > 0);
    arguments.check_address("sums", sums, rows > 0);
    arguments.check_address("grad", grad, rows > 0);
    arguments.check_address("out", out, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::router_gradient(x, indices, weights, sums, grad, renormalise, out, rows, n, k, threads);
    });
}

}  // namespace
