// Every op of the CUDA side against the CPU back-end.
//   cuda_ops_test [--library FOLDER] [--verbose] [--only GROUP] [--variant LABEL] [--smallest] [--kernels FILE]
//                 [--rounds N] [--part I/N] [--threads N] [--emulated]
// --smallest: all groups of a variant, in small shapes that still reach every kernel (for compute-sanitizer).
// --kernels: writes the names of all kernels that ran. --rounds: how often tests that draw their cases do.
// --part: of products, draws and widths every Nth, from number I (0 .. N - 1) on. --threads: of the CPU, else all.
// Runs all groups on the GPU as it is, without cuBLASLt, with the shared memory of 8.6 and 8.9 cards, and in
// deterministic mode. Ends with "N passed, N failed"; 0 when nothing failed and something ran. A group or a variant
// that is not there ends it with a line that names those that are.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>
#include <string_view>

#include "cuda/tests/harness.h"
#include "ops/loaded_backend.h"

namespace tern::cuda_test {
namespace {

struct Group {
  const char* name;
  void (*run)(Context&);
};
constexpr Group kGroups[] = {{"device", test_device},
                             {"norms", test_norms},
                             {"rows", test_rows},
                             {"rope", test_rope},
                             {"linear", test_linear},
                             {"large", test_large},
                             {"grouped", test_grouped},
                             {"attention", test_attention},
                             {"bits", test_attention_bits},
                             {"segments", test_segments},
                             {"latent", test_latent},
                             {"moe", test_moe},
                             {"logits", test_logits},
                             {"thinking", test_thinking},
                             {"sample", test_sample},
                             {"logprobs", test_logprobs},
                             {"draw_facts", test_draw_facts},
                             {"graph", test_graph},
                             {"chain", test_chain},
                             {"ranges", test_attention_ranges},
                             {"layer_chain", test_layer_chain},
                             {"norm_fusion", test_norm_fusion},
                             {"experts", test_experts},
                             {"codes", test_codes},
                             {"widened", test_widened},
                             {"ranks", test_ranks}};

struct Variant {
  const char* label;
  const char* groups;  // null: all
  bool cublaslt, deterministic;
  int shared_kib, arch = 0;  // 0: what the GPU is
  int ordinal = 0;
};
constexpr Variant kVariants[] = {
    {"plain", nullptr, true, false, 0},
    {"no-cublaslt", "linear large grouped graph codes widened", false, false, 0},
    {"smem-99", "attention bits segments latent rope codes widened", true, false, 99},
    {"deterministic", "linear large grouped attention bits latent chain ranges codes widened", true, true, 0},
    {"portable", nullptr, true, false, 0, 80},
    {"portable-deterministic", "linear large grouped codes widened", true, true, 0, 80}};

// Without a GPU (emulate/): no virtual memory and no graphs; of Hopper's kernels few.
constexpr Variant kEmulated[] = {
    {"no-cublaslt",
     "norms rows rope linear grouped attention bits segments latent moe logits sample logprobs codes ranks", false,
     false, 0},
    {"deterministic", "codes", false, true, 0},
    {"hopper", "norm_fusion experts codes", false, false, 0, 0, 1}};

struct Options {
  std::vector<std::string> folders;
  bool verbose = false, emulated = false, smallest = false;
  std::string only, variant, kernels, rounds, part, threads;
};

// Whether `name` is "" or one of the list; else a line on stderr.
template <class T>
bool is_known(const char* option, const std::string& name, std::span<const T> list, const char* T::*label) {
  std::string all;
  for (const T& entry : list) {
    if (name.empty() || name == entry.*label) return true;
    all += all.empty() ? "" : ", ";
    all += entry.*label;
  }
  std::fprintf(stderr, "%s %s: not one of %s\n", option, name.c_str(), all.c_str());
  return false;
}

std::span<const Variant> variants_of(const Options& o) {
  return o.emulated ? std::span<const Variant>(kEmulated) : std::span<const Variant>(kVariants);
}

bool names_are_known(const Options& o) {
  return is_known("--only", o.only, std::span<const Group>(kGroups), &Group::name) &&
         is_known("--variant", o.variant, variants_of(o), &Variant::label);
}

bool write_kernels(const std::string& path, const std::set<std::string>& names) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  for (const std::string& name : names) std::fprintf(file, "%s\n", name.c_str());
  return std::fclose(file) == 0;
}

bool read_part(const std::string& text, Context& c) {
  return std::sscanf(text.c_str(), "%d/%d", &c.part, &c.parts) == 2 && c.part >= 0 && c.part < c.parts;
}

int run(const Options& o) {
  if (!names_are_known(o)) return 2;
  auto library = device::load_cuda_library(o.folders);
  if (!library.ok()) {
    std::fprintf(stderr, "%s\n", library.error().message.c_str());
    return 2;
  }
  if (const Status s = ops::register_cuda_ops(**library); !s.ok()) {
    std::fprintf(stderr, "%s\n", s.error().message.c_str());
    return 2;
  }
  const Expected<int> count = (*library)->device_count();
  if (!count.ok()) {
    std::fprintf(stderr, "%s\n", count.error().message.c_str());
    return 3;
  }
  int passed = 0, failed = 0;
  std::set<std::string> kernels;
  for (const Variant& v : variants_of(o)) {
    if (!o.variant.empty() && o.variant != v.label) continue;
    Context c;
    c.cuda = *library, c.label = v.label, c.verbose = o.verbose, c.smallest = o.smallest;
    if (!o.rounds.empty()) c.rounds = std::atoi(o.rounds.c_str());
    if (!o.part.empty() && !read_part(o.part, c)) {
      std::fprintf(stderr, "--part %s: not I/N with 0 <= I < N\n", o.part.c_str());
      return 2;
    }
    device::CudaOptions options;
    options.cublaslt = v.cublaslt, options.deterministic = v.deterministic, options.shared_memory_limit = v.shared_kib;
    options.arch_limit = v.arch, options.ordinal = v.ordinal;
    options.search_folders = o.folders;
    auto made = (*library)->make_device(options);
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      return 2;
    }
    c.device = std::move(made).value();
    c.gpu = c.device->stream();
    c.pool = std::make_unique<device::ComputePool>(std::atoi(o.threads.c_str()), false);
    c.cpu = {device::DeviceKind::kCpu, c.pool.get(), nullptr};
    std::printf("%s: %s\n", v.label, c.device->info().name.c_str());
    for (const Group& g : kGroups) {
      if (!o.smallest && v.groups != nullptr && std::strstr(v.groups, g.name) == nullptr) continue;
      if (!o.only.empty() && o.only != g.name) continue;
      const int before = c.passed, lost = c.failed;
      g.run(c);
      std::printf("  %-10s %5d passed %3d failed\n", g.name, c.passed - before, c.failed - lost);
      std::fflush(stdout);
    }
    passed += c.passed, failed += c.failed;
    kernels.merge(c.kernels);
  }
  if (!o.kernels.empty() && !write_kernels(o.kernels, kernels)) {
    std::fprintf(stderr, "cannot write %s\n", o.kernels.c_str());
    return 2;
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tern::cuda_test

int main(int argc, char** argv) {
  tern::cuda_test::Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    std::string* value = arg == "--only"      ? &o.only
                         : arg == "--variant" ? &o.variant
                         : arg == "--kernels" ? &o.kernels
                         : arg == "--rounds"  ? &o.rounds
                         : arg == "--part"    ? &o.part
                         : arg == "--threads" ? &o.threads
                                              : nullptr;
    if (value != nullptr && i + 1 < argc) {
      *value = argv[++i];
    } else if (arg == "--library" && i + 1 < argc) {
      o.folders.emplace_back(argv[++i]);
    } else if (arg == "--verbose") {
      o.verbose = true;
    } else if (arg == "--smallest") {
      o.smallest = true;
    } else if (arg == "--emulated") {
      o.emulated = true;
    } else {
      std::fprintf(stderr,
                   "usage: %s [--library FOLDER]... [--only GROUP] [--variant LABEL] [--smallest] [--kernels FILE] "
                   "[--rounds N] [--part I/N] [--threads N] [--verbose]\n",
                   argv[0]);
      return 2;
    }
  }
  return tern::cuda_test::run(o);
}
