// The cube method, one draw after another: what khot/designs/cube.py says, from the same uniform variables.
//
// A window of a few units always has a direction within the constraints. Each step goes along it, one way or the other,
// until a unit is 0 or 1 and leaves the window to the next one.
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "kernels.h"
#include "threads.h"

namespace khot {
namespace {

constexpr double NOTHING = 1e-10;  // as in cube.py
constexpr double AS_LARGE = 1 - 1e-6;

// Of a window of `width` places.
struct Window {
    int64_t *place, *unit;
    double *space, *row, *rest, *direction, *value;
    bool* present;
};

double dot(const double* a, const double* b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

// A direction within as many leading constraints as leave one: they are projected out one after the other, and one that
// would leave nothing is skipped.
void find_direction(const double* columns, int64_t constraints, int64_t width, const Window& w) {
    int64_t dimension = 0;
    for (int64_t a = 0; a < width; ++a) {
        for (int64_t b = 0; b < width; ++b) w.space[a * width + b] = a == b && w.present[a] ? 1 : 0;
        dimension += w.present[a];
    }
    for (int64_t j = 0; j < constraints && dimension > 1; ++j) {
        for (int64_t a = 0; a < width; ++a) w.row[a] = w.present[a] ? columns[w.unit[a] * constraints + j] : 0;
        for (int64_t a = 0; a < width; ++a) w.direction[a] = dot(w.space + a * width, w.row, width);
        for (int64_t a = 0; a < width; ++a) w.rest[a] = dot(w.space + a * width, w.direction, width);
        const double size = dot(w.rest, w.rest, width);
        if (!(size > NOTHING * NOTHING * dot(w.row, w.row, width))) continue;
        for (int64_t a = 0; a < width; ++a) {
            for (int64_t b = 0; b < width; ++b) w.space[a * width + b] -= w.rest[a] * w.rest[b] / size;
        }
        --dimension;
    }
    double largest = 0;
    for (int64_t a = 0; a < width; ++a) largest = std::fmax(largest, w.space[a * width + a]);
    int64_t chosen = 0;
    while (chosen + 1 < width && !(w.space[chosen * width + chosen] >= AS_LARGE * largest)) ++chosen;
    double most = 0;
    for (int64_t a = 0; a < width; ++a) most = std::fmax(most, std::fabs(w.space[a * width + chosen]));
    for (int64_t a = 0; a < width; ++a) {
        const double d = w.space[a * width + chosen];
        w.direction[a] = std::fabs(d) > NOTHING * most ? d : 0;
    }
}

// Along the direction until a unit is 0 or 1, so that the mean stays.
void step(int64_t width, double u, const Window& w) {
    double ahead = INFINITY, behind = INFINITY;
    const auto room = [&](int64_t a, bool forward) {
        const double d = w.direction[a], up = (d > 0) == forward ? 1 - w.value[a] : w.value[a];
        return d != 0 ? up / std::fabs(d) : INFINITY;
    };
    for (int64_t a = 0; a < width; ++a) {
        ahead = std::fmin(ahead, room(a, true));
        behind = std::fmin(behind, room(a, false));
    }
    if (ahead == INFINITY) ahead = 0;
    if (behind == INFINITY) behind = 0;
    const bool forward = u * (ahead + behind) < behind;
    for (int64_t a = 0; a < width; ++a) {
        const double d = w.direction[a];
        if (!w.present[a] || d == 0) continue;
        const bool stops = room(a, forward) == (forward ? ahead : behind);
        const double moved = w.value[a] + (forward ? ahead : -behind) * d, near = std::nearbyint(moved);
        w.value[a] = stops || std::fabs(moved - near) < NOTHING ? near : moved;
    }
}

// x has the probabilities, and the draw in the end. order has the open units first.
void cube_row(double* x, const double* columns, const int64_t* order, const double* u, int64_t n, int64_t constraints,
              const Window& w) {
    int64_t open = 0;
    for (int64_t i = 0; i < n; ++i) open += x[i] > 0 && x[i] < 1;
    const int64_t width = constraints + 1 < n ? constraints + 1 : n;
    int64_t following = width;
    for (int64_t a = 0; a < width; ++a) w.place[a] = a;
    for (int64_t steps = 0; steps < n; ++steps) {
        int64_t there = 0;
        for (int64_t a = 0; a < width; ++a) {
            w.present[a] = w.place[a] < open;
            there += w.present[a];
            w.unit[a] = w.present[a] ? order[w.place[a]] : 0;
            w.value[a] = w.present[a] ? x[w.unit[a]] : 0;
        }
        if (there <= 1) break;
        find_direction(columns, constraints, width, w);
        step(width, u[steps], w);
        for (int64_t a = 0; a < width; ++a) {
            if (!w.present[a]) continue;
            x[w.unit[a]] = w.value[a];
            if (w.value[a] == 0 || w.value[a] == 1) w.place[a] = following++;
        }
    }
}

}  // namespace

bool cube(const double* probs, const double* columns, const int64_t* order, const double* u, bool* out, int64_t draws,
          int64_t rows, int64_t n, int64_t constraints, int threads) {
    std::atomic<bool> enough_memory{true};
    parallel_ranges(useful_threads(draws * rows * n, threads), draws * rows, [&](int64_t begin, int64_t end) {
        const int64_t width = constraints + 1;
        double* memory = static_cast<double*>(std::malloc(size_t(n + width * (width + 7)) * sizeof(double)));
        if (memory == nullptr) {
            enough_memory = false;
            return;
        }
        double* next = memory + n;
        const auto take = [&](int64_t count) {
            double* piece = next;
            next += count;
            return piece;
        };
        Window w;
        w.place = reinterpret_cast<int64_t*>(take(width));
        w.unit = reinterpret_cast<int64_t*>(take(width));
        w.present = reinterpret_cast<bool*>(take(width));
        w.row = take(width);
        w.rest = take(width);
        w.direction = take(width);
        w.value = take(width);
        w.space = take(width * width);
        for (int64_t row = begin; row < end; ++row) {
            const int64_t of = row % rows;
            for (int64_t i = 0; i < n; ++i) memory[i] = probs[of * n + i];
            cube_row(memory, columns + of * n * constraints, order + row * n, u + row * n, n, constraints, w);
            for (int64_t i = 0; i < n; ++i) out[row * n + i] = memory[i] > 0.5;
        }
        std::free(memory);
    });
    return enough_memory;
}

}  // namespace khot
