// The threshold family as functions of the Python module.
#pragma once

#include "arguments.h"

#include <cstdint>

#include "kernels.h"

namespace {

template <typename real>
PyObject* gate_jacobian(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 12);
    const auto gate = static_cast<khot::GateKind>(arguments.integer("gate", 0, 5));
    const double norm = arguments.number_between("norm", 1, 2);
    const real* state = arguments.address<const real>();
    const real* x = arguments.address<const real>();
    const real* threshold = arguments.address<const real>();
    const real* grad = arguments.address<const real>();
    real number;
    int64_t temperature_stride;
    const real* temperature = arguments.per_row(&number, &temperature_stride);
    real* out = arguments.address<real>();
    real* mean = arguments.address<real>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("state", state, rows > 0 && n > 0);
    arguments.check_address("grad", grad, rows > 0 && n > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    const bool by_threshold = gate == khot::GateKind::logistic_weight;
    arguments.check_address("x", x, by_threshold && rows > 0 && n > 0);
    arguments.check_address("threshold", threshold, by_threshold && rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::gate_jacobian(gate, norm, state, x, by_threshold ? threshold : nullptr, grad, temperature,
                                   temperature_stride, out, mean, rows, n, threads);
    });
}

template <typename real>
PyObject* gate_sums(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 11);
    const auto gate = static_cast<khot::GateKind>(arguments.integer("gate", 0, 2));
    const real* x = arguments.address<const real>();
    const real* anchor = arguments.address<const real>();
    const real* temperature = arguments.address<const real>();
    const real* offset = arguments.address<const real>();
    const real* fine = arguments.address<const real>();
    const unsigned char* ties_below = arguments.address<const unsigned char>();
    double* out = arguments.address<double>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("anchor", anchor, rows > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("offset", offset, rows > 0);
    arguments.check_address("fine", fine, rows > 0);
    arguments.check_address("ties_below", ties_below, rows > 0);
    arguments.check_address("out", out, rows > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::gate_sums(gate, x, anchor, temperature, offset, fine, ties_below, out, rows, n, threads);
    });
}

// What the kernels of gate_shards.cpp all take, in the order of their arguments.
template <typename real>
struct ShardArguments {
    khot::GateKind gate;
    khot::GateShard<real> at;
    const real *x, *grad, *mean;
    int64_t rows, n;
    int threads;

    // `out` is read between those, as its type differs.
    template <typename Out>
    bool read(Arguments& arguments, Out** out, bool has_grad, bool has_mean) {
        gate = static_cast<khot::GateKind>(arguments.integer("gate", 0, 2));
        at.anchor = arguments.address<const real>();
        at.temperature = arguments.address<const real>();
        at.offset = arguments.address<const real>();
        at.fine = arguments.address<const real>();
        x = arguments.address<const real>();
        grad = has_grad ? arguments.address<const real>() : nullptr;
        mean = has_mean ? arguments.address<const real>() : nullptr;
        *out = arguments.address<Out>();
        rows = arguments.integer("rows", 0, INT64_MAX);
        n = arguments.integer("n", 0, INT64_MAX);
        threads = arguments.threads();
        arguments.check_extent(rows, n, sizeof(real));
        const bool some = rows > 0 && n > 0;
        arguments.check_address("anchor", at.anchor, rows > 0);
        arguments.check_address("temperature", at.temperature, rows > 0);
        arguments.check_address("offset", at.offset, rows > 0);
        arguments.check_address("fine", at.fine, rows > 0);
        arguments.check_address("x", x, some);
        arguments.check_address("grad", grad, has_grad && some);
        arguments.check_address("mean", mean, has_mean && rows > 0);
        arguments.check_address("out", *out, some);
        return arguments.ok();
    }
};

template <typename real>
PyObject* gate_weights(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 10);
    ShardArguments<real> given;
    real* y;
    if (!given.read(arguments, &y, false, false)) return nullptr;
    return without_gil([&] {
        return khot::gate_weights(given.gate, given.at, given.x, y, given.rows, given.n, given.threads);
    });
}

template <typename real>
PyObject* slope_sums(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 11);
    ShardArguments<real> given;
    double* out;
    if (!given.read(arguments, &out, true, false)) return nullptr;
    return without_gil([&] {
        return khot::slope_sums(given.gate, given.at, given.x, given.grad, out, given.rows, given.n, given.threads);
    });
}

template <typename real>
PyObject* slope_product(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 12);
    ShardArguments<real> given;
    real* out;
    if (!given.read(arguments, &out, true, true)) return nullptr;
    return without_gil([&] {
        return khot::slope_product(given.gate, given.at, given.x, given.grad, given.mean, out, given.rows, given.n,
                                   given.threads);
    });
}

// call(x, …) is a kernel of the family; `thresholds` says whether it has that argument.
template <typename real, typename Call>
PyObject* gated_topk(const char* name, PyObject* const* values, Py_ssize_t count, bool thresholds, const Call& call) {
    Arguments arguments(name, values, count, thresholds ? 10 : 9);
    const real* x = arguments.address<const real>();
    const unsigned char* mask = arguments.address<const unsigned char>();
    double k_number;
    real temperature_number;
    int64_t k_stride, temperature_stride;
    const double* k = arguments.per_row(&k_number, &k_stride);
    const real* temperature = arguments.per_row(&temperature_number, &temperature_stride);
    real* y = arguments.address<real>();
    real* state = arguments.address<real>();
    real* threshold = thresholds ? arguments.address<real>() : nullptr;
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, sizeof(real));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("k", k, rows > 0);
    arguments.check_address("temperature", temperature, rows > 0);
    arguments.check_address("y", y, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return call(x, mask, k, k_stride, temperature, temperature_stride, y, state, threshold, rows, n, threads);
    });
}

template <typename real>
PyObject* sigmoid_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    return gated_topk<real>(name, values, count, true, khot::sigmoid_topk<real>);
}

// A kernel that keeps no thresholds.
template <typename real>
PyObject* gated_topk(khot::GatedTopK<real>* kernel, const char* name, PyObject* const* values, Py_ssize_t count) {
    return gated_topk<real>(name, values, count, false,
                            [&](const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                                const real* temperature, int64_t temperature_stride, real* y, real* state, real*,
                                int64_t rows, int64_t n, int threads) {
                                return kernel(x, mask, k, k_stride, temperature, temperature_stride, y, state, rows, n,
                                              threads);
                            });
}

template <typename real>
PyObject* laplace_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    return gated_topk<real>(khot::laplace_topk<real>, name, values, count);
}

template <typename real>
PyObject* normal_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    return gated_topk<real>(khot::normal_topk<real>, name, values, count);
}

// The norm comes first, then what all others take.
template <typename real>
PyObject* sparse_topk(const char* name, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments(name, values, count, 10);
    const double norm = arguments.number_between("norm", 1, 2);
    if (!arguments.ok()) return nullptr;
    return gated_topk<real>(name, values + 1, count - 1, false,
                            [&](const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                                const real* temperature, int64_t temperature_stride, real* y, real* state, real*,
                                int64_t rows, int64_t n, int threads) {
                                return khot::sparse_topk(norm, x, mask, k, k_stride, temperature, temperature_stride, y,
                                                        state, rows, n, threads);
                            });
}

// The kernels of half_rows.cpp.
PyObject* sigmoid_topk_half(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("sigmoid_topk_half", values, count, 9);
    const auto kind = static_cast<khot::HalfKind>(arguments.integer("kind", 0, 1));
    const uint16_t* x = arguments.address<const uint16_t>();
    const double k = arguments.number();
    const float temperature = static_cast<float>(arguments.number());
    uint16_t* y = arguments.address<uint16_t>();
    float* threshold = arguments.address<float>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, 3 * sizeof(float));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("y", y, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::sigmoid_topk_half(kind, x, k, temperature, y, threshold, rows, n, threads);
    });
}

PyObject* sigmoid_jacobian_half(PyObject*, PyObject* const* values, Py_ssize_t count) {
    Arguments arguments("sigmoid_jacobian_half", values, count, 9);
    const auto kind = static_cast<khot::HalfKind>(arguments.integer("kind", 0, 1));
    const uint16_t* x = arguments.address<const uint16_t>();
    const float* threshold = arguments.address<const float>();
    const uint16_t* grad = arguments.address<const uint16_t>();
    const float temperature = static_cast<float>(arguments.number());
    uint16_t* out = arguments.address<uint16_t>();
    const int64_t rows = arguments.integer("rows", 0, INT64_MAX);
    const int64_t n = arguments.integer("n", 0, INT64_MAX);
    const int threads = arguments.threads();
    arguments.check_extent(rows, n, 3 * sizeof(float));
    arguments.check_address("x", x, rows > 0 && n > 0);
    arguments.check_address("threshold", threshold, rows > 0);
    arguments.check_address("grad", grad, rows > 0 && n > 0);
    arguments.check_address("out", out, rows > 0 && n > 0);
    if (!arguments.ok()) return nullptr;
    return without_gil([&] {
        return khot::sigmoid_jacobian_half(kind, x, threshold, grad, temperature, out, rows, n, threads);
    });
}

}  // namespace
