// Sums over a row at a given offset, for whoever adds those of several shards: see khot/parallel/_solver.py.
//
// With a of gate_row.h, over the entries below the anchor and over those above it: the distance of F(a) to 0 or to 1 and
// its first two derivatives; for the sparse gate that distance, the weights in (0, 1), their number, and the number of
// those at 1. Last, how many entries these are. In float within a short block, in double beyond it.
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "gate_row.h"
#include "kernels.h"

namespace khot {
namespace {

constexpr int TERMS = GATE_SUM_TERMS;
constexpr int64_t SUMMED = 1024;

template <typename real>
struct SumsTable {
    using Sums = void(const GateRow<real>& row, const real* x, int64_t n, double* out);
    Sums *logistic, *laplace, *sparse;
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "gate_sums.inl"
#include "dispatch.h"

namespace khot {
namespace {

const SumsTable<float>& table(float) { return KHOT_PICK(f32::sums_table); }
const SumsTable<double>& table(double) { return KHOT_PICK(f64::sums_table); }

}  // namespace

template <typename real>
bool gate_sums(GateKind gate, const real* x, const real* anchor, const real* temperature, const real* offset,
               const real* fine, const unsigned char* ties_below, double* out, int64_t rows, int64_t n, int threads) {
    const SumsTable<real>& loops = table(real());
    auto* sums = gate == GateKind::logistic ? loops.logistic : gate == GateKind::laplace ? loops.laplace : loops.sparse;
    const GateRows<real> all = {anchor, temperature, offset, fine};
    const RowPieces pieces(rows, n);
    std::vector<double> found;
    try {
        found.assign(size_t(rows * pieces.parts * 2 * TERMS), 0.0);
    } catch (const std::bad_alloc&) {
        return false;
    }
    pieces.each(threads, [&](int64_t row, int64_t first, int64_t count, int64_t piece) {
        GateRow<real> at = all[row];
        at.ties_below = ties_below[row] != 0;
        sums(at, x + row * n + first, count, found.data() + piece * 2 * TERMS);
    });
    pieces.total(found.data(), 2 * TERMS, out);
    return true;
}

template bool gate_sums(GateKind, const float*, const float*, const float*, const float*, const float*,
                        const unsigned char*, double*, int64_t, int64_t, int);
template bool gate_sums(GateKind, const double*, const double*, const double*, const double*, const double*,
                        const unsigned char*, double*, int64_t, int64_t, int);

}  // namespace khot
