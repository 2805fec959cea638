// API keys by digest; the keys themselves are not kept. Any thread may ask and replace them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace tern::serve {

class Auth {
 public:
  // `changing`: keys may come and go while the server runs (--api-key-file).
  explicit Auth(const std::vector<std::string>& keys, bool changing = false);

  // From here on these keys count. One that was there keeps its number; a number never means another key.
  void replace(const std::vector<std::string>& keys);

  bool required() const { return !current()->empty(); }
  bool several() const { return current()->size() > 1; }
  // What requests leave behind has to be kept apart by key: there are several, or there may have been.
  bool separate() const { return changing_ || several(); }
  // The number of the key that an `Authorization: Bearer KEY` value carries, or nothing. Every key is compared.
  std::optional<int> check(std::string_view authorization) const;
  // The same of a key by itself, as `x-api-key` carries it.
  std::optional<int> check_key(std::string_view key) const;
  // The key of that number still counts.
  bool holds(int number) const;

 private:
  struct Key {
    Digest digest;
    int number = 0;
  };
  using Keys = std::vector<Key>;

  std::shared_ptr<const Keys> current() const {
    const std::lock_guard lock(mutex_);
    return keys_;
  }

  const bool changing_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Keys> keys_ = std::make_shared<Keys>();
  int next_number_ = 0;
};

}  // namespace tern::serve
