#include "model/weights/load_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/checked.h"
#include "base/hash.h"
#include "device/compute_pool.h"
#include "json/json.h"
#include "model/files/mapped_file.h"

namespace tern::model {
namespace {

// magic, version of the file's format, bytes of the key, bytes of the weights, sum of all that stands before them
// (itself as 0); then the key, the sums and zeros up to a multiple of kPage.
constexpr char kMagic[8] = {'T', 'E', 'R', 'N', 'P', 'A', 'C', 'K'};
constexpr uint32_t kFormat = 1, kMaxKey = 1 << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 44, kPage = 4096, kFixed = 32, kSumAt = 24;
constexpr const char* kFolder = "tern_load_cache";

// Finds damage, not malice: whoever can write the folder can write the weights themselves.
uint64_t sum_of(const char* data, size_t bytes) {
  constexpr uint64_t kPrime = 0x9e3779b185ebca87ull;
  uint64_t lane[4] = {1, 2, 3, bytes};
  const auto take = [&](uint64_t& l, uint64_t word) { l = std::rotl((l ^ word) * kPrime, 29); };
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    uint64_t words[4];
    std::memcpy(words, data + at, sizeof words);
    for (size_t i = 0; i < 4; ++i) take(lane[i], words[i]);
  }
  for (; at < bytes; ++at) take(lane[at % 4], static_cast<unsigned char>(data[at]));
  for (size_t i = 1; i < 4; ++i) take(lane[0], lane[i]);
  return lane[0] ^ lane[0] >> 32;
}

std::string hex_of(std::string_view text) {
  const Hash128 h = siphash128({1, 2}, text.data(), text.size());
  return fmt::format("{:016x}{:016x}", h.hi, h.lo);
}

// Size, time of the last change and samples of a file's bytes: a folder that was written again has others.
std::string identity_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return "none";
  std::string about = fmt::format("{} {}.{:09}", st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
  constexpr int64_t kSamples = 64;
  char sample[4096];
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string all;
  for (int64_t i = 0; file >= 0 && i < kSamples; ++i) {
    const auto last = std::max<int64_t>(st.st_size - static_cast<int64_t>(sizeof sample), 0);
    const ssize_t n = ::pread(file, sample, sizeof sample, last / (kSamples - 1) * i);
    if (n > 0) all.append(sample, static_cast<size_t>(n));
  }
  if (file >= 0) ::close(file);
  return about + " " + hex_of(all);
}

json::Object describe(const WeightPlan& plan, const PackOptions& o) {
  std::string places, formats;
  for (const MatrixPlan& m : plan.matrices) {
    const ops::ScaleBlocks blocks = blocks_made(*m.out->format, o);
    places += fmt::format("{} {} {} {} {}\n", m.out->format->name(), m.n, m.k, m.out->first_group,
                          blocks.powers_of_two ? "pow2" : "");
    for (const Piece& p : m.pieces)
      places += fmt::format("{} {} {} {} {} {}\n", plan.parameters[static_cast<size_t>(p.parameter)].name, p.row,
                            p.rows, p.col, p.cols, p.transposed);
  }
  for (const ArrayPlan& a : plan.arrays)
    for (const Piece& p : a.pieces)
      places += fmt::format("{} {} {} {}\n", plan.parameters[static_cast<size_t>(p.parameter)].name, p.row, p.rows,
                            a.activation_type);
  return {
      {"layout", kPackedLayoutVersion},         {"version", TERN_VERSION},  {"program", identity_of("/proc/self/exe")},
      {"activation", dtype_name(o.activation)}, {"places", hex_of(places)}, {"formats", formats_line(plan, o)}};
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Error io_error(const std::string& path) {
  return make_error(ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno)));
}

Status write_at(int file, const std::string& path, const char* data, size_t bytes, uint64_t at) {
  while (bytes > 0) {
    const ssize_t n = ::pwrite(file, data, std::min<size_t>(bytes, 1u << 30), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path);
    data += n, at += static_cast<uint64_t>(n), bytes -= static_cast<size_t>(n);
  }
  return {};
}

uint64_t weights_begin(uint64_t key_bytes, uint64_t chunks) {
  return round_up<uint64_t>(kFixed + key_bytes + 8 * chunks, kPage);
}

template <class T>
T load_as(std::string_view data, size_t at) {
  T v;
  std::memcpy(&v, data.data() + at, sizeof v);
  return v;
}

std::string head_of(const std::string& key, const std::vector<uint64_t>& sums, uint64_t bytes) {
  std::string head(kMagic, sizeof kMagic);
  const auto put = [&](auto v) { head.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(kFormat), put(static_cast<uint32_t>(key.size())), put(bytes), put(uint64_t{0});
  head += key;
  head.append(reinterpret_cast<const char*>(sums.data()), 8 * sums.size());
  head.resize(weights_begin(key.size(), sums.size()));
  const uint64_t sum = sum_of(head.data(), head.size());
  std::memcpy(head.data() + kSumAt, &sum, sizeof sum);
  return head;
}

Error damaged(const char* what) { return make_error(ErrorCode::kCorrupt, fmt::format("it is damaged: {}", what)); }

}  // namespace

Expected<LoadCacheHeader> parse_load_cache(std::string_view head, uint64_t file_size) {
  if (head.size() < kFixed || std::memcmp(head.data(), kMagic, sizeof kMagic) != 0)
    return damaged("it does not begin as such a file");
  if (load_as<uint32_t>(head, 8) != kFormat) return make_error(ErrorCode::kUnsupported, "another version wrote it");
  const uint64_t key = load_as<uint32_t>(head, 12), bytes = load_as<uint64_t>(head, 16);
  if (key > kMaxKey || bytes > kMaxBytes) return damaged("a length is too large");
  const uint64_t chunks = ceil_div<uint64_t>(bytes, kCacheChunk), begin = weights_begin(key, chunks);
  if (begin > head.size() || begin > file_size || file_size - begin != bytes)
    return damaged("its length is another than it says");
  std::string whole(head.substr(0, begin));
  std::memset(whole.data() + kSumAt, 0, 8);
  if (sum_of(whole.data(), whole.size()) != load_as<uint64_t>(head, kSumAt)) return damaged("its head has another sum");
  return LoadCacheHeader{head.substr(kFixed, key), begin, bytes, head.substr(kFixed + key, 8 * chunks)};
}

LoadCache::LoadCache(const OpenedFolder& folder, const WeightPlan& plan, const PackOptions& options,
                     device::Device& device)
    : options_(options), device_(device) {
  json::Object key = describe(plan, options);
  const device::DeviceInfo& info = device.info();
  const bool cpu = info.kind == device::DeviceKind::kCpu;
  key["device"] = cpu ? "cpu" : info.name;  // the name of a CPU says how many threads there are
  const Shard& shard = folder.options.shard;
  key["rank"] = fmt::format("{} of {}{}", shard.rank, shard.ranks, shard.expert_parallel ? ", experts whole" : "");
  if (shard.engines > 1) key["engine"] = fmt::format("{} of {}", shard.engine, shard.engines);
  key["config"] = hex_of(json::dump(folder.config));
  json::Object files;
  for (const std::string& path : folder.checkpoint.paths()) files[path.substr(path.rfind('/') + 1)] = identity_of(path);
  key["files"] = std::move(files);
  key_ = json::dump(key);
  // One file for each use of the model: of what has changed since, none is left behind.
  const std::string use =
      fmt::format("{} {} {}", json::dump(key["device"]), json::dump(key["activation"]), json::dump(key["formats"]));
  path_ = fmt::format("{}/{}/rank{}of{}-{}.weights", folder.options.path, kFolder, shard.expert_rank(),
                      shard.expert_ranks(), hex_of(use).substr(0, 12));
}

bool LoadCache::read(char* dst, size_t bytes) {
  note_.clear();
  const Status status = fill(dst, bytes);
  if (status.ok()) {
    note_ = fmt::format("quantized weights were taken from {}", path_);
  } else if (status.error().code != ErrorCode::kNotFound) {
    note_ = fmt::format("{} is not used: {}", path_, status.error().message);
  }
  return status.ok();
}

Status LoadCache::fill(char* dst, size_t bytes) {
  TERN_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path_));
  TERN_ASSIGN_OR_RETURN(const LoadCacheHeader head, parse_load_cache({file.data(), file.size()}, file.size()));
  if (head.key != key_)
    return make_error(ErrorCode::kUnsupported, "the model's files, its format or this program changed");
  if (head.bytes != bytes) return damaged("its weights have another size");
  const device::Stream stream = device_.stream();
  std::unique_ptr<device::ComputePool> own;
  device::ComputePool* pool = stream.pool;
  if (pool == nullptr) pool = (own = std::make_unique<device::ComputePool>(options_.threads, false)).get();
  std::atomic<size_t> next{0};
  std::atomic<bool> good{true};
  std::mutex mutex;
  Status status;
  size_t done = 0;
  pool->parallel(pool->threads(), [&](int) {
    (void)device_.bind_thread().ok();
    for (size_t i = next.fetch_add(1); i * kCacheChunk < bytes && good.load(); i = next.fetch_add(1)) {
      const size_t at = i * kCacheChunk, n = std::min(kCacheChunk, bytes - at);
      const char* src = file.data() + head.begin + at;
      file.expect_whole(src, n);
      if (sum_of(src, n) != load_as<uint64_t>(head.sums, 8 * i)) good = false;
      if (!device_.own_memory()) std::memcpy(dst + at, src, n);
      const std::lock_guard lock(mutex);
      if (device_.own_memory()) {
        device_.copy_to_device(dst + at, src, n, stream);
        if (Status s = device_.synchronize(stream); !s.ok()) status = std::move(s), good = false;
      }
      file.release(src, n);
      done += n;
      if (options_.progress) options_.progress(done, bytes);
    }
  });
  TERN_RETURN_IF_ERROR(std::move(status));
  TERN_RETURN_IF_ERROR(file.check());
  return good ? Status() : Status(damaged("its weights have another sum"));
}

void LoadCache::write(const char* src, size_t bytes) {
  const auto failed = [&](const Error& error) {
    note_ += fmt::format("{}quantized weights are not kept for the next start: {}", note_.empty() ? "" : "; ",
                         error.message);
  };
  const std::string folder = path_.substr(0, path_.rfind('/')), part = path_ + ".partial";
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return failed(io_error(folder));
  const File file(::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) return failed(io_error(part));
  // One process writes; what a killed one has left is written over.
  struct stat mine {
  }, there{};
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || ::fstat(file.get(), &mine) != 0 ||
      ::stat(part.c_str(), &there) != 0 || mine.st_ino != there.st_ino)
    return failed(make_error(ErrorCode::kUnavailable, "another process writes them"));
  Status status = save(file.get(), src, bytes);
  if (status.ok() && ::rename(part.c_str(), path_.c_str()) != 0) status = io_error(path_);
  if (!status.ok()) {
    ::unlink(part.c_str());
    return failed(status.error());
  }
  note_ += fmt::format("{}quantized weights are kept for the next start in {}", note_.empty() ? "" : "; ", path_);
}

Status LoadCache::save(int file, const char* src, size_t bytes) {
  std::vector<uint64_t> sums(ceil_div(bytes, kCacheChunk));
  const uint64_t begin = weights_begin(key_.size(), sums.size());
  if (::ftruncate(file, 0) != 0) return io_error(path_);
  if (const int code = ::posix_fallocate(file, 0, static_cast<off_t>(begin + bytes)); code != 0) {
    errno = code;
    return io_error(path_);
  }
  std::vector<char> staging(device_.own_memory() ? std::min(kCacheChunk, bytes) : 0);
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t at = i * kCacheChunk, n = std::min(kCacheChunk, bytes - at);
    const char* chunk = src + at;
    if (device_.own_memory()) {
      device_.copy_to_host(staging.data(), src + at, n, device_.stream());
      TERN_RETURN_IF_ERROR(device_.synchronize(device_.stream()));
      chunk = staging.data();
    }
    sums[i] = sum_of(chunk, n);
    TERN_RETURN_IF_ERROR(write_at(file, path_, chunk, n, begin + at));
  }
  const std::string head = head_of(key_, sums, bytes);
  TERN_RETURN_IF_ERROR(write_at(file, path_, head.data(), head.size(), 0));
  return ::fsync(file) == 0 ? Status() : Status(io_error(path_));
}

}  // namespace tern::model
