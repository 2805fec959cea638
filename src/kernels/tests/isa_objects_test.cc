// Objects built for a higher instruction set must not hold code that the linker may pick for the whole program: inline
// functions and templates with external linkage become weak symbols, and one AVX-512 copy of them would crash
// elsewhere.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/cpu/isa.h"

namespace tern::kernels {
namespace {

std::string own_folder() {
  std::array<char, 4096> path{};
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string s(path.data(), n > 0 ? static_cast<size_t>(n) : 0);
  return s.substr(0, s.rfind('/'));
}

TEST(IsaObjects, DefineNoWeakSymbols) {
  const std::string library = own_folder() + "/libtern_kernels.a";
  if (access(library.c_str(), R_OK) != 0) GTEST_SKIP() << "no " << library << " beside the test";
  FILE* pipe = popen(("nm -A " + library + " 2>/dev/null").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 4096> line{};
  int symbols = 0;
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    const std::string s = line.data();  // library:object:address type name
    if (s.find("_avx2.cc.o:") == std::string::npos && s.find("_avx512.cc.o:") == std::string::npos &&
        s.find("_avx512bf16.cc.o:") == std::string::npos) {
      continue;
    }
    ++symbols;
    for (const char* type : {" W ", " V ", " u "}) {
      // Sanitizer and TLS bookkeeping is weak by nature; it is no code.
      if (s.find(type) == std::string::npos || s.find("asan") != std::string::npos ||
          s.find("DW.ref") != std::string::npos) {
        continue;
      }
      ADD_FAILURE() << "weak symbol: " << s;
    }
  }
  if (pclose(pipe) != 0 || symbols == 0) GTEST_SKIP() << "nm is not there";
}

// This very program on a CPU without AVX-512: choosing kernels must not trip over one of their instructions.
TEST(IsaObjects, RunOnACpuWithAvx2Only) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not run under qemu-user";
#endif
  if (std::system("command -v qemu-x86_64 >/dev/null 2>&1") != 0) GTEST_SKIP() << "qemu-x86_64 is not there";
  const std::string command = "qemu-x86_64 -cpu Haswell " + own_folder() +
                              "/test_kernels --gtest_filter='Isa.*:KvTransfer.*' 2>/dev/null | grep -c 'PASSED  . 3'";
  EXPECT_EQ(std::system((command + " >/dev/null").c_str()), 0);
}

TEST(Isa, OnlyWhatTheMachineHas) {
  const Isa best = detect_isa();
  for (int i = 0; i < 4; ++i) {
    const auto isa = static_cast<Isa>(i);
    EXPECT_EQ(set_isa(isa).ok(), isa <= best);
    if (isa > best) continue;
    EXPECT_EQ(active_isa(), isa);
    const KernelTable& t = kernel_table();
    EXPECT_STREQ(t.name, isa_name(isa));
    EXPECT_EQ(t.gemm_bf16 != nullptr, isa == Isa::kAvx512Bf16);
    EXPECT_TRUE(t.gemm_f32_bf16 && t.gemm_f32 && t.widen && t.narrow && t.store_row && t.rms_norm_row &&
                t.silu_mul_row && t.rope_row && t.softmax_tile && t.softmax_merge && t.combine_row && t.transpose32 &&
                t.interleave16 && t.scatter16 && t.layer_norm_row && t.activate_row && t.interpolate_row);
  }
  EXPECT_TRUE(set_isa(best).ok());
  Isa parsed;
  EXPECT_TRUE(parse_isa("avx512", &parsed));
  EXPECT_EQ(parsed, Isa::kAvx512);
  EXPECT_FALSE(parse_isa("AVX9", &parsed));
}

}  // namespace
}  // namespace tern::kernels
