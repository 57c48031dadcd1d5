// The k largest logits of each row and their softmax, as a router of experts needs them; and the gradient.
//
//     w_j = exp(x_{i_j}) / Σ_i exp(x_i)      or, renormalised, with the sum over the k alone
//
// Rows are short and many, and k is small: as many rows as a register has lanes go through one sorted list of k,
// into which each entry is inserted without a branch. No dense row of weights is written. The gradient needs the
// softmax of the whole row; it is computed again from x, its maximum and its sum.
//
// The order is that of a stable sort from the largest down: ties by index, NaN first, −inf last. A NaN makes all
// weights of its row NaN.
#include <cmath>

#include "kernels.h"
#include "rows.h"
#include "threads.h"

namespace khot {
namespace {

template <typename real>
struct RouterTable {
    // Consecutive rows; `turned` has room for n registers.
    void (*forward)(const real* x, int64_t rows, int64_t n, int64_t k, bool renormalise, real* turned, int64_t* indices,
                    real* weights, real* sums);
    void (*backward)(const real* x, const int64_t* indices, const real* weights, const real* sums, const real* grad,
                     bool renormalise, real* out, int64_t rows, int64_t n, int64_t k);
};

// The widest register has this many bytes.
constexpr int64_t WIDEST = 64;

// The places of the k largest of a row, where a list that starts with −inf will not do: with NaN, or −inf among them.
template <typename real>
void any_row(const real* x, int64_t n, int64_t k, int64_t* indices) {
    const auto before = [x](int64_t a, int64_t b) {  // whether a comes before b, of which a stands further right
        return x[a] != x[a] ? x[b] == x[b] : x[a] > x[b];
    };
    for (int64_t j = 0; j < k; ++j) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; ++i) {
            bool taken = false;
            for (int64_t earlier = 0; earlier < j; ++earlier) taken |= indices[earlier] == i;
            if (!taken && (best < 0 || before(i, best))) best = i;
        }
        indices[j] = best;
    }
}

}  // namespace
}  // namespace khot

#define KHOT_KERNEL_BODY "router_topk.inl"
#include "dispatch.h"

namespace khot {
namespace {

const RouterTable<float>& table(float) { return KHOT_PICK(f32::router_table); }
const RouterTable<double>& table(double) { return KHOT_PICK(f64::router_table); }

}  // namespace

template <typename real>
bool router_topk(const real* x, int64_t k, bool renormalise, int64_t* indices, real* weights, real* sums, int64_t rows,
                 int64_t n, int threads) {
    bool enough_memory = true;
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        Scratch<real> turned(n * (WIDEST / int64_t(sizeof(real))));
        if (turned.get() == nullptr) {
            enough_memory = false;  // every writer writes the same
            return;
        }
        table(real()).forward(x + begin * n, end - begin, n, k, renormalise, turned.get(), indices + begin * k,
                              weights + begin * k, sums + begin * 2);
    });
    return enough_memory;
}

template <typename real>
void router_gradient(const real* x, const int64_t* indices, const real* weights, const real* sums, const real* grad,
                     bool renormalise, real* out, int64_t rows, int64_t n, int64_t k, int threads) {
    parallel_ranges(useful_threads(rows * n, threads), rows, [&](int64_t begin, int64_t end) {
        table(real()).backward(x + begin * n, indices + begin * k, weights + begin * k, sums + begin * 2, grad + begin * k,
                               renormalise, out + begin * n, end - begin, n, k);
    });
}

template bool router_topk(const float*, int64_t, bool, int64_t*, float*, float*, int64_t, int64_t, int);
template bool router_topk(const double*, int64_t, bool, int64_t*, double*, double*, int64_t, int64_t, int);
template void router_gradient(const float*, const int64_t*, const float*, const float*, const float*, bool, float*, int64_t,
                              int64_t, int64_t, int);
template void router_gradient(const double*, const int64_t*, const double*, const double*, const double*, bool, double*,
                              int64_t, int64_t, int64_t, int);

}  // namespace khot
