#include "cuda/gemm/blaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "cuda/gemm/blaslt_trial.h"
#include "cuda/runtime/libraries.h"

namespace tern::cuda {
namespace {

constexpr size_t kWorkspace = kLibraryWorkspace;

// rows, n, k, x_row, out_row, out is bf16 (1) with a bias (2) and gelu (4), or k is half of the product's (8)
using Key = std::array<int64_t, 6>;

// Algorithms are chosen for these many rows and serve the fewer ones down to the one before: multiples of 16, from 256
// on eight to a doubling.
int64_t served_by(int64_t rows) {
  int64_t step = 16;
  while (16 * step < rows) step *= 2;
  return (rows + step - 1) / step * step;
}
// From here on it is worth the time at start to time what the library offers.
constexpr int64_t kTimedRows = 257;
constexpr int kOffered = 8;
// Up to here a weight's algorithms are all chosen when it is first met, which is at start: no step waits for it.
constexpr int64_t kChosenAtOnce = 8192;

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;
  decltype(&cublasLtGetVersion) version;
};

template <class F>
bool find(void* library, const char* name, F& f) {
  f = reinterpret_cast<F>(dlsym(library, name));
  return f != nullptr;
}

bool find_all(void* l, Functions& f) {
  return find(l, "cublasLtCreate", f.create) && find(l, "cublasLtDestroy", f.destroy) &&
         find(l, "cublasLtMatmul", f.matmul) && find(l, "cublasLtMatmulDescCreate", f.desc_create) &&
         find(l, "cublasLtMatmulDescDestroy", f.desc_destroy) &&
         find(l, "cublasLtMatmulDescSetAttribute", f.desc_set) &&
         find(l, "cublasLtMatrixLayoutCreate", f.layout_create) &&
         find(l, "cublasLtMatrixLayoutDestroy", f.layout_destroy) &&
         find(l, "cublasLtMatrixLayoutSetAttribute", f.layout_set) &&
         find(l, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
         find(l, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
         find(l, "cublasLtMatmulPreferenceSetAttribute", f.preference_set) &&
         find(l, "cublasLtMatmulAlgoGetHeuristic", f.heuristic) &&
         find(l, "cublasLtMatmulAlgoConfigGetAttribute", f.algorithm_get) && find(l, "cublasLtGetVersion", f.version);
}

// What a call needs; for any number of rows that its algorithm serves.
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  int64_t rows = 0;  // that x and out are described with
  bool usable = false;
};

constexpr char kHex[] = "0123456789abcdef";

std::string to_hex(const cublasLtMatmulAlgo_t& a) {
  std::string text;
  for (const unsigned char c : std::string_view(reinterpret_cast<const char*>(&a), sizeof a)) {
    text += kHex[c >> 4], text += kHex[c & 15];
  }
  return text;
}

bool from_hex(const std::string& text, cublasLtMatmulAlgo_t* a) {
  if (text.size() != 2 * sizeof *a) return false;
  auto* bytes = reinterpret_cast<unsigned char*>(a);
  for (size_t i = 0; i < text.size(); ++i) {
    const char* digit = std::strchr(kHex, text[i]);
    if (digit == nullptr || *digit == 0) return false;
    bytes[i / 2] = static_cast<unsigned char>((bytes[i / 2] << 4) | (digit - kHex));
  }
  return true;
}

}  // namespace

struct BlasLt::Impl {
  Functions f{};
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::string title, file;  // of the cache file
  bool timing = true;       // until settle()
  std::map<Key, Plan> plans;
  std::map<Key, cublasLtMatmulAlgo_t> known;  // read from the file

  ~Impl() {
    for (auto& [key, p] : plans) {
      if (p.desc != nullptr) f.desc_destroy(p.desc);
      for (cublasLtMatrixLayout_t l : {p.w, p.x, p.out}) {
        if (l != nullptr) f.layout_destroy(l);
      }
    }
    if (handle != nullptr) f.destroy(handle);
    if (workspace != nullptr) (void)cudaFree(workspace);
  }

  static const void* bias_of(const Gemm& g) { return g.out_bf16 ? g.short_bias : g.bias; }

  // A bias of the results' type: a float32 bias beside bfloat16 results has no algorithm.
  bool describe_bias(const Gemm& g, Plan& p) const {
    const cublasLtEpilogue_t epilogue = g.gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    const auto type = g.out_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const void* bias = bias_of(g);
    return f.desc_set(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) == CUBLAS_STATUS_SUCCESS &&
           f.desc_set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type) == CUBLAS_STATUS_SUCCESS &&
           f.desc_set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias) == CUBLAS_STATUS_SUCCESS;
  }

  // In cuBLAS's column-major eyes: out^T [n, rows] = w [n, k] x^T [k, rows], w transposed.
  bool describe(const Gemm& g, int64_t rows, Plan& p) const {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto out_type = g.out_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    return f.desc_create(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           f.desc_set(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) == CUBLAS_STATUS_SUCCESS &&
           (bias_of(g) == nullptr || describe_bias(g, p)) &&
           f.layout_create(&p.w, CUDA_R_16BF, static_cast<uint64_t>(g.k), static_cast<uint64_t>(g.n), g.w_row) ==
               CUBLAS_STATUS_SUCCESS &&
           f.layout_create(&p.x, CUDA_R_16BF, static_cast<uint64_t>(g.k), static_cast<uint64_t>(rows), g.x_row) ==
               CUBLAS_STATUS_SUCCESS &&
           f.layout_create(&p.out, out_type, static_cast<uint64_t>(g.n), static_cast<uint64_t>(rows), g.out_row) ==
               CUBLAS_STATUS_SUCCESS;
  }

  // Makes two products of one that is described with half of its k.
  bool describe_halves(const Gemm& half, int64_t rows, const Plan& p) const {
    const int32_t count = 2;
    const int64_t apart[3] = {half.k, half.k, rows * half.n};
    const cublasLtMatrixLayout_t layouts[3] = {p.w, p.x, p.out};
    for (int i = 0; i < 3; ++i) {
      if (f.layout_set(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count) != CUBLAS_STATUS_SUCCESS ||
          f.layout_set(layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart[i], sizeof apart[i]) !=
              CUBLAS_STATUS_SUCCESS) {
        return false;
      }
    }
    return true;
  }

  // Algorithms that cut k would not give the bits of the others.
  bool one_chain(const cublasLtMatmulAlgo_t& a) const {
    uint32_t parts = 0;
    size_t written = 0;
    return f.algorithm_get(&a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written) ==
               CUBLAS_STATUS_SUCCESS &&
           parts <= 1;
  }

  // The fastest of those that sum k in one chain, so that which one is taken should change no bit (not measured).
  void time_offered(const cublasLtMatmulHeuristicResult_t* offered, int count, const void* weight,
                    const BlasTrial& trial, device::Stream stream, Plan& p) const {
    const float one = 1.0f, zero = 0.0f;
    float best = 1e30f;
    for (int i = 0; i < count; ++i) {
      if (!one_chain(offered[i].algo)) continue;
      const float ms = trial.time([&] {
        return f.matmul(handle, p.desc, &one, weight, p.w, trial.x(), p.x, &zero, trial.out(), p.out, trial.out(),
                        p.out, &offered[i].algo, workspace, kWorkspace, raw(stream)) == CUBLAS_STATUS_SUCCESS;
      });
      if (ms < best) best = ms, p.algorithm = offered[i].algo;
    }
  }

  void choose(const Gemm& g, const Key& key, const void* weight, const BlasTrial* trial, device::Stream stream, Plan& p,
              size_t room = kWorkspace) const {
    if (const auto it = known.find(key); it != known.end()) {
      p.algorithm = it->second;
      p.usable = true;
      return;
    }
    cublasLtMatmulPreference_t preference = nullptr;
    if (f.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return;
    f.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    // The library would take 256 bytes for granted; temporaries lie at multiples of 64, rows at multiples of 16, but
    // those of x at what their stride allows.
    const uint32_t alignment = 16, of_x = g.x_row % 8 == 0 ? 16 : 8;
    for (const auto a : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      f.preference_set(preference, a, &alignment, sizeof alignment);
    }
    f.preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &of_x, sizeof of_x);
    cublasLtMatmulHeuristicResult_t offered[kOffered]{};
    int found = 0;
    const bool timed = trial != nullptr && trial->ready() && key[0] >= kTimedRows;
    const cublasStatus_t s =
        f.heuristic(handle, p.desc, p.w, p.x, p.out, p.out, preference, timed ? kOffered : 1, offered, &found);
    f.preference_destroy(preference);
    p.usable = s == CUBLAS_STATUS_SUCCESS && found > 0;
    p.algorithm = offered[0].algo;
    if (p.usable && timed) time_offered(offered, found, weight, *trial, stream, p);
  }

  static Key key_of(const Gemm& g, int64_t rows) {
    return {rows,    g.n,       g.k,
            g.x_row, g.out_row, (g.out_bf16 ? 1 : 0) + (bias_of(g) != nullptr ? 2 : 0) + (g.gelu ? 4 : 0)};
  }

  Plan& plan(const Gemm& g, int64_t rows, const void* weight, const BlasTrial* trial, device::Stream stream) {
    const auto [it, made] = plans.try_emplace(key_of(g, rows));
    Plan& p = it->second;
    if (!made) return p;
    p.rows = rows;
    if (describe(g, rows, p)) choose(g, it->first, weight, trial, stream, p);
    return p;
  }

  // Whether the file already says what to take for this weight.
  bool knows(const Gemm& g) const { return known.contains(key_of(g, kChosenAtOnce)); }

  Plan& plan_for(const Gemm& g, const void* weight, device::Stream stream) {
    const int64_t rows = served_by(g.rows);
    if (const auto it = plans.find(key_of(g, rows)); it != plans.end()) return it->second;
    // Timing is worth it where the next start will find it.
    std::optional<BlasTrial> trial;
    if (timing && !file.empty() && g.out_bf16 && !knows(g) && !plans.contains(key_of(g, kChosenAtOnce)))
      trial.emplace(g, kChosenAtOnce, stream);
    const BlasTrial* t = trial.has_value() ? &*trial : nullptr;
    for (int64_t r = served_by(1); r <= kChosenAtOnce; r = served_by(r + 1)) (void)plan(g, r, weight, t, stream);
    return plan(g, rows, weight, nullptr, stream);
  }

  // `half` of k, with the sums where algorithms that need no memory leave some.
  Plan& plan_halves(const Gemm& half, const void* weight, device::Stream stream) {
    const int64_t rows = served_by(half.rows);
    Key key = key_of(half, rows);
    key.back() += 8;
    const auto [it, made] = plans.try_emplace(key);
    Plan& p = it->second;
    if (!made) return p;
    p.rows = rows;
    if (describe(half, rows, p) && describe_halves(half, rows, p)) choose(half, key, weight, nullptr, stream, p, 0);
    return p;
  }

  // `kept`: the factor of what is in g.out already.
  bool multiply(const Gemm& g, const void* weight, Plan& p, device::Stream stream, float kept = 0.0f,
                size_t room = kWorkspace) const {
    if (!p.usable) return false;
    if (p.rows != g.rows) {
      const auto rows = static_cast<uint64_t>(g.rows);
      (void)f.layout_set(p.x, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
      (void)f.layout_set(p.out, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
      p.rows = g.rows;
    }
    if (const void* bias = bias_of(g); bias != nullptr) {
      f.desc_set(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    const float one = 1.0f;
    return f.matmul(handle, p.desc, &one, weight, p.w, g.x, p.x, &kept, g.out, p.out, g.out, p.out, &p.algorithm,
                    workspace, room, raw(stream)) == CUBLAS_STATUS_SUCCESS;
  }

  // One line of title, then "rows n k x_row out_row flags algorithm". Another title, or a line that does not parse:
  // what follows is asked anew.
  void read_file() {
    std::ifstream in(file);
    std::string line;
    if (!std::getline(in, line) || line != title) return;
    while (known.size() < 100000 && std::getline(in, line)) {
      std::istringstream fields(line);
      Key key{};
      for (int64_t& v : key) fields >> v;
      std::string hex;
      cublasLtMatmulAlgo_t a{};
      if (!(fields >> hex) || !from_hex(hex, &a)) return;
      known[key] = a;
    }
  }
};

BlasLt::BlasLt(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlasLt::~BlasLt() = default;
size_t BlasLt::version() const { return impl_->f.version(); }

std::unique_ptr<BlasLt> BlasLt::open(const LibraryPlaces& places, const std::string& gpu,
                                     const std::string& cache_file) {
  void* library = open_library({"libcublasLt.so.13", "libcublasLt.so.12"}, places);
  auto impl = std::make_unique<Impl>();
  if (library == nullptr || !find_all(library, impl->f)) return nullptr;
  if (impl->f.create(&impl->handle) != CUBLAS_STATUS_SUCCESS) return nullptr;
  if (cudaMalloc(&impl->workspace, kWorkspace) != cudaSuccess) return nullptr;
  impl->title = "tern cublaslt 4 " + std::to_string(impl->f.version()) + " " + gpu;
  impl->file = cache_file;
  if (!cache_file.empty()) impl->read_file();
  return std::unique_ptr<BlasLt>(new BlasLt(std::move(impl)));
}

bool BlasLt::run(const Gemm& g, const void* weight, device::Stream stream, bool onto) {
  Impl& m = *impl_;
  if (reinterpret_cast<uintptr_t>(g.out) % 16 != 0 || g.out_row * (g.out_bf16 ? 2 : 4) % 16 != 0) return false;
  Plan& p = m.plan_for(g, weight, stream);
  if (m.multiply(g, weight, p, stream, onto ? 1.0f : 0.0f)) return true;
  // An algorithm out of a stale file may be refused: own kernels then, for these shapes from now on.
  p.usable = false;
  return false;
}

const float* BlasLt::run_halves(const Gemm& g, const void* weight, device::Stream stream) {
  Impl& m = *impl_;
  Gemm half = g;
  half.k = g.k / 2, half.out = m.workspace, half.out_row = g.n, half.out_bf16 = false;
  Plan& p = m.plan_halves(half, weight, stream);
  const bool moved = p.rows != g.rows;
  if (p.usable && (!moved || m.describe_halves(half, g.rows, p)) && m.multiply(half, weight, p, stream, 0.0f, 0)) {
    return static_cast<const float*>(m.workspace);
  }
  p.usable = false;
  return nullptr;
}

void BlasLt::meet(const Gemm& g, const void* weight, device::Stream stream) {
  if (impl_->timing) (void)impl_->plan_for(g, weight, stream);
}

bool BlasLt::settle() {
  impl_->timing = false;
  if (impl_->file.empty()) return false;
  const std::string next = impl_->file + ".new";
  {
    std::ofstream out(next);
    out << impl_->title << "\n";
    for (const auto& [key, p] : impl_->plans) {  // rows are those the algorithm was chosen for
      if (!p.usable) continue;
      for (const int64_t v : key) out << v << " ";
      out << to_hex(p.algorithm) << "\n";
    }
    if (!out.flush()) return false;
  }
  return std::rename(next.c_str(), impl_->file.c_str()) == 0;
}

}  // namespace tern::cuda
