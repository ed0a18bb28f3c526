// Sums over the ordered pairs of one ranked list, without a matrix of pairs: loss and both rows' gradients in one pass.
//
// A pair (i, j) of rows with label[i] > label[j] and d = score[i] - score[j] costs c * log(1 + exp(-d)), and
// c * sigmoid(-d) is its gradient with the sign of j. c is weight[i] * weight[j], for LambdaRank times
// |gain[i] - gain[j]| * |discount[i] - discount[j]|. Rows are in order of falling label, so the partners of a row are one
// run that reaches to the end.
//
// The arithmetic goes in 64 bytes at a time, cut into what the processor has (16, 32 or 64); lane by lane it is the same
// whichever that is, and sums are taken in an order that follows from the list alone: results do not depend on the machine
// or on threads. exp and log1p are polynomials, right to 2e-8 (float) and 1e-15 (double); below 1e-37 (1e-307) exp is 0.
#ifndef HEADWAY_PAIRS_H_
#define HEADWAY_PAIRS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#define HEADWAY_INLINE inline __attribute__((always_inline))

namespace headway {
namespace pairs {

template <class T>
struct Numbers;

template <>
struct Numbers<float> {
  using Int = int32_t;
  static constexpr int kMantissa = 23;
  static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  static constexpr float kLog2e = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
  static constexpr float kLeast = -86.0f;
  // Chebyshev fits: exp on |x| <= ln(2) / 2, and 2 * atanh(sqrt(x)) / sqrt(x) on [0, 1/9]
  static constexpr float kExp[] = {0.00139411189f, 0.008375134775f, 0.04166635277f, 0.1666641541f,
                                   0.5000000047f,  1.000000038f,    1.0f};
  static constexpr float kAtanh[] = {0.2815777836f, 0.2796515775f, 0.4002459523f, 0.6666632164f, 2.000000008f};
};

template <>
struct Numbers<double> {
  using Int = int64_t;
  static constexpr int kMantissa = 52;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLog2e = 1.4426950408889634, kLn2High = 0.69314718036912382, kLn2Low = 1.9082149292705877e-10;
  static constexpr double kLeast = -707.0;
  static constexpr double kExp[] = {2.51100492048186598e-8, 2.76326547225277919e-7, 2.75572408872298686e-6,
                                    0.000024801485441561313, 0.000198412698900764028, 0.00138888889523528629,
                                    0.00833333333331958962,  0.0416666666664879525,   0.166666666666666808,
                                    0.50000000000000184,     1.0,                     1.0};
  static constexpr double kAtanh[] = {0.177807638261133029, 0.0988078904876478624, 0.135913054855798938,
                                      0.153636762488916343, 0.18182859800473911,   0.22222190861346284,
                                      0.285714291116571602, 0.399999999952876,     0.666666666666825743, 2.0};
};

template <class T>
constexpr int kLanes = 64 / sizeof(T);

inline int64_t RoundedUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Rows in order of falling label. As partners they are padded to a multiple of kLanes by rows of weight 0.
template <class T>
struct List {
  std::vector<T> score, weight, gain, discount;
  std::vector<int32_t> place;  // of each row, in the whole list's order of labels
  int64_t rows = 0;

  void Clear() {
    for (std::vector<T>* one : {&score, &weight, &gain, &discount}) one->clear();
    place.clear();
    rows = 0;
  }
  void Pad() {
    for (std::vector<T>* one : {&score, &weight, &gain, &discount}) one->resize(RoundedUp(rows, kLanes<T>), T(0));
  }
  void Add(const List& from, int64_t i) {
    score.push_back(from.score[i]);
    weight.push_back(from.weight[i]);
    gain.push_back(from.gain[i]);
    discount.push_back(from.discount[i]);
    place.push_back(from.place[i]);
    rows++;
  }
};

// Rows first .. last - 1 of `rows` against partners start[i] .. of `others`, those of them in [begin, end) only, where
// begin and end are multiples of kLanes. Adds to lanes (the loss), own (of each row) and theirs[0] (of partner `begin`).
template <class T>
struct Tile {
  const List<T>* rows;
  const int64_t* start;
  const List<T>* others;
  int64_t first, last, begin, end;
  double* lanes;
  double* own;
  T* theirs;
};

template <class T, int Bytes, bool kLambda>
HEADWAY_INLINE void Run(const Tile<T>& tile) {
  using N = Numbers<T>;
  using Int = typename N::Int;
  typedef T V __attribute__((vector_size(Bytes)));
  typedef Int M __attribute__((vector_size(Bytes)));
  constexpr int kParts = 64 / Bytes, kWidth = Bytes / sizeof(T);
  const T *score = tile.others->score.data(), *weight = tile.others->weight.data();
  const T *gain = tile.others->gain.data(), *discount = tile.others->discount.data();
  Int counted[kLanes<T>];
  for (int l = 0; l < kLanes<T>; l++) counted[l] = l;
  for (int64_t i = tile.first; i < tile.last; i++) {
    const int64_t start = tile.start[i];
    if (start >= tile.end) continue;
    const T s = tile.rows->score[i], factor = tile.rows->weight[i];
    const T of_gain = kLambda ? tile.rows->gain[i] : T(0), of_discount = kLambda ? tile.rows->discount[i] : T(0);
    V loss[kParts] = {}, own[kParts] = {};
    int64_t at = std::max(start / kLanes<T> * kLanes<T>, tile.begin);
    for (; at < tile.end; at += kLanes<T>) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; part++) {
        const int64_t j = at + part * kWidth;
        V sj, c, mine;
        memcpy(&sj, score + j, Bytes);
        memcpy(&c, weight + j, Bytes);
        if (kLambda) {
          V gj, dj;
          memcpy(&gj, gain + j, Bytes);
          memcpy(&dj, discount + j, Bytes);
          dj = of_discount - dj;
          c *= (of_gain - gj) * (dj < 0 ? -dj : dj);
        }
        if (at < start) {  // the run begins within these lanes
          M lane;
          memcpy(&lane, counted + part * kWidth, Bytes);
          c = lane >= static_cast<Int>(start - at) ? c : V{};
        }
        const V d = s - sj;
        const M wrong = d < 0;
        const V x = wrong ? d : -d;  // -|d|
        const V bounded = x < N::kLeast ? V{} + N::kLeast : x;
        const V t = bounded * N::kLog2e + N::kRound;
        const V n = t - N::kRound;
        const V r = bounded - n * N::kLn2High - n * N::kLn2Low;
        V p = V{} + N::kExp[0];
#pragma GCC unroll 16
        for (size_t k = 1; k < sizeof(N::kExp) / sizeof(T); k++) p = p * r + N::kExp[k];
        const V scaled = (V)((M)p + ((M)t << N::kMantissa));  // p * 2^n
        const V e = x < N::kLeast ? V{} : scaled;             // exp(-|d|)
        const V e1 = e + T(1), e2 = e + T(2);
        const V q = T(1) / (e1 * e2);
        const V z = e * e1 * q;  // e / (2 + e), and log(1 + e) = 2 atanh(z)
        const V u = z * z;
        V a = V{} + N::kAtanh[0];
#pragma GCC unroll 16
        for (size_t k = 1; k < sizeof(N::kAtanh) / sizeof(T); k++) a = a * u + N::kAtanh[k];
        loss[part] += c * (z * a - (wrong ? d : V{}));
        const V g = c * ((wrong ? V{} + T(1) : e) * e2 * q);  // sigmoid(-d)
        own[part] += g;
        memcpy(&mine, tile.theirs + (j - tile.begin), Bytes);
        mine += factor * g;
        memcpy(tile.theirs + (j - tile.begin), &mine, Bytes);
      }
    }
    T sums[kLanes<T>];
    memcpy(sums, loss, 64);
    for (int l = 0; l < kLanes<T>; l++) tile.lanes[l] += static_cast<double>(factor) * static_cast<double>(sums[l]);
    memcpy(sums, own, 64);
#pragma GCC unroll 4
    for (int width = kLanes<T> / 2; width; width /= 2) {
      for (int l = 0; l < width; l++) sums[l] += sums[l + width];
    }
    tile.own[i] -= static_cast<double>(factor) * static_cast<double>(sums[0]);
  }
}

enum class Width { k16, k32, k64 };

#if defined(__x86_64__)
template <class T, bool kLambda>
__attribute__((target("avx512f"))) void Run64(const Tile<T>& tile) {
  Run<T, 64, kLambda>(tile);
}
template <class T, bool kLambda>
__attribute__((target("avx2"))) void Run32(const Tile<T>& tile) {
  Run<T, 32, kLambda>(tile);
}
inline Width Widest() {
  return __builtin_cpu_supports("avx512f") ? Width::k64 : __builtin_cpu_supports("avx2") ? Width::k32 : Width::k16;
}
#else
inline Width Widest() { return Width::k16; }
#endif

template <class T, bool kLambda>
void RunAt(Width width, const Tile<T>& tile) {
#if defined(__x86_64__)
  if (width == Width::k64) return Run64<T, kLambda>(tile);
  if (width == Width::k32) return Run32<T, kLambda>(tile);
#endif
  Run<T, 16, kLambda>(tile);
}

}  // namespace pairs
}  // namespace headway

#endif  // HEADWAY_PAIRS_H_
