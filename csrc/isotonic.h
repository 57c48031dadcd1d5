// Pool adjacent violators: the blocks on which an isotonic regression is constant. See isotonic.cpp.
#pragma once

#include <cmath>
#include <cstdint>

namespace khot {

// A block from `first` on, with sums of s and of w that are small because they are relative to the first.
struct Block {
    int64_t first, count;
    double of_s, of_w;
};

template <typename real>
struct LeastSquares {  // Σ(s − s_first), Σw
    static Block single(const real*, const real* w, int64_t i) { return {i, 1, 0, double(w[i])}; }
    static void merge(Block& before, const Block& last, const real* s, const real*) {
        before.of_s += last.of_s + double(last.count) * (double(s[last.first]) - double(s[before.first]));
        before.of_w += last.of_w;
        before.count += last.count;
    }
    static double level(const Block& block, const real* s, const real*) {
        return double(s[block.first]) + (block.of_s - block.of_w) / double(block.count);
    }
    // The projection at an entry of the block, which is `offset` and how far it is from the first.
    static double offset(const Block& block, const real*) { return (block.of_w - block.of_s) / double(block.count); }
    static double value(double offset, double difference) { return difference + offset; }
};

template <typename real>
struct Entropic {  // Σe^{s − s_first}, Σw
    static Block single(const real*, const real* w, int64_t i) { return {i, 1, 1, double(w[i])}; }
    static void merge(Block& before, const Block& last, const real* s, const real*) {
        before.of_s += last.of_s * std::exp(double(s[last.first]) - double(s[before.first]));
        before.of_w += last.of_w;
        before.count += last.count;
    }
    static double level(const Block& block, const real* s, const real*) {
        return double(s[block.first]) + std::log(block.of_s / block.of_w);
    }
    static double offset(const Block& block, const real*) { return block.of_w / block.of_s; }
    static double value(double offset, double difference) { return std::exp(difference) * offset; }
};

template <typename real>
struct LogEntropic {  // Σe^{s − s_first}, Σe^{w − w_first}
    static Block single(const real*, const real*, int64_t i) { return {i, 1, 1, 1}; }
    static void merge(Block& before, const Block& last, const real* s, const real* w) {
        before.of_s += last.of_s * std::exp(double(s[last.first]) - double(s[before.first]));
        before.of_w += last.of_w * std::exp(double(w[last.first]) - double(w[before.first]));
        before.count += last.count;
    }
    static double level(const Block& block, const real* s, const real* w) {
        return double(s[block.first]) - double(w[block.first]) + std::log(block.of_s / block.of_w);
    }
    static double offset(const Block& block, const real* w) {
        return double(w[block.first]) + std::log(block.of_w / block.of_s);
    }
    static double value(double offset, double difference) { return difference + offset; }
};

// The blocks of a row, and how many; blocks and levels have room for n. A run of entries that each lie above the one
// before ends up in one block, so it is made one at once, and its level is computed once. NaN joins what is before it.
template <typename real, typename Rule>
int64_t pool(const real* s, const real* w, int64_t n, Block* blocks, double* levels) {
    int64_t count = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        Block block = Rule::single(s, w, i);
        double level = Rule::level(block, s, w), before = level;
        for (end = i + 1; end < n; ++end) {
            const Block next = Rule::single(s, w, end);
            const double own = Rule::level(next, s, w);
            if (before > own) break;
            Rule::merge(block, next, s, w);
            before = own;
        }
        if (end > i + 1) level = Rule::level(block, s, w);
        while (count > 0 && !(levels[count - 1] > level)) {
            Rule::merge(blocks[count - 1], block, s, w);
            block = blocks[--count];
            level = Rule::level(block, s, w);
        }
        blocks[count] = block;
        levels[count++] = level;
    }
    return count;
}

}  // namespace khot
