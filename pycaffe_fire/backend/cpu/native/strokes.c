/* Draw strokes: how much of each pixel a round pen covers that moves along straight pieces.
 *
 *     out[i, y, x] = radius[i] + 1/2 - d, between 0 and 1
 *     d = the distance of the pixel's center from the nearest piece of image i
 *
 * Results are the same bits on every machine: the build fuses no product with a sum in this file.
 */
#include "fire.h"

struct draw_strokes {
    int64_t threads;
    const double *ends;   /* (count, pieces, 2, 2): x and y of both ends of each piece, in pixels */
    const double *radius; /* (count) */
    double *out;          /* (count, size, size) */
    int64_t count, pieces, size;
};

INLINE double between_0_and_1(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

static void draw_image(int64_t task, const void *args) {
    const struct draw_strokes *a = args;
    const int64_t size = a->size;
    const double *piece = a->ends + task * a->pieces * 4, radius = a->radius[task];
    double *restrict out = a->out + task * size * size; /* first the square of the distance */
    for (int64_t i = 0; i < size * size; i++) out[i] = 1e9;
    for (int64_t k = 0; k < a->pieces; k++, piece += 4) {
        const double ax = piece[0], ay = piece[1], dx = piece[2] - ax, dy = piece[3] - ay;
        const double inverse = 1 / (dx * dx + dy * dy + 1e-12);
        for (int32_t y = 0; y < size; y++) {
            const double py = y + 0.5 - ay;
            double *restrict line = out + y * size;
            for (int32_t x = 0; x < size; x++) {
                double px = x + 0.5 - ax, t = between_0_and_1((px * dx + py * dy) * inverse);
                double ex = px - t * dx, ey = py - t * dy, square = ex * ex + ey * ey;
                line[x] = square < line[x] ? square : line[x];
            }
        }
    }
    for (int64_t i = 0; i < size * size; i++) out[i] = between_0_and_1(radius + 0.5 - sqrt(out[i]));
}

KERNEL(draw_strokes) { run_tasks(a->count, draw_image, a, a->threads); }
