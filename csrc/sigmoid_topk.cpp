// Sigmoid top-k: y_i = σ((x_i − c)/τ) with c such that Σ y = k.
//
// In the exponential domain, u_i = exp((x_i − anchor)/τ), a gate is y_i = u_i/(u_i + t): one exponential per
// element for the whole search, then one division per element and step for the unknown t.
//
// The fast path, for rows whose spread is moderate in units of τ: the anchor is the threshold that the row
// would have if it were Gaussian, from the mean and variance of (a sample of) it; then Halley's method on
// Σy − k. Two evaluations, the first fused with the exponentials, are the rule.
//
// The sure path, for all others (wide or heavy-tailed rows, masks, infinities, k at its ends) and whenever
// the fast one does not converge: select the ⌈k⌉-th largest score, anchor there, and search within a bracket
// on a function that is nearly linear whatever the scores are. The mathematics is in
// src/khot/relaxations/logistic_threshold.py, which does the same in torch operations.
#include <cmath>
#include <cstdlib>

#include "kernels.h"
#include "select.h"
#include "threads.h"

namespace khot {
namespace {

// Sums in `real` run over this many elements, and are then added up in double.
constexpr int64_t SUM_BLOCK = 1024;

// The start is estimated from at most this many elements of a row, in pieces spread over it.
constexpr int64_t SAMPLE = 1024, SAMPLE_PIECE = 64;

// Beyond this standard deviation, in units of τ, an estimate from moments is too rough to start from.
constexpr double WIDE = 6;

// How many evaluations the fast path may take.
constexpr int ROUNDS = 5;

// Short rows are searched for in groups, so that what is done once per row is done for many at a time.
constexpr int GROUP = 16;
constexpr int64_t GROUP_ELEMENTS = 4096;

// The state of the search in each row of a group.
template <typename real>
struct Group {
    double k[GROUP];
    real rate[GROUP], logit[GROUP];  // 1/τ, logit(k/n)
    int ordinary[GROUP];             // 1: worth trying
    real anchor[GROUP], t[GROUP];
    real excess[GROUP], slope[GROUP], bend[GROUP];  // Σy − k, and the derivatives of Σy in the shift
    real size[GROUP];                               // of the last step; 8 if it was none
    int open[GROUP];                                // 1: not found
};

struct Moments {
    double sum, squares;
};

// Σy, and the first two derivatives of Σy in the shift.
struct Sums {
    double weights, slope, bend;
};

// With the gates split at u = 1, Σ σ below it and Σ (1 − σ) above it, each with two derivatives.
struct SplitSums {
    double below[3], above[3];
};

struct Census {
    int64_t excluded, surely, nan, above_one, at_one;
};

template <typename real>
struct SigmoidTable {
    void (*gaussian_anchors)(const real* x, int64_t n, int rows, Group<real>& group);
    Sums (*start)(const real* x, real anchor, real rate, real* u, int64_t n);
    Sums (*evaluate)(const real* u, real t, int64_t n);
    void (*halley_step)(Group<real>& group);
    void (*exponentials)(const real* x, real anchor, real rate, real* u, int64_t n);
    Census (*census)(const real* x, int64_t n);
    Census (*counts_at_one)(const real* u, int64_t n);
    SplitSums (*evaluate_split)(const real* u, real t, bool ties_below, int64_t n);
    void (*write)(const real* u, real t, real* y, int64_t n);
    void (*write_both)(const real* u, real t, real* y, real* residual, int64_t n);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "sigmoid_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const SigmoidTable<float>& table(float) { return KHOT_PICK(f32::sigmoid_table); }
const SigmoidTable<double>& table(double) { return KHOT_PICK(f64::sigmoid_table); }

template <typename real>
constexpr bool SINGLE = sizeof(real) == 4;

// A step of Halley's method smaller than this leaves an error of rounding size: its cube.
template <typename real>
constexpr double CLOSE = SINGLE<real> ? 8e-3 : 8e-6;

// 1/τ, finite even for a subnormal τ, so that 0·rate is 0.
template <typename real>
real rate_of(real temperature) {
    const real rate = 1 / temperature, largest = real(SINGLE<real> ? 3e38 : 1e308);
    return rate < largest ? rate : largest;
}

// One row: its input, its budget and where its result goes.
template <typename real>
struct Row {
    const real* x;
    const unsigned char* mask;  // or null: 0 excludes
    double k;
    real rate;
    real* y;
    real* residual;  // or null
    int64_t n;
};

// All rows.
template <typename real>
struct Rows {
    const real* x;
    const unsigned char* mask;
    const double* k;
    int64_t k_stride;
    const real* temperature;
    int64_t temperature_stride;
    real* y;
    real* residual;
    int64_t n;

    Row<real> operator[](int64_t r) const {
        return {x + r * n,
                mask == nullptr ? nullptr : mask + r * n,
                k[r * k_stride],
                rate_of(temperature[r * temperature_stride]),
                y + r * n,
                residual == nullptr ? nullptr : residual + r * n,
                n};
    }
};

// The budgets and temperatures of the group that starts at row `first`; those past the last row are copies.
// Where all rows have the same, which is the rule, once is enough.
template <typename real>
void set_group(const Rows<real>& rows, int64_t first, int count, Group<real>& group) {
    for (int r = 0; r < GROUP; ++r) {
        const int64_t row = first + (r < count ? r : 0);
        const double k = rows.k[row * rows.k_stride];
        const bool ordinary = rows.mask == nullptr && k > 0 && k < double(rows.n);
        group.k[r] = k;
        group.rate[r] = rate_of(rows.temperature[row * rows.temperature_stride]);
        group.ordinary[r] = ordinary ? 1 : 0;
        group.logit[r] = ordinary ? real(std::log(k / (double(rows.n) - k))) : real(0);
    }
}

// The fast path for `count` rows from x on: Halley on Σy − k in each until it is close. Afterwards u stands in
// place of y, t in the group, and open[r] is 1 where it failed. sums_of(r, first) gives the sums of row r, either
// from x (and leaves u) or at group.t[r].
template <typename real, typename SumsOf>
void search(const SigmoidTable<real>& kernel, const real* x, int64_t n, int count, Group<real>& group,
            const SumsOf& sums_of) {
    kernel.gaussian_anchors(x, n, count, group);
    int busy[GROUP], left = 0;  // the rows still at work
    for (int r = 0; r < GROUP; ++r) {
        if (r < count && group.open[r] != 0) busy[left++] = r;
        group.open[r] = 1;
        group.excess[r] = group.bend[r] = 0;
        group.slope[r] = group.t[r] = 1;
    }
    for (int round = 0; left > 0 && round < ROUNDS; ++round) {
        for (int b = 0; b < left; ++b) {
            const int r = busy[b];
            const Sums sums = sums_of(r, round == 0);
            group.excess[r] = real(sums.weights - group.k[r]);
            group.slope[r] = real(sums.slope);
            group.bend[r] = real(sums.bend);
        }
        kernel.halley_step(group);
        int still = 0;
        for (int b = 0; b < left; ++b) {
            const int r = busy[b];
            const bool found = group.size[r] < real(CLOSE<real>);
            const bool lost = !(group.size[r] < 4 && group.t[r] > real(1e-9) && group.t[r] < real(1e9));
            if (found && !lost) group.open[r] = 0;
            if (found || lost) {
                group.excess[r] = 0;  // its next steps, taken with the group's, are 0
            } else {
                busy[still++] = r;
            }
        }
        left = still;
    }
}

// The same for one long row, shared between threads.
template <typename real>
void search_shared(const SigmoidTable<real>& kernel, const Row<real>& row, Group<real>& group, int threads) {
    const Parts parts(row.n);
    Sums of_part[MAX_PARTS];
    search(kernel, row.x, row.n, 1, group, [&](int, bool first) {
        parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
            for (int64_t p = begin; p < end; ++p) {
                real* u = row.y + parts.begin(p);
                of_part[p] = first ? kernel.start(row.x + parts.begin(p), group.anchor[0], group.rate[0], u,
                                                  parts.length(p))
                                   : kernel.evaluate(u, group.t[0], parts.length(p));
            }
        });
        Sums sum = {0, 0, 0};
        for (int64_t p = 0; p < parts.count; ++p) {
            sum.weights += of_part[p].weights;
            sum.slope += of_part[p].slope;
            sum.bend += of_part[p].bend;
        }
        return sum;
    });
}

// Turns the u of elements [at, at + length) into weights, and residuals if they are wanted.
template <typename real>
void finish(const SigmoidTable<real>& kernel, const Row<real>& row, real t, int64_t at, int64_t length) {
    real* y = row.y + at;
    if (row.residual == nullptr) {
        kernel.write(y, t, y, length);
    } else {
        kernel.write_both(y, t, y, row.residual + at, length);
    }
}

template <typename real>
void fill(const Row<real>& row, int64_t i, real weight) {
    row.y[i] = weight;
    if (row.residual != nullptr) row.residual[i] = weight > real(0.5) ? weight - 1 : weight;
}

// Halley on h = log P − log Q, increasing in the shift e, within [low, high]; returns t = exp(−e).
template <typename real, typename Evaluate>
double bracketed(double low, double high, double extra_p, double extra_q, const Evaluate& evaluate) {
    const double limit = SINGLE<real> ? 80 : 690, negligible = SINGLE<real> ? 1e-30 : 1e-290;
    double e = (low + high) / 2;
    e = e > limit ? limit : (e < -limit ? -limit : e);
    low -= 1;  // the root can lie on the edge, and rounding just beyond it
    high += 1;
    for (int steps = 0; steps < (SINGLE<real> ? 10 : 14); ++steps) {
        const SplitSums sums = evaluate(std::exp(-e));
        const double p = sums.below[0] + extra_p, q = sums.above[0] + extra_q, f = p - q;
        if (f == 0 || (p < negligible && q < negligible)) break;
        if (f < 0 && e > low) low = e;
        if (f > 0 && e < high) high = e;
        const double h = std::log(p / q), dp = sums.below[1] / p, dq = sums.above[1] / q;
        const double slope = dp + dq;
        const double bend = sums.below[2] / p - sums.above[2] / q - dp * dp + dq * dq;
        const double curved = 2 * slope * slope - h * bend;
        const double step = curved > 0 ? 2 * h * slope / curved : h / slope;
        const double proposal = e - step;
        const bool inside = proposal >= low && proposal <= high;  // NaN is not
        e = inside ? proposal : (low + high) / 2;
        e = e > limit ? limit : (e < -limit ? -limit : e);
        if (inside && std::fabs(step) < CLOSE<real>) break;
    }
    return std::exp(-e);
}

// `scratch` holds n reals. It fills row.y (and row.residual) completely.
template <typename real>
void sure_row(const SigmoidTable<real>& kernel, Row<real> row, real* scratch) {
    const real infinity = real(HUGE_VAL);
    const int64_t n = row.n;
    if (row.mask != nullptr) {
        for (int64_t i = 0; i < n; ++i) row.y[i] = row.mask[i] ? row.x[i] : -infinity;
        row.x = row.y;
        row.mask = nullptr;
    }
    const Census census = kernel.census(row.x, n);
    const int64_t allowed = n - census.excluded;
    if (census.nan > 0 || row.k != row.k) {
        for (int64_t i = 0; i < n; ++i) fill(row, i, real(NAN));
        return;
    }
    if (double(allowed) <= row.k) {
        for (int64_t i = 0; i < n; ++i) fill(row, i, row.x[i] == -infinity ? real(0) : real(1));
        return;
    }
    if (double(census.surely) >= row.k) {
        const double share = census.surely > 0 && row.k > 0 ? row.k / double(census.surely) : 0;
        for (int64_t i = 0; i < n; ++i) fill(row, i, row.x[i] == infinity ? real(share) : real(0));
        return;
    }
    // Excluded entries are smaller than all others, so the order statistics of the whole row serve.
    const int64_t ceiling = int64_t(std::ceil(row.k)), floor = int64_t(std::floor(row.k));
    real next;
    const real anchor = kth_and_next_largest(row.x, n, ceiling, scratch, &next);
    const real rate = row.rate;
    const double limit = 1e4, raw_gap = floor == ceiling ? (double(anchor) - double(next)) * double(rate) : 0;
    const double gap = raw_gap < limit ? raw_gap : limit;
    const double low = std::log(row.k - double(ceiling) + 1) - std::log(double(allowed) - row.k);
    const double high = std::log(row.k) - std::log(double(floor) + 1 - row.k) + gap;

    kernel.exponentials(row.x, anchor, rate, row.y, n);
    const Census at = kernel.counts_at_one(row.y, n);
    const double strictly = double(at.above_one), weakly = double(at.above_one + at.at_one);
    const bool ties_below = row.k - strictly <= weakly - row.k;
    const double excess = (ties_below ? strictly : weakly) - row.k;
    const double t = bracketed<real>(low, high, excess > 0 ? excess : 0, excess < 0 ? -excess : 0,
                                     [&](double t) { return kernel.evaluate_split(row.y, real(t), ties_below, n); });
    finish(kernel, row, real(t), 0, n);
}

// Memory of one thread, taken when the first row needs it.
template <typename real>
class Scratch {
public:
    ~Scratch() { std::free(memory_); }
    real* get(int64_t n) {
        if (memory_ == nullptr) memory_ = static_cast<real*>(std::malloc(sizeof(real) * size_t(n)));
        return memory_;
    }

private:
    real* memory_ = nullptr;
};

}  // namespace

template <typename real>
bool sigmoid_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                  const real* temperature, int64_t temperature_stride, real* y, real* residual, int64_t rows,
                  int64_t n, int threads) {
    if (n == 0) return true;
    const SigmoidTable<real>& kernel = table(real());
    const Rows<real> all = {x, mask, k, k_stride, temperature, temperature_stride, y, residual, n};
    threads = useful_threads(rows * n, threads);
    if (rows < threads && n >= LONG_ROW) {
        Scratch<real> scratch;
        Group<real> group;
        for (int64_t r = 0; r < rows; ++r) {
            const Row<real> row = all[r];
            set_group(all, r, 1, group);
            search_shared(kernel, row, group, threads);
            if (group.open[0] != 0) {
                if (scratch.get(n) == nullptr) return false;
                sure_row(kernel, row, scratch.get(n));
                continue;
            }
            const Parts parts(n);
            parallel_ranges(threads, parts.count, [&](int64_t begin, int64_t end) {
                const int64_t at = parts.begin(begin), stop = parts.begin(end - 1) + parts.length(end - 1);
                finish(kernel, row, group.t[0], at, stop - at);
            });
        }
        return true;
    }
    bool enough_memory = true;
    parallel_ranges(threads, rows, [&](int64_t begin, int64_t end) {
        Scratch<real> scratch;
        Group<real> group;
        const int64_t fitting = GROUP_ELEMENTS / n;
        const int size = int(fitting < 1 ? 1 : (fitting > GROUP ? GROUP : fitting));
        for (int64_t first = begin; first < end; first += size) {
            const int count = int(end - first < size ? end - first : size);
            if (first == begin || k_stride != 0 || temperature_stride != 0) set_group(all, first, count, group);
            search(kernel, x + first * n, n, count, group, [&](int r, bool from_x) {
                const int64_t at = (first + r) * n;
                return from_x ? kernel.start(x + at, group.anchor[r], group.rate[r], y + at, n)
                              : kernel.evaluate(y + at, group.t[r], n);
            });
            for (int r = 0; r < count; ++r) {
                const Row<real> row = all[first + r];
                if (group.open[r] == 0) {
                    finish(kernel, row, group.t[r], 0, n);
                } else if (real* memory = scratch.get(n)) {
                    sure_row(kernel, row, memory);
                } else {
                    enough_memory = false;  // every writer writes the same
                }
            }
        }
    });
    return enough_memory;
}

template bool sigmoid_topk(const float*, const unsigned char*, const double*, int64_t, const float*, int64_t,
                           float*, float*, int64_t, int64_t, int);
template bool sigmoid_topk(const double*, const unsigned char*, const double*, int64_t, const double*, int64_t,
                           double*, double*, int64_t, int64_t, int);

}  // namespace khot
