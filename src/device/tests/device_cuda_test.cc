// What a machine without a GPU can say about the CUDA side, and the defaults that a CPU has for what GPUs offer.
#include "device/device_cuda.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace tern::device {
namespace {

TEST(CudaLibrary, SaysInOneLineWhatIsMissing) {
  const auto library = load_cuda_library({"/nowhere/at/all"});
  if (library.ok() || library.error().code == ErrorCode::kUnsupported) {
    GTEST_SKIP() << "libtern_cuda.so is installed here";
  }
  EXPECT_EQ(library.error().code, ErrorCode::kNotFound);
  EXPECT_NE(library.error().message.find(kCudaLibraryName), std::string::npos) << library.error().message;
  EXPECT_EQ(library.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(library.error().param, "device");
}

TEST(CudaLibrary, AFileThatDoesNotLoadIsNamed) {
  const auto folder = std::filesystem::temp_directory_path() / ("tern_cuda_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / kCudaLibraryName).string();
  std::ofstream(path) << "not a library";
  const auto library = load_cuda_library({folder.string()});
  std::filesystem::remove_all(folder);
  if (library.ok()) GTEST_SKIP() << "libtern_cuda.so is installed here";
  EXPECT_NE(library.error().message.find(path), std::string::npos) << library.error().message;
}

TEST(CudaLibrary, OfAnotherSourceIsRefused) {
  CudaLibrary library;
  library.version = kCudaLibraryVersion;
  library.device_layout = cuda_device_layout();
  library.interface = cuda_interface();
  EXPECT_NE(cuda_interface(), 0u);
  EXPECT_TRUE(check_cuda_library(&library, "/some/where").ok());
  for (auto change : {+[](CudaLibrary& l) { ++l.version; }, +[](CudaLibrary& l) { ++l.device_layout; },
                      +[](CudaLibrary& l) { ++l.interface; }}) {
    CudaLibrary other = library;
    change(other);
    const Status refused = check_cuda_library(&other, "/some/where");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(refused.error().message, "/some/where belongs to another build of this program: install both from one");
    EXPECT_EQ(refused.error().param, "device");
  }
  EXPECT_FALSE(check_cuda_library(nullptr, "/some/where").ok());
}

TEST(DeviceDefaults, ACpuHasNoGraphsAndItsEventsArePast) {
  auto made = make_cpu_device({.threads = 1, .pin = false});
  ASSERT_TRUE(made.ok());
  Device& cpu = **made;
  EXPECT_TRUE(cpu.bind_thread().ok());
  EXPECT_EQ(cpu.side_stream(StreamRole::kVision).pool, cpu.stream().pool);
  EXPECT_FALSE(cpu.has_graphs());
  EXPECT_EQ(cpu.begin_capture(cpu.stream()).error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(cpu.end_capture(cpu.stream()).ok());
  auto event = cpu.make_event();
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE((*event)->record(cpu.stream()).ok());
  EXPECT_TRUE((*event)->wait_on(cpu.stream()).ok());
  EXPECT_TRUE((*event)->synchronize().ok());
  EXPECT_TRUE((*event)->done());
}

TEST(DeviceDefaults, ARangeGrowsAtItsAddresses) {
  auto made = make_cpu_device({.threads = 1, .pin = false});
  ASSERT_TRUE(made.ok());
  auto range = (*made)->reserve(size_t{1} << 20);
  ASSERT_TRUE(range.ok());
  AddressRange& r = **range;
  EXPECT_EQ(r.reserved(), size_t{1} << 20);
  EXPECT_EQ(r.mapped(), 0u);
  ASSERT_TRUE(r.grow(5000).ok());
  char* const base = r.base();
  EXPECT_EQ(base[4999], 0);
  base[4999] = 3;
  ASSERT_TRUE(r.grow(9000).ok());
  ASSERT_TRUE(r.grow(100).ok());
  EXPECT_GE(r.mapped(), 9000u);
  EXPECT_EQ(r.base(), base);
  EXPECT_EQ(base[4999], 3);
  EXPECT_EQ(r.grow((size_t{1} << 20) + 1).error().code, ErrorCode::kResourceExhausted);
}

TEST(DeviceDefaults, ARangeGivesItsMemoryBack) {
  auto made = make_cpu_device({.threads = 1, .pin = false});
  ASSERT_TRUE(made.ok());
  constexpr size_t kBytes = size_t{1} << 20;  // too small for huge pages, which come as a whole
  auto range = (*made)->reserve(kBytes);
  ASSERT_TRUE(range.ok());
  AddressRange& r = **range;
  ASSERT_TRUE(r.grow(kBytes).ok());
  char* const base = r.base();
  std::memset(base, 7, kBytes);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto resident = [&] {
    std::vector<unsigned char> pages(kBytes / page);
    EXPECT_EQ(mincore(base, kBytes, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  };
  EXPECT_EQ(resident(), static_cast<std::ptrdiff_t>(kBytes / page));
  ASSERT_TRUE(r.shrink(page + 100).ok());
  EXPECT_EQ(r.mapped(), page + 100);
  EXPECT_EQ(resident(), 2);
  EXPECT_EQ(base[page + 99], 7);
  ASSERT_TRUE(r.grow(kBytes).ok());
  EXPECT_EQ(r.base(), base);
  EXPECT_TRUE(std::all_of(base + page + 100, base + kBytes, [](char c) { return c == 0; }));
  ASSERT_TRUE(r.shrink(0).ok());
  ASSERT_TRUE(r.shrink(0).ok());
  EXPECT_EQ(resident(), 0);
}

}  // namespace
}  // namespace tern::device
