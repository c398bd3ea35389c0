//: head
#include <stdlib.h>

//: curandCreateGenerator
struct cupycpu_rng {
  unsigned long long s, o;
};
static unsigned long long cupycpu_next(cupycpu_rng* g) {
  unsigned long long z = (g->s + (++g->o) * 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
static double cupycpu_u(cupycpu_rng* g) {
  return ((cupycpu_next(g) >> 11) + 1) * (1.0 / 9007199254740992.0);
}
static double cupycpu_n(cupycpu_rng* g) {
  double u = cupycpu_u(g), v = cupycpu_u(g);
  return __builtin_sqrt(-2 * __builtin_log(u)) * __builtin_cos(6.283185307179586 * v);
}
curandStatus_t curandCreateGenerator(curandGenerator_t* g, int) {
  *g = calloc(1, sizeof(cupycpu_rng));
  return CURAND_STATUS_SUCCESS;
}

//: curandDestroyGenerator
curandStatus_t curandDestroyGenerator(curandGenerator_t g) {
  free(g);
  return CURAND_STATUS_SUCCESS;
}

//: curandSetPseudoRandomGeneratorSeed
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t g, unsigned long long s) {
  ((cupycpu_rng*)g)->s = s * 0x2545F4914F6CDD1Dull + 1;
  ((cupycpu_rng*)g)->o = 0;
  return CURAND_STATUS_SUCCESS;
}

//: curandSetGeneratorOffset
curandStatus_t curandSetGeneratorOffset(curandGenerator_t g, unsigned long long o) {
  ((cupycpu_rng*)g)->o = o;
  return CURAND_STATUS_SUCCESS;
}

//: curandGenerate
curandStatus_t curandGenerate(curandGenerator_t g, unsigned* p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = (unsigned)cupycpu_next((cupycpu_rng*)g);
  return CURAND_STATUS_SUCCESS;
}

//: curandGenerateLongLong
curandStatus_t curandGenerateLongLong(curandGenerator_t g, unsigned long long* p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = cupycpu_next((cupycpu_rng*)g);
  return CURAND_STATUS_SUCCESS;
}

//: curandGenerateUniform
curandStatus_t curandGenerateUniform(curandGenerator_t g, float* p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = (float)cupycpu_u((cupycpu_rng*)g);
  return CURAND_STATUS_SUCCESS;
}

//: curandGenerateNormal
curandStatus_t curandGenerateNormal(curandGenerator_t g, float* p, size_t n, float m, float sd) {
  for (size_t i = 0; i < n; i++) p[i] = m + sd * (float)cupycpu_n((cupycpu_rng*)g);
  return CURAND_STATUS_SUCCESS;
}

//: curandGenerateUniformDouble
curandStatus_t curandGenerateUniformDouble(curandGenerator_t g, double* p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = (double)cupycpu_u((cupycpu_rng*)g);
  return CURAND_STATUS_SUCCESS;
}

//: curandGenerateNormalDouble
curandStatus_t curandGenerateNormalDouble(curandGenerator_t g, double* p, size_t n, double m,
                                          double sd) {
  for (size_t i = 0; i < n; i++) p[i] = m + sd * (double)cupycpu_n((cupycpu_rng*)g);
  return CURAND_STATUS_SUCCESS;
}
