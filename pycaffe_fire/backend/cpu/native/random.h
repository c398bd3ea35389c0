/* Counter-based random words: Philox4x32-10 as pycaffe_fire/backend/random.py defines it.
 *
 * A sample has a sequence of 32-bit words, four in a block. Block b is (c0, c1, c2, c3) after ten
 * rounds, with c0 = b, c1 = sample, c2 = step (their low halves), c3 = the next 16 bits of sample
 * and, above them, of step; k0 and k1 are the halves of the key. A round is
 *
 *     c0, c1, c2, c3 = high(M1 c2) ^ c1 ^ k0,  low(M1 c2),  high(M0 c0) ^ c3 ^ k1,  low(M0 c0)
 *     k0, k1 = k0 + W0, k1 + W1
 */
#pragma once
#include "fire.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* One sample of one step of a stream. */
struct draw {
    uint64_t key, step, sample;
};

/* A counter of several blocks: a word in the low half of each lane; the high half is ignored. */
typedef uint64_t philox_lanes ATTRIBUTES(4 * VECTOR);
/* Two words in memory. */
typedef uint64_t philox_pair __attribute__((aligned(4), may_alias));

enum { PHILOX_LANES = VECTOR / 2, PHILOX_TILE = 64, PHILOX_ROUNDS = 10 };

/* The product of the low half of each lane with m. */
INLINE philox_lanes philox_product(philox_lanes a, uint32_t m) {
#if VECTOR == 16
    return (philox_lanes)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(m));
#elif VECTOR == 8
    return (philox_lanes)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(m));
#elif defined(__SSE2__)
    return (philox_lanes)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(m));
#elif defined(__ARM_NEON)
    return (philox_lanes)vmull_u32(vmovn_u64((uint64x2_t)a), vdup_n_u32(m));
#else
    return (a & 0xFFFFFFFF) * m;
#endif
}

/* Write the words of blocks first_block, first_block + 1, ...: 4 * blocks words. */
static inline void philox_words(
    struct draw d, uint64_t first_block, int64_t blocks, uint32_t *words) {
    const uint64_t high = (d.sample >> 32 & 0xFFFF) | (d.step >> 32 & 0xFFFF) << 16;
    uint64_t k0[PHILOX_ROUNDS], k1[PHILOX_ROUNDS];
    for (uint32_t i = 0; i < PHILOX_ROUNDS; i++) {
        k0[i] = (uint32_t)d.key + i * 0x9E3779B9u;
        k1[i] = (uint32_t)(d.key >> 32) + i * 0xBB67AE85u;
    }
    philox_lanes zero = {0}, numbers;
    for (int i = 0; i < PHILOX_LANES; i++) numbers[i] = (uint64_t)i;
    uint64_t first[PHILOX_TILE], second[PHILOX_TILE]; /* words 0 and 1, words 2 and 3 of blocks */
    for (int64_t done = 0; done < blocks; done += PHILOX_TILE) {
        int64_t tile = least(PHILOX_TILE, blocks - done);
        for (int64_t i = 0; i < tile; i += PHILOX_LANES) {
            philox_lanes c0 = numbers + (first_block + (uint64_t)(done + i));
            philox_lanes c1 = zero + d.sample, c2 = zero + d.step, c3 = zero + high;
            for (int round = 0; round < PHILOX_ROUNDS; round++) {
                philox_lanes p0 = philox_product(c0, 0xD2511F53);
                philox_lanes p1 = philox_product(c2, 0xCD9E8D57);
                c0 = p1 >> 32 ^ c1 ^ k0[round];
                c1 = p1;
                c2 = p0 >> 32 ^ c3 ^ k1[round];
                c3 = p0;
            }
            *(philox_lanes *)(first + i) = (c0 & 0xFFFFFFFF) | c1 << 32;
            *(philox_lanes *)(second + i) = (c2 & 0xFFFFFFFF) | c3 << 32;
        }
        philox_pair *pairs = (philox_pair *)(words + 4 * done);
        for (int64_t i = 0; i < tile; i++) {
            pairs[2 * i] = first[i];
            pairs[2 * i + 1] = second[i];
        }
    }
}
