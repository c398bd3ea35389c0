/* Blobs of any layout N [C/b] S [b]: (samples, outer, pixels, inner) elements, where blocks of
 * `inner` channels are side by side. Plain images have inner = 1, images whose channels are last
 * have outer = 1. Channels may be padded to whole blocks, with zeros.
 */
#pragma once
#include "fire.h"

struct grid {
    int64_t threads, samples, outer, pixels, inner;
};
