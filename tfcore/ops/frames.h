// The frames of a TFRecord file: length, masked crc32c of the length, data, masked crc32c of the data; free of TensorFlow.
//
//   Cursor cursor(&input);
//   while (!(problem = cursor.Next(&record, &end)) && !end) ...   // record.p, record.size(): valid until the next call
//
// Both checksums are always looked at. A problem says at which record and byte it lies.
#pragma once
#include <memory>

#include "examples.h"
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace headway {

// ---- crc32c -------------------------------------------------------------------------------------------------------

inline uint32_t Crc32cPlain(const uint8_t* p, size_t n) {
  static const uint32_t* const table = [] {
    auto* made = new uint32_t[256];
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = ~0u;
  while (n--) crc = table[(crc ^ *p++) & 255] ^ (crc >> 8);
  return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) inline uint32_t Crc32cFast(const uint8_t* p, size_t n) {
  uint64_t crc = ~0u;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  while (n--) crc = _mm_crc32_u8(static_cast<uint32_t>(crc), *p++);
  return ~static_cast<uint32_t>(crc);
}
#endif

inline uint32_t MaskedCrc32c(const uint8_t* p, size_t n) {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("sse4.2");
  const uint32_t crc = fast ? Crc32cFast(p, n) : Crc32cPlain(p, n);
#else
  const uint32_t crc = Crc32cPlain(p, n);
#endif
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// ---- frames -------------------------------------------------------------------------------------------------------

constexpr size_t kHeader = 12, kFooter = 4;
constexpr uint64_t kMostBytes = uint64_t{1} << 31;  // protobuf has no longer messages

template <class T>
T Load(const uint8_t* p) {
  T value;
  memcpy(&value, p, sizeof(T));
  return value;
}

// Bytes to read from: a file, or what comes out of a compressed one.
class Input {
 public:
  virtual ~Input() = default;
  // Up to `n` bytes from `at` on; fewer than `n` only at the end.
  virtual Problem Read(uint64_t at, size_t n, uint8_t* out, size_t* got) = 0;
  // Whether `at` may be anything; else it is where the last call ended.
  virtual bool seekable() const = 0;
};

class Cursor {
 public:
  // Starts at byte `at`, where record `number` begins.
  explicit Cursor(Input* input, uint64_t at = 0, int64_t number = 0) : input_(input), at_(at), number_(number) {}

  uint64_t at() const { return at_; }
  int64_t number() const { return number_; }

  // How many bytes are read in one go, when a record does not need more.
  void Ahead(size_t bytes) { ahead_ = bytes; }

  // The next record; `*end` when there is none.
  Problem Next(Span* record, bool* end) {
    uint64_t length;
    Problem problem = Header(&length, end);
    if (problem || *end) return problem;
    const size_t whole = kHeader + static_cast<size_t>(length) + kFooter;
    if ((problem = Fill(whole))) return problem;
    if (held() < whole) return At("the file is cut off in a record");
    const uint8_t* const data = buffer_.get() + begin_ + kHeader;
    if (MaskedCrc32c(data, length) != Load<uint32_t>(data + length)) {
      return At("the checksum of a record does not hold");
    }
    *record = {data, data + length};
    begin_ += whole;
    size_ = whole;
    at_ += whole;
    number_++;
    return {};
  }

  // Passes over a record; its data are not looked at where they need not be read.
  Problem Skip(bool* end) {
    uint64_t length;
    Problem problem = Header(&length, end);
    if (problem || *end) return problem;
    const size_t whole = kHeader + static_cast<size_t>(length) + kFooter;
    if (input_->seekable() && held() < whole) {
      begin_ = end_ = 0;
    } else {
      if ((problem = Fill(whole))) return problem;
      if (held() < whole) return At("the file is cut off in a record");
      begin_ += whole;
    }
    at_ += whole;
    number_++;
    return {};
  }

  // A problem of the record that Next() gave, with its place.
  Problem OfLast(const Problem& problem) const { return Placed(problem, number_ - 1, at_ - size_); }

 private:
  static Problem Placed(const Problem& problem, int64_t number, uint64_t at) {
    return {problem.code, problem.what + " (record " + std::to_string(number) + " at byte " + std::to_string(at) + ")"};
  }
  Problem At(std::string what) const { return Placed(Damaged(std::move(what)), number_, at_); }

  size_t held() const { return end_ - begin_; }

  Problem Header(uint64_t* length, bool* end) {
    Problem problem = Fill(kHeader);
    *end = !problem && held() == 0;
    if (problem || *end) return problem;
    if (held() < kHeader) return At("the file is cut off in a record's length");
    const uint8_t* const p = buffer_.get() + begin_;
    *length = Load<uint64_t>(p);
    if (MaskedCrc32c(p, 8) != Load<uint32_t>(p + 8) || *length > kMostBytes) {
      return At("the checksum of a record's length does not hold");
    }
    return {};
  }

  // Makes the buffer hold `wanted` bytes, or all that there are. Memory grows with what was read, not with what a length
  // says.
  Problem Fill(size_t wanted) {
    while (held() < wanted) {
      const size_t have = held();
      const size_t most = std::max<size_t>(size_t{16} << 20, have);
      const size_t ask = std::min(std::max(wanted - have, ahead_), most);
      if (capacity_ < have + ask) {
        std::unique_ptr<uint8_t[]> larger(new uint8_t[have + ask]);
        if (have) memcpy(larger.get(), buffer_.get() + begin_, have);
        buffer_ = std::move(larger);
        capacity_ = have + ask;
      } else if (begin_ && have) {
        memmove(buffer_.get(), buffer_.get() + begin_, have);
      }
      begin_ = 0;
      end_ = have;
      size_t got = 0;
      Problem problem = input_->Read(at_ + have, ask, buffer_.get() + have, &got);
      if (problem) return Placed(problem, number_, at_);
      end_ += got;
      if (got < ask) return {};
    }
    return {};
  }

  Input* input_;
  uint64_t at_, size_ = 0;
  int64_t number_;
  size_t ahead_ = size_t{1} << 18;
  std::unique_ptr<uint8_t[]> buffer_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace headway
