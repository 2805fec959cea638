// Shared by the tests of the MediaService: hosts that are not there, and a service to ask.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "content/media/service/media_service.h"
#include "content/media/tests/media_support.h"

namespace tern::content {
using Results = Expected<std::vector<PreparedMediaPtr>>;

inline std::vector<std::byte> file_bytes(const std::string& name) {
  const std::string text = slurp(own_data("media/" + name));
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

inline std::string base64(const std::vector<std::byte>& bytes) {
  static const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t v = 0;
    for (size_t k = 0; k < 3; k++) v = v << 8 | (i + k < bytes.size() ? static_cast<uint32_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; k++) out += i + k <= bytes.size() ? kDigits[v >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// Files under the names of tests/data/media; "gate:NAME" waits until the gate opens; "missing" cannot be fetched.
class FakeHosts {
 public:
  Expected<std::vector<std::byte>> fetch(std::string_view url, const fetch::FetchPolicy& policy) {
    {
      std::unique_lock lock(mutex_);
      fetched_.push_back(std::string(url));
      changed_.notify_all();
      if (url.starts_with("gate:")) {
        changed_.wait(lock, [&] { return open_; });
        url.remove_prefix(5);
      }
    }
    if (url == "missing") return make_error(ErrorCode::kUnavailable, "the host does not answer");
    std::vector<std::byte> file = file_bytes(std::string(url));
    if (file.size() > policy.max_bytes)
      return make_error(ErrorCode::kTooLarge, "the file has more bytes than the limit");
    return file;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fetched_.size() >= count; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return fetched_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> fetched_;
  bool open_ = false;
};

inline MediaPart image(const std::string& url, const std::string& where = "messages[0].content[0]") {
  MediaPart part;
  part.url = url;
  part.where = where;
  return part;
}

class MediaServiceTest : public testing::Test {
 protected:
  MediaOptions options() {
    MediaOptions options;
    options.profile = must_read_profile(kErnieConfig, "{}");
    options.threads = 2;
    options.fetch_threads = 4;
    options.processor_cache_gib = 0;
    options.fetcher = [hosts = hosts_](std::string_view url, const fetch::FetchPolicy& policy) {
      return hosts->fetch(url, policy);
    };
    return options;
  }
  static std::unique_ptr<MediaService> make(MediaOptions options) {
    auto service = make_media_service(std::move(options));
    EXPECT_TRUE(service.ok()) << (service.ok() ? "" : service.error().message);
    return service.ok() ? std::move(*service) : nullptr;
  }
  static std::future<Results> begin(MediaService& service, std::vector<MediaPart> parts, uint64_t owner = 0,
                                    MediaService::Cancelled cancelled = nullptr) {
    auto promise = std::make_shared<std::promise<Results>>();
    const Status status = service.prepare(
        std::move(parts), owner, [promise](Results results) { promise->set_value(std::move(results)); },
        std::move(cancelled));
    if (!status.ok()) promise->set_value(status.error());
    return promise->get_future();
  }
  static Results get(MediaService& service, std::vector<MediaPart> parts, uint64_t owner = 0) {
    return begin(service, std::move(parts), owner).get();
  }

  const VisionProfile& service_profile() {
    if (!profile_) profile_ = options().profile;
    return *profile_;
  }

  std::optional<VisionProfile> profile_;
  const std::shared_ptr<FakeHosts> hosts_ = std::make_shared<FakeHosts>();
};

}  // namespace tern::content
