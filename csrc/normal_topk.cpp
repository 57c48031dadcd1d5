// Normal top-k: y_i = Φ(z_i + e) with z = (x − anchor)/τ and e such that Σ y = k.
//
// The fast path: the anchor is the threshold that the row would have if it were Gaussian, from the mean and variance of
// (a sample of) it. One pass there sums the gates and the moments Σ aʲφ(a), which are the derivatives of Σ y in e: their
// Taylor series gives e, and where its first term left out is too large, another pass follows. So most rows take two
// evaluations of Φ for each entry, the second of which writes the weights.
//
// The sure path, for all other rows: anchored by a selection at the ⌈k⌉-th largest score (in the middle of the gap, if k is
// an integer), Halley's method within a bracket on log ΣΦ below − log Σ(1 − Φ) above, as in
// src/khot/relaxations/threshold/_solver.py.
//
// The state is a = z + e, whose density is the slope.
#include <cmath>

#include "group.h"
#include "kernels.h"
#include "rows.h"
#include "sure_bracket.h"
#include "threads.h"

namespace khot {
namespace {

// How many evaluations each path may take.
constexpr int ROUNDS = 4, SURE_ROUNDS = 80;

// A step of Halley's method smaller than this leaves an error of rounding size: its cube.
template <typename real>
constexpr double CLOSE = SINGLE<real> ? 4e-3 : 4e-6;

// A step of the series of so many deviations of what moves leaves an error of rounding size: its sixth power over 6!.
template <typename real>
constexpr double SHORT_STEP = SINGLE<real> ? 0.2 : 4e-3;

// A state whose slope is 0: that of a weight that no score can move.
constexpr double STILL = 1e18;

// Σy as a count of the gates nearer to 1 and the sum of signed distances to the nearer of 0 and 1; Σ aʲ φ(a).
struct Moments {
    double count, distance, m[5];
};

struct SplitSums {
    double below[3], above[3];
};

struct AtZero {
    int64_t above, equal;
};

template <typename real>
struct NormalTable {
    Census (*census)(const real* x, int64_t n);
    void (*gaussian_anchors)(const real* x, int64_t n, int rows, real softness, Group<real>& group);
    void (*start)(const real* x, real anchor, real rate, real* u, int64_t n);
    Moments (*moments_at)(const real* u, double e, int64_t n);
    SplitSums (*split_sums)(const real* u, double e, bool ties_below, int64_t n);
    AtZero (*counts_at_zero)(const real* u, int64_t n);
    void (*write)(const real* u, double e, real* y, real* state, int64_t n);
};

// Φ⁻¹(p) with q = 1 − p, of which one may be tiny, good enough for a bracket and a start: from the tail's asymptote, or by
// the logistic approximation, and Newton's method on log Φ.
double quantile(double p, double q) {
    const double tail = p < q ? p : q;
    if (!(tail > 0)) return p < q ? -40 : 40;
    const double r = std::sqrt(-2 * std::log(tail));
    double b = tail > 0.02 ? (std::log(1 - tail) - std::log(tail)) * 0.6 : r - std::log(2.5066 * r) / r;
    for (int step = 0; step < 4; ++step) {
        const double cdf = std::erfc(b * 0.7071067811865476) / 2;
        const double density = std::exp(-b * b / 2) * 0.3989422804014327;
        if (!(cdf > 0 && density > 0)) break;
        b += (std::log(cdf) - std::log(tail)) * cdf / density;
    }
    return p < q ? -b : b;
}

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "normal_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const NormalTable<float>& table(float) { return KHOT_PICK(f32::normal_table); }
const NormalTable<double>& table(double) { return KHOT_PICK(f64::normal_table); }

// The step d with Σ Φ(a + d) = k, by the series up to d⁵; NaN if there is none nearby.
double series_step(const Moments& at, double k) {
    const double* m = at.m;
    const double c[6] = {at.distance + (at.count - k),
                         m[0],
                         -m[1] / 2,
                         (m[2] - m[0]) / 6,
                         -(m[3] - 3 * m[1]) / 24,
                         (m[4] - 6 * m[2] + 3 * m[0]) / 120};
    double d = 0;
    for (int step = 0; step < 6; ++step) {
        double value = c[5], slope = 0;
        for (int j = 4; j >= 0; --j) {
            slope = slope * d + value;
            value = value * d + c[j];
        }
        const double change = value / slope;
        d -= change;
        if (!(std::fabs(d) < 1)) return NAN;
        if (std::fabs(change) <= 1e-9 * std::fabs(d)) return d;
    }
    return NAN;  // the polynomial has no root here, only a place where it comes near 0
}

// The fast path in a row whose z stand in u. False if it gives up.
template <typename real>
bool search(const NormalTable<real>& kernel, const real* u, int64_t n, double k, double* e) {
    *e = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        const Moments at = kernel.moments_at(u, *e, n);
        const double step = series_step(at, k), deviation = std::sqrt(at.m[2] / at.m[0]);
        if (!(std::fabs(step) < 1)) return false;
        *e += step;
        if (std::fabs(step) * (1 + deviation) < SHORT_STEP<real>) return true;
    }
    return false;
}

// Halley on log P − log Q, increasing in e, within [low, high].
template <typename real, typename SumsAt>
double bracketed(double low, double high, double e, double extra_p, double extra_q, const SumsAt& sums_at) {
    e = e > low ? (e < high ? e : high) : low;
    low -= 1;  // the root can lie on the edge, and rounding just beyond it
    high += 1;
    for (int steps = 0; steps < SURE_ROUNDS; ++steps) {
        const SplitSums sums = sums_at(e);
        const double p = sums.below[0] + extra_p, q = sums.above[0] + extra_q, f = p - q;
        if (f == 0) break;
        if (f < 0 && e > low) low = e;
        if (f > 0 && e < high) high = e;
        const double h = std::log(p / q), dp = sums.below[1] / p, dq = sums.above[1] / q, slope = dp + dq;
        const double bend = sums.below[2] / p - sums.above[2] / q - dp * dp + dq * dq;
        const double curved = 2 * slope * slope - h * bend;
        const double step = curved > 0 ? 2 * h * slope / curved : h / slope, proposal = e - step;
        const bool inside = proposal >= low && proposal <= high;  // NaN is not
        const double next = double(real(inside ? proposal : (low + high) / 2));
        const bool stuck = next == e;
        e = next;
        if ((inside && std::fabs(step) < CLOSE<real>) || stuck) break;
    }
    return e;
}

// Any row at all; `scratch` holds n reals.
template <typename real>
void sure_row(const NormalTable<real>& kernel, Row<real> row, real* scratch) {
    const int64_t n = row.n;
    if (row.mask != nullptr) {
        apply_mask(row.x, row.mask, n, row.y);
        row.x = row.y;
    }
    const Census census = kernel.census(row.x, n);
    if (settle(row, census)) {
        for (int64_t i = 0; row.state != nullptr && i < n; ++i) {
            row.state[i] = row.state[i] == row.state[i] ? real(STILL) : row.state[i];
        }
        return;
    }
    const auto [anchor, low, high] = bracket_of(row, census, scratch, quantile);

    kernel.start(row.x, anchor, row.rate, row.y, n);
    const AtZero at = kernel.counts_at_zero(row.y, n);
    const double strictly = double(at.above), ties = double(at.equal), left = row.k - strictly;
    const bool ties_below = left <= ties - left;
    const double excess = (ties_below ? strictly : strictly + ties) - row.k;
    // Two or more ties at the anchor: if all else is far away, the root is where they share what is left.
    const bool shared = ties > 1 && left > 0.02 * ties && left < 0.98 * ties;
    const double begin = shared ? quantile(left / ties, (ties - left) / ties) : (low + high) / 2;
    const double e = bracketed<real>(low, high, begin, excess > 0 ? excess : 0, excess < 0 ? -excess : 0,
                                     [&](double shift) { return kernel.split_sums(row.y, shift, ties_below, n); });
    kernel.write(row.y, e, row.y, row.state, n);
}

// As set_group() does it, but with the quantile of the normal gate.
template <typename real>
void set_normal_group(const Rows<real>& rows, int64_t first, int count, Group<real>& group) {
    set_group(rows, first, count, group);
    double known_k = -1, known = 0;
    for (int r = 0; r < GROUP; ++r) {
        if (group.ordinary[r] == 0) continue;
        if (group.k[r] != known_k) {
            const double share = group.k[r] / double(rows.n);
            known_k = group.k[r];
            known = quantile(share, 1 - share) * 1.5957691216057308;  // √(8/π): see anchors.inl
        }
        group.logit[r] = real(known);
    }
}

template <typename real>
void solve_rows(const NormalTable<real>& kernel, const Rows<real>& all, int64_t begin, int64_t end, real* scratch) {
    const int64_t n = all.n;
    const int size = group_size(n);
    const bool all_alike = all.k_stride == 0 && all.temperature_stride == 0;
    Group<real> group;
    for (int64_t first = begin; first < end; first += size) {
        const int count = int(end - first < size ? end - first : size);
        if (first == begin || !all_alike) set_normal_group(all, first, count, group);
        const real* x = all.x + first * n;
        if (all.mask != nullptr) {
            apply_mask(x, all.mask + first * n, count * n, all.y + first * n);
            x = all.y + first * n;
        }
        kernel.gaussian_anchors(x, n, count, real(0.39269908169872414), group);  // π/8
        for (int r = 0; r < count; ++r) {
            const Row<real> row = all[first + r];
            double e;
            bool found = group.open[r] != 0 && group.ordinary[r] != 0;
            if (found) {
                kernel.start(x + r * n, group.anchor[r], group.rate[r], row.y, n);
                found = search(kernel, row.y, n, row.k, &e);
            }
            if (found) {
                kernel.write(row.y, e, row.y, row.state, n);
            } else {
                sure_row(kernel, row, scratch);
            }
        }
    }
}

}  // namespace

template <typename real>
bool normal_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride, const real* temperature,
                 int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n, int threads) {
    if (n == 0) return true;
    const NormalTable<real>& kernel = table(real());
    const Rows<real> all = {x, mask, k, k_stride, temperature, temperature_stride, y, state, n};
    bool enough_memory = true;
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        Scratch<real> scratch(n);
        if (scratch.get() == nullptr) {
            enough_memory = false;  // every writer writes the same
            return;
        }
        solve_rows(kernel, all, begin, end, scratch.get());
    });
    return enough_memory;
}

template bool normal_topk(const float*, const unsigned char*, const double*, int64_t, const float*, int64_t, float*, float*,
                          int64_t, int64_t, int);
template bool normal_topk(const double*, const unsigned char*, const double*, int64_t, const double*, int64_t, double*,
                          double*, int64_t, int64_t, int);

}  // namespace khot
