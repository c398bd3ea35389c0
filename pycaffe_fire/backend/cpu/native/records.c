/* Find the images in a batch of records: Datum messages with pixels or with a JPEG.
 *
 * Records come from databases of any origin. Every read is checked against the record's end, and
 * sizes inside a record are believed only after that. What is not of the plain kinds below is left
 * to the general reader in Python, which has the words for what is wrong with it.
 */
#include "fire.h"

struct span {
    int64_t address, size; /* of a record, in bytes */
};

/* PIXELS: bytes of exactly the shape. JPEG: one in color, up to its first scan. SEQUENTIAL_JPEG:
 * one with a single scan up to its end marker. libjpeg refuses such a file for its header or not at
 * all, so its rows may be decoded from the top as far as they are needed. */
enum kind { OTHER, PIXELS, JPEG, SEQUENTIAL_JPEG };

/* What a record holds; a record of kind OTHER has only its kind here. */
struct found {
    int64_t kind;
    int64_t start, size; /* the image's bytes, counted from the record's first */
    int64_t label, channels, height, width;
};

struct read_records {
    int64_t threads;
    const int64_t *spans; /* a struct span for each record */
    int64_t *found;       /* a struct found for each record */
    int64_t records;
};

/* Read a varint at `at`; return the position after it, or -1 if it does not end before `end`. */
INLINE int64_t read_varint(const uint8_t *bytes, int64_t at, int64_t end, int64_t *value) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
        uint8_t byte = bytes[at++];
        bits |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *value = (int64_t)bits;
            return at;
        }
    }
    return -1;
}

/* True if the numbers, which may be anything, are the shape of an image of `size` bytes. */
INLINE bool is_shape(const struct found *f) {
    return 0 < f->channels && f->channels <= f->size && 0 < f->height && f->height <= f->size &&
           0 < f->width && f->width <= f->size && f->channels * f->height <= f->size &&
           f->channels * f->height * f->width == f->size;
}

/* Second bytes of JPEG's markers; the first is 0xFF. */
enum marker {
    BASELINE = 0xC0, PROGRESSIVE = 0xC2, HUFFMAN = 0xC4, RESTART = 0xD0, START = 0xD8, END = 0xD9,
    SCAN = 0xDA, QUANTIZATION = 0xDB, INTERVAL = 0xDD, APPLICATION = 0xE0, COMMENT = 0xFE
};

/* True if the file ends with an end marker, and the scan before it has no markers but restarts. */
static bool is_single_scan(const uint8_t *bytes, int64_t start, int64_t end) {
    const uint8_t *at = bytes + start, *last = bytes + end - 2;
    if (last < at || last[0] != 0xFF || last[1] != END) return false;
    for (; (at = memchr(at, 0xFF, (size_t)(last - at))) != NULL; at++)
        if (at[1] != 0 && (at[1] & 0xF8) != RESTART) return false;
    return true;
}

INLINE int64_t big_endian(const uint8_t *bytes) { return bytes[0] << 8 | bytes[1]; }

static void read_jpeg(const uint8_t *bytes, struct found *f) {
    int64_t at = f->start, end = f->start + f->size, frame = 0;
    if (f->size < 2 || bytes[at] != 0xFF || bytes[at + 1] != START) return;
    int64_t size;
    for (at += 2; at + 4 <= end && bytes[at] == 0xFF; at += 2 + size) {
        const uint8_t marker = bytes[at + 1], *segment = bytes + at + 2;
        size = big_endian(segment);
        if (at + 2 + size > end) return;
        if (marker >= BASELINE && marker <= PROGRESSIVE) { /* the frames that libjpeg decodes */
            if (size < 17 || segment[2] != 8 || segment[7] != 3) return; /* bits, channels */
            frame = marker;
            f->channels = 3;
            f->height = big_endian(segment + 3);
            f->width = big_endian(segment + 5);
        } else if (marker == SCAN) {
            if (!frame || size < 12 || !f->height || !f->width) return;
            bool all = frame != PROGRESSIVE && segment[2] == 3; /* channels in this scan */
            f->kind = all && is_single_scan(bytes, at + 2 + size, end) ? SEQUENTIAL_JPEG : JPEG;
            return;
        } else if (marker != HUFFMAN && marker != QUANTIZATION && marker != INTERVAL &&
                   marker != COMMENT && (marker & 0xF0) != APPLICATION) {
            return;
        }
    }
}

/* Fields of a plain Datum: number and wire type (0: a varint, 2: bytes with their length). */
enum tag {
    CHANNELS = 1 << 3, HEIGHT = 2 << 3, WIDTH = 3 << 3, DATA = 4 << 3 | 2, LABEL = 5 << 3,
    ENCODED = 7 << 3
};

static void read_record(int64_t task, const void *args) {
    const struct read_records *a = args;
    const struct span *span = (const struct span *)a->spans + task;
    struct found *row = (struct found *)a->found + task, f = {.kind = OTHER, .size = -1};
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)span->address;
    int64_t at = 0, end = span->size, encoded = 0, value;
    row->kind = OTHER;
    while (at < end) {
        uint8_t tag = bytes[at];
        at = read_varint(bytes, at + 1, end, &value);
        if (at < 0) return;
        switch (tag) {
            case DATA:
                if (value < 0 || value > end - at) return;
                f.start = at;
                f.size = value;
                at += value;
                break;
            case CHANNELS: f.channels = value; break;
            case HEIGHT: f.height = value; break;
            case WIDTH: f.width = value; break;
            case LABEL: f.label = (int32_t)value; break;
            case ENCODED: encoded = value; break;
            default: return;
        }
    }
    if (encoded)
        read_jpeg(bytes, &f);
    else if (is_shape(&f))
        f.kind = PIXELS;
    *row = f;
}

KERNEL(read_records) { run_tasks(a->records, read_record, a, a->threads); }
