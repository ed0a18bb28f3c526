// A fuzzer for examples.h and frames.h that needs no TensorFlow:
//   g++ -std=c++17 -g -O1 -fsanitize=address,undefined -I tfcore/ops tests/tfcore/ops/fuzz.cc -o fuzz && ./fuzz FILE ROUNDS
// Reads a TFRecord file of Examples, damages its records and the file itself by flipped bits, cuts and copied pieces, and
// reads them. What is damaged lies in an allocation of its own length, so that one byte read too far ends the program.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "frames.h"

namespace {

using Bytes = std::vector<uint8_t>;
using Parser = headway::Parser<std::string>;

class Held : public headway::Input {
 public:
  Held(const Bytes& bytes, bool seekable) : size_(bytes.size()), bytes_(new uint8_t[bytes.size()]), seekable_(seekable) {
    std::copy(bytes.begin(), bytes.end(), bytes_.get());
  }
  headway::Problem Read(uint64_t at, size_t n, uint8_t* out, size_t* got) override {
    if (at != next_ && !seekable_) abort();
    *got = at >= size_ ? 0 : std::min<size_t>(n, size_ - at);
    if (*got) memcpy(out, bytes_.get() + at, *got);
    next_ = at + *got;
    return {};
  }
  bool seekable() const override { return seekable_; }
  const uint8_t* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  uint64_t next_ = 0;
  size_t size_;
  std::unique_ptr<uint8_t[]> bytes_;
  bool seekable_;
};

std::vector<headway::Feature> Features(headway::Form form) {
  using namespace headway;
  return {{"i", kInt64, form, 1}, {"iv", kInt64, form, 2}, {"il", kInt64, kList, 1}, {"f", kFloat, form, 1},
          {"fv", kFloat, form, 2}, {"fl", kFloat, kList, 1}, {"s", kBytes, form, 1}, {"sv", kBytes, form, 2},
          {"sl", kBytes, kList, 1}};
}

// Whether every column holds what its features say.
bool Sound(Parser* parser, size_t rows) {
  for (size_t i = 0; i < parser->features().size(); i++) {
    const auto& feature = parser->features()[i];
    const auto& column = parser->columns()[i];
    size_t wanted = rows * feature.size;
    if (feature.form == headway::kList) {
      if (column.lengths.size() != rows) return false;
      wanted = 0;
      for (int64_t length : column.lengths) wanted += static_cast<size_t>(length);
    }
    if (feature.form == headway::kOptional && column.present.size() != rows) return false;
    if (column.ints.size() + column.floats.size() + column.strings.size() != wanted) return false;
  }
  return true;
}

void Damage(std::mt19937_64& random, const Bytes& other, Bytes* bytes) {
  for (int change = random() % 4; change >= 0 && !bytes->empty(); change--) {
    const size_t at = random() % bytes->size();
    switch (random() % 5) {
      case 0: (*bytes)[at] ^= 1 << (random() % 8); break;
      case 1: (*bytes)[at] = static_cast<uint8_t>(random()); break;
      case 2: bytes->resize(at); break;
      case 3: bytes->insert(bytes->begin() + at, 1 + random() % 12, random() % 2 ? 0xff : 0x0a); break;
      default: {
        if (other.empty()) break;
        const size_t from = random() % other.size(), n = std::min<size_t>(other.size() - from, random() % 40);
        bytes->insert(bytes->begin() + at, other.begin() + from, other.begin() + from + n);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: fuzz FILE ROUNDS\n"), 2;
  std::ifstream opened(argv[1], std::ios::binary);
  const Bytes whole((std::istreambuf_iterator<char>(opened)), {});
  std::vector<Bytes> records;
  Held file(whole, true);
  headway::Cursor cursor(&file);
  headway::Span record;
  for (bool end = false;;) {
    if (cursor.Next(&record, &end)) return fprintf(stderr, "a bad seed file\n"), 2;
    if (end) break;
    records.emplace_back(record.p, record.end);
  }
  if (records.empty()) return fprintf(stderr, "no records\n"), 2;
  uint64_t counts[4] = {};
  for (long round = 0; round < atol(argv[2]); round++) {
    std::mt19937_64 random(round);
    Bytes one = records[random() % records.size()];
    Damage(random, records[random() % records.size()], &one);
    const Held exact(one, true);
    for (const auto form : {headway::kRequired, headway::kOptional}) {
      Parser parser(Features(form));
      const headway::Problem problem = parser.Row(exact.data(), exact.size());
      counts[problem.code]++;
      if (!problem && !Sound(&parser, 1)) return fprintf(stderr, "round %ld: an unsound row\n", round), 1;
    }
    Bytes all = whole;
    if (random() % 8) Damage(random, whole, &all);
    for (const bool seekable : {true, false}) {
      Held damaged(all, seekable);
      headway::Cursor reader(&damaged);
      reader.Ahead(1 + random() % 300);
      bool end = false;
      Parser parser(Features(headway::kOptional));
      size_t rows = 0;
      headway::Problem problem;
      while (!problem && !end) {
        if (random() % 3 == 0) {
          problem = reader.Skip(&end);
          continue;
        }
        problem = reader.Next(&record, &end);
        if (problem || end) break;
        problem = parser.Row(record.p, record.size());
        rows += !problem;
      }
      if (!problem && !Sound(&parser, rows)) return fprintf(stderr, "round %ld: an unsound file\n", round), 1;
    }
  }
  printf("fine %llu damaged %llu unfit %llu\n", static_cast<unsigned long long>(counts[0]),
         static_cast<unsigned long long>(counts[1]), static_cast<unsigned long long>(counts[2]));
  return 0;
}
