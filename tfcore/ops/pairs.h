// Sums over the ordered pairs of one ranked list, without a matrix of pairs: loss and both rows' gradients in one pass.
//
// A pair (i, j) of rows with label[i] > label[j] and d = score[i] - score[j] costs c * log(1 + exp(-d)), and
// c * sigmoid(-d) is its gradient with the sign of j. c is weight[i] * weight[j], for LambdaRank times
// |gain[i] - gain[j]| * |discount[i] - discount[j]|. Rows are in order of falling label, so the partners of a row are one
// run that reaches to the end.
//
// The arithmetic goes in 64 bytes at a time, cut into what the processor has (16, 32 or 64); lane by lane it is the same
// whichever that is, and sums are taken in an order that follows from the list alone: results do not depend on the machine
// or on threads. It is done in double, whatever the scores are: of a row's gradient the pushes up and down may cancel out, and
// in float the rest would be noise. exp and log1p are polynomials, right to 1e-15; below 1e-307 exp is 0.
#ifndef HEADWAY_PAIRS_H_
#define HEADWAY_PAIRS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#define HEADWAY_INLINE inline __attribute__((always_inline))

namespace headway {
namespace pairs {

constexpr int kMantissa = 52, kLanes = 64 / sizeof(double);
constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
constexpr double kLog2e = 1.4426950408889634, kLn2High = 0.69314718036912382, kLn2Low = 1.9082149292705877e-10;
constexpr double kLeast = -707.0;
// Chebyshev fits: exp on |x| <= ln(2) / 2, and 2 * atanh(sqrt(x)) / sqrt(x) on [0, 1/9]
constexpr double kExp[] = {2.51100492048186598e-8,   2.76326547225277919e-7,  2.75572408872298686e-6,
                           0.000024801485441561313,  0.000198412698900764028, 0.00138888889523528629,
                           0.00833333333331958962,   0.0416666666664879525,   0.166666666666666808,
                           0.50000000000000184,      1.0,                     1.0};
constexpr double kAtanh[] = {0.177807638261133029, 0.0988078904876478624, 0.135913054855798938, 0.153636762488916343,
                             0.18182859800473911,  0.22222190861346284,   0.285714291116571602, 0.399999999952876,
                             0.666666666666825743, 2.0};

inline int64_t RoundedUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Rows in order of falling label. As partners they are padded to a multiple of kLanes by rows of weight 0.
struct List {
  std::vector<double> score, weight, gain, discount;
  std::vector<int32_t> place;  // of each row, in the whole list's order of labels
  int64_t rows = 0;

  void Clear() {
    for (std::vector<double>* one : {&score, &weight, &gain, &discount}) one->clear();
    place.clear();
    rows = 0;
  }
  void Pad() {
    for (std::vector<double>* one : {&score, &weight, &gain, &discount}) one->resize(RoundedUp(rows, kLanes), 0.0);
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
struct Tile {
  const List* rows;
  const int64_t* start;
  const List* others;
  int64_t first, last, begin, end;
  double *lanes, *own, *theirs;
};

template <int Bytes, bool kLambda>
HEADWAY_INLINE void Run(const Tile& tile) {
  typedef double V __attribute__((vector_size(Bytes)));
  typedef int64_t M __attribute__((vector_size(Bytes)));
  constexpr int kParts = 64 / Bytes, kWidth = Bytes / sizeof(double);
  const double *score = tile.others->score.data(), *weight = tile.others->weight.data();
  const double *gain = tile.others->gain.data(), *discount = tile.others->discount.data();
  int64_t counted[kLanes];
  for (int l = 0; l < kLanes; l++) counted[l] = l;
  for (int64_t i = tile.first; i < tile.last; i++) {
    const int64_t start = tile.start[i];
    if (start >= tile.end) continue;
    const double s = tile.rows->score[i], factor = tile.rows->weight[i];
    const double of_gain = kLambda ? tile.rows->gain[i] : 0.0, of_discount = kLambda ? tile.rows->discount[i] : 0.0;
    V loss[kParts] = {}, own[kParts] = {};
    int64_t at = std::max(start / kLanes * kLanes, tile.begin);
    for (; at < tile.end; at += kLanes) {
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
          c = lane >= static_cast<int64_t>(start - at) ? c : V{};
        }
        const V d = s - sj;
        const M wrong = d < 0;
        const V x = wrong ? d : -d;  // -|d|
        const V bounded = x < kLeast ? V{} + kLeast : x;
        const V t = bounded * kLog2e + kRound;
        const V n = t - kRound;
        const V r = bounded - n * kLn2High - n * kLn2Low;
        V p = V{} + kExp[0];
#pragma GCC unroll 16
        for (size_t k = 1; k < sizeof(kExp) / sizeof(double); k++) p = p * r + kExp[k];
        const V scaled = (V)((M)p + ((M)t << kMantissa));  // p * 2^n
        const V e = x < kLeast ? V{} : scaled;             // exp(-|d|)
        const V e1 = e + 1.0, e2 = e + 2.0;
        const V q = 1.0 / (e1 * e2);
        const V z = e * e1 * q;  // e / (2 + e), and log(1 + e) = 2 atanh(z)
        const V u = z * z;
        V a = V{} + kAtanh[0];
#pragma GCC unroll 16
        for (size_t k = 1; k < sizeof(kAtanh) / sizeof(double); k++) a = a * u + kAtanh[k];
        loss[part] += c * (z * a - (wrong ? d : V{}));
        const V g = c * ((wrong ? V{} + 1.0 : e) * e2 * q);  // sigmoid(-d)
        own[part] += g;
        memcpy(&mine, tile.theirs + (j - tile.begin), Bytes);
        mine += factor * g;
        memcpy(tile.theirs + (j - tile.begin), &mine, Bytes);
      }
    }
    double sums[kLanes];
    memcpy(sums, loss, 64);
    for (int l = 0; l < kLanes; l++) tile.lanes[l] += factor * sums[l];
    memcpy(sums, own, 64);
#pragma GCC unroll 4
    for (int width = kLanes / 2; width; width /= 2) {
      for (int l = 0; l < width; l++) sums[l] += sums[l + width];
    }
    tile.own[i] -= factor * sums[0];
  }
}

enum class Width { k16, k32, k64 };

#if defined(__x86_64__)
template <bool kLambda>
__attribute__((target("avx512f"))) void Run64(const Tile& tile) {
  Run<64, kLambda>(tile);
}
template <bool kLambda>
__attribute__((target("avx2"))) void Run32(const Tile& tile) {
  Run<32, kLambda>(tile);
}
inline Width Widest() {
  return __builtin_cpu_supports("avx512f") ? Width::k64 : __builtin_cpu_supports("avx2") ? Width::k32 : Width::k16;
}
#else
inline Width Widest() { return Width::k16; }
#endif

template <bool kLambda>
void RunAt(Width width, const Tile& tile) {
#if defined(__x86_64__)
  if (width == Width::k64) return Run64<kLambda>(tile);
  if (width == Width::k32) return Run32<kLambda>(tile);
#endif
  Run<16, kLambda>(tile);
}

}  // namespace pairs
}  // namespace headway

#endif  // HEADWAY_PAIRS_H_
