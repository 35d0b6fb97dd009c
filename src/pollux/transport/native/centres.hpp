// Lloyd's iterations of k-means.
#pragma once
#include <cstdint>
#include <vector>

#include "products.hpp"
#include "steps.hpp"

namespace pollux {

// Labels (n,) of samples (n × r) by the nearest of K centres (K × r), which move to the means of their samples until
// labels stay, or centres move by less than the tolerance (the sum of squares) in all. `squares` are those of samples'
// lengths. Returns the inertia. A cluster that nothing is nearest to starts anew at the sample farthest from its centre.
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
