// Steps of Adam on R small dense networks at once: forward pass, value and gradient of an objective, and update.
//
// Rows are samples; the numbers of all networks for a sample are in one row: logits are (n, R·K). Sums over samples and
// all computations with probabilities are in double precision; matrix products are in that of the weights.
#pragma once
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "products.hpp"

namespace pollux {

enum class Objective { KL_OVA, KL_OVO, TV_OVA, TV_OVO, HELLINGER_OVA, HELLINGER_OVO, CHI2_OVA, MMD_OVA, MMD_OVO, LABELS };
constexpr const char* OBJECTIVES[] = {"kl_ova",        "kl_ovo",   "tv_ova",  "tv_ovo",  "hellinger_ova",
                                      "hellinger_ovo", "chi2_ova", "mmd_ova", "mmd_ovo", "labels"};
enum class Activation { IDENTITY, RELU, TANH, SIGMOID };

inline Objective objective_of(const char* name) {
  for (int i = 0; i < static_cast<int>(std::size(OBJECTIVES)); i++)
    if (!std::strcmp(name, OBJECTIVES[i])) return static_cast<Objective>(i);
  throw std::invalid_argument("an objective without compiled steps");
}

// A buffer that is kept between steps, with room to read beyond its end.
template <class Real>
struct Buffer {
  std::vector<Real> numbers;
  Real* sized(int64_t count) {
    if (static_cast<int64_t>(numbers.size()) < count + SLACK) numbers.resize(count + SLACK);
    return numbers.data();
  }
  Real* data() { return numbers.data(); }
};

// A network: the widths of its layers, from the inputs to the K clusters, and the activations after all but the last.
struct Architecture {
  std::vector<int64_t> widths;
  std::vector<Activation> activations;

  int64_t layers() const { return static_cast<int64_t>(widths.size()) - 1; }
  int64_t inputs() const { return widths.front(); }
  int64_t clusters() const { return widths.back(); }
  int64_t parameters() const {
    int64_t sum = 0;
    for (int64_t l = 0; l < layers(); l++) sum += (widths[l] + 1) * widths[l + 1];
    return sum;
  }
};

// The value of an objective for each of R models, and its gradient with respect to their logits (n, R·K).
template <class Real>
class Criterion {
 public:
  Criterion(Objective objective, double clip, double smoothing, int64_t models, int64_t clusters)
      : objective_(objective), clip_(clip), smoothing_(smoothing), R_(models), K_(clusters) {}

  bool needs_features() const { return objective_ == Objective::MMD_OVA || objective_ == Objective::MMD_OVO; }

  // Logits (n, R·K), weights (n,) that sum to one, features (n, r) with rows of `feature_step`, which are centred here,
  // and labels, (n,) or (n, R). Values (R,) and gradient are of the objective, to be maximised; the gradient overwrites
  // the logits. Sums of entropies (R,) are written; counts of samples that prefer a cluster (R, K) are incremented.
  void evaluate(int64_t n, Real* logits, const double* weight, Real* features, int64_t r, int64_t feature_step,
                const int64_t* labels, int64_t label_step, double* values, double* entropy, int64_t* counts) {
    n_ = n, weight_ = weight, r_ = r, feature_step_ = feature_step;
    const int64_t all = n * R_ * K_;
    log_p_.sized(all), p_.sized(all), by_p_.sized(all), p_y_.sized(R_ * K_);
    softmax(logits);
    if (entropy) describe(entropy, counts);
    if (objective_ == Objective::LABELS) {
      towards(labels, label_step, values);
    } else {
      proportions();
      if (needs_features()) embed(features);
      for (int64_t m = 0; m < R_; m++) values[m] = value_of(m);
      if (needs_features()) {
        // The derivative by each probability, from the directions in feature space.
        Real* by_p = products_.sized(n * R_ * K_);
        multiply<Real>(n, R_ * K_, r, features, feature_step, 1, directions_.data(), R_ * K_, by_p, R_ * K_);
        add_products(by_p);
      }
    }
    through_softmax(logits);
  }

 private:
  const Objective objective_;
  const double clip_, smoothing_;
  const int64_t R_, K_;
  int64_t n_ = 0, r_ = 0, feature_step_ = 0;
  const double* weight_ = nullptr;
  Buffer<double> log_p_, p_, by_p_, p_y_, sums_, work_;
  Buffer<Real> p_real_, embedded_, directions_, products_;

  double* log_p(int64_t i, int64_t m) { return log_p_.data() + (i * R_ + m) * K_; }
  double* p(int64_t i, int64_t m) { return p_.data() + (i * R_ + m) * K_; }
  double* by_p(int64_t i, int64_t m) { return by_p_.data() + (i * R_ + m) * K_; }

  void softmax(const Real* logits) {
    const int64_t K = K_, all = n_ * R_;
    double *log_p = log_p_.data(), *p = p_.data();
    // A probability of exactly zero stays zero, but with a finite logarithm.
    const double log_zero = static_cast<double>(std::numeric_limits<Real>::lowest()) / 4294967296.0;
    for (int64_t i = 0; i < all; i++) {
      const Real* row = logits + i * K;
      double most = row[0];
      for (int64_t k = 1; k < K; k++) most = row[k] > most || row[k] != row[k] ? row[k] : most;
      for (int64_t k = 0; k < K; k++) log_p[i * K + k] = row[k] - most;
    }
    vectorised([=](auto) POLLUX_INLINED {
#pragma omp simd
      for (int64_t j = 0; j < all * K; j++) p[j] = exponential(log_p[j]);
    });
    for (int64_t i = 0; i < all; i++) {
      double sum = 0;
      for (int64_t k = 0; k < K; k++) sum += p[i * K + k];
      const double logarithm = std::log(sum), inverse = 1 / sum;
      for (int64_t k = 0; k < K; k++) {
        const double shifted = log_p[i * K + k] - logarithm;
        p[i * K + k] *= inverse, log_p[i * K + k] = shifted < log_zero ? log_zero : shifted;
      }
    }
  }

  void describe(double* entropy, int64_t* counts) {
    for (int64_t m = 0; m < R_; m++) {
      double sum = 0;
      for (int64_t i = 0; i < n_; i++) {
        const double *row = p(i, m), *logs = log_p(i, m);
        int64_t best = 0;
        for (int64_t k = 0; k < K_; k++) {
          sum -= row[k] * logs[k];
          if (logs[k] > logs[best]) best = k;
        }
        counts[m * K_ + best]++;
      }
      entropy[m] = sum;
    }
  }

  // p(y), bounded away from zero.
  void proportions() {
    double* p_y = p_y_.data();
    const double tiny = std::numeric_limits<Real>::min();
    weighted_sums(p_.data(), p_y);
    for (int64_t j = 0; j < R_ * K_; j++) p_y[j] = p_y[j] < tiny ? tiny : p_y[j];
  }

  // Σ w_i row_i over rows (n, R·K).
  void weighted_sums(const double* rows, double* sums) const {
    const int64_t width = R_ * K_, n = n_;
    const double* weight = weight_;
    std::fill(sums, sums + width, 0.0);
    vectorised([=](auto) POLLUX_INLINED {
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) sums[j] += weight[i] * rows[i * width + j];
    });
  }

  // The objective of model m; by_p becomes p(y|x) times the derivative with respect to p(y|x), for a weight of one.
  double value_of(int64_t m) {
    switch (objective_) {
      case Objective::KL_OVA: return kl_ova(m);
      case Objective::KL_OVO: return kl_ovo(m);
      case Objective::TV_OVA: return tv_ova(m);
      case Objective::TV_OVO: return tv_ovo(m);
      case Objective::HELLINGER_OVA: return hellinger(m, false);
      case Objective::HELLINGER_OVO: return hellinger(m, true);
      case Objective::CHI2_OVA: return chi2_ova(m);
      case Objective::MMD_OVA: return mmd_ova(m);
      default: return mmd_ovo(m);
    }
  }

  // E Σ_y p(y|x) log(p(y|x) / p(y)).
  double kl_ova(int64_t m) {
    double *log_y = work_.sized(K_), value = 0;
    for (int64_t k = 0; k < K_; k++) log_y[k] = std::log(p_y_.data()[m * K_ + k]);
    for (int64_t i = 0; i < n_; i++) {
      const double *row = p(i, m), *logs = log_p(i, m);
      double *gradient = by_p(i, m), sum = 0;
      for (int64_t k = 0; k < K_; k++) sum += gradient[k] = row[k] * (logs[k] - log_y[k]);
      value += weight_[i] * sum;
    }
    return value;
  }

  // s E Σ_y c(y|x) log(c(y|x) / c(y)) − E s(x) Σ_y c(y) log(…), for clipped predictions c that sum to s(x), s = E s(x).
  double kl_ovo(int64_t m) {
    double* work = work_.sized(3 * K_ + 2 * n_);
    double *c_y = work, *log_y = work + K_, *mean_logs = work + 2 * K_, *sums = work + 3 * K_, *reverse = sums + n_;
    const double log_clip = clip_ > 0 ? std::log(clip_) : -std::numeric_limits<double>::infinity();
    std::fill(work, work + 3 * K_, 0.0);
    const auto clipped = [&](double log_p) { return log_p < log_clip ? log_clip : log_p; };
    for (int64_t i = 0; i < n_; i++) {
      sums[i] = 0;
      for (int64_t k = 0; k < K_; k++) {
        const double c = log_p(i, m)[k] < log_clip ? clip_ : p(i, m)[k];
        by_p(i, m)[k] = c, sums[i] += c, c_y[k] += weight_[i] * c;
      }
    }
    double s = 0, forward = 0, both = 0;
    for (int64_t k = 0; k < K_; k++) {
      const double tiny = std::numeric_limits<Real>::min();
      s += c_y[k], log_y[k] = std::log(c_y[k] < tiny ? tiny : c_y[k]);
    }
    for (int64_t i = 0; i < n_; i++) {
      double own = 0;
      reverse[i] = 0;
      for (int64_t k = 0; k < K_; k++) {
        const double ratio = clipped(log_p(i, m)[k]) - log_y[k];
        own += by_p(i, m)[k] * ratio, reverse[i] += c_y[k] * ratio;
        mean_logs[k] += weight_[i] * sums[i] * ratio;
      }
      forward += weight_[i] * own, both += weight_[i] * sums[i] * reverse[i];
    }
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++) {
        const double logarithm = log_p(i, m)[k], ratio = clipped(logarithm) - log_y[k], c = by_p(i, m)[k];
        const double slope = s * ratio + forward + s - reverse[i] - mean_logs[k];
        by_p(i, m)[k] = logarithm < log_clip ? 0 : c * slope - sums[i] * c_y[k];
      }
    return s * forward - both;
  }

  // ½ E Σ_y |p(y|x) − p(y)|.
  double tv_ova(int64_t m) {
    double *means = work_.sized(K_), *p_y = p_y_.data() + m * K_, value = 0;
    std::fill(means, means + K_, 0.0);
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++) {
        const double difference = p(i, m)[k] - p_y[k], sign = (difference > 0) - (difference < 0);
        value += weight_[i] * std::fabs(difference) / 2, means[k] += weight_[i] * sign;
        by_p(i, m)[k] = sign;
      }
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++) by_p(i, m)[k] = p(i, m)[k] * (by_p(i, m)[k] - means[k]) / 2;
    return value;
  }

  // ½ E Σ_{a,b} |p(a|x) p(b) − p(b|x) p(a)|.
  double tv_ovo(int64_t m) {
    double *means = work_.sized(K_), *p_y = p_y_.data() + m * K_, value = 0;
    std::fill(means, means + K_, 0.0);
    for (int64_t i = 0; i < n_; i++) {
      const double* row = p(i, m);
      double* gradient = by_p(i, m);
      for (int64_t a = 0; a < K_; a++) {
        double over_proportions = 0, over_predictions = 0;
        for (int64_t b = 0; b < K_; b++) {
          const double difference = row[a] * p_y[b] - row[b] * p_y[a], sign = (difference > 0) - (difference < 0);
          over_proportions += sign * p_y[b], over_predictions += sign * row[b];
        }
        gradient[a] = over_proportions, means[a] += weight_[i] * over_predictions;
        value += weight_[i] * row[a] * over_proportions;
      }
    }
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++) by_p(i, m)[k] = p(i, m)[k] * (by_p(i, m)[k] - means[k]);
    return value;
  }

  // 1 − E Σ_y √(p(y|x) p(y)), or with the square of the sum.
  double hellinger(int64_t m, bool one_vs_one) {
    double *means = work_.sized(2 * K_ + n_), *root_y = means + K_, *sums = means + 2 * K_, value = 0;
    std::fill(means, means + K_, 0.0);
    for (int64_t k = 0; k < K_; k++) root_y[k] = std::sqrt(p_y_.data()[m * K_ + k]);
    for (int64_t i = 0; i < n_; i++) {
      double sum = 0;
      for (int64_t k = 0; k < K_; k++) sum += (by_p(i, m)[k] = std::sqrt(p(i, m)[k])) * root_y[k];
      sums[i] = one_vs_one ? sum : 0.5;
      for (int64_t k = 0; k < K_; k++) means[k] += weight_[i] * sums[i] * by_p(i, m)[k];
      value += weight_[i] * (one_vs_one ? sum * sum : sum);
    }
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++)
        by_p(i, m)[k] = -(sums[i] * by_p(i, m)[k] * root_y[k] + p(i, m)[k] * (means[k] / root_y[k]));
    return 1 - value;
  }

  // Σ_y p(y) E (p(y|x) / p(y))² − 1.
  double chi2_ova(int64_t m) {
    double *squares = work_.sized(K_), *p_y = p_y_.data() + m * K_, value = -1;
    std::fill(squares, squares + K_, 0.0);
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++) {
        const double ratio = p(i, m)[k] / p_y[k];
        by_p(i, m)[k] = 2 * ratio, squares[k] += weight_[i] * ratio * ratio;
      }
    for (int64_t k = 0; k < K_; k++) value += p_y[k] * squares[k];
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++) by_p(i, m)[k] = p(i, m)[k] * (by_p(i, m)[k] - squares[k]);
    return value;
  }

  // Centre the features at their weighted mean, and compute Σ_i w_i p(y|x_i) φ_i, (R·K, r).
  void embed(Real* features) {
    const int64_t n = n_, r = r_, step = feature_step_, width = R_ * K_;
    const double *weight = weight_, *p = p_.data();
    double* centre = work_.sized(r);
    std::fill(centre, centre + r, 0.0);
    Real* weighted = p_real_.sized(n * width);
    vectorised([=](auto) POLLUX_INLINED {
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < r; j++) centre[j] += weight[i] * static_cast<double>(features[i * step + j]);
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < r; j++)
          features[i * step + j] = static_cast<Real>(static_cast<double>(features[i * step + j]) - centre[j]);
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) weighted[i * width + j] = static_cast<Real>(weight[i] * p[i * width + j]);
    });
    multiply<Real>(width, r, n, weighted, 1, width, features, step, embedded_.sized(width * r), r);
    // Directions (r, R·K), a column for each cluster.
    directions_.sized(r * width);
    // p(y|x) times a number for each cluster, to which the products are added.
    std::fill(by_p_.data(), by_p_.data() + n * width, 0.0);
    rounding_ = 0;
    if (objective_ == Objective::MMD_OVO) {
      for (int64_t i = 0; i < n; i++) {
        double square = 0;
        for (int64_t j = 0; j < r; j++) square += static_cast<double>(features[i * step + j]) * features[i * step + j];
        rounding_ = std::max(rounding_, square);
      }
      rounding_ = 4 * static_cast<double>(std::numeric_limits<Real>::epsilon()) * std::sqrt(rounding_);
    }
  }

  // Σ_y ‖E p(y|x) φ(x)‖ for centred features: p(y) times the distance of a mean from the centre.
  double mmd_ova(int64_t m) {
    const int64_t width = R_ * K_;
    const double tiny = std::numeric_limits<Real>::min();
    double value = 0;
    for (int64_t k = m * K_; k < (m + 1) * K_; k++) {
      const Real* sum = embedded_.data() + k * r_;
      double square = 0;
      for (int64_t j = 0; j < r_; j++) square += static_cast<double>(sum[j]) * sum[j];
      const double norm = std::sqrt(square), inverse = norm < tiny ? 0 : 1 / norm;
      for (int64_t j = 0; j < r_; j++) directions_.data()[j * width + k] = static_cast<Real>(sum[j] * inverse);
      value += norm;
    }
    return value;
  }

  // Σ_{a,b} p(a) p(b) ‖m_a − m_b‖ for the means m_y of the features. Its derivative with respect to p(a|x) is
  // 2 Σ_b p(b) (‖m_a − m_b‖ + (φ(x) − m_a) · (m_a − m_b) / ‖m_a − m_b‖).
  double mmd_ovo(int64_t m) {
    const int64_t width = R_ * K_, r = r_;
    const double* p_y = p_y_.data() + m * K_;
    double *means = work_.sized(K_ * r + r + K_), *direction = means + K_ * r, *constant = direction + r, value = 0;
    for (int64_t k = 0; k < K_; k++)
      for (int64_t j = 0; j < r; j++)
        means[k * r + j] = static_cast<double>(embedded_.data()[(m * K_ + k) * r + j]) / p_y[k];
    for (int64_t a = 0; a < K_; a++) {
      const double* mean = means + a * r;
      std::fill(direction, direction + r, 0.0);
      double sum = 0, along = 0;
      for (int64_t b = 0; b < K_; b++) {
        const double* other = means + b * r;
        double square = 0;
        for (int64_t j = 0; j < r; j++) square += (mean[j] - other[j]) * (mean[j] - other[j]);
        const double distance = std::sqrt(square);
        sum += p_y[b] * distance;
        // The gradient is zero for two clusters that coincide, up to rounding.
        const double pull = distance > rounding_ ? p_y[b] / distance : 0;
        for (int64_t j = 0; j < r; j++) direction[j] += pull * (mean[j] - other[j]);
      }
      for (int64_t j = 0; j < r; j++) {
        along += direction[j] * mean[j];
        directions_.data()[j * width + m * K_ + a] = static_cast<Real>(2 * direction[j]);
      }
      constant[a] = 2 * (sum - along), value += p_y[a] * sum;
    }
    for (int64_t i = 0; i < n_; i++)
      for (int64_t k = 0; k < K_; k++) by_p(i, m)[k] = p(i, m)[k] * constant[k];
    return value;
  }

  void add_products(const Real* products) {
    const double* p = p_.data();
    double* by_p = by_p_.data();
    const int64_t all = n_ * R_ * K_;
    vectorised([=](auto) POLLUX_INLINED {
      for (int64_t j = 0; j < all; j++) by_p[j] += p[j] * static_cast<double>(products[j]);
    });
  }

  // E log p(label|x), with label smoothing.
  void towards(const int64_t* labels, int64_t step, double* values) {
    const double others = smoothing_ / static_cast<double>(K_);
    for (int64_t m = 0; m < R_; m++) {
      double value = 0;
      for (int64_t i = 0; i < n_; i++) {
        const double* logs = log_p(i, m);
        const int64_t label = labels[i * step + (step > 1 ? m : 0)];
        double mean = 0;
        for (int64_t k = 0; k < K_; k++) by_p(i, m)[k] = others, mean += logs[k];
        by_p(i, m)[label] += 1 - smoothing_;
        value += weight_[i] * ((1 - smoothing_) * logs[label] + others * mean);
      }
      values[m] = value;
    }
  }

  // With respect to logits: w_i (g − p Σ g), where g is p times the derivative with respect to p.
  void through_softmax(Real* gradient) {
    const int64_t R = R_, K = K_, n = n_;
    const double *p = p_.data(), *by_p = by_p_.data(), *weight = weight_;
    for (int64_t i = 0; i < n; i++)
      for (int64_t first = i * R * K; first < (i + 1) * R * K; first += K) {
        double sum = 0;
        for (int64_t k = first; k < first + K; k++) sum += by_p[k];
        for (int64_t k = first; k < first + K; k++)
          gradient[k] = static_cast<Real>(weight[i] * (by_p[k] - p[k] * sum));
      }
  }

  double rounding_ = 0;
};

// R networks of one architecture, with parameters (R, P): for each layer weights (out, in), then biases.
template <class Real>
class Networks {
 public:
  Networks(const Architecture& architecture, int64_t models, const Real* parameters)
      : of_(architecture), R_(models), P_(architecture.parameters()), parameters_(parameters),
        outputs_(architecture.layers()) {}

  // Logits (n, R·K) of inputs (n, d) with rows of `step`; stores what the gradient needs.
  Real* forward(int64_t n, const Real* inputs, int64_t step) {
    int64_t start = 0;
    for (int64_t l = 0; l < of_.layers(); l++) {
      const int64_t d = of_.widths[l], h = of_.widths[l + 1], width = R_ * h;
      // Weights with a row for each input, those of all networks side by side.
      Real *turned = turned_.sized(d * width), *output = outputs_[l].sized(n * width);
      for (int64_t m = 0; m < R_; m++)
        for (int64_t c = 0; c < h; c++) {
          const Real* weight = parameters_ + m * P_ + start + c * d;
          for (int64_t k = 0; k < d; k++) turned[k * width + m * h + c] = weight[k];
        }
      if (l == 0)
        multiply<Real>(n, width, d, inputs, step, 1, turned, width, output, width);
      else
        for (int64_t m = 0; m < R_; m++)
          multiply<Real>(n, h, d, outputs_[l - 1].data() + m * d, R_ * d, 1, turned + m * h, width, output + m * h,
                         width);
      Real* bias = bias_.sized(width);
      for (int64_t m = 0; m < R_; m++) std::copy_n(parameters_ + m * P_ + start + d * h, h, bias + m * h);
      vectorised([=](auto) POLLUX_INLINED {
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = 0; j < width; j++) output[i * width + j] += bias[j];
      });
      if (l < of_.layers() - 1) activate(of_.activations[l], output, n * width);
      start += (d + 1) * h;
    }
    return outputs_.back().data();
  }

  // Gradients (R, P) from those with respect to the logits (n, R·K), which are overwritten; call `forward` first.
  void backward(int64_t n, const Real* inputs, int64_t step, Real* gradient, Real* gradients) {
    int64_t start = P_;
    Real* by_output = gradient;
    for (int64_t l = of_.layers() - 1; l >= 0; l--) {
      const int64_t d = of_.widths[l], h = of_.widths[l + 1], width = R_ * h;
      start -= (d + 1) * h;
      double* sums = sums_.sized(width);
      std::fill(sums, sums + width, 0.0);
      vectorised([=](auto) POLLUX_INLINED {
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = 0; j < width; j++) sums[j] += static_cast<double>(by_output[i * width + j]);
      });
      for (int64_t m = 0; m < R_; m++)
        for (int64_t c = 0; c < h; c++) gradients[m * P_ + start + d * h + c] = static_cast<Real>(sums[m * h + c]);
      for (int64_t m = 0; m < R_; m++) {
        const Real* of_layer = l ? outputs_[l - 1].data() + m * d : inputs;
        multiply<Real>(h, d, n, by_output + m * h, 1, width, of_layer, l ? R_ * d : step, gradients + m * P_ + start, d);
      }
      if (l == 0) return;
      Real *by_input = by_outputs_[l % 2].sized(n * R_ * d), *weights = turned_.sized(h * d);
      for (int64_t m = 0; m < R_; m++) {
        std::copy_n(parameters_ + m * P_ + start, h * d, weights);
        multiply<Real>(n, d, h, by_output + m * h, width, 1, weights, d, by_input + m * d, R_ * d);
      }
      times_slope(of_.activations[l - 1], by_input, outputs_[l - 1].data(), n * R_ * d);
      by_output = by_input;
    }
  }

 private:
  const Architecture& of_;
  const int64_t R_, P_;
  const Real* parameters_;
  std::vector<Buffer<Real>> outputs_;
  Buffer<Real> turned_, bias_, by_outputs_[2];
  Buffer<double> sums_;

  static void activate(Activation activation, Real* numbers, int64_t count) {
    vectorised([=](auto) POLLUX_INLINED {
      if (activation == Activation::RELU)
        for (int64_t i = 0; i < count; i++) numbers[i] = numbers[i] < 0 ? 0 : numbers[i];
      else if (activation == Activation::TANH && std::is_same<Real, float>::value)
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
          numbers[i] = static_cast<Real>(1 - 2 / (exponential(2 * static_cast<double>(numbers[i])) + 1));
      else if (activation == Activation::TANH)
        // The other formula loses the last digits of small numbers.
        for (int64_t i = 0; i < count; i++) numbers[i] = std::tanh(numbers[i]);
      else if (activation == Activation::SIGMOID)
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
          numbers[i] = static_cast<Real>(1 / (1 + exponential(-static_cast<double>(numbers[i]))));
    });
  }

  // The derivative, as a function of the output.
  static void times_slope(Activation activation, Real* gradient, const Real* output, int64_t count) {
    vectorised([=](auto) POLLUX_INLINED {
      if (activation == Activation::RELU)
        for (int64_t i = 0; i < count; i++) gradient[i] = output[i] > 0 ? gradient[i] : 0;
      else if (activation == Activation::TANH)
        for (int64_t i = 0; i < count; i++) gradient[i] *= 1 - output[i] * output[i];
      else if (activation == Activation::SIGMOID)
        for (int64_t i = 0; i < count; i++) gradient[i] *= output[i] * (1 - output[i]);
    });
  }
};

// Adam's moments of `count` parameters, and the number of steps.
template <class Real>
struct Adam {
  Real *parameters, *mean, *square;
  int64_t count, steps;
  double beta1, beta2;

  void ascend(const Real* gradient, double learning_rate) {
    steps++;
    // The bias corrections of both moments, moved out of the element-wise loop.
    const double correction = std::sqrt(1 - std::pow(beta2, static_cast<double>(steps)));
    const double rate = learning_rate * correction / (1 - std::pow(beta1, static_cast<double>(steps)));
    const Real b1 = static_cast<Real>(beta1), b2 = static_cast<Real>(beta2), c1 = static_cast<Real>(1 - beta1),
               c2 = static_cast<Real>(1 - beta2), epsilon = static_cast<Real>(1e-8 * correction),
               by = static_cast<Real>(rate);
    Real *theta = parameters, *first = mean, *second = square;
    const int64_t n = count;
    vectorised([=](auto) POLLUX_INLINED {
#pragma omp simd
      for (int64_t i = 0; i < n; i++) {
        const Real g = -gradient[i];
        first[i] = b1 * first[i] + c1 * g;
        second[i] = b2 * second[i] + c2 * g * g;
        theta[i] -= by * (first[i] / (std::sqrt(second[i]) + epsilon));
      }
    });
  }
};

}  // namespace pollux
