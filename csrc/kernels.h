// What the Python module calls. Pointers are to contiguous memory; outputs do not overlap inputs.
#pragma once

#include <cstdint>

namespace khot {

// See gate_jacobian.cpp. real: float, double.
template <typename real>
void gate_jacobian(const real* residual, const real* grad, const real* temperature,
                   int64_t temperature_stride, real* out, real* mean, int64_t rows, int64_t n, int threads);

}  // namespace khot
