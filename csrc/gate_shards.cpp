// Weights of a row whose threshold is known, and the two passes of their Jacobian product, between which whoever has
// several shards adds up the sums: see khot/parallel/_functions.py.
//
// With z and a of gate_row.h and w = F′(a), 0 where the score is infinite:
//
//     gate_weights     y = F(a)
//     slope_sums       Σw, Σwg, Σzw, Σzwg
//     slope_product    w (g − m)/τ
//
// As in gate_jacobian.cpp, where w = 0 it does not matter what g is.
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "gate_row.h"
#include "kernels.h"

namespace khot {
namespace {

constexpr int TERMS = SLOPE_SUM_TERMS;
constexpr int64_t SUMMED = 1024;

template <typename real>
struct ShardLoops {
    void (*weights)(const GateRow<real>& row, const real* x, real* y, int64_t n);
    void (*sums)(const GateRow<real>& row, const real* x, const real* grad, int64_t n, double* out);
    void (*product)(const GateRow<real>& row, const real* x, const real* grad, real mean, real* out, int64_t n);
};

template <typename real>
struct ShardTable {
    ShardLoops<real> logistic, laplace, sparse;

    const ShardLoops<real>& of(GateKind gate) const {
        return gate == GateKind::logistic ? logistic : gate == GateKind::laplace ? laplace : sparse;
    }
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "gate_shards.inl"
#include "dispatch.h"

namespace khot {
namespace {

const ShardTable<float>& table(float) { return KHOT_PICK(f32::shard_table); }
const ShardTable<double>& table(double) { return KHOT_PICK(f64::shard_table); }

}  // namespace

template <typename real>
void gate_weights(GateKind gate, const GateShard<real>& at, const real* x, real* y, int64_t rows, int64_t n, int threads) {
    const ShardLoops<real>& loops = table(real()).of(gate);
    const GateRows<real> all = {at.anchor, at.temperature, at.offset, at.fine};
    RowPieces(rows, n).each(threads, [&](int64_t row, int64_t first, int64_t count, int64_t) {
        loops.weights(all[row], x + row * n + first, y + row * n + first, count);
    });
}

template <typename real>
bool slope_sums(GateKind gate, const GateShard<real>& at, const real* x, const real* grad, double* out, int64_t rows,
                int64_t n, int threads) {
    const ShardLoops<real>& loops = table(real()).of(gate);
    const GateRows<real> all = {at.anchor, at.temperature, at.offset, at.fine};
    const RowPieces pieces(rows, n);
    std::vector<double> found;
    try {
        found.assign(std::size_t(rows * pieces.parts * TERMS), 0.0);
    } catch (const std::bad_alloc&) {
        return false;
    }
    pieces.each(threads, [&](int64_t row, int64_t first, int64_t count, int64_t piece) {
        const int64_t begin = row * n + first;
        loops.sums(all[row], x + begin, grad + begin, count, found.data() + piece * TERMS);
    });
    pieces.total(found.data(), TERMS, out);
    return true;
}

template <typename real>
void slope_product(GateKind gate, const GateShard<real>& at, const real* x, const real* grad, const real* mean, real* out,
                   int64_t rows, int64_t n, int threads) {
    const ShardLoops<real>& loops = table(real()).of(gate);
    const GateRows<real> all = {at.anchor, at.temperature, at.offset, at.fine};
    RowPieces(rows, n).each(threads, [&](int64_t row, int64_t first, int64_t count, int64_t) {
        const int64_t begin = row * n + first;
        loops.product(all[row], x + begin, grad + begin, mean[row], out + begin, count);
    });
}

#define KHOT_SHARDS(real)                                                                                              \
    template void gate_weights(GateKind, const GateShard<real>&, const real*, real*, int64_t, int64_t, int);           \
    template bool slope_sums(GateKind, const GateShard<real>&, const real*, const real*, double*, int64_t, int64_t,    \
                             int);                                                                                     \
    template void slope_product(GateKind, const GateShard<real>&, const real*, const real*, const real*, real*,        \
                                int64_t, int64_t, int);
KHOT_SHARDS(float)
KHOT_SHARDS(double)

}  // namespace khot
