// The order that all selections follow: stable, NaN larger than everything, −0 and 0 the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace fuzz {

template <typename Score>
std::vector<int64_t> sorted(int64_t n, bool descending, const Score& score) {
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), int64_t(0));
    const auto larger = [&](int64_t a, int64_t b) {
        const double x = score(a), y = score(b);
        return x != x ? y == y : x > y;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return descending ? larger(a, b) : larger(b, a); });
    return order;
}

}  // namespace fuzz
