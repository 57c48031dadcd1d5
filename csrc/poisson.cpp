// Conditional Poisson sampling, independent gates given that k are open: inclusion probabilities, covariance times a
// vector, and the weights that have given inclusion probabilities. See khot/designs/exponential.
//
// Gates p = σ(t) of tilted parameters, Σp about k, keep all numbers near 1: a table of P(j of the first i units) and the
// same from the end meet at each unit, in sums without a negative term. As many rows as a register has lanes go together;
// where more than half of the units are drawn, those that are not are looked at.
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

template <typename real>
struct PoissonTable {
    int lanes;
    void (*gates)(const real* t, int64_t n, real* p, real* q);
    void (*prefixes)(const real* p, const real* q, int64_t n, int64_t k, real* table);
    void (*inclusion)(const real* p, const real* q, int64_t n, int64_t k, const real* table, real* suffix, real* pi,
                      real* rest);
    void (*covariance)(const real* p, const real* q, real* g, int64_t n, int64_t k, const real* table, real* second,
                       real* suffix, real* out);
    void (*improve)(const real* target, const real* pi, const real* rest, int64_t n, real* odds, real* error);
    void (*gates_of_odds)(const real* target, const real* odds, int64_t n, real* p, real* q);
};

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "poisson.inl"
#include "dispatch.h"

namespace khot {
namespace {

constexpr int MOST_LANES = 8;
constexpr double FAR = 200;  // as in khot/designs/exponential/_natural_parameters.py

const PoissonTable<double>& loops() { return KHOT_PICK(f64::poisson_table); }

// Memory for one group of rows, in pieces of n or of a table.
class Scratch {
public:
    Scratch(int64_t doubles)
        : memory_(static_cast<double*>(std::malloc(sizeof(double) * size_t(doubles)))), next_(memory_) {}
    ~Scratch() { std::free(memory_); }
    Scratch(const Scratch&) = delete;
    bool there() const { return memory_ != nullptr; }
    double* take(int64_t doubles) {
        double* piece = next_;
        next_ += doubles;
        return piece;
    }

private:
    double *memory_, *next_;
};

// Calls body(scratch, first row, number of rows) for groups of rows.
template <typename Body>
bool for_groups(int64_t rows, int64_t work, int64_t doubles, int threads, const Body& body) {
    const int lanes = loops().lanes;
    const int64_t groups = (rows + lanes - 1) / lanes;
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(work, threads), groups, [&](int64_t begin, int64_t end) {
        for (int64_t group = begin; group < end; ++group) {
            Scratch scratch(doubles * lanes);
            if (!scratch.there()) {
                enough_memory = false;
                return;
            }
            const int64_t first = group * lanes;
            body(scratch, first, rows - first < lanes ? rows - first : lanes);
        }
    });
    return enough_memory;
}

// Rows side by side; lanes without a row repeat the last one.
template <typename real, typename Value>
void turn(const real* x, int64_t first, int64_t count, int64_t n, double* out, const Value& value) {
    const int lanes = loops().lanes;
    for (int lane = 0; lane < lanes; ++lane) {
        const int64_t row = first + (lane < count ? lane : count - 1);
        for (int64_t i = 0; i < n; ++i) out[i * lanes + lane] = value(double(x[row * n + i]), row);
    }
}

template <typename real>
void turn_back(const double* in, int64_t first, int64_t count, int64_t n, real* out) {
    const int lanes = loops().lanes;
    for (int64_t lane = 0; lane < count; ++lane) {
        for (int64_t i = 0; i < n; ++i) out[(first + lane) * n + i] = real(in[i * lanes + lane]);
    }
}

template <typename real>
void turn_tilted(const real* theta, const double* reference, const double* start, int64_t first, int64_t count, int64_t n,
                 double* t) {
    turn(theta, first, count, n, t, [&](double x, int64_t row) {
        const double v = (x - reference[row]) + start[row];
        return v > FAR ? FAR : v < -FAR ? -FAR : v;
    });
}

}  // namespace

template <typename real>
bool poisson_inclusion(const real* theta, const double* reference, const double* start, real* pi, double* exactly, int64_t rows,
                       int64_t n, int64_t k, int threads) {
    const int64_t fewer = 2 * k > n ? n - k : k, width = fewer + 1;
    return for_groups(rows, rows * n * width, 5 * n + (n + 2) * width, threads, [&](Scratch& s, int64_t first, int64_t count) {
        const PoissonTable<double>& f = loops();
        const int lanes = f.lanes;
        double *t = s.take(n * lanes), *p = s.take(n * lanes), *q = s.take(n * lanes), *rest = s.take(n * lanes);
        double *table = s.take((n + 1) * width * lanes), *suffix = s.take(width * lanes);
        turn_tilted(theta, reference, start, first, count, n, t);
        f.gates(t, n, p, q);
        if (fewer == k) {
            f.prefixes(p, q, n, k, table);
            f.inclusion(p, q, n, k, table, suffix, t, rest);
        } else {
            f.prefixes(q, p, n, fewer, table);
            f.inclusion(q, p, n, fewer, table, suffix, rest, t);
        }
        turn_back(t, first, count, n, pi);
        const double* root = table + (n * width + fewer) * lanes;
        for (int64_t lane = 0; lane < count; ++lane) exactly[first + lane] = root[lane];
    });
}

template <typename real>
bool poisson_covariance(const real* theta, const double* reference, const double* start, const real* grad, real* out,
                        int64_t rows, int64_t n, int64_t k, int threads) {
    // That of what is left out is the same.
    const int64_t fewer = 2 * k > n ? n - k : k, width = fewer + 1;
    const int64_t doubles = 4 * n + 2 * (n + 2) * width;
    return for_groups(rows, rows * n * width, doubles, threads, [&](Scratch& s, int64_t first, int64_t count) {
        const PoissonTable<double>& f = loops();
        const int lanes = f.lanes;
        double *t = s.take(n * lanes), *p = s.take(n * lanes), *q = s.take(n * lanes), *g = s.take(n * lanes);
        double *table = s.take((n + 1) * width * lanes), *second = s.take((n + 1) * width * lanes);
        double* suffix = s.take(2 * width * lanes);
        turn_tilted(theta, reference, start, first, count, n, t);
        f.gates(t, n, p, q);
        if (fewer != k) {
            double* swapped = p;
            p = q;
            q = swapped;
        }
        turn(grad, first, count, n, g, [](double x, int64_t) { return x; });
        f.prefixes(p, q, n, fewer, table);
        f.covariance(p, q, g, n, fewer, table, second, suffix, t);
        turn_back(t, first, count, n, out);
    });
}

// θ ← θ + logit π − logit π(θ), as odds; what has not converged in so many steps never may.
bool poisson_weights(const double* probs, double tolerance, int64_t most, double* odds, double* error, int64_t rows, int64_t n,
                     int64_t k, int threads) {
    const int64_t fewer = 2 * k > n ? n - k : k, width = fewer + 1;
    const int64_t work = rows * n * width;
    return for_groups(rows, work, 7 * n + (n + 2) * width, threads, [&](Scratch& s, int64_t first, int64_t count) {
        const PoissonTable<double>& f = loops();
        const int lanes = f.lanes;
        double *target = s.take(n * lanes), *w = s.take(n * lanes), *p = s.take(n * lanes), *q = s.take(n * lanes);
        double *pi = s.take(n * lanes), *rest = s.take(n * lanes);
        double *table = s.take((n + 1) * width * lanes), *suffix = s.take(width * lanes);
        double volume[MOST_LANES] = {}, worst[MOST_LANES];
        turn(probs, first, count, n, target, [](double x, int64_t) { return x; });
        for (int64_t i = 0; i < n; ++i) {
            for (int lane = 0; lane < lanes; ++lane) {
                const double x = target[i * lanes + lane];
                volume[lane] += x * (1 - x);
            }
        }
        for (int64_t i = 0; i < n; ++i) {
            for (int lane = 0; lane < lanes; ++lane) {
                const double x = target[i * lanes + lane], room = volume[lane] > 1 ? volume[lane] : 1;
                w[i * lanes + lane] = x > 0 && x < 1 ? x / (1 - x) * (1 - x / room + 0.5 * x * x / (room * room)) : 1;
            }
        }
        for (int64_t step = 0; step < most; ++step) {
            f.gates_of_odds(target, w, n, p, q);
            if (fewer == k) {
                f.prefixes(p, q, n, k, table);
                f.inclusion(p, q, n, k, table, suffix, pi, rest);
            } else {
                f.prefixes(q, p, n, fewer, table);
                f.inclusion(q, p, n, fewer, table, suffix, rest, pi);
            }
            turn_back(w, first, count, n, odds);  // whose error is found next
            f.improve(target, pi, rest, n, w, worst);
            double largest = 0;
            for (int lane = 0; lane < lanes; ++lane) largest = worst[lane] <= largest ? largest : worst[lane];
            if (largest <= tolerance) break;
        }
        for (int64_t lane = 0; lane < count; ++lane) error[first + lane] = worst[lane];
    });
}

template bool poisson_inclusion(const float*, const double*, const double*, float*, double*, int64_t, int64_t, int64_t, int);
template bool poisson_inclusion(const double*, const double*, const double*, double*, double*, int64_t, int64_t, int64_t,
                                int);
template bool poisson_covariance(const float*, const double*, const double*, const float*, float*, int64_t, int64_t, int64_t,
                                 int);
template bool poisson_covariance(const double*, const double*, const double*, const double*, double*, int64_t, int64_t,
                                 int64_t, int);

}  // namespace khot
