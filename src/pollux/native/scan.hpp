// The time-critical loops: sums of two rows, and their minima.
#pragma once
#include <limits>

// One binary for every processor: the loader selects the version for the widest registers.
#if defined(__x86_64__) && defined(__GLIBC__)
#define POLLUX_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define POLLUX_WIDE
#endif

namespace pollux {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

// min_k a[k] + b[k]. The pragma lets the compiler reorder this minimum, and nothing else.
template <class Real>
static inline Real least_sum_of(const Real* a, const Real* b, int n) {
  Real least = std::numeric_limits<Real>::infinity();
#pragma omp simd reduction(min : least)
  for (int k = 0; k < n; k++) {
    const Real sum = a[k] + b[k];
    least = sum < least ? sum : least;
  }
  return least;
}

POLLUX_WIDE static double least_sum(const double* a, const double* b, int n) { return least_sum_of(a, b, n); }
POLLUX_WIDE static float least_sum(const float* a, const float* b, int n) { return least_sum_of(a, b, n); }

// The first k with a[k] + b[k] ≤ bound, or −1; a block at a time.
template <class Real>
static inline int first_within_of(const Real* a, const Real* b, int n, Real bound) {
  constexpr int BLOCK = 32;
  int k = 0;
  while (k + BLOCK <= n && !(least_sum_of(a + k, b + k, BLOCK) <= bound)) k += BLOCK;
  for (; k < n; k++)
    if (a[k] + b[k] <= bound) return k;
  return -1;
}

POLLUX_WIDE static int first_within(const double* a, const double* b, int n, double bound) {
  return first_within_of(a, b, n, bound);
}

}  // namespace pollux
