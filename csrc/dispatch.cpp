// Which instruction set this process uses.
#include "dispatch.h"

#include <cstdlib>
#include <cstring>

namespace khot {

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::avx512: return "avx512";
        case Isa::avx2: return "avx2";
        default: return "base";
    }
}

bool isa_supported(Isa isa) {
    if (isa == Isa::base) return true;
#if KHOT_X86
    __builtin_cpu_init();
    // This asks the operating system too (are the wide registers saved?), not the CPU alone.
    // f16c has no name here in older compilers; every CPU with AVX2 has it.
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    if (isa == Isa::avx2) return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

// KHOT_ISA is a cap, never a demand: a name the CPU does not have means the best one below it, and a
// word that is no name means no cap. `khot doctor` shows when the answer is not the one asked for.
static Isa choose() {
    int cap = ISA_COUNT - 1;
    if (const char* asked = std::getenv("KHOT_ISA")) {
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (std::strcmp(asked, isa_name(Isa(i))) == 0) cap = i;
        }
    }
    while (!isa_supported(Isa(cap))) --cap;  // ends: base is always there
    return Isa(cap);
}

Isa isa_in_use() {
    static const Isa chosen = choose();
    return chosen;
}

}  // namespace khot
