// --device without a GPU: what is chosen, what is said, and which errors end the start.
#include "app/config/device_settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "device/compute_pool.h"
#include "ops/loaded_backend.h"

namespace tern::app {
namespace {

std::vector<std::string> g_lines;
void keep_line(LogChannel, LogLevel, const char*, int, std::string_view message) { g_lines.emplace_back(message); }

struct Lines {
  Lines() {
    g_lines.clear();
    set_log_level(LogLevel::kInfo);
    set_log_sink(keep_line);
  }
  ~Lines() { set_log_sink(nullptr); }
};

Environment environment_of(const Environment::Pairs& pairs) {
  auto made = Environment::from(pairs);
  EXPECT_TRUE(made.ok());
  return made.ok() ? std::move(made).value() : Environment();
}

DeviceSettings settings_of(std::string_view device, const Environment::Pairs& pairs = {}) {
  auto made = device_settings(device, {.threads = 1, .pin = false}, environment_of(pairs));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? std::move(made).value() : DeviceSettings();
}

// A library as another source would have built it, or as a machine would show it.
device::CudaLibrary library_with(Expected<int> (*count)()) {
  device::CudaLibrary l;
  l.version = device::kCudaLibraryVersion;
  l.device_layout = device::cuda_device_layout();
  l.ops_layout = ops::backend_layout();
  l.ops = &ops::cpu_backend();
  l.device_count = count;
  l.make_device = [](const device::CudaOptions& o) -> Expected<std::unique_ptr<device::Device>> {
    return device::make_cpu_device({.threads = o.ordinal + 1, .pin = false});
  };
  return l;
}

CudaMachine machine_with(const device::CudaLibrary& library) {
  return {.load = [&](const std::vector<std::string>&) -> Expected<const device::CudaLibrary*> { return &library; },
          .shows_gpu = [] { return true; }};
}

CudaMachine machine_without(bool gpu) {
  return {.load = [](const std::vector<std::string>&) -> Expected<const device::CudaLibrary*> {
            return make_error(ErrorCode::kNotFound, "the CUDA side cannot be loaded: no such file", "device");
          },
          .shows_gpu = [gpu] { return gpu; }};
}

Expected<int> two_gpus() { return 2; }
Expected<int> old_driver() {
  return make_error(ErrorCode::kUnsupported, "the NVIDIA driver is for CUDA 12.4, this build needs 13.0: update it",
                    "device");
}

TEST(DeviceSettings, ReadsTheFlag) {
  EXPECT_EQ(settings_of("auto").choice, DeviceChoice::kAuto);
  EXPECT_EQ(settings_of("cpu").choice, DeviceChoice::kCpu);
  EXPECT_EQ(settings_of("cuda").cuda.ordinal, 0);
  EXPECT_EQ(settings_of("cuda:3").choice, DeviceChoice::kCuda);
  EXPECT_EQ(settings_of("cuda:3").cuda.ordinal, 3);
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda1", "CPU", "cuda:99999999999"}) {
    const auto made = device_settings(bad, {}, Environment());
    ASSERT_FALSE(made.ok()) << bad;
    EXPECT_EQ(made.error().param, "device");
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
  }
}

TEST(DeviceSettings, ReadsTheEnvironment) {
  const DeviceSettings plain = settings_of("cuda");
  EXPECT_EQ(plain.cuda.arch_limit, 0);
  EXPECT_EQ(plain.cuda.shared_memory_limit, 0);
  EXPECT_EQ(plain.cuda.microbatches, 0);
  EXPECT_TRUE(plain.cuda.cublaslt);
  EXPECT_TRUE(plain.cuda.pdl);
  EXPECT_FALSE(plain.cuda.deterministic);
  EXPECT_TRUE(plain.cuda_folders.empty());
  const DeviceSettings s = settings_of("cuda", {{"TERN_CUDA_ARCH", "80"},
                                                {"TERN_CUDA_SMEM_LIMIT", "99"},
                                                {"TERN_CUDA_MICROBATCHES", "4"},
                                                {"TERN_CUDA_CUBLASLT", "0"},
                                                {"FD_DETERMINISTIC_MODE", "1"},
                                                {"FD_ENABLE_PDL", "0"},
                                                {"TERN_CUDA_LIBRARY", "/a:/b"}});
  EXPECT_EQ(s.cuda.arch_limit, 80);
  EXPECT_EQ(s.cuda.shared_memory_limit, 99);
  EXPECT_EQ(s.cuda.microbatches, 4);
  EXPECT_FALSE(s.cuda.cublaslt);
  EXPECT_FALSE(s.cuda.pdl);
  EXPECT_TRUE(s.cuda.deterministic);
  EXPECT_EQ(s.cuda_folders, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(s.cuda.search_folders, s.cuda_folders);
}

TEST(DeviceSettings, KeepsWhatIsLearnedInTheUsersCache) {
  const auto root = std::filesystem::temp_directory_path() / ("tern_cache_" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "home");
  const std::string text = root.string();
  EXPECT_EQ(settings_of("cuda", {{"XDG_CACHE_HOME", text}}).cuda.blas_cache_file, text + "/tern/cublaslt");
  EXPECT_EQ(settings_of("cuda", {{"HOME", text + "/home"}}).cuda.blas_cache_file, text + "/home/.cache/tern/cublaslt");
  // A place where nothing can be kept is no error; a relative one is not used.
  EXPECT_EQ(settings_of("cuda", {{"XDG_CACHE_HOME", "/proc/nowhere"}}).cuda.blas_cache_file, "");
  EXPECT_EQ(settings_of("cuda", {{"XDG_CACHE_HOME", "here"}}).cuda.blas_cache_file, "");
  EXPECT_EQ(settings_of("cpu", {{"XDG_CACHE_HOME", text + "/untouched"}}).cuda.blas_cache_file, "");
  EXPECT_FALSE(std::filesystem::exists(root / "untouched"));
  std::filesystem::remove_all(root);
}

TEST(DeviceSettings, FindsPythonsFolders) {
  const auto root = std::filesystem::temp_directory_path() / ("tern_venv_" + std::to_string(getpid()));
  const auto site = root / "lib" / "python3.12" / "site-packages";
  std::filesystem::create_directories(site);
  const auto folders = settings_of("auto", {{"VIRTUAL_ENV", root.string()}}).cuda.more_folders;
  std::filesystem::remove_all(root);
  ASSERT_GE(folders.size(), 2u);
  EXPECT_EQ(folders[0], device::program_folder());
  EXPECT_EQ(folders[1], site.string());
}

TEST(OpenDevice, AutoTakesTheCpuInSilenceWhereThereIsNoGpu) {
  const Lines lines;
  const auto open = open_device(settings_of("auto"), machine_without(false));
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->device->info().kind, device::DeviceKind::kCpu);
  EXPECT_EQ(open->library, nullptr);
  EXPECT_TRUE(open->deterministic);
  EXPECT_TRUE(g_lines.empty());
}

TEST(OpenDevice, AutoSaysWhyAGpuIsNotUsed) {
  {
    const Lines lines;
    ASSERT_TRUE(open_device(settings_of("auto"), machine_without(true)).ok());
    ASSERT_EQ(g_lines.size(), 1u);
    EXPECT_EQ(g_lines[0], "--device auto takes the CPU: the CUDA side cannot be loaded: no such file");
  }
  const Lines lines;
  const device::CudaLibrary library = library_with(old_driver);
  const auto open = open_device(settings_of("auto"), machine_with(library));
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->library, nullptr);
  ASSERT_EQ(g_lines.size(), 1u);
  EXPECT_NE(g_lines[0].find("the NVIDIA driver is for CUDA 12.4"), std::string::npos);
}

TEST(OpenDevice, CudaEndsWithTheReason) {
  const auto missing = open_device(settings_of("cuda"), machine_without(true));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  const device::CudaLibrary library = library_with(old_driver);
  const auto old = open_device(settings_of("cuda:0"), machine_with(library));
  ASSERT_FALSE(old.ok());
  EXPECT_NE(old.error().message.find("update it"), std::string::npos);
}

TEST(OpenDevice, ALibraryOfAnotherBuildIsRefused) {
  device::CudaLibrary library = library_with(two_gpus);
  library.ops_layout ^= 1;
  const auto open = open_device(settings_of("cuda"), machine_with(library));
  ASSERT_FALSE(open.ok());
  EXPECT_NE(open.error().message.find("another build"), std::string::npos);
  const Lines lines;
  EXPECT_TRUE(open_device(settings_of("auto"), machine_with(library)).ok());
  EXPECT_EQ(g_lines.size(), 1u);
}

TEST(OpenDevice, ChoosesAmongTheGpusThereAre) {
  const device::CudaLibrary library = library_with(two_gpus);
  const auto second = open_device(settings_of("cuda:1", {{"FD_DETERMINISTIC_MODE", "1"}}), machine_with(library));
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->library, &library);
  EXPECT_TRUE(second->deterministic);
  EXPECT_EQ(second->device->stream().pool->threads(), 2);  // the stand-in was made for GPU 1
  const auto first = open_device(settings_of("auto"), machine_with(library));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->library, &library);
  EXPECT_FALSE(first->deterministic);
  const auto third = open_device(settings_of("cuda:2"), machine_with(library));
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().message, "--device cuda:2: the driver shows 2 GPUs");
}

}  // namespace
}  // namespace tern::app
