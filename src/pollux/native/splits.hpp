// Splits of a leaf of an unsupervised tree: prefix sums over its samples in the order of each column, and the gain if
// one or both sides are assigned to other clusters.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "scan.hpp"

namespace pollux {

// m samples of a leaf in the orders of c columns, each a row of n, and its t splits: number j · m + i is after sample i
// of column j. The numbers are increasing.
struct Splits {
  const int *order, *columns;
  int64_t n, start, m, c;
  const int64_t* last;
  int64_t t;

  // For each column, calls reset(), add(sample) in its order, split(number) after the last sample on the left, and
  // finish(first, count) with the splits of the column.
  template <class Reset, class Add, class Split, class Finish>
  void visit(Reset reset, Add add, Split split, Finish finish) const {
    for (int64_t number = 0, column = 0; column < c; column++) {
      const int* samples = order + static_cast<int64_t>(columns[column]) * n + start;
      const int64_t base = column * m, first = number;
      reset();
      for (int64_t i = 0; number < t && last[number] < base + m; number++) {
        for (const int64_t stop = last[number] - base; i <= stop; i++) add(samples[i]);
        split(number);
      }
      if (number > first) finish(first, number - first);
    }
  }
};

POLLUX_WIDE static void add_row(const double* row, int r, double* sum) {
  for (int k = 0; k < r; k++) sum[k] += row[k];
}

// ‖s‖² of a sum s (r,), and of the rest of a total.
POLLUX_WIDE static void squares_of(const double* sum, const double* total, int r, double& inside, double& outside) {
  double own = 0, other = 0;
#pragma omp simd reduction(+ : own, other)
  for (int k = 0; k < r; k++) {
    const double rest = total[k] - sum[k];
    own += sum[k] * sum[k], other += rest * rest;
  }
  inside = own, outside = other;
}

// Writes the weights (t,) of left sides and ‖s‖² (2, t) of both, s being the sum of the features (n, r) of a side.
inline void square_sides(const Splits& splits, const double* features, int r, const double* weight, const double* total,
                         double* left, double* squares) {
  std::vector<double> sum(r);
  double heaped = 0;
  splits.visit([&] { std::fill(sum.begin(), sum.end(), heaped = 0.0); },
               [&](int sample) {
                 add_row(features + static_cast<int64_t>(sample) * r, r, sum.data());
                 heaped += weight[sample];
               },
               [&](int64_t number) {
                 left[number] = heaped;
                 squares_of(sum.data(), total, r, squares[number], squares[splits.t + number]);
               },
               [](int64_t, int64_t) {});
}

// One side of the splits of a column: weights and ‖s‖².
struct Side {
  const double *weight, *square;
  double sign;  // −1: the products are those of the whole leaf minus the left side
};

// A cluster: its weight, ‖c‖², and the product of c with the sum of the leaf.
struct Cluster {
  double size, norm, total;
};

// Writes the increase of ‖c‖² / m of a cluster with a side added (direction 1) or removed (−1), plus `lost`, for sums
// (count,) of the products of c with left sides; returns the largest.
POLLUX_WIDE static double rises(const Cluster& cluster, const Side& side, double direction, const double* sum,
                                const double* lost, int64_t count, double* gain) {
  const double size = cluster.size, before = size > 0 ? cluster.norm / size : 0, sign = 2 * direction * side.sign;
  const double base = cluster.norm + (side.sign < 0 ? 2 * direction * cluster.total : 0);
  double most = -INFINITE;
#pragma omp simd reduction(max : most)
  for (int64_t k = 0; k < count; k++) {
    const double rise = (base + sign * sum[k] + side.square[k]) / (size + direction * side.weight[k]) - before + lost[k];
    gain[k] = rise;
    most = rise > most ? rise : most;
  }
  return most;
}

// The gains and numbers (K + 4,) of the best splits that assign a side to each of C targets: a split is 2 · number,
// plus one if the right side is assigned. Entries of other clusters are not written. The last four are: a new cluster;
// two new ones; two of the targets, if `pairs`; and the most by which the latter exceeds the gains of assigning each
// side alone. The last of the splits is K · (target of the left side) + target of the right one. Of splits with equal
// gains, up to a tolerance, the first one counts.
inline void scan_splits(const Splits& splits, const double* left, const double* squares, const double* dots, int K,
                        const double* sizes, const double* norms, const double* totals, int own, double weight,
                        double emptied, const int* targets, int C, double tolerance, bool pairs, double* gains,
                        int64_t* found) {
  const int64_t room = std::min(splits.m, splits.t);
  std::vector<double> sum(C + 1), sums(room * (C + 1)), weights(room), losses(2 * room), values(2 * room), zeros(room);
  std::vector<double> worth(pairs ? 2 * C * room : 0);
  std::vector<Cluster> clusters;
  for (int j = 0; j <= C; j++) {
    const int k = j < C ? targets[j] : own;
    clusters.push_back({sizes[k], norms[k], totals[k]});
    if (j < C) gains[k] = -INFINITE;
  }
  std::fill(gains + K, gains + K + 4, -INFINITE);
  std::fill(found + K, found + K + 4, int64_t{0});
  // Takes the first of the largest values of both sides, if it exceeds the best so far.
  auto offer = [&](int kind, double most, int64_t first, int64_t count, const double* one, const double* other) {
    if (!(most > gains[kind] + tolerance)) return;
    int64_t k = 0;
    while (k + 1 < count && one[k] < most - tolerance && (!other || other[k] < most - tolerance)) k++;
    const bool is_right = other && one[k] < most - tolerance;
    gains[kind] = is_right ? other[k] : one[k], found[kind] = 2 * (first + k) + is_right;
  };
  int64_t at = 0;
  splits.visit(
      [&] {
        std::fill(sum.begin(), sum.end(), 0.0);
        at = 0;
      },
      [&](int sample) {
        const double* row = dots + static_cast<int64_t>(sample) * K;
        for (int j = 0; j < C; j++) sum[j] += row[targets[j]];
        sum[C] += row[own];
      },
      [&](int64_t) {
        for (int j = 0; j <= C; j++) sums[j * room + at] = sum[j];
        at++;
      },
      [&](int64_t first, int64_t count) {
        for (int64_t k = 0; k < count; k++) weights[k] = weight - left[first + k];
        const Side sides[] = {{left + first, squares + first, 1}, {weights.data(), squares + splits.t + first, -1}};
        double *lost[] = {losses.data(), losses.data() + room}, *value[] = {values.data(), values.data() + room};
        double most[2];
        for (int s = 0; s < 2; s++)
          rises(clusters[C], sides[s], -1, sums.data() + C * room, zeros.data(), count, lost[s]);
        for (int j = 0; j <= C; j++) {
          // The last one is a new, empty cluster.
          const Cluster& target = j < C ? clusters[j] : Cluster{0, 0, 0};
          const double* products = j < C ? sums.data() + j * room : zeros.data();
          for (int s = 0; s < 2; s++) most[s] = rises(target, sides[s], 1, products, lost[s], count, value[s]);
          offer(j < C ? targets[j] : K, std::max(most[0], most[1]), first, count, value[0], value[1]);
          if (pairs && j < C)
            for (int s = 0; s < 2; s++)
              for (int64_t k = 0; k < count; k++) worth[(s * C + j) * room + k] = value[s][k] - lost[s][k];
        }
        double apart = -INFINITE;
        for (int64_t k = 0; k < count; k++) {
          const double losing = lost[0][k] + lost[1][k];
          gains[K + 3] = std::max(gains[K + 3], emptied - losing);
          apart = std::max(apart, value[0][k] = emptied - losing + value[0][k] + value[1][k]);
        }
        offer(K + 1, apart, first, count, value[0], nullptr);
        if (!pairs || C < 2) return;
        for (int64_t k = 0; k < count; k++) {
          // The best and second best target of the right side, because the best may be that of the left side.
          auto right = [&](int j) { return worth[(C + j) * room + k]; };
          int best = 0, second = 1;
          if (right(1) > right(0)) std::swap(best, second);
          for (int j = 2; j < C; j++)
            if (right(j) > right(best))
              second = best, best = j;
            else if (right(j) > right(second))
              second = j;
          for (int j = 0; j < C; j++) {
            const int other = j == best ? second : best;
            const double gain = emptied + worth[j * room + k] + right(other);
            if (gain > gains[K + 2] + tolerance)
              gains[K + 2] = gain, found[K + 2] = 2 * (first + k), found[K + 3] = int64_t{K} * targets[j] + targets[other];
          }
        }
      });
}

}  // namespace pollux
