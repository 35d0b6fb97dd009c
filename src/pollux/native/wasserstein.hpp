// A Wasserstein GEMINI apart from its transport problems: the distributions of the clusters, and the gradient.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "products.hpp"

namespace pollux {

// p(y|x) with a row for each cluster, (K × n), and p(y) (K,), from logits (n × K).
inline void predict_clusters(int64_t n, int64_t K, const double* logits, double* clusters, double* p_y) {
  std::vector<double> powers(n * K);
  double* shifted = powers.data();
  for (int64_t i = 0; i < n; i++) {
    const double* row = logits + i * K;
    double most = row[0];
    for (int64_t k = 1; k < K; k++) most = row[k] > most ? row[k] : most;
    for (int64_t k = 0; k < K; k++) shifted[i * K + k] = row[k] - most;
  }
  const int64_t all = n * K;
  vectorised([=](auto) POLLUX_INLINED {
#pragma omp simd
    for (int64_t j = 0; j < all; j++) shifted[j] = exponential(shifted[j]);
  });
  // Keeps a cluster of vanishing mass a distribution; its weight is zero, so which one does not matter.
  constexpr double TINY = std::numeric_limits<double>::min();
  std::fill(p_y, p_y + K, 0.0);
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int64_t k = 0; k < K; k++) sum += shifted[i * K + k];
    for (int64_t k = 0; k < K; k++) {
      const double p = shifted[i * K + k] / sum + TINY;
      clusters[k * n + i] = p, p_y[k] += p / static_cast<double>(n);
    }
  }
}

// Writes the gradient (n × K) with respect to logits, and returns the value: Σ_y p(y) W(y), or 2 Σ_{a<b} p(a) p(b)
// W(a, b). The derivative by p(y|x_i) is (f_i + mean g) / n for the potentials f, g of W(y), or the sum over b of
// 2 (p(b) f_i + Σ_j g_j p(b|x_j) / n) / n. Costs and potentials are those of all clusters, or of all pairs of them.
inline double transport_gradient(bool one_vs_one, int64_t n, int64_t K, const double* clusters, const double* p_y,
                                 const double* costs, const double* f, const double* g, double* gradient) {
  const double share = 1 / static_cast<double>(n);
  std::vector<double> derivatives(K * n, 0.0);
  double value = 0;
  for (int64_t k = 0; k < K && !one_vs_one; k++) {
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += g[k * n + i] * share;
    for (int64_t i = 0; i < n; i++) derivatives[k * n + i] = f[k * n + i] + mean;
    value += p_y[k] * costs[k];
  }
  for (int64_t a = 0, pair = 0; a < K && one_vs_one; a++)
    for (int64_t b = a + 1; b < K; b++, pair++) {
      const double *own = f + pair * n, *other = g + pair * n;
      double along_own = 0, along_other = 0;
      for (int64_t i = 0; i < n; i++) {
        along_own += own[i] * clusters[a * n + i] * share;
        along_other += other[i] * clusters[b * n + i] * share;
      }
      for (int64_t i = 0; i < n; i++) {
        derivatives[a * n + i] += 2 * (p_y[b] * own[i] + along_other);
        derivatives[b * n + i] += 2 * (p_y[a] * other[i] + along_own);
      }
      value += 2 * p_y[a] * p_y[b] * costs[pair];
    }
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int64_t k = 0; k < K; k++) sum += derivatives[k * n + i] * clusters[k * n + i];
    for (int64_t k = 0; k < K; k++) gradient[i * K + k] = share * clusters[k * n + i] * (derivatives[k * n + i] - sum);
  }
  return value;
}

}  // namespace pollux
