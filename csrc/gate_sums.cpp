// Sums over a row at a given offset, for whoever adds those of several shards: see khot/parallel/_solver.py.
//
// With z = (x − anchor)/τ and a = z + offset − fine, over the entries below the anchor and over those above it: the
// distance of F(a) to 0 or to 1 and its first two derivatives; for the sparse gate that distance, the weights in (0, 1),
// their number, and the number of those at 1. In float within a short block, in double beyond it.
#include <cstdint>
#include <new>
#include <vector>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

constexpr int TERMS = GATE_SUM_TERMS;
constexpr int64_t SUMMED = 1024;
constexpr double FAR = 1e4;  // khot.relaxations.threshold._gates.Gate.far

template <typename real>
struct SumsRow {
    real half_anchor, twice_rate, offset, fine;
    bool ties_below;
};

template <typename real>
struct SumsTable {
    using Sums = void(const SumsRow<real>& row, const real* x, int64_t n, double* out);
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
    // Of a long row in parts, as many whatever the number of threads.
    const int64_t whole = (n + LONG_ROW - 1) / LONG_ROW;
    const int64_t parts = whole < 1 ? 1 : whole < MAX_PARTS ? whole : MAX_PARTS;
    const int64_t length = (n + parts - 1) / parts;
    std::vector<double> found;
    try {
        found.assign(size_t(rows * parts * 2 * TERMS), 0.0);
    } catch (const std::bad_alloc&) {
        return false;
    }
    parallel_ranges(useful_threads(rows * n, threads), rows * parts, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t row = piece / parts, first = piece % parts * length;
            const int64_t count = n - first < length ? n - first : length;
            const SumsRow<real> at = {anchor[row] * real(0.5), real(2) / temperature[row], offset[row], fine[row],
                                      ties_below[row] != 0};
            if (count > 0) sums(at, x + row * n + first, count, found.data() + piece * 2 * TERMS);
        }
    });
    for (int64_t row = 0; row < rows; ++row) {
        for (int t = 0; t < 2 * TERMS; ++t) {
            double total = 0;
            for (int64_t part = 0; part < parts; ++part) total += found[size_t((row * parts + part) * 2 * TERMS + t)];
            out[row * 2 * TERMS + t] = total;
        }
    }
    return true;
}

template bool gate_sums(GateKind, const float*, const float*, const float*, const float*, const float*,
                        const unsigned char*, double*, int64_t, int64_t, int);
template bool gate_sums(GateKind, const double*, const double*, const double*, const double*, const double*,
                        const unsigned char*, double*, int64_t, int64_t, int);

}  // namespace khot
