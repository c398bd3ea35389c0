/* Ends with 0 where the processor multiplies pairs of bfloat16 right, whatever CPUID says of it. */

#include <immintrin.h>

int main(void)
{
    const __m512i two_and_three = _mm512_set1_epi32(0x40404000); /* 3 and 2 as bfloat16 */
    __m512 sum = _mm512_set1_ps(1);
    __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(two_and_three));
    return _mm512_cmp_ps_mask(sum, _mm512_set1_ps(14), _CMP_EQ_OQ) == 0xffff ? 0 : 1;
}
