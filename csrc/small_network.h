// A soft sorting network: see small_rows.cpp.
#pragma once

#include "small_row.h"

namespace khot {
namespace {

double swap_chance(double apart, bool cauchy) {
    if (cauchy) return std::atan2(1.0, apart) / PI;
    return apart > 0 ? std::exp(-apart) / (1 + std::exp(-apart)) : 1 / (1 + std::exp(apart));
}

double swap_slope(double apart, bool cauchy) {
    if (cauchy) return 1 / (PI * (1 + apart * apart));
    const double e = std::exp(-std::fabs(apart));
    return e / ((1 + e) * (1 + e));
}

// body(number of the comparator, one wire, the other).
template <typename Body>
void for_comparators(const NetworkLayer& layer, int64_t first, const Body& body) {
    for (int64_t group = 0; group < layer.groups; ++group) {
        const int64_t at = layer.first + 2 * group * layer.distance;
        for (int64_t i = 0; i < layer.distance; ++i) {
            const int64_t other = at + (layer.mirrored ? 2 * layer.distance - 1 - i : layer.distance + i);
            body(first + group * layer.distance + i, at + i, other);
        }
    }
}

// As _network_passes.py has it, for the sum of the first k wires. Table: d, q, u − v and q̄ of each comparator.
void network(const Row& row, const double* g, double* out) {
    const int64_t n = row.n;
    double *values = row.a, *weights = row.b, *of_weights = row.c, *of_values = row.d;
    int64_t count = 0;
    for (int64_t layer = 0; layer < row.depth; ++layer) count += row.layers[layer].groups * row.layers[layer].distance;
    double *apart = row.table, *swap = apart + count, *weights_apart = swap + count, *of_swap = weights_apart + count;
    for (int64_t i = 0; i < n; ++i) {
        values[i] = (row.x[n - 1 - i] - row.x[0]) / row.tau;
        weights[i] = i < row.k ? 1 : 0;
        of_weights[i] = g == nullptr ? 0 : g[n - 1 - i];
        of_values[i] = 0;
    }
    int64_t first = 0;
    for (int64_t layer = 0; layer < row.depth; ++layer) {
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            apart[at] = values[i] - values[j];
            swap[at] = swap_chance(apart[at], row.cauchy);
            const double moved = swap[at] * apart[at];
            values[i] -= moved;
            values[j] += moved;
        });
        first += row.layers[layer].groups * row.layers[layer].distance;
    }
    for (int64_t layer = row.depth - 1; layer >= 0; --layer) {
        first -= row.layers[layer].groups * row.layers[layer].distance;
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            weights_apart[at] = weights[i] - weights[j];
            const double moved = swap[at] * weights_apart[at];
            weights[i] -= moved;
            weights[j] += moved;
        });
    }
    if (g == nullptr) {
        for (int64_t i = 0; i < n; ++i) out[i] = weights[n - 1 - i];
        return;
    }
    for (int64_t layer = 0; layer < row.depth; ++layer) {
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            const double difference = of_weights[i] - of_weights[j], moved = swap[at] * difference;
            of_swap[at] = -difference * weights_apart[at];
            of_weights[i] -= moved;
            of_weights[j] += moved;
        });
        first += row.layers[layer].groups * row.layers[layer].distance;
    }
    for (int64_t layer = row.depth - 1; layer >= 0; --layer) {
        first -= row.layers[layer].groups * row.layers[layer].distance;
        for_comparators(row.layers[layer], first, [&](int64_t at, int64_t i, int64_t j) {
            const double difference = of_values[i] - of_values[j];
            const double slope = swap_slope(apart[at], row.cauchy);
            const double moved = swap[at] * difference - slope * (difference * apart[at] - of_swap[at]);
            of_values[i] -= moved;
            of_values[j] += moved;
        });
    }
    for (int64_t i = 0; i < n; ++i) out[i] = of_values[n - 1 - i] / row.tau;
}

}  // namespace
}  // namespace khot
