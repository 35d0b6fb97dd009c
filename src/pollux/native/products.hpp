// Products of small matrices, and the exponential, for the vector registers of the processor.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

// One binary for every processor: the time-critical loops are compiled for each register width.
#if defined(__GNUC__)
#define POLLUX_INLINE __attribute__((always_inline)) inline
#define POLLUX_INLINED __attribute__((always_inline))
#else
#define POLLUX_INLINE inline
#define POLLUX_INLINED
#endif

namespace pollux {

// Calls work(bytes), a lambda that is inlined into a separate function for each register width.
template <int BYTES>
using Width = std::integral_constant<int, BYTES>;

#if defined(__GNUC__) && defined(__x86_64__)
static const int REGISTERS = [] {
  // Static constructors run in an unspecified order: the detection of the processor may not be initialised yet.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f")                                    ? 64
         : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 32
                                                                             : 16;
}();
template <class Work>
__attribute__((target("avx512f,avx2,fma"), noinline)) void in_widest(const Work& work) {
  work(Width<64>{});
}
template <class Work>
__attribute__((target("avx2,fma"), noinline)) void in_wide(const Work& work) {
  work(Width<32>{});
}
template <class Work>
__attribute__((noinline)) void in_plain(const Work& work) {
  work(Width<16>{});
}
template <class Work>
void vectorised(const Work& work) {
  REGISTERS == 64 ? in_widest(work) : REGISTERS == 32 ? in_wide(work) : in_plain(work);
}
#else
template <class Work>
void vectorised(const Work& work) {
  work(Width<16>{});
}
#endif

#if defined(__GNUC__)
template <class Real, int BYTES>
struct Lanes;
#define POLLUX_LANES(Real, BYTES)                                                                      \
  template <>                                                                                          \
  struct Lanes<Real, BYTES> {                                                                          \
    typedef Real type __attribute__((vector_size(BYTES), aligned(alignof(Real)), may_alias));          \
  };
POLLUX_LANES(float, 16) POLLUX_LANES(float, 32) POLLUX_LANES(float, 64)
POLLUX_LANES(double, 16) POLLUX_LANES(double, 32) POLLUX_LANES(double, 64)
#undef POLLUX_LANES
#else
template <class Real, int BYTES>
struct Lanes {
  struct type {
    Real number[BYTES / sizeof(Real)];
    type& operator+=(const type& other) {
      for (size_t i = 0; i < BYTES / sizeof(Real); i++) number[i] += other.number[i];
      return *this;
    }
    friend type operator*(Real factor, type lanes) {
      for (Real& each : lanes.number) each *= factor;
      return lanes;
    }
  };
};
#endif

// Rows of B are read, but not used, up to this many numbers beyond their last column: they must be allocated.
constexpr int64_t SLACK = 32;

// ROWS × (2 vectors) of C (+)= A B over columns k of A.
template <class Real, int BYTES, int ROWS>
POLLUX_INLINE void multiply_tile(int64_t depth, const Real* a, int64_t row_step, int64_t column_step, const Real* b,
                                 int64_t b_step, Real* c, int64_t c_step, int64_t columns, bool add) {
  using Vector = typename Lanes<Real, BYTES>::type;
  constexpr int64_t LANES = BYTES / sizeof(Real);
  Vector sums[ROWS][2];
  std::memset(sums, 0, sizeof sums);
  for (int64_t k = 0; k < depth; k++) {
    Vector first, second;
    std::memcpy(&first, b + k * b_step, sizeof first);
    std::memcpy(&second, b + k * b_step + LANES, sizeof second);
#if defined(__GNUC__)
#pragma GCC unroll 8
#endif
    for (int i = 0; i < ROWS; i++) {
      const Real factor = a[i * row_step + k * column_step];
      sums[i][0] += factor * first;
      sums[i][1] += factor * second;
    }
  }
#if defined(__GNUC__)
#pragma GCC unroll 8
#endif
  for (int i = 0; i < ROWS; i++) {
    Real *row = c + i * c_step, numbers[2 * LANES];
    if (columns == 2 * LANES && !add) {
      std::memcpy(row, sums[i], sizeof sums[i]);
      continue;
    }
    std::memcpy(numbers, sums[i], sizeof numbers);
    for (int64_t j = 0; j < columns; j++) row[j] = add ? row[j] + numbers[j] : numbers[j];
  }
}

template <class Real, int BYTES, int ROWS>
POLLUX_INLINE void multiply_blocks(int64_t rows, int64_t columns, int64_t depth, const Real* a, int64_t row_step,
                                   int64_t column_step, const Real* b, int64_t b_step, Real* c, int64_t c_step) {
  constexpr int64_t WIDTH = 2 * BYTES / sizeof(Real);
  // A stripe of B that stays in the L1 cache; sums of fewer numbers at a time are also more accurate.
  constexpr int64_t DEPTH = 256;
  for (int64_t k = 0; k < depth; k += DEPTH)
    for (int64_t j = 0; j < columns; j += WIDTH) {
      const int64_t some = std::min(DEPTH, depth - k), width = std::min(WIDTH, columns - j);
      const Real *ak = a + k * column_step, *bk = b + k * b_step + j;
      int64_t i = 0;
      for (; i + ROWS <= rows; i += ROWS)
        multiply_tile<Real, BYTES, ROWS>(some, ak + i * row_step, row_step, column_step, bk, b_step,
                                         c + i * c_step + j, c_step, width, k > 0);
      for (; i + 2 <= rows; i += 2)
        multiply_tile<Real, BYTES, 2>(some, ak + i * row_step, row_step, column_step, bk, b_step, c + i * c_step + j,
                                      c_step, width, k > 0);
      for (; i < rows; i++)
        multiply_tile<Real, BYTES, 1>(some, ak + i * row_step, row_step, column_step, bk, b_step, c + i * c_step + j,
                                      c_step, width, k > 0);
    }
}

// C (rows × columns) = A B. A has any strides, so it may be transposed; rows of B and C are contiguous.
template <class Real>
void multiply(int64_t rows, int64_t columns, int64_t depth, const Real* a, int64_t row_step, int64_t column_step,
              const Real* b, int64_t b_step, Real* c, int64_t c_step) {
  if (depth == 0) {
    for (int64_t i = 0; i < rows; i++) std::fill(c + i * c_step, c + i * c_step + columns, Real(0));
    return;
  }
  vectorised([=](auto width) POLLUX_INLINED {
    constexpr int BYTES = decltype(width)::value;
    // As many rows as their sums fit into registers.
    multiply_blocks<Real, BYTES, BYTES == 64 ? 8 : BYTES == 32 ? 5 : 4>(rows, columns, depth, a, row_step, column_step,
                                                                       b, b_step, c, c_step);
  });
}

// eˣ to within an ulp or two, without branches, so that loops vectorise; 0 if it is below all normal numbers.
POLLUX_INLINE double exponential(double x) {
  constexpr double LOG2_E = 1.4426950408889634, LN2_HIGH = 0.693147180369123816490, LN2_LOW = 1.90821492927058770002e-10;
  constexpr double SHIFT = 6755399441055744.0;  // 1.5 · 2⁵²: adding it rounds to a whole number
  const double bounded = x > 709.0 ? 709.0 : (x < -708.0 ? -708.0 : x);
  const double shifted = bounded * LOG2_E + SHIFT, power = shifted - SHIFT;
  const double r = (bounded - power * LN2_HIGH) - power * LN2_LOW;
  double sum = 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52;
  double scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return x < -708.0 ? 0.0 : sum * scale;
}

}  // namespace pollux
