// A row whose threshold is known: with z = (x − anchor)/τ its weights are F(a), a = z + offset − fine.
#pragma once

#include <cstdint>

#include "threads.h"

namespace khot {

constexpr double FAR = 1e4;  // khot.relaxations.threshold._gates.Gate.far

template <typename real>
struct GateRow {
    real half_anchor, twice_rate, offset, fine;
    bool ties_below;
};

// What all rows are made of, one number each.
template <typename real>
struct GateRows {
    const real *anchor, *temperature, *offset, *fine;

    GateRow<real> operator[](int64_t row) const {
        return {anchor[row] * real(0.5), real(2) / temperature[row], offset[row], fine[row], false};
    }
};

// body(row, first, count, piece) on the pieces of all rows; there are as many whatever the number of threads.
struct RowPieces {
    int64_t rows, n, parts, length;

    RowPieces(int64_t rows, int64_t n) : rows(rows), n(n) {
        const int64_t whole = (n + LONG_ROW - 1) / LONG_ROW;
        parts = whole < 1 ? 1 : whole < MAX_PARTS ? whole : MAX_PARTS;
        length = (n + parts - 1) / parts;
    }

    template <typename Body>
    void each(int threads, const Body& body) const {
        parallel_ranges(useful_threads(rows * n, threads), rows * parts, [&](int64_t begin, int64_t end) {
            for (int64_t piece = begin; piece < end; ++piece) {
                const int64_t row = piece / parts, first = piece % parts * length;
                const int64_t count = n - first < length ? n - first : length;
                if (count > 0) body(row, first, count, piece);
            }
        });
    }

    // The sums over the pieces of each row, so many terms each.
    void total(const double* found, int terms, double* out) const {
        for (int64_t row = 0; row < rows; ++row) {
            for (int t = 0; t < terms; ++t) {
                double sum = 0;
                for (int64_t part = 0; part < parts; ++part) sum += found[(row * parts + part) * terms + t];
                out[row * terms + t] = sum;
            }
        }
    }
};

}  // namespace khot
