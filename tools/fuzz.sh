#!/bin/sh
# Fuzzes the compiled kernels and the public API: so many random cases, and what must hold after each.
#
#   tools/fuzz.sh [kernels] [plain] [threads] [api]     default: kernels and api
#   CASES=1000000 tools/fuzz.sh kernels         how many of each, default 10000
#   SEED=7 tools/fuzz.sh                        other cases than those of the seed 1
#
# The kernels run under the address and undefined-behaviour sanitizers, guided by their coverage if clang is there
# (libFuzzer), else on random bytes. `plain` runs them without sanitizers, optimised as in the library, on random bytes:
# many more cases in the same time. `threads` runs them on large rows by several OpenMP threads under the thread
# sanitizer. That needs LLVM's OpenMP, whose tool (Archer) tells the sanitizer what waits for what; GNU's does not.
# The cases are in tests/fuzz; what they are built into, and failing inputs, in build/fuzz.
set -eu
cd "$(dirname "$0")/.."

python=$PWD/.venv/bin/python
cases=${CASES:-10000}
seed=${SEED:-1}
[ $# -gt 0 ] || set -- kernels api

# A clang that links a program with this entry and these options.
find_clang() {
    entry=$1
    shift
    for name in clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14; do
        command -v "$name" >/dev/null || continue
        if echo "int $entry(void) { return 0; }" | "$name" "$@" -x c - -o /dev/null 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

build() {
    make -s -C tests/fuzz/kernels -j "$(nproc 2>/dev/null || echo 2)" flavour="$1" CXX="$2"
}

kernels() {
    if clang=$(find_clang LLVMFuzzerTestOneInput -fsanitize=fuzzer,address,undefined); then
        build guided "$clang"
        folder=build/fuzz/guided
        mkdir -p "$folder/corpus" "$folder/failures"
        echo "fuzz: kernels: $cases cases guided by coverage"
        # Memory of libFuzzer's own is not asked for; a case that takes 60 s is a failure.
        "$folder/kernels" -runs="$cases" -seed="$seed" -max_len=256 -len_control=0 -timeout=60 -rss_limit_mb=4096 \
            -print_final_stats=1 -print_funcs=0 -verbosity=0 -artifact_prefix="$folder/failures/" "$folder/corpus"
    elif command -v "${CXX:-g++}" >/dev/null; then
        echo "fuzz: kernels: $cases random cases (not guided: no clang with libFuzzer; Debian: apt-get install clang)"
        build random "${CXX:-g++}"
        ASAN_OPTIONS=abort_on_error=1 UBSAN_OPTIONS=abort_on_error=1 build/fuzz/random/kernels "$cases" "$seed"
    else
        echo 'fuzz: kernels: skipped (no compiler: apt-get install clang)'
    fi
}

plain() {
    build plain "${CXX:-g++}"
    echo "fuzz: plain: $cases random cases without sanitizers"
    build/fuzz/plain/kernels "$cases" "$seed"
}

threads() {
    if clang=$(find_clang main -fsanitize=thread -fopenmp); then
        build threads "$clang"
        echo "fuzz: threads: $cases cases under the thread sanitizer"
        OMP_TOOL_LIBRARIES=$("$clang" -print-file-name=libarcher.so) \
            TSAN_OPTIONS="ignore_noninstrumented_modules=1:halt_on_error=1:abort_on_error=1:${TSAN_OPTIONS:-}" \
            build/fuzz/threads/kernels "$cases" "$seed"
    else
        echo 'fuzz: threads: skipped (no clang with OpenMP; Debian: apt-get install clang libomp-dev)'
    fi
}

api() {
    echo "fuzz: API: $cases cases"
    KHOT_FUZZ_CASES=$cases KHOT_FUZZ_SEED=$seed OMP_NUM_THREADS=1 \
        "$python" -m pytest -q -p no:cacheprovider -n logical --maxprocesses 4 tests/fuzz
}

for part in "$@"; do
    case $part in
        kernels | plain | threads | api) "$part" ;;
        *) echo "fuzz: kernels, plain, threads or api, got $part" >&2 && exit 2 ;;
    esac
done
