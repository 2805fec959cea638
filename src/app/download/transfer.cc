#include "app/download/transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "fetch/curl_library.h"

namespace tern::app {
namespace {

constexpr int kTries = 3;
constexpr std::chrono::milliseconds kFirstDelay{500};

class Transfer {
 public:
  explicit Transfer(const std::string& url) : curl_(fetch::curl_library()) {
    if (curl_ == nullptr) return;
    handle_.reset(curl_->easy_init());
    if (handle_ == nullptr) return;
    fetch::set_download_options(handle_.get(), url, "http,https,file", why_);
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 5L);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  template <class T>
  void set(CURLoption option, T value) {
    curl_->easy_setopt(handle_.get(), option, value);
  }
  long status() const {
    long code = 0;
    curl_->easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &code);
    return code;
  }
  CURLcode run() { return curl_->easy_perform(handle_.get()); }
  std::string why(CURLcode code) const {
    return why_[0] != 0 ? why_ : fmt::format("curl error {}", static_cast<int>(code));
  }

 private:
  const fetch::CurlLibrary* curl_;
  fetch::EasyHandle handle_;
  char why_[CURL_ERROR_SIZE] = {};
};

Error unavailable(std::string message) { return make_error(ErrorCode::kUnavailable, std::move(message)); }
Error no_curl() { return unavailable("libcurl.so.4 is not installed, which fetches models"); }

bool is_file_url(const std::string& url) { return url.starts_with("file:"); }
bool failed_status(const std::string& url, long status) { return !is_file_url(url) && (status < 200 || status >= 300); }

struct Text {
  std::string body;
  size_t most = 0;
};
size_t take_text(char* data, size_t size, size_t count, void* self) {
  auto* text = static_cast<Text*>(self);
  if (text->body.size() + size * count > text->most) return 0;
  text->body.append(data, size * count);
  return size * count;
}

struct Target {
  int fd = -1;
  const Transfer* transfer = nullptr;
  bool is_file = false, begun = false;
  int64_t from = 0;
  int error = 0;
};
size_t take_bytes(char* data, size_t size, size_t count, void* self) {
  auto* to = static_cast<Target*>(self);
  const size_t bytes = size * count;
  if (!to->begun) {
    to->begun = true;
    const long status = to->transfer->status();
    if (!to->is_file && (status < 200 || status >= 300)) return bytes;  // the body of an error
    // A server that does not know ranges begins anew.
    if (to->from > 0 && !to->is_file && status != 206 &&
        (::ftruncate(to->fd, 0) != 0 || ::lseek(to->fd, 0, SEEK_SET) < 0)) {
      to->error = errno;
      return 0;
    }
  }
  if (!to->is_file && (to->transfer->status() < 200 || to->transfer->status() >= 300)) return bytes;
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(to->fd, data + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      to->error = n < 0 ? errno : EIO;
      return 0;
    }
    done += static_cast<size_t>(n);
  }
  return bytes;
}

Error disk_error(const std::string& path, int error) {
  return make_error(ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(error)));
}

// One try. `again`: another may bring the rest.
Status try_file(const std::string& url, const std::string& path, bool& again) {
  again = false;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return disk_error(path, errno);
  Transfer transfer(url);
  Target to{.fd = fd, .transfer = &transfer, .is_file = is_file_url(url)};
  to.from = ::lseek(fd, 0, SEEK_END);
  if (!transfer) {
    ::close(fd);
    return no_curl();
  }
  transfer.set(CURLOPT_WRITEFUNCTION, take_bytes);
  transfer.set(CURLOPT_WRITEDATA, static_cast<void*>(&to));
  if (to.from > 0) transfer.set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(to.from));
  const CURLcode code = transfer.run();
  const long status = transfer.status();
  const bool whole_already = to.from > 0 && (status == 416 || code == CURLE_BAD_DOWNLOAD_RESUME);
  if (::close(fd) != 0 && to.error == 0) to.error = errno;
  if (to.error != 0) return disk_error(path, to.error);
  if (whole_already) return {};  // its sum decides
  if (failed_status(url, status) && status != 0) {
    again = status >= 500;
    return unavailable(fmt::format("HTTP status {}", status));
  }
  if (code != CURLE_OK) {
    again = !to.is_file;
    return unavailable(transfer.why(code));
  }
  return {};
}

}  // namespace

Expected<std::string> fetch_text(const std::string& url, size_t max_bytes) {
  Transfer transfer(url);
  if (!transfer) return no_curl();
  Text text{.body = {}, .most = max_bytes};
  transfer.set(CURLOPT_WRITEFUNCTION, take_text);
  transfer.set(CURLOPT_WRITEDATA, static_cast<void*>(&text));
  const CURLcode code = transfer.run();
  if (code == CURLE_WRITE_ERROR) {
    return make_error(ErrorCode::kTooLarge, fmt::format("has more than {} bytes", max_bytes));
  }
  if (code != CURLE_OK) return unavailable(transfer.why(code));
  if (failed_status(url, transfer.status())) return unavailable(fmt::format("HTTP status {}", transfer.status()));
  return std::move(text.body);
}

Status fetch_file(const std::string& url, const std::string& path) {
  Status status;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kFirstDelay * (1 << i));
    bool again = false;
    status = try_file(url, path, again);
    if (status.ok() || !again) return status;
  }
  return status;
}

std::string escape_path(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) || std::strchr("-._~/", c) != nullptr)
      out += c;
    else
      out += fmt::format("%{:02X}", u);
  }
  return out;
}

}  // namespace tern::app
