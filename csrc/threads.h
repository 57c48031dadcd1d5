// Sharing work over OpenMP threads, or not.
//
// The thread count comes from the caller (torch.get_num_threads()), never from OpenMP's own default, so
// that torch.set_num_threads governs both libraries. Without OpenMP all of this is a plain loop.
#pragma once

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>
#endif

namespace khot {

// Below this many elements, waking threads costs more than it saves.
constexpr int64_t SERIAL_BELOW = 8192;

// A row this long is shared between threads when there are fewer rows than threads.
constexpr int64_t LONG_ROW = 32768;

// Rows are summed in blocks of this many elements: in the input's precision within a block (fast, and a
// short sum loses little), in double across blocks.
constexpr int64_t BLOCK = 4096;

// A long row is shared out in at most this many parts; their partial sums then fit on the stack.
constexpr int64_t MAX_PARTS = 256;

#ifdef _OPENMP
// The pool of OpenMP threads does not survive fork(), and a parallel region in the child would wait for it
// forever: a process that was forked after the library was loaded works alone, and so do its children.
inline bool forked = false;
inline bool watch_forks() { return pthread_atfork(nullptr, nullptr, [] { forked = true; }) == 0; }
inline const bool forks_are_watched = watch_forks();
#endif

// How many threads to use for this much work.
inline int useful_threads(int64_t elements, int threads) {
#ifdef _OPENMP
    if (threads <= 1 || elements < SERIAL_BELOW || forked || !forks_are_watched) return 1;
    return threads;
#else
    (void)elements, (void)threads;
    return 1;
#endif
}

// body(begin, end) on consecutive ranges that cover [0, count), one range for each thread.
template <typename Body>
void parallel_ranges(int threads, int64_t count, const Body& body) {
#ifdef _OPENMP
    if (threads > 1 && count > 1) {
        const int team = count < threads ? int(count) : threads;
#pragma omp parallel num_threads(team)
        {
            // The runtime may give fewer threads than asked for. Quotient and remainder, because
            // count * thread could overflow.
            const int64_t given = omp_get_num_threads(), me = omp_get_thread_num();
            const int64_t share = count / given, extra = count % given;
            const int64_t begin = me * share + (me < extra ? me : extra);
            const int64_t end = begin + share + (me < extra ? 1 : 0);
            if (begin < end) body(begin, end);
        }
        return;
    }
#endif
    (void)threads;
    if (count > 0) body(int64_t(0), count);
}

// How a row of n elements is cut into parts. It depends on n alone, not on the number of threads: every
// partial sum is then the same on any number of threads, and so is the result, to the last bit.
struct Parts {
    int64_t n, size, count;

    explicit Parts(int64_t n) : n(n) {
        const int64_t blocks = n / BLOCK + (n % BLOCK != 0);
        const int64_t blocks_each = blocks / MAX_PARTS + (blocks % MAX_PARTS != 0);
        size = blocks_each * BLOCK;
        count = size == 0 ? 0 : n / size + (n % size != 0);
    }
    int64_t begin(int64_t part) const { return part * size; }
    int64_t length(int64_t part) const { return part + 1 < count ? size : n - part * size; }
};

}  // namespace khot
