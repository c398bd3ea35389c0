/* Which of the instruction sets that the library is compiled for this processor executes. */
#include "fire.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>

enum { OSXSAVE = 1 << 27, AVX = 1 << 28, FMA = 1 << 12, F16C = 1 << 29 };  /* leaf 1, ecx */
enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30 }; /* leaf 7, ebx */
enum { AVX_STATE = 0x06, AVX512_STATE = 0xE6 }; /* registers that the operating system saves */

static const unsigned AVX512VL = 1u << 31;

static bool has(unsigned flags, unsigned all) { return (flags & all) == all; }

/* 0: the baseline, 1: AVX2, FMA and F16C, 2: AVX-512 with BW, DQ and VL as well. */
EXPORT int fire_isa(void);
int fire_isa(void) {
    unsigned a, b, c, d, state, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, OSXSAVE | AVX | FMA | F16C)) return 0;
    __asm__ volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, AVX2) || !has(state, AVX_STATE)) return 0;
    bool wide = has(b, AVX512F | AVX512DQ | AVX512BW | AVX512VL) && has(state, AVX512_STATE);
    return wide ? 2 : 1;
}
#else
EXPORT int fire_isa(void);
int fire_isa(void) { return 0; }
#endif
