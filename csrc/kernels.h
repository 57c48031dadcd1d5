// What the Python module calls. Pointers are to contiguous memory; outputs do not overlap inputs.
#pragma once

#include <cstdint>

namespace khot {

// The gates of the threshold family that have kernels; the numbers are those of khot.kernels.cpu.
enum class GateKind { logistic = 0, laplace = 1, sparse = 2, normal = 3, logistic_weight = 4, power = 5 };

// See gate_jacobian.cpp. real: float, double. x and threshold are those of sigmoid_topk(), for `logistic_weight` alone, norm
// is that of sparse_topk(), for `power`, and 2 for all others; mean may be null.
template <typename real>
void gate_jacobian(GateKind gate, double norm, const real* state, const real* x, const real* threshold, const real* grad,
                   const real* temperature, int64_t temperature_stride, real* out, real* mean, int64_t rows, int64_t n,
                   int threads);

// See gate_sums.cpp: logistic, laplace or sparse. All but x have one element for each row, out twice so many as below.
// False when there was not enough memory.
constexpr int GATE_SUM_TERMS = 5;
template <typename real>
bool gate_sums(GateKind gate, const real* x, const real* anchor, const real* temperature, const real* offset,
               const real* fine, const unsigned char* ties_below, double* out, int64_t rows, int64_t n, int threads);

// See gate_shards.cpp: logistic, laplace or sparse. What is in the struct has one element for each row, as has mean.
template <typename real>
struct GateShard {
    const real *anchor, *temperature, *offset, *fine;
};

template <typename real>
void gate_weights(GateKind gate, const GateShard<real>& at, const real* x, real* y, int64_t rows, int64_t n, int threads);

// So many sums for each row. False when there was not enough memory.
constexpr int SLOPE_SUM_TERMS = 4;
template <typename real>
bool slope_sums(GateKind gate, const GateShard<real>& at, const real* x, const real* grad, double* out, int64_t rows,
                int64_t n, int threads);
template <typename real>
void slope_product(GateKind gate, const GateShard<real>& at, const real* x, const real* grad, const real* mean, real* out,
                   int64_t rows, int64_t n, int threads);

// See between.cpp. All but x and out have one element for each row; what is collected of a row begins at its start.
template <typename real>
void count_between(const real* x, const real* low, const real* high, int64_t* above, int64_t* between, int64_t rows,
                   int64_t n, int threads);
template <typename real>
void collect_between(const real* x, const real* low, const real* high, const int64_t* starts, real* out, int64_t rows,
                     int64_t n, int threads);

// A forward kernel of the family: see sigmoid_topk.cpp, laplace_topk.cpp and normal_topk.cpp. mask and state may be null.
// False when there was not enough memory.
template <typename real>
using GatedTopK = bool(const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                       const real* temperature, int64_t temperature_stride, real* y, real* state, int64_t rows,
                       int64_t n, int threads);

// With two numbers for each row, the anchor and t of y = u/(u + t), u = exp((x − anchor)/τ), unless threshold is null;
// t is 0 in a row that needed no root.
template <typename real>
bool sigmoid_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride, const real* temperature,
                  int64_t temperature_stride, real* y, real* state, real* threshold, int64_t rows, int64_t n, int threads);

// The same without the last pass: u holds the weights of a row whose t is 0 (or NaN), and else the exponentials u, some of
// which sigmoid_weights() turns into weights, in place.
template <typename real>
bool sigmoid_thresholds(const real* x, const double* k, int64_t k_stride, const real* temperature,
                        int64_t temperature_stride, real* u, real* threshold, int64_t rows, int64_t n, int threads);
template <typename real>
void sigmoid_weights(real* u, real t, int64_t count);

template <typename real>
bool laplace_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride, const real* temperature,
                  int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n, int threads);
template <typename real>
bool normal_topk(const real* x, const unsigned char* mask, const double* k, int64_t k_stride, const real* temperature,
                 int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n, int threads);

// Of a norm above 1, at most 2: see sparse_topk.cpp.
template <typename real>
bool sparse_topk(double norm, const real* x, const unsigned char* mask, const double* k, int64_t k_stride,
                const real* temperature, int64_t temperature_stride, real* y, real* state, int64_t rows, int64_t n,
                int threads);

// See half_rows.cpp. Types of 16 bits, as uint16_t; threshold may be null in the first. False when there was not enough
// memory.
enum class HalfKind { bfloat16 = 0, float16 = 1 };
bool sigmoid_topk_half(HalfKind kind, const uint16_t* x, double k, float temperature, uint16_t* y, float* threshold,
                       int64_t rows, int64_t n, int threads);
bool sigmoid_jacobian_half(HalfKind kind, const uint16_t* x, const float* threshold, const uint16_t* grad,
                           float temperature, uint16_t* out, int64_t rows, int64_t n, int threads);

// See hard_topk.cpp. k has one element for each row, or one for all if k_stride is 0; mask may be null.
// False when there was not enough memory.
template <typename real>
bool hard_topk(const real* x, const unsigned char* mask, const int64_t* k, int64_t k_stride, real* out,
               int64_t rows, int64_t n, int threads);

// See topk_entries.cpp. k <= n, n is below 2^32; the outputs have k for each row. mask may be null, and so may temperature:
// then the weights are ones. threshold is that of sigmoid_topk(), or null. False when there was not enough memory.
template <typename real>
bool topk_entries(const real* x, const unsigned char* mask, int64_t k, const real* temperature, int64_t temperature_stride,
                  bool by_position, int64_t* indices, real* weights, real* values, real* threshold, int64_t rows, int64_t n,
                  int threads);

// See entries_jacobian.cpp. indices are those of topk_entries(), different in a row. False when there was not enough memory.
template <typename real>
bool entries_jacobian(const real* x, const unsigned char* mask, const real* threshold, const int64_t* indices,
                      const real* grad, const real* temperature, int64_t temperature_stride, real* out, int64_t rows,
                      int64_t n, int64_t k, int threads);

// See router_topk.cpp. 1 <= k <= n, and at most ROUTER_MOST; `sums` has two for each row, the largest entry and the sum of
// exponentials beside it. False when there was not enough memory.
constexpr int ROUTER_MOST = 16;

template <typename real>
bool router_topk(const real* x, int64_t k, bool renormalise, int64_t* indices, real* weights, real* sums, int64_t rows,
                 int64_t n, int threads);
template <typename real>
void router_gradient(const real* x, const int64_t* indices, const real* weights, const real* sums, const real* grad,
                     bool renormalise, real* out, int64_t rows, int64_t n, int64_t k, int threads);

// See isotonic.cpp. A stride is 0 where all rows have the same s or w. False when there was not enough memory.
enum class Projection { l2 = 0, kl = 1, log_kl = 2 };

template <typename real>
bool isotonic(Projection kind, const real* s, int64_t s_stride, const real* w, int64_t w_stride, real* p, int64_t* start,
              int64_t rows, int64_t n, int threads);

// The sum of the values of its block, at each entry; start as isotonic() gives it.
template <typename real>
void block_sums(const real* values, const int64_t* start, real* sums, int64_t rows, int64_t n, int threads);

// See soft_rank.cpp. n is below 2^32. False when there was not enough memory.
template <typename real>
bool soft_rank(const real* x, const real* temperature, int64_t temperature_stride, bool descending, real* ranks,
               int64_t* order, int64_t rows, int64_t n, int threads);

// order as soft_rank() gives it.
template <typename real>
void soft_rank_jacobian(const real* grad, const int64_t* order, const real* temperature, int64_t temperature_stride,
                        bool descending, real* out, int64_t rows, int64_t n, int threads);

// See argsort.cpp. n is below 2^32; values may be null. False when there was not enough memory.
template <typename real>
bool argsort(const real* x, bool descending, real* values, int64_t* indices, int64_t rows, int64_t n, int threads);

// See designs.cpp. Rows of probs are drawn from in turn, draws times; order may be null, else it has n indices for each
// draw of each row. k is between 0 and n.
template <typename real>
void systematic(const real* probs, const int64_t* order, const double* u, real* out, int64_t draws, int64_t rows, int64_t n,
                int64_t k, int threads);

// Each draw has that many uniforms: one less than the next power of two from n on. False when there was not enough memory.
template <typename real>
bool pivotal(const real* probs, const int64_t* order, const double* u, int64_t uniforms, real* out, int64_t draws,
             int64_t rows, int64_t n, int64_t k, int threads);

// k of n units, with probability proportional to the product of their weights, in increasing order; draws of each row.
// 1 <= k <= n. False when there was not enough memory.
bool subsets(const double* weights, const double* u, int64_t* indices, int64_t draws, int64_t rows, int64_t n, int64_t k,
             int threads);

// The same, each set also weighted by the sum of its summands; 2k uniforms for each draw.
bool weighted_subsets(const double* weights, const double* summands, const double* u, int64_t* indices, int64_t draws,
                      int64_t rows, int64_t n, int64_t k, int threads);

// Systematic draws of one row each, after a random permutation made of 5n random bytes for each draw. False when there was
// not enough memory.
template <typename real>
bool shuffled_systematic(const real* probs, const unsigned char* bytes, const double* u, real* out, int64_t draws,
                         int64_t rows, int64_t n, int64_t k, int threads);

// See splitting.cpp. probs sum to k; k uniforms for each draw, of which a row with certain units leaves some. False when
// there was not enough memory.
bool brewer(const double* probs, const double* u, int64_t* indices, int64_t draws, int64_t rows, int64_t n, int64_t k,
            int threads);

// Probabilities in increasing order, and that order; n − k uniforms for each draw; the k units that are kept, or the others.
bool eliminate(const double* sorted, const int64_t* order, const double* u, bool kept, int64_t* indices, int64_t draws,
               int64_t rows, int64_t n, int64_t k, int threads);

// See cube.cpp. columns has the constraints of each unit; order, for each draw, has those with 0 < π < 1 first; n uniforms.
bool cube(const double* probs, const double* columns, const int64_t* order, const double* u, bool* out, int64_t draws,
          int64_t rows, int64_t n, int64_t constraints, int threads);

// See poisson.cpp. 1 <= k < n; the tilted parameters are (theta − reference) + start, and `exactly` is, for each row, how
// likely k independent gates are open. False when there was not enough memory.
template <typename real>
bool poisson_inclusion(const real* theta, const double* reference, const double* start, real* pi, double* exactly, int64_t rows,
                       int64_t n, int64_t k, int threads);
template <typename real>
bool poisson_covariance(const real* theta, const double* reference, const double* start, const real* grad, real* out,
                        int64_t rows, int64_t n, int64_t k, int threads);

// Odds and, for each row, how far their inclusion probabilities are from probs after at most so many steps.
bool poisson_weights(const double* probs, double tolerance, int64_t most, double* odds, double* error, int64_t rows, int64_t n,
                     int64_t k, int threads);

// See small_rows.cpp. Weights, or their gradient for `grad` if that is not null, or the k rows whose sum they are. The layers are those of a network alone, whose
// wires are at most n, and the window that of ranks alone. 0 where a score is not ordinary, and then nothing is known of out; −1 when there was not enough memory.
enum class SmallKind {
    softsort = 0,
    iterative = 1,
    neuralsort = 2,
    successive_softmax = 3,
    network = 4,
    pairwise = 5,
    soft_rank = 6,
    successive_halving = 7
};

struct NetworkLayer {
    int64_t first, distance, groups, mirrored;
};

template <typename real>
int small_rows(SmallKind kind, const real* x, const real* grad, const double* tau, int64_t tau_stride, const double* window,
               int64_t window_stride, const NetworkLayer* layers, int64_t depth, bool cauchy, bool matrix, real* out, int64_t rows,
               int64_t n, int64_t k, int threads);

}  // namespace khot
