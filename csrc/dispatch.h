// One source, one binary, every instruction set.
//
// A kernel is written once, in a body file (`name.inl`) of plain loops over `real`. Its `name.cpp` does
//
//     #define KHOT_KERNEL_BODY "name.inl"
//     #include "dispatch.h"
//
// and the body is then compiled once for each instruction set and each type, in the namespaces
// khot::{base,avx2,avx512}::{f32,f64}. KHOT_PICK(table) names the table of the set in use. A body sees `real`,
// `bits` (the integer of the same size) and VECTOR_BYTES (the size of a register); vector.inl builds on them.
//
// Why not target_clones: its "arch=..." variants match by CPU name, so a newer CPU gets the slowest one.
// Why not one object file per set with -mavx2: an inline function emitted there may be the copy the
// linker keeps for everybody, and then crash on an older CPU.
//
// Rules for a body: no #include (headers would be compiled for that set too), no templates (their
// instantiation may escape the target pragma), and functions are `static`, so that none is shared.
// KHOT_BODY_AVX2 is 1 where AVX2 intrinsics may be used and 0 elsewhere, and so is KHOT_BODY_AVX512 for those of AVX-512;
// __AVX2__ does not tell, since g++ 12 reads the whole file before it obeys the pragma.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KHOT_X86 1
#else
#define KHOT_X86 0
#endif

namespace khot {

// In order of preference: a higher one is used when the CPU has it and KHOT_ISA does not cap it.
enum class Isa { base = 0, avx2 = 1, avx512 = 2 };
constexpr int ISA_COUNT = 3;

const char* isa_name(Isa isa);
bool isa_supported(Isa isa);  // by this CPU and this build
Isa isa_in_use();             // decided at the first call, the same ever after

template <typename Table>
const Table& pick(const Table& base, const Table& avx2, const Table& avx512) {
    switch (isa_in_use()) {
        case Isa::avx512: return avx512;
        case Isa::avx2: return avx2;
        default: return base;
    }
}

}  // namespace khot

#define KHOT_PICK(table) ::khot::pick(::khot::base::table, ::khot::avx2::table, ::khot::avx512::table)

#ifdef KHOT_KERNEL_BODY

#if KHOT_X86
#include <immintrin.h>
#endif

#define KHOT_BODY_AVX2 0
#define KHOT_BODY_AVX512 0
namespace khot::base {
constexpr int VECTOR_BYTES = 16;
namespace f32 {
using real = float;
using bits = int32_t;
#include KHOT_KERNEL_BODY
}  // namespace f32
namespace f64 {
using real = double;
using bits = int64_t;
#include KHOT_KERNEL_BODY
}  // namespace f64
}  // namespace khot::base

#if KHOT_X86
#undef KHOT_BODY_AVX2
#define KHOT_BODY_AVX2 1

// The features named here are the ones that isa_supported() asks the CPU for: change both together.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,f16c")
#endif
namespace khot::avx2 {
constexpr int VECTOR_BYTES = 32;
namespace f32 {
using real = float;
using bits = int32_t;
#include KHOT_KERNEL_BODY
}  // namespace f32
namespace f64 {
using real = double;
using bits = int64_t;
#include KHOT_KERNEL_BODY
}  // namespace f64
}  // namespace khot::avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,f16c")
#endif
#undef KHOT_BODY_AVX512
#define KHOT_BODY_AVX512 1
namespace khot::avx512 {
constexpr int VECTOR_BYTES = 64;
namespace f32 {
using real = float;
using bits = int32_t;
#include KHOT_KERNEL_BODY
}  // namespace f32
namespace f64 {
using real = double;
using bits = int64_t;
#include KHOT_KERNEL_BODY
}  // namespace f64
}  // namespace khot::avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else  // one instruction set: every name means the plain one

namespace khot {
namespace avx2 = base;
namespace avx512 = base;
}  // namespace khot

#endif  // KHOT_X86
#undef KHOT_BODY_AVX2
#undef KHOT_BODY_AVX512
#endif  // KHOT_KERNEL_BODY
