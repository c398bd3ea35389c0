// Concatenation of up to four arrays along one axis, forward and backward: row r of the whole is
// row r of the parts side by side; those that are missing have a width of 0, those that are null
// are left out. n counts the whole.

struct Seams {
  int a, b, c, d;  // widths

  // Calls body(part, its width, column in it) for a column of the whole.
  template <class T, class Body>
  __device__ void find(int column, T* pa, T* pb, T* pc, T* pd, Body body) const {
    if (column < a) return body(pa, a, column);
    column -= a;
    if (column < b) return body(pb, b, column);
    column -= b;
    if (column < c) return body(pc, c, column);
    body(pd, d, column - c);
  }

  __device__ bool packed() const { return (a | b | c | d) % PACK == 0; }
};

extern "C" __global__ void join_parts(int n, const real* __restrict__ a,
                                      const real* __restrict__ b, const real* __restrict__ c,
                                      const real* __restrict__ d, FIXED int a_width,
                                      FIXED int b_width, FIXED int c_width, FIXED int d_width,
                                      FIXED int width, FIXED int first, real* __restrict__ y) {
  Seams seams{a_width, b_width, c_width, d_width};
  int own = a_width + b_width + c_width + d_width;
  bool packed = seams.packed() && (width | first) % PACK == 0 && aligned(a, b, c, d, y);
  each_run(n, packed, [&](auto run) {
    int row = (int)run.first / own, column = (int)run.first % own;
    seams.find(column, a, b, c, d, [&](const real* part, int wide, int at) {
      decltype(run) from{(long long)row * wide + at}, to{(long long)row * width + first + column};
      if (part) to.write(y, from.read(part));
    });
  });
}

extern "C" __global__ void cut_parts(int n, const real* __restrict__ dy, FIXED int a_width,
                                     FIXED int b_width, FIXED int c_width, FIXED int d_width,
                                     FIXED int width, FIXED int first, real* __restrict__ a,
                                     real* __restrict__ b, real* __restrict__ c,
                                     real* __restrict__ d) {
  Seams seams{a_width, b_width, c_width, d_width};
  int own = a_width + b_width + c_width + d_width;
  bool packed = seams.packed() && (width | first) % PACK == 0 && aligned(a, b, c, d, dy);
  each_run(n, packed, [&](auto run) {
    int row = (int)run.first / own, column = (int)run.first % own;
    seams.find(column, a, b, c, d, [&](real* part, int wide, int at) {
      decltype(run) to{(long long)row * wide + at}, from{(long long)row * width + first + column};
      if (part) to.write(part, from.read(dy));
    });
  });
}
