// k-means: initialisation, and Lloyd's iterations.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "products.hpp"
#include "steps.hpp"

namespace pollux {

// Greedy k-means++: each next of K centres is the best of a few samples (n × r), drawn with probabilities proportional
// to their squared distances from the centres so far, by `draws` (K − 1 × trials) in [0, 1]. `chosen` (K,), whose first
// entry is given, are their numbers.
template <class Real>
void seed_centres(int64_t n, int64_t r, int64_t K, int64_t trials, const Real* samples, const double* squares,
                  const double* weight, const double* draws, int64_t* chosen) {
  constexpr int64_t SOME = 512;
  Buffer<Real> turned, some_products, drawn;
  Real *by_feature = turned.sized(r * n), *products = some_products.sized(trials * SOME);
  Real* candidates = drawn.sized(trials * r);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < r; j++) by_feature[j * n + i] = samples[i * r + j];
  std::vector<double> closest(n, std::numeric_limits<double>::infinity()), shares(n), after(trials * n), totals(trials);
  std::vector<int64_t> numbers(trials);
  for (int64_t k = 0; k < K; k++) {
    const int64_t tried = k ? trials : 1;
    if (k) {
      for (int64_t i = 0; i < n; i++) shares[i] = weight[i] * closest[i];
      std::partial_sum(shares.begin(), shares.end(), shares.begin());
      for (int64_t t = 0; t < trials; t++) {
        const double share = draws[(k - 1) * trials + t] * shares.back();
        numbers[t] = std::min(std::lower_bound(shares.begin(), shares.end(), share) - shares.begin(), n - 1);
      }
    } else {
      numbers[0] = chosen[0];
    }
    for (int64_t t = 0; t < tried; t++) std::copy_n(samples + numbers[t] * r, r, candidates + t * r);
    std::fill(totals.begin(), totals.end(), 0.0);
    for (int64_t first = 0; first < n; first += SOME) {
      const int64_t count = std::min(SOME, n - first);
      multiply<Real>(tried, count, r, candidates, r, 1, by_feature + first, n, products, SOME);
      for (int64_t t = 0; t < tried; t++) {
        const double length = squares[numbers[t]], *own = squares + first, *before = closest.data() + first;
        const double* shared = weight + first;
        const Real* product = products + t * SOME;
        double *distance = after.data() + t * n + first, sum = 0;
        vectorised([=, &sum](auto) POLLUX_INLINED {
          double total = 0;
#pragma omp simd reduction(+ : total)
          for (int64_t i = 0; i < count; i++) {
            const double apart = own[i] - 2.0 * product[i] + length, positive = apart > 0 ? apart : 0;
            distance[i] = positive < before[i] ? positive : before[i];
            total += shared[i] * distance[i];
          }
          sum = total;
        });
        totals[t] += sum;
      }
    }
    const int64_t best = std::min_element(totals.begin(), totals.begin() + tried) - totals.begin();
    chosen[k] = numbers[best];
    std::copy_n(after.data() + best * n, n, closest.data());
  }
}

// Labels (n,) of samples (n × r) by the nearest of K centres (K × r), which move to the means of their samples until
// labels do not change, or the sum of squared movements is below the tolerance. `squares` are the squared lengths of
// the samples. Returns the inertia. The centre of an empty cluster moves to the sample farthest from its own centre.
template <class Real>
double iterate_centres(int64_t n, int64_t r, int64_t K, const Real* samples, const double* squares,
                       const double* weight, Real* centres, int64_t* labels, double tolerance, int64_t iterations) {
  constexpr int64_t ROWS = 128;
  Buffer<Real> turned, scores;
  std::vector<double> lengths(K), sums(K * r), sizes(K), apart(n);
  Real *by_feature = turned.sized(r * K), *products = scores.sized(ROWS * K);
  std::fill(labels, labels + n, int64_t{-1});
  bool is_last = false;
  for (int64_t step = 0;; step++) {
    for (int64_t k = 0; k < K; k++) {
      lengths[k] = 0;
      for (int64_t j = 0; j < r; j++) {
        const Real number = centres[k * r + j];
        by_feature[j * K + k] = number;
        lengths[k] += static_cast<double>(number) * number;
      }
    }
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(sizes.begin(), sizes.end(), 0.0);
    bool has_changed = false;
    for (int64_t first = 0; first < n; first += ROWS) {
      const int64_t rows = std::min(ROWS, n - first);
      multiply<Real>(rows, K, r, samples + first * r, r, 1, by_feature, K, products, K);
      for (int64_t i = first; i < first + rows; i++) {
        const Real* own = products + (i - first) * K;
        int64_t best = 0;
        double least = lengths[0] - 2.0 * own[0];
        for (int64_t k = 1; k < K; k++) {
          const double other = lengths[k] - 2.0 * own[k];
          if (other < least) least = other, best = k;
        }
        has_changed |= labels[i] != best;
        labels[i] = best;
        apart[i] = std::max(0.0, least + squares[i]);
        const double share = weight[i];
        double* sum = sums.data() + best * r;
        const Real* sample = samples + i * r;
        sizes[best] += share;
        for (int64_t j = 0; j < r; j++) sum[j] += share * sample[j];
      }
    }
    if (is_last || !has_changed || step == iterations) break;
    double moved = 0;
    std::vector<double> left = apart;
    for (int64_t k = 0; k < K; k++) {
      if (sizes[k] == 0) {
        const int64_t far = std::max_element(left.begin(), left.end()) - left.begin();
        if (!(left[far] > 0)) continue;
        left[far] = 0;
        for (int64_t j = 0; j < r; j++) sums[k * r + j] = samples[far * r + j];
        sizes[k] = 1;
      }
      for (int64_t j = 0; j < r; j++) {
        const Real next = static_cast<Real>(sums[k * r + j] / sizes[k]);
        const double by = static_cast<double>(next) - centres[k * r + j];
        moved += by * by;
        centres[k * r + j] = next;
      }
    }
    is_last = moved <= tolerance;
  }
  double inertia = 0;
  for (int64_t i = 0; i < n; i++) inertia += weight[i] * apart[i];
  return inertia;
}

}  // namespace pollux
