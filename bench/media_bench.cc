// Preparing an A4 page (1,240 x 1,754 JPEG, half text, half photo-like) on one core: libjpeg's own decoding, ours, and
// everything after it (resize, normalise, patches), per model, type and instruction set; the fingerprint; whole
// requests through the media service with one thread and with two, and single pictures as a server meets them.
// `--write-page=FILE` writes the page (bench/media_compare.py).
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "content/media/service/media_service.h"
#include "image/codecs/decode.h"
#include "image/patches.h"
#include "image/smart_resize.h"

namespace tern::image {
namespace {

constexpr int kWidth = 1240, kHeight = 1754;

// Strokes of a few pixels on white in the upper half, smooth colours with a little noise in the lower one.
std::vector<uint8_t> draw_page(uint32_t seed) {
  std::vector<uint8_t> rgb(size_t{3} * kWidth * kHeight, 255);
  uint32_t state = seed;
  const auto random = [&](uint32_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
  };
  for (int line = 0; line < 38; ++line) {
    for (int glyph = 0; glyph < 90; ++glyph) {
      if (random(6) == 0) continue;
      for (int stroke = 0; stroke < 3; ++stroke) {
        const int x0 = 60 + glyph * 12 + static_cast<int>(random(8)),
                  y0 = 40 + line * 21 + static_cast<int>(random(12));
        const bool down = random(2) == 0;
        for (int i = 0; i < 9; ++i) {
          uint8_t* p = &rgb[(static_cast<size_t>(y0 + (down ? i : 0)) * kWidth + x0 + (down ? 0 : i)) * 3];
          p[0] = p[1] = p[2] = 20;
        }
      }
    }
  }
  for (int y = kHeight / 2; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      uint8_t* p = &rgb[(static_cast<size_t>(y) * kWidth + x) * 3];
      for (int c = 0; c < 3; ++c) {
        const double wave =
            std::sin(x * 0.01 * (c + 1)) + std::cos(y * 0.013 * (3 - c)) + std::sin((x + y) * 0.11) * 0.3;
        p[c] = static_cast<uint8_t>(std::clamp(128 + wave * 50 + random(16), 0.0, 255.0));
      }
    }
  }
  return rgb;
}

// The upper left corner of a picture of kWidth x kHeight, as a file.
std::vector<uint8_t> compress(std::vector<uint8_t> rgb, int width, int height) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 85, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = &rgb[size_t{3} * kWidth * info.next_scanline];
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::vector<uint8_t> out(bytes, bytes + size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return out;
}

const std::vector<uint8_t>& page() {
  static const std::vector<uint8_t> file = compress(draw_page(12345), kWidth, kHeight);
  return file;
}

void decode_libjpeg(benchmark::State& state) {
  std::vector<uint8_t> rgb(size_t{3} * kWidth * kHeight);
  for (auto _ : state) {
    jpeg_decompress_struct info;
    jpeg_error_mgr errors;
    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, page().data(), page().size());
    jpeg_read_header(&info, TRUE);
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = &rgb[size_t{3} * kWidth * info.output_scanline];
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    benchmark::DoNotOptimize(rgb.data());
  }
}
BENCHMARK(decode_libjpeg)->Name("decode/libjpeg")->Unit(benchmark::kMillisecond);

void decode_tern(benchmark::State& state) {
  for (auto _ : state) {
    auto image = decode_image(page(), {});
    TERN_CHECK(image.ok());
    benchmark::DoNotOptimize(image->data());
  }
}
BENCHMARK(decode_tern)->Name("decode/tern")->Unit(benchmark::kMillisecond);

void hash_pixels(benchmark::State& state) {
  const auto image = decode_image(page(), {});
  for (auto _ : state) {
    auto hash = fingerprint(*image, HashKey{1, 2});
    benchmark::DoNotOptimize(hash);
  }
}
BENCHMARK(hash_pixels)->Name("fingerprint")->Unit(benchmark::kMillisecond);

struct Case {
  const char* name;
  ResizeRule rule;
  int64_t low, high;
  PatchLayout layout;
  NormaliseRule normalise;
};
const Case kCases[] = {
    {"ernie", ResizeRule::kErnieVl, 3136, 4842768, {14, 2, 1, PatchOrder::kBlocks}, NormaliseRule::kFloat},
    {"paddleocr", ResizeRule::kPaddleOcrVl, 147384, 2822400, {14, 2, 1, PatchOrder::kRaster}, NormaliseRule::kDouble},
    {"paddleocr-1m",
     ResizeRule::kPaddleOcrVl,
     112896,
     1003520,
     {14, 2, 1, PatchOrder::kRaster},
     NormaliseRule::kDouble},
    {"qwen2.5-vl", ResizeRule::kQwenVl, 3136, 12845056, {14, 2, 2, PatchOrder::kBlocks}, NormaliseRule::kDouble},
};

void resize_only(benchmark::State& state, const Case& c, Isa isa) {
  const auto image = decode_image(page(), {});
  ResizeLimits limits;
  limits.min_pixels = c.low, limits.max_pixels = c.high;
  const auto size = smart_resize(c.rule, kWidth, kHeight, limits);
  for (auto _ : state) {
    auto rows =
        RowResizer::make(*image, static_cast<int>(size->width), static_cast<int>(size->height), Filter::kBicubic, isa);
    for (int y = 0; y < rows->height(); ++y) benchmark::DoNotOptimize(rows->next());
  }
}

template <class T>
void all_but_decoding(benchmark::State& state, const Case& c, Isa isa) {
  const auto image = decode_image(page(), {});
  const Normaliser normaliser(c.normalise, 1 / 255.0, kClipMean, kClipStd);
  std::vector<T> out;
  for (auto _ : state) {
    ResizeLimits limits;
    limits.min_pixels = c.low, limits.max_pixels = c.high;
    const auto size = smart_resize(c.rule, kWidth, kHeight, limits);
    const int w = static_cast<int>(size->width), h = static_cast<int>(size->height);
    const auto grid = patch_grid(c.layout, w, h);
    out.resize(patch_values(c.layout) * grid->h * grid->w);
    const auto status =
        make_patches(*image, w, h, Filter::kBicubic, c.layout, normaliser, kAllSlots, out.data(), out.size(), isa);
    TERN_CHECK(status.ok());
    benchmark::DoNotOptimize(out.data());
  }
}

content::MediaOptions service_options(const Case& c, int threads) {
  content::MediaOptions options;
  options.profile.resize_rule = c.rule;
  options.profile.image_limits.min_pixels = c.low;
  options.profile.image_limits.max_pixels = c.high;
  options.profile.normalise = c.normalise;
  options.profile.layout = c.layout;
  options.profile.mean = kClipMean;
  options.profile.std = kClipStd;
  options.threads = threads;
  options.background = false;
  options.processor_cache_gib = 0;
  return options;
}

void prepare_all(content::MediaService& service, std::vector<content::MediaPart> parts) {
  std::promise<void> done;
  const auto status = service.prepare(std::move(parts), 0, [&](auto results) {
    TERN_CHECK(results.ok());
    done.set_value();
  });
  TERN_CHECK(status.ok());
  done.get_future().wait();
}

std::vector<std::byte> bytes_of(const std::vector<uint8_t>& file) {
  const auto* begin = reinterpret_cast<const std::byte*>(file.data());
  return {begin, begin + file.size()};
}

// A request of 16 pages, all different files for the service, from bytes to patches, keys and budgets included.
void whole_requests(benchmark::State& state, const Case& c, int threads) {
  constexpr int kPages = 16;
  content::MediaOptions options = service_options(c, threads);
  options.fetcher = [](std::string_view, const fetch::FetchPolicy&) -> Expected<std::vector<std::byte>> {
    return bytes_of(page());
  };
  auto service = content::make_media_service(options);
  TERN_CHECK(service.ok());
  for (auto _ : state) {
    std::vector<content::MediaPart> parts(kPages);
    for (auto& part : parts) part.url = "data:";
    prepare_all(**service, std::move(parts));
  }
  state.counters["page"] =
      benchmark::Counter(kPages, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// One picture of 1,000 x 1,000 at a time, never the same twice, in bfloat16 and cached as by a server: real time is how
// long a request waits for its picture.
constexpr int kSingles = 40;
void single_pictures(benchmark::State& state, int threads) {
  static const auto files = [] {
    std::vector<std::vector<uint8_t>> made;
    for (uint32_t i = 0; i < kSingles; ++i) made.push_back(compress(draw_page(1 + 1000 * i), 1000, 1000));
    return made;
  }();
  content::MediaOptions options = service_options(kCases[1], threads);
  options.profile.bf16_patches = true;
  options.processor_cache_gib = -1;
  options.background = true;
  std::atomic<size_t> next{0};
  options.fetcher = [&](std::string_view, const fetch::FetchPolicy&) -> Expected<std::vector<std::byte>> {
    return bytes_of(files[next++ % files.size()]);
  };
  auto service = content::make_media_service(options);
  TERN_CHECK(service.ok());
  for (auto _ : state) {
    std::vector<content::MediaPart> parts(1);
    parts[0].url = "data:";
    prepare_all(**service, std::move(parts));
    state.PauseTiming();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    state.ResumeTiming();
  }
  const content::MediaStats stats = (*service)->stats();
  state.counters["decode_ms"] = static_cast<double>(stats.decode_ns) / 1e6 / static_cast<double>(next);
  state.counters["prepare_ms"] = static_cast<double>(stats.prepare_ns) / 1e6 / static_cast<double>(next);
}

int register_all() {
  for (const Case& c : kCases) {
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > detect_isa()) continue;
      const std::string tail = std::string(c.name) + "/" + isa_name(isa);
      const auto add = [&](const std::string& name, auto run) {
        benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMillisecond);
      };
      add("resize/" + tail, [&c, isa](benchmark::State& s) { resize_only(s, c, isa); });
      add("patches_f32/" + tail, [&c, isa](benchmark::State& s) { all_but_decoding<float>(s, c, isa); });
      add("patches_bf16/" + tail, [&c, isa](benchmark::State& s) { all_but_decoding<bf16>(s, c, isa); });
    }
    for (const int threads : {1, 2}) {
      const std::string name = std::string("service/") + c.name + "/" + std::to_string(threads);
      benchmark::RegisterBenchmark(name.c_str(), [&c, threads](benchmark::State& s) { whole_requests(s, c, threads); })
          ->Unit(benchmark::kMillisecond)
          ->MeasureProcessCPUTime()
          ->UseRealTime();
    }
  }
  for (const int threads : {1, 2, 4, 8, 16}) {
    const std::string name = "single/" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(), [threads](benchmark::State& s) { single_pictures(s, threads); })
        ->Unit(benchmark::kMillisecond)
        ->Iterations(kSingles)
        ->MeasureProcessCPUTime()
        ->UseRealTime();
  }
  return 0;
}
const int kRegistered = register_all();

int write_page(const char* path) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(page().data()), static_cast<std::streamsize>(page().size()));
  out.flush();
  return out ? 0 : 1;
}

}  // namespace
}  // namespace tern::image

int main(int argc, char** argv) {
  constexpr const char* kWrite = "--write-page=";
  if (argc == 2 && std::strncmp(argv[1], kWrite, std::strlen(kWrite)) == 0) {
    return tern::image::write_page(argv[1] + std::strlen(kWrite));
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
