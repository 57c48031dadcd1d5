// What the Python module calls. Pointers are to contiguous memory; outputs do not overlap inputs.
#pragma once

#include <cstdint>

namespace khot {

// The gates of the threshold family that have kernels; the numbers are those of khot.kernels.cpu.
enum class GateKind { logistic = 0, laplace = 1, sparse = 2 };

// See gate_jacobian.cpp. real: float, double.
template <typename real>
void gate_jacobian(GateKind gate, const real* state, const real* grad, const real* temperature,
                   int64_t temperature_stride, real* out, real* mean, int64_t rows, int64_t n, int threads);

// A forward kernel of the family: see sigmoid_topk.cpp and threshold_topk.cpp. mask and state may be null. False when
// there was not enough memory.
template <typename real>
using GatedTopK = bool(const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                       const real* temperature, int64_t temperature_stride, real* y, real* state, int64_t rows,
                       int64_t n, int threads);

template <typename real>
bool sigmoid_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride, const real* temperature,
                  int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n, int threads);
template <typename real>
bool laplace_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride, const real* temperature,
                  int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n, int threads);
template <typename real>
bool sparse_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride, const real* temperature,
                 int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n, int threads);

// See hard_topk.cpp. k has one element for each row, or one for all if k_stride is 0; mask may be null.
// False when there was not enough memory.
template <typename real>
bool hard_topk(const real* x, const unsigned char* mask, const int64_t* k, int64_t k_stride, real* out,
               int64_t rows, int64_t n, int threads);

// See argsort.cpp. n is below 2^32; values may be null. False when there was not enough memory.
template <typename real>
bool argsort(const real* x, bool descending, real* values, int64_t* indices, int64_t rows, int64_t n, int threads);

}  // namespace khot
