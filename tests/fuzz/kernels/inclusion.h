// Inclusion probabilities with a whole sum, some of them 0 or 1, and the sets drawn by them.
#pragma once

#include <algorithm>
#include <vector>

#include "checks.h"

namespace fuzz {

// Of n units with sum k: shares of k, those above 1 cut to it and the rest enlarged, until none is above.
inline std::vector<double> inclusion(Input& in, int64_t n, int64_t k) {
    const int64_t style = in.below(4);
    std::vector<double> share(static_cast<size_t>(n));
    int64_t positive = 0;
    for (double& s : share) {
        s = style == 0 ? 1 : style == 1 ? in.uniform() + 1e-3 : std::exp((style == 2 ? 1 : 6) * in.normal());
        if (in.byte() < 16) s = 0;
        positive += s > 0;
    }
    for (size_t i = 0; i < share.size() && positive < k; ++i) {
        positive += share[i] == 0;
        share[i] = share[i] == 0 ? 1 : share[i];
    }
    std::vector<double> pi(share.size(), 0.0);
    int64_t certain = 0;
    for (bool again = true; again;) {
        double total = 0;
        for (size_t i = 0; i < share.size(); ++i) total += pi[i] == 1 ? 0 : share[i];
        again = false;
        const double scale = total > 0 ? double(k - certain) / total : 0;
        int64_t more = 0;
        for (size_t i = 0; i < share.size(); ++i) {
            if (pi[i] == 1) continue;
            pi[i] = share[i] * scale;
            if (pi[i] >= 1 - 1e-12) {
                pi[i] = 1;
                ++more;
            }
        }
        certain += more;
        again = more > 0;
    }
    return pi;
}

template <typename real>
Exact<real> inclusions(Input& in, int64_t rows, int64_t n, int64_t k) {
    Exact<real> probs(rows * n, in.below(2));
    for (int64_t row = 0; row < rows; ++row) {
        const std::vector<double> pi = inclusion(in, n, k);
        for (int64_t i = 0; i < n; ++i) probs[row * n + i] = real(pi[size_t(i)]);
    }
    return probs;
}

inline Exact<double> uniforms(Input& in, int64_t count) {
    Exact<double> u(count);
    const int64_t kind = in.below(4);
    for (int64_t i = 0; i < count; ++i) {
        u[i] = kind == 0 && in.byte() < 32 ? (in.flag() ? 0 : 1 - 0x1p-53) : in.uniform();  // also the first and the last
    }
    return u;
}

inline Exact<int64_t> permutations(Input& in, int64_t rows, int64_t n) {
    Exact<int64_t> order(rows * n);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t with = int64_t(in.random() % uint64_t(i + 1));
            order[row * n + i] = order[row * n + with];
            order[row * n + with] = i;
        }
    }
    return order;
}

// Exactly k ones, with all that are certain and none that is impossible.
template <typename real, typename Drawn>
void require_draw(const real* probs, int64_t n, int64_t k, const Drawn& drawn) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double x = drawn(i), p = double(probs[i]);
        require(x == 0 || x == 1, "0 or 1", x, p);
        if (p >= 1) require(x == 1, "a certain unit in the sample", x, p);
        if (p <= 0) require(x == 0, "no impossible unit in the sample", x, p);
        count += x == 1;
    }
    require(count == k, "k units", double(count), double(k));
}

// Increasing indices of k units.
template <typename real>
void require_indices(const real* probs, int64_t n, int64_t k, const int64_t* indices) {
    std::vector<bool> in_sample(static_cast<size_t>(n));
    for (int64_t j = 0; j < k; ++j) {
        require(indices[j] >= 0 && indices[j] < n && (j == 0 || indices[j] > indices[j - 1]), "increasing indices",
                double(indices[j]), double(j));
        in_sample[size_t(indices[j])] = true;
    }
    require_draw(probs, n, k, [&](int64_t i) { return in_sample[size_t(i)] ? 1.0 : 0.0; });
}

}  // namespace fuzz
